"""What was done by whom: the stream ``acker:audit`` of Redis, and the log of the process.

An entry is written before anything is done, with the result ``begun``; without it nothing is done.
When it is done the entry with the result takes its place. So one that stays ``begun`` says that
nobody knows: the process or Redis ended in between. What somebody known was refused is written too,
but not without end: refusals could push out what was done. All of it, and what strangers were
refused, is in the log as well, by the logger ``acker_api.audit``.
"""

import json
import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from acker_api.limits import Limiter
from acker_api.problems import Problem
from acker_api.reader import Reader
from acker_api.tokens import Who
from acker_redis.errors import AckerError, ConfigError
from acker_redis.keys import AUDIT
from acker_redis.logs import Event

log = logging.getLogger("acker_api.audit")

KEPT = 10_000
"""Entries that the stream has at most, about."""
REFUSALS = 30
"""Refusals a minute of one person that go into the stream."""
LONGEST = 300
"""Characters of a text in an entry."""

_ID = re.compile(r"[0-9]{1,15}-[0-9]{1,15}", re.ASCII)
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
    """Writes and reads the audit log."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._refusals = Limiter(REFUSALS)

    async def begin(self, deed: Deed, before: State) -> Begun:
        """Write that something begins; an AckerError if that cannot be: then it must not."""
        return Begun(deed, before, await self._write(deed, "begun", before=before))

    async def end(self, begun: Begun, result: str, after: State = None, why: str = "") -> None:
        """Write what came of it. It raises nothing: if it cannot be written, ``begun`` stays."""
        _log(begun.deed, result, why)
        try:
            await self._write(begun.deed, result, begun.before, after, why)
            await self._reader.command("XDEL", AUDIT, begun.id)
        except AckerError as error:
            log.warning(Event("audit_incomplete", entry=begun.id, why=str(error)))

    async def failed(self, deed: Deed, why: str, away: bool = False) -> None:
        """Write that something was not begun because it cannot be. It raises nothing.

        ``away``: Redis does not answer; only the log is told, and nobody waits for longer.
        """
        await self._note(deed, "failed", why, only_log=away)

    async def refused(
        self, who: Who | None, action: str, namespace: str, target: str, problem: Problem
    ) -> None:
        """Write that somebody may not do something. It raises nothing."""
        deed = Deed(who.name if who else "", action, namespace, target)
        await self._note(deed, "refused", f"{problem.title}: {problem.detail}", only_log=not who)

    async def read(self, limit: int, before: str = "") -> tuple[list[Record], str | None]:
        """The newest entries, newest first, and what to give as ``before`` for those behind."""
        if before and not _ID.fullmatch(before):
            raise ConfigError("before is a text that a page of the audit log gave")
        last = f"({before}" if before else "+"
        found = await self._reader.ask("XREVRANGE", AUDIT, last, "-", "COUNT", limit)
        records = [_parse(id_.decode(), fields) for id_, fields in found]
        return records, records[-1].id if len(records) == limit else None

    async def _note(self, deed: Deed, result: str, why: str, only_log: bool = False) -> None:
        _log(deed, result, why)
        # Who is nobody, or asks without end, could push out all that was done.
        if only_log or self._refusals.wait(deed.who):
            return
        try:
            await self._write(deed, result, why=why)
        except AckerError as error:
            log.warning(Event("audit_incomplete", entry="", why=str(error)))

    async def _write(
        self, deed: Deed, result: str, before: State = None, after: State = None, why: str = ""
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
        head = ("XADD", AUDIT, "MAXLEN", "~", KEPT, "*")
        id_: bytes = await self._reader.command(*head, *fields)
        return id_.decode()


def _log(deed: Deed, result: str, why: str) -> None:
    event = Event(
        "audit",
        who=deed.who,
        action=deed.action,
        namespace=deed.namespace,
        target=_short(deed.target),
        result=result,
        why=_short(why),
    )
    log.info(event)


def _short(text: str) -> str:
    text = text.encode(errors="replace").decode()
    return text if len(text) <= LONGEST else text[: LONGEST - 1] + "…"


def _parse(id_: str, flat: Any) -> Record:
    """An entry, also one that somebody else has put there."""
    pairs = flat if isinstance(flat, dict) else dict(zip(flat[::2], flat[1::2], strict=False))
    texts = {k.decode(errors="replace"): v.decode(errors="replace") for k, v in pairs.items()}
    deed = Deed(*(texts.get(name, "") for name in ("who", "action", "namespace", "target")))
    at_ms = int(id_.partition("-")[0])
    result, why = texts.get("result", ""), texts.get("why", "")
    return Record(id_, at_ms, deed, result, why, _state(texts, "before"), _state(texts, "after"))


def _state(texts: Mapping[str, str], name: str) -> State:
    try:
        state = json.loads(texts.get(name, "null"))
    except ValueError:
        return None
    return state if isinstance(state, dict) else None
