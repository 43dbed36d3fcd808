"""The audit log: actions and refusals, in streams of Redis, and in the log of the process.

Each namespace has its own stream (``acker:audit:<namespace>``), so the operators of one namespace
cannot push out the entries of another. The shared stream ``acker:audit`` has the refused requests
that belong to no existing namespace.

An entry with the result ``begun`` is written before an action; if that fails, the action is not
executed. After the action, an entry with its result replaces the first. An entry that stays
``begun`` means that the process or Redis ended in between, and the result is unknown. An action
that changed nothing leaves no entry. Refusals and failures of a known caller are written too, at a
limited rate. The logger ``acker_api.audit`` logs all of it, and refusals of unknown callers.

Invariant: an entry is kept for ``KEPT_SURELY`` at least. Entries are deleted when they are older
than the setting ``audit_days``, or, in a stream with more than ``MAX_ENTRIES``, older than
``KEPT_SURELY``. If a stream is full of younger entries, actions in its namespace are refused, so
no caller can push out its own entries.
"""

import json
import logging
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from acker_api.acting import audit_page
from acker_api.acting.audit_page import Found
from acker_api.auth.limits import Limiter
from acker_api.auth.tokens import Role, Who
from acker_api.problems import Problem
from acker_api.reading.reader import Reader
from acker_redis.errors import AckerError
from acker_redis.operate import AUDIT, AUDITED, NAMESPACES, Event, audit_of, valid_names

log = logging.getLogger("acker_api.audit")

DAY_MS = 86_400_000
KEPT_SURELY = 7 * DAY_MS
"""Milliseconds for which an entry is kept, regardless of the number of later entries."""
MAX_ENTRIES = 50_000
"""Entries of a stream above which entries older than KEPT_SURELY are deleted to make room."""
RESERVE = 1000
"""Entries beyond MAX_ENTRIES for admins, so operators who fill a stream do not lock them out."""
DAILY = MAX_ENTRIES // 2 // 7
"""Actions per day of one operator in one namespace: they fill half of its stream in 7 days."""
MAX_WITH_NOTES = MAX_ENTRIES // 2
"""Entries of a stream above which refusals are not added, so that they cannot fill it."""
REFUSALS = 30
"""Refusals per minute of one caller that are added to the stream."""
UNCHANGED = "unchanged"
"""Result of an action that changed nothing; only the log of the process has it."""
LONGEST = 300
"""Maximum length of a text in an entry, in characters."""

_TEXTS = ("who", "action", "namespace", "target", "result", "why")
State = Mapping[str, Any] | None


@dataclass(frozen=True)
class Deed:
    """An action, or an attempt: the caller, the action and its target."""

    who: str
    action: str
    namespace: str = ""
    target: str = ""
    """The part of the namespace: an anchor, or a filter."""


@dataclass(frozen=True)
class Record:
    """An entry of the audit log."""

    id: str
    at_ms: int
    """Time of the entry by Redis's clock, in ms since 1970."""
    deed: Deed
    result: str
    """begun, done, refused or failed."""
    why: str = ""
    before: State = None
    after: State = None


@dataclass(frozen=True)
class Begun:
    """A deed in progress, and its entry."""

    deed: Deed
    before: State
    id: str


