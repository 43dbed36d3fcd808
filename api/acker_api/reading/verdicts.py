"""Verdicts that wait in the streams, the newest first: the walk over streams, without the I/O.

A task has a stream in each shard. Their entries are merged by id, which begins with the time by
Redis's clock; at one id by shard, then task. An entry may hold thousands of verdicts: a page may
end within one, and its cursor says behind which.
"""

import re
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from acker_redis.errors import ConfigError
from acker_redis.flows.steps import AskAll, Flow
from acker_redis.protocol.keys import ShardKeys
from acker_redis.protocol.outcome import Entry, Outcome, parse_entry

STREAMS = 256
"""Streams that a page looks at; of a task all of its shards."""
ENTRIES = 256
"""Entries that are read by one round of calls, about."""
FIRST = 16
"""Entries of a stream that are read first: nobody knows yet how large they are."""
CHUNK = 1024 * 1024
"""Bytes that are read of a stream by one call, about."""
MAX_ENTRIES = 1024
"""Entries that are read for a page, about."""
MAX_BYTES = 8 * CHUNK
"""Their bytes, about."""
MAX_LOOKED = 20_000
"""Verdicts that are looked at for a page."""
ALL_TOLD = 99_999
"""In a cursor: an entry is behind, however many verdicts it has."""

_TEXT = re.compile(r"([0-9]{1,15})-([0-9]{1,15}):([0-9]{1,4}):([A-Za-z0-9_.-]{1,64}):([0-9]{1,5})")
Key = tuple[int, int, int, str]
"""Time and number of an entry, shard and task: by this they are merged."""


@dataclass(frozen=True, slots=True)
class Behind:
    """Where a walk goes on; a text for URLs.

    >>> str(Behind.parse("1700000000000-0:3:shop:17"))
    '1700000000000-0:3:shop:17'
    """

    key: Key
    told: int
    """Verdicts of this entry that were told."""

    def __str__(self) -> str:
        ms, number, shard, task = self.key
        return f"{ms}-{number}:{shard}:{task}:{self.told}"

    @classmethod
    def parse(cls, text: str) -> "Behind":
        """Read the text form; ConfigError for what no page has given."""
        match = _TEXT.fullmatch(text)
        if not match:
            raise ConfigError("before is a text that a page of outcomes gave")
        ms, number, shard, task, told = match.groups()
        return cls((int(ms), int(number), int(shard), task), int(told))


@dataclass(frozen=True, slots=True)
class Told:
    """A verdict, and where it stands."""

    outcome: Outcome
    entry: Entry
    task: str


@dataclass(frozen=True, slots=True)
class VerdictPage:
    """Some of the verdicts, newest first."""

    verdicts: tuple[Told, ...]
    next: Behind | None
    """None: there are no older ones."""
    looked: int
    """Verdicts that were looked at; of an entry in which none can be meant, one."""
    unreadable: int
    """Entries that no script has written."""


@dataclass(frozen=True, slots=True)
class Meant:
    """Which verdicts are meant; None means any."""

    verdict: str | None = None
    reason: str | None = None

    def has(self, outcome: Outcome) -> bool:
        """Whether a verdict is."""
        return self._is(outcome.verdict, outcome.reason)

    def may_have(self, fields: Mapping[bytes, bytes]) -> bool:
        """Whether one of an entry's may be, by what its fields say of all of them."""
        if fields.get(b"verdict") == b"mixed":
            return self._is("ack", "completed") or self._is("nack", "expired")
        verdict, reason = (fields.get(name, b"") for name in (b"verdict", b"reason"))
        return self._is(verdict.decode(errors="replace"), reason.decode(errors="replace"))

    def _is(self, verdict: str, reason: str) -> bool:
        return self.verdict in (None, verdict) and self.reason in (None, reason)


