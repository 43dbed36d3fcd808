"""Untaken verdicts in the streams, newest first: the merge of the streams, without the I/O.

A source has a stream in each shard. Their entries are merged by id, which begins with the time by
Redis's clock; entries of the same id by shard, then source. An entry may hold thousands of
verdicts: a page may end within an entry, and its cursor says after which verdict.
"""

import re
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Protocol

from acker_redis import Entry, Outcome
from acker_redis.errors import ConfigError, SchemaError
from acker_redis.operate import NAME, AskAll, Flow, ShardKeys, parse_entry

STREAMS = 256
"""Maximum number of streams that a page reads; of a source it reads all shards."""
ENTRIES = 256
"""Approximate number of entries that one round of calls reads."""
FIRST = 16
"""Entries of a stream in the first read: their sizes are not known yet."""
CHUNK = 1024 * 1024
"""Approximate number of bytes that one call reads of a stream."""
MAX_ENTRIES = 1024
"""Approximate maximum of entries read for a page."""
MAX_BYTES = 8 * CHUNK
"""Approximate maximum of their bytes."""
MAX_LOOKED = 20_000
"""Maximum number of verdicts that are examined for a page."""
ALL_TOLD = 99_999
"""In a cursor: all verdicts of the entry were returned, regardless of their number."""

_TEXT = re.compile(rf"([0-9]{{1,15}})-([0-9]{{1,15}}):([0-9]{{1,4}}):({NAME}):([0-9]{{1,5}})")
Key = tuple[int, int, int, str]
"""Time and number of an entry's id, shard and source: the sort key of the merge."""


@dataclass(frozen=True, slots=True)
class After:
    """The position after which a page begins; it has a text form for URLs.

    >>> str(After.parse("1700000000000-0:3:shop:17"))
    '1700000000000-0:3:shop:17'
    """

    key: Key
    told: int
    """Verdicts of this entry that were returned."""

    def __str__(self) -> str:
        ms, number, shard, source = self.key
        return f"{ms}-{number}:{shard}:{source}:{self.told}"

    @classmethod
    def parse(cls, text: str) -> "After":
        """Parse the text form. Raise ConfigError for a text of no page."""
        match = _TEXT.fullmatch(text)
        if not match:
            raise ConfigError("before is invalid; give the next of a page of outcomes")
        ms, number, shard, source, told = match.groups()
        return cls((int(ms), int(number), int(shard), source), int(told))


@dataclass(frozen=True, slots=True)
class ReadVerdict:
    """A verdict, and its entry."""

    outcome: Outcome
    entry: Entry
    source: str


@dataclass(frozen=True, slots=True)
class VerdictPage:
    """Some of the verdicts, newest first."""

    verdicts: tuple[ReadVerdict, ...]
    next: After | None
    """None: there are no older ones."""
    looked: int
    """Verdicts that were examined; an entry that cannot match counts as one."""
    unreadable: int
    """Entries that no script has written."""
    passed: int = 0
    """Verdicts between the begin and the end of the page, examined or not."""


class Filter(Protocol):
    """A filter of verdicts."""

    def has(self, outcome: Outcome) -> bool:
        """Return whether a verdict matches."""

    def may_have(self, fields: Mapping[bytes, bytes]) -> bool:
        """Return whether a verdict of an entry may match, by the fields of the entry."""


@dataclass(frozen=True, slots=True)
class Meant:
    """A filter of verdicts; None matches any."""

    verdict: str | None = None
    reason: str | None = None

    def has(self, outcome: Outcome) -> bool:
        """Return whether a verdict matches."""
        return self._is(outcome.verdict, outcome.reason)

    def may_have(self, fields: Mapping[bytes, bytes]) -> bool:
        """Return whether a verdict of an entry may match, by the fields of the entry."""
        if fields.get(b"verdict") == b"mixed":
            return self._is("ack", "completed") or self._is("nack", "expired")
        verdict, reason = (fields.get(name, b"") for name in (b"verdict", b"reason"))
        return self._is(verdict.decode(errors="replace"), reason.decode(errors="replace"))

    def _is(self, verdict: str, reason: str) -> bool:
        return self.verdict in (None, verdict) and self.reason in (None, reason)


