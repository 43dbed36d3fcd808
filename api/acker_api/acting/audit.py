"""The audit log: actions and refusals, in streams of Redis, and in the log of the process.

Each namespace has a stream of its own (``acker:audit:<namespace>``), so the operators of one
namespace cannot push out the entries of another. Requests that were refused outside of any
namespace that exists are in the shared stream ``acker:audit``.

An entry is written before an action, with the result ``begun``; without the entry the action is not
done. After the action an entry with its result replaces the first. An entry that stays ``begun``
means that the process or Redis ended in between, and the result is unknown. An action that changed
nothing leaves no entry. Refusals and failures of a known caller are written too, at a limited rate.
All of it, and refusals of unknown callers, is in the log of the process as well, by the logger
``acker_api.audit``.

Invariant: an entry is kept for ``KEPT_SURELY`` at least. Entries go when they are older than the
setting ``audit_days``, or, in a stream with more than ``MAX_ENTRIES``, older than ``KEPT_SURELY``.
If a stream is full of younger entries, actions in its namespace are refused: nobody can erase
their own tracks by many actions.
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
from acker_redis.flows.names import valid
from acker_redis.logs import Event
from acker_redis.protocol.keys import AUDIT, AUDITED, NAMESPACES, audit_of

log = logging.getLogger("acker_api.audit")

DAY_MS = 86_400_000
KEPT_SURELY = 7 * DAY_MS
"""Milliseconds for which an entry is kept, however many follow it."""
MAX_ENTRIES = 50_000
"""Entries of a stream, from which on older ones than KEPT_SURELY make room for new ones."""
RESERVE = 1000
"""Entries beyond MAX_ENTRIES for admins: operators who fill a stream do not shut them out."""
DAILY = MAX_ENTRIES // 2 // 7
"""Actions a day of one person in one namespace: alone they fill half of its stream in 7 days."""
MAX_WITH_NOTES = MAX_ENTRIES // 2
"""Entries of a stream from which on refusals are not added: they cannot fill it."""
REFUSALS = 30
"""Refusals a minute of one person that go into the stream."""
UNCHANGED = "unchanged"
"""The result of an action that changed nothing; it is in the log only."""
LONGEST = 300
"""Characters of a text in an entry."""

_TEXTS = ("who", "action", "namespace", "target", "result", "why")
State = Mapping[str, Any] | None


@dataclass(frozen=True)
class Deed:
    """What somebody does or wants to."""

    who: str
    action: str
    namespace: str = ""
    target: str = ""
    """What of the namespace: an anchor, a filter."""


@dataclass(frozen=True)
class Record:
    """An entry of the audit log."""

    id: str
    at_ms: int
    """When it was written, by Redis's clock, in ms since 1970."""
    deed: Deed
    result: str
    """begun, done, refused or failed."""
    why: str = ""
    before: State = None
    after: State = None


@dataclass(frozen=True)
class Begun:
    """A deed under way, and its entry."""

    deed: Deed
    before: State
    id: str


class Audit:
    """Writes and reads the audit log; entries are kept for ``days`` at most."""

    def __init__(self, reader: Reader, days: int) -> None:
        self._reader = reader
        self._kept_ms = days * DAY_MS
        self._surely_ms = min(KEPT_SURELY, self._kept_ms)
        self._refusals = Limiter(REFUSALS)
        self._shares = Limiter(DAILY, seconds=DAY_MS / 1000)

    async def begin(self, who: Who, deed: Deed, before: State) -> Begun:
        """Write that an action begins. Raises AckerError if that failed: do not act then.

        Raises Problem (429) if the stream of the namespace is full of entries that must be kept, or
        this person has used up a share of it.
        """
        key = audit_of(deed.namespace)
        # Not of admins: they must be able to act when it matters, and have a reserve.
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

        It raises nothing: if the result cannot be written, ``begun`` stays.
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
        """Write that an action was not begun. It raises nothing.

        ``away``: Redis does not answer; only the log gets it, and the caller does not wait longer.
        """
        await self._note(deed, "failed", why, only_log=away)

    async def refused(
        self, who: Who | None, action: str, namespace: str, target: str, problem: Problem
    ) -> None:
        """Write that somebody may not do something. It raises nothing."""
        deed = Deed(who.name if who else "", action, namespace, target)
        await self._note(deed, "refused", f"{problem.title}: {problem.detail}", only_log=not who)

    async def read(self, who: Who, limit: int, before: str = "") -> tuple[list[Record], str | None]:
        """The newest entries that ``who`` may see, and the ``before`` of the next page.

        Only streams of namespaces that they see are read: neither the entries nor the cursor tell
        anything of other namespaces. The shared stream is for those who see all.
        """
        begin = audit_page.parse(before) if before else None
        members = await self._reader.ask("SMEMBERS", AUDITED)
        names = [name for name in valid(members) if who.sees(name)]
        streams = ["", *names] if who.everywhere else names
        found = await self._reader.drive(audit_page.newest(streams, limit, begin))
        next_ = audit_page.cursor(found[-1].key) if len(found) == limit else None
        return [_parse(each) for each in found], next_

    async def _note(self, deed: Deed, result: str, why: str, only_log: bool = False) -> None:
        _log(deed, result, why)
        # Many refusals could fill the stream.
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
        """Let a stream have ``most`` entries; False if too many of them must be kept.

        ``newest`` is the id of an entry that was just written: it tells the time of Redis.
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
        """Remove the entries that are too old, and later the stream, if nothing is written."""
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
    """The stream of a namespace has no room for an action, or none for this person's."""
    return Problem(
        429,
        "audit-full",
        "Too many requests",
        f"the audit log of the namespace is full: entries are kept for {surely_ms // DAY_MS} days; "
        "use fewer actions, such as one that fails all trees that match",
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
    """An entry, also one that another program has written."""
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