def newest(
    shards: Sequence[ShardKeys],
    tasks: Sequence[str],
    limit: int,
    before: Behind | None = None,
    meant: Meant | None = None,
) -> Flow[VerdictPage]:
    """Up to ``limit`` verdicts that are meant, of these tasks."""
    meant = meant or Meant()
    streams = [_Stream(keys, task, before) for keys in shards for task in tasks]
    found: list[Told] = []
    at, looked, read, size, unreadable, step = before, 0, 0, 0, 0, min(limit, FIRST)
    while len(found) < limit and looked < MAX_LOOKED:
        hungry = [stream for stream in streams if not (stream.entries or stream.through)]
        if hungry:
            if read >= MAX_ENTRIES or size >= MAX_BYTES:
                break
            got, weight = yield from _read(hungry, step)
            read, size = read + got, size + weight
            # Few of them match, perhaps; but they may be large.
            step = max(1, min(2 * step, CHUNK * got // max(1, weight)))
            continue
        heads = [stream for stream in streams if stream.entries]
        if not heads:
            return VerdictPage(tuple(found), None, looked, unreadable)
        stream = max(heads, key=lambda each: each.entries[0][0])
        key, fields = stream.entries[0]
        told = before.told if before and key == before.key else 0
        if not meant.may_have(fields):
            stream.entries.popleft()
            at, looked = Behind(key, ALL_TOLD), looked + 1
            continue
        try:
            entry = parse_entry(stream.keys.shard, f"{key[0]}-{key[1]}".encode(), fields)
            for outcome in islice(entry, told, None):
                if len(found) == limit or looked == MAX_LOOKED:
                    break
                told, looked = told + 1, looked + 1
                if meant.has(_sound(outcome)):
                    found.append(Told(outcome, entry, stream.task))
            else:
                stream.entries.popleft()
        except (KeyError, ValueError, TypeError, AttributeError):
            stream.entries.popleft()  # somebody has put it there past the scripts
            unreadable, told = unreadable + 1, ALL_TOLD
        at = Behind(key, told)
    return VerdictPage(tuple(found), at, looked, unreadable)


def _sound(outcome: Outcome) -> Outcome:
    """The verdict; TypeError for what no script writes."""
    texts = (outcome.source_id, outcome.why)
    if not all(isinstance(text, str) for text in texts) or type(outcome.age_ms) is not int:
        raise TypeError("a text is none, or an age no number")
    return outcome


def choose(backlog: dict[str, int], shards: int) -> list[str]:
    """The tasks for which most waits, so many that their streams may be looked at."""
    waiting = sorted((name for name in backlog if backlog[name] > 0), key=lambda n: -backlog[n])
    return waiting[: max(1, STREAMS // shards)]


@dataclass
class _Stream:
    keys: ShardKeys
    task: str
    before: Behind | None
    entries: deque[tuple[Key, dict[bytes, bytes]]] = field(default_factory=deque)
    """With their fields, as they were read."""
    through: bool = False
    last: str = "+"

    def __post_init__(self) -> None:
        if self.before:
            ms, number, *place = self.before.key
            # Of one id, those of smaller shards and tasks come later.
            behind = [self.keys.shard, self.task] > place
            self.last = f"{'(' if behind else ''}{ms}-{number}"


def _read(streams: Sequence[_Stream], step: int) -> Flow[tuple[int, int]]:
    """Read on in some streams; how many entries came, and how many bytes."""
    count = max(1, min(step, ENTRIES // len(streams)))
    replies = yield AskAll(
        tuple(
            ("XREVRANGE", each.keys.outcomes(each.task), each.last, "-", "COUNT", count)
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
            key = (int(ms), int(number), stream.keys.shard, stream.task)
            stream.entries.append((key, fields))
    return got, size


def _fields(flat: Any) -> dict[bytes, bytes]:
    return flat if isinstance(flat, dict) else dict(zip(flat[::2], flat[1::2], strict=False))


def oldest(shards: Sequence[ShardKeys], tasks: Sequence[str]) -> Flow[dict[str, int]]:
    """When the oldest verdict that waits was told, in ms since 1970, by task."""
    streams = [(task, keys.outcomes(task)) for task in tasks for keys in shards]
    if not streams:
        return {}
    replies = yield AskAll(tuple(("XRANGE", key, "-", "+", "COUNT", 1) for _, key in streams))
    found: dict[str, int] = {}
    for (task, _), reply in zip(streams, replies, strict=True):
        for id_, _ in reply:
            at = int(id_.partition(b"-")[0])
            found[task] = min(found.get(task, at), at)
    return found