class Audit:
    """The audit log, to write and read; an entry is kept for ``days`` at most."""

    def __init__(self, reader: Reader, days: int) -> None:
        self._reader = reader
        self._kept_ms = days * DAY_MS
        self._surely_ms = min(KEPT_SURELY, self._kept_ms)
        self._refusals = Limiter(REFUSALS)
        self._shares = Limiter(DAILY, seconds=DAY_MS / 1000)

    async def begin(self, who: Who, deed: Deed, before: State) -> Begun:
        """Write that an action begins. Raise AckerError if that failed: then do not act.

        Raise Problem (429) if the stream of the namespace is full of entries that must be kept, or
        this caller has used up its share of the stream.
        """
        key = audit_of(deed.namespace)
        # Admins have no share: they must be able to act when it matters, and have a reserve.
        if not who.may(Role.ADMIN):
            wait = self._shares.wait(f"{deed.namespace} {deed.who}")
            if wait:
                raise full(self._surely_ms, math.ceil(wait))
        begun = Begun(deed, before, await self._write(key, deed, "begun", before=before))
        most = MAX_ENTRIES + (RESERVE if who.may(Role.ADMIN) else 0)
        try:
            await self._reader.command("SADD", AUDITED, deed.namespace)
            room = await self._make_room(key, begun.id, most)
        except AckerError:
            await self._remove(key, begun.id)
            raise
        if not room:
            await self._remove(key, begun.id)
            raise full(self._surely_ms)
        return begun

    async def end(self, begun: Begun, result: str, after: State = None, why: str = "") -> None:
        """Write the result of an action; with the result ``unchanged`` remove its entry.

        Raises nothing: if the result cannot be written, the entry stays ``begun``.
        """
        _log(begun.deed, result, why)
        key = audit_of(begun.deed.namespace)
        try:
            if result != UNCHANGED:
                id_ = await self._write(key, begun.deed, result, begun.before, after, why)
                await self._forget_old(key, id_)
        except AckerError as error:
            log.warning(Event("audit_incomplete", entry=begun.id, why=str(error)))
        else:
            await self._remove(key, begun.id)

    async def failed(self, deed: Deed, why: str, away: bool = False) -> None:
        """Write that an action failed before it began. Raises nothing.

        ``away``: Redis does not answer, so only the log gets it, and the caller waits no longer.
        """
        await self._note(deed, "failed", why, only_log=away)

    async def refused(
        self, who: Who | None, action: str, namespace: str, target: str, problem: Problem
    ) -> None:
        """Write that a caller was refused. Raises nothing."""
        deed = Deed(who.name if who else "", action, namespace, target)
        await self._note(deed, "refused", f"{problem.title}: {problem.detail}", only_log=not who)

    async def read(self, who: Who, limit: int, before: str = "") -> tuple[list[Record], str | None]:
        """Return the newest entries that ``who`` may see, and the ``before`` of the next page.

        Only the streams of these namespaces are read, so neither the entries nor the cursor reveal
        anything of other namespaces. The shared stream is for callers who may see all.
        """
        begin = audit_page.parse(before) if before else None
        members = await self._reader.ask("SMEMBERS", AUDITED)
        names = [name for name in valid_names(members) if who.sees(name)]
        streams = ["", *names] if who.everywhere else names
        found = await self._reader.scan_flow(audit_page.newest(streams, limit, begin))
        next_ = audit_page.cursor(found[-1].key) if len(found) == limit else None
        return [_parse(each) for each in found], next_

    async def _note(self, deed: Deed, result: str, why: str, only_log: bool = False) -> None:
        _log(deed, result, why)
        # A rate limit: many refusals could fill the stream.
        if only_log or self._refusals.wait(deed.who):
            return
        try:
            there = deed.namespace and await self._reader.command(
                "SISMEMBER", NAMESPACES, _short(deed.namespace)
            )
            key = audit_of(deed.namespace) if there else AUDIT
            id_ = await self._write(key, deed, result, why=why)
            if there:
                await self._reader.command("SADD", AUDITED, deed.namespace)
            if not await self._make_room(key, id_, MAX_WITH_NOTES):
                await self._remove(key, id_)
            await self._forget_old(key, id_)
        except AckerError as error:
            log.warning(Event("audit_incomplete", entry="", why=str(error)))

    async def _make_room(self, key: str, newest: str, most: int) -> bool:
        """Delete old entries until a stream has ``most``; return False if too many must be kept.

        ``newest`` is the id of an entry that was just written: it contains Redis's time.
        """
        excess: int = await self._reader.command("XLEN", key) - most
        if excess <= 0:
            return True
        until = _ms(newest) - self._surely_ms
        old = await self._reader.command("XRANGE", key, "-", until, "COUNT", min(excess, 1000))
        if old:
            await self._reader.command("XDEL", key, *(id_ for id_, _ in old))
        return len(old) == excess

    async def _forget_old(self, key: str, newest: str) -> None:
        """Delete entries that are too old; the stream expires later, if nothing more is written."""
        await self._reader.command("XTRIM", key, "MINID", max(0, _ms(newest) - self._kept_ms))
        await self._reader.command("EXPIRE", key, self._kept_ms // 1000 + 1)

    async def _remove(self, key: str, id_: str) -> None:
        try:
            await self._reader.command("XDEL", key, id_)
        except AckerError as error:
            log.warning(Event("audit_incomplete", entry=id_, why=str(error)))

    async def _write(
        self,
        key: str,
        deed: Deed,
        result: str,
        before: State = None,
        after: State = None,
        why: str = "",
    ) -> str:
        texts = (deed.who, deed.action, deed.namespace, deed.target, result, why)
        fields = [
            word
            for name, text in zip(_TEXTS, texts, strict=True)
            for word in (name, _short(text))
            if text
        ]
        for name, state in (("before", before), ("after", after)):
            if state is not None:
                fields += [name, json.dumps(state, ensure_ascii=False, separators=(",", ":"))]
        id_: bytes = await self._reader.command("XADD", key, "*", *fields)
        return id_.decode()


def full(surely_ms: int, retry_after: int = 3600) -> Problem:
    """Return the problem of a stream without room for an action, or for one of this caller."""
    return Problem(
        429,
        "audit-full",
        "Too Many Requests",
        f"the audit log of the namespace is full: entries are kept for {surely_ms // DAY_MS} days; "
        "retry later, or act on many trees at once: fail all that match",
        headers={"Retry-After": str(retry_after)},
    )


def _ms(id_: str) -> int:
    return int(id_.partition("-")[0])


def _log(deed: Deed, result: str, why: str) -> None:
    event = Event(
        "audit",
        who=deed.who,
        action=deed.action,
        namespace=_short(deed.namespace),
        target=_short(deed.target),
        result=result,
        why=_short(why),
    )
    log.info(event)


def _short(text: str) -> str:
    text = text.encode(errors="replace").decode()
    return text if len(text) <= LONGEST else text[: LONGEST - 1] + "…"


def _parse(found: Found) -> Record:
    """Parse an entry; another program may have written it."""
    flat = found.fields
    pairs = flat if isinstance(flat, dict) else dict(zip(flat[::2], flat[1::2], strict=False))
    texts = {k.decode(errors="replace"): v.decode(errors="replace") for k, v in pairs.items()}
    at_ms, _, namespace = found.key
    who, action, named, target = (texts.get(name, "") for name in _TEXTS[:4])
    deed = Deed(who, action, namespace or named, target)
    result, why = texts.get("result", ""), texts.get("why", "")
    before, after = _state(texts, "before"), _state(texts, "after")
    return Record(found.id, at_ms, deed, result, why, before, after)


def _state(texts: Mapping[str, str], name: str) -> State:
    try:
        state = json.loads(texts.get(name, "null"))
    except ValueError:
        return None
    return state if isinstance(state, dict) else None