def newest(
    shards: Sequence[ShardKeys],
    sources: Sequence[str],
    limit: int,
    before: After | None = None,
    meant: Filter | None = None,
    edges: tuple[str, ...] = (),
) -> Flow[VerdictPage]:
    """Return up to ``limit`` verdicts of these sources that match; ``edges`` of the namespace."""
    meant = meant or Meant()
    streams = [_Stream(keys, source, before) for keys in shards for source in sources]
    found: list[ReadVerdict] = []
    at, looked, passed, unreadable = before, 0, 0, 0
    read, size, step = 0, 0, min(limit, FIRST)
    while len(found) < limit and looked < MAX_LOOKED:
        hungry = [stream for stream in streams if not (stream.entries or stream.through)]
        if hungry:
            if read >= MAX_ENTRIES or size >= MAX_BYTES:
                break
            got, weight = yield from _read(hungry, step)
            read, size = read + got, size + weight
            # Perhaps few of them match, but they may be large.
            step = max(1, min(2 * step, CHUNK * got // max(1, weight)))
            continue
        heads = [stream for stream in streams if stream.entries]
        if not heads:
            return VerdictPage(tuple(found), None, looked, unreadable, passed)
        stream = max(heads, key=lambda each: each.entries[0][0])
        key, fields = stream.entries[0]
        told = before.told if before and key == before.key else 0
        if not meant.may_have(fields):
            stream.entries.popleft()
            at, looked = After(key, ALL_TOLD), looked + 1
            passed += max(0, _count(fields) - told)
            continue
        try:
            id_ = f"{key[0]}-{key[1]}".encode()
            entry = parse_entry(stream.keys.shard, id_, fields, edges)
            for outcome in islice(entry, told, None):
                if len(found) == limit or looked == MAX_LOOKED:
                    break
                told, looked, passed = told + 1, looked + 1, passed + 1
                if meant.has(outcome):
                    found.append(ReadVerdict(outcome, entry, stream.source))
            else:
                stream.entries.popleft()
        except SchemaError:
            stream.entries.popleft()  # another program has written it
            unreadable, told = unreadable + 1, ALL_TOLD
        at = After(key, told)
    return VerdictPage(tuple(found), at, looked, unreadable, passed)


def _count(fields: Mapping[bytes, bytes]) -> int:
    """Return the number of verdicts of an entry; 1 if it has none that a script writes."""
    text = fields.get(b"n", b"")
    return int(text) if text.isdigit() and len(text) < 10 else 1


def choose(backlog: dict[str, int], shards: int) -> list[str]:
    """Return the sources with the most untaken verdicts, at most as many as a page can read."""
    waiting = sorted((name for name in backlog if backlog[name] > 0), key=lambda n: -backlog[n])
    return waiting[: max(1, STREAMS // shards)]


@dataclass
class _Stream:
    keys: ShardKeys
    source: str
    before: After | None
    entries: deque[tuple[Key, dict[bytes, bytes]]] = field(default_factory=deque)
    """With their fields, as they were read."""
    through: bool = False
    last: str = "+"

    def __post_init__(self) -> None:
        if self.before:
            ms, number, *place = self.before.key
            # Of one id, those of smaller shards and sources come later.
            passed = [self.keys.shard, self.source] > place
            self.last = f"{'(' if passed else ''}{ms}-{number}"


def _read(streams: Sequence[_Stream], step: int) -> Flow[tuple[int, int]]:
    """Read more of some streams; return the numbers of entries and of bytes."""
    count = max(1, min(step, ENTRIES // len(streams)))
    replies = yield AskAll(
        tuple(
            ("XREVRANGE", each.keys.outcomes(each.source), each.last, "-", "COUNT", count)
            for each in streams
        )
    )
    got = size = 0
    for stream, reply in zip(streams, replies, strict=True):
        got += len(reply)
        stream.through = len(reply) < count
        if reply:
            stream.last = f"({reply[-1][0].decode()}"
        for id_, flat in reply:
            fields = _fields(flat)
            size += sum(map(len, fields.values()))
            ms, _, number = id_.decode().partition("-")
            key = (int(ms), int(number), stream.keys.shard, stream.source)
            stream.entries.append((key, fields))
    return got, size


def _fields(flat: Any) -> dict[bytes, bytes]:
    return flat if isinstance(flat, dict) else dict(zip(flat[::2], flat[1::2], strict=False))


def oldest(shards: Sequence[ShardKeys], sources: Sequence[str]) -> Flow[dict[str, int]]:
    """Return the time of the oldest untaken verdict by source, in ms since 1970."""
    streams = [(source, keys.outcomes(source)) for source in sources for keys in shards]
    if not streams:
        return {}
    replies = yield AskAll(tuple(("XRANGE", key, "-", "+", "COUNT", 1) for _, key in streams))
    found: dict[str, int] = {}
    for (source, _), reply in zip(streams, replies, strict=True):
        for id_, _ in reply:
            at = int(id_.partition(b"-")[0])
            found[source] = min(found.get(source, at), at)
    return found
