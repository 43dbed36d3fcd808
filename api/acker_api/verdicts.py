"""Verdicts that wait in the streams, the newest first: the walk over streams, without the I/O.

A task has a stream in each shard. Their entries are merged by id, which begins with the time by
Redis's clock; at one id by shard, then task. An entry may hold thousands of verdicts: a page may
end within one, and its cursor says behind which.
"""

import re
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice

from acker_redis.errors import ConfigError
from acker_redis.flow import AskAll, Flow
from acker_redis.keys import ShardKeys
from acker_redis.outcome import Entry, Outcome, parse_entry

STREAMS = 256
"""Streams that a page looks at; of a task all of its shards."""
ENTRIES = 256
"""Entries that are read by one round of calls, about."""
MOST_ENTRIES = 1024
"""Entries that are read for a page, about."""

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
    """Verdicts that were looked at."""
    unreadable: int
    """Entries that no script has written."""


def newest(
    shards: Sequence[ShardKeys],
    tasks: Sequence[str],
    limit: int,
    before: Behind | None = None,
    keep: Callable[[Outcome], bool] = lambda outcome: True,
) -> Flow[VerdictPage]:
    """Up to ``limit`` verdicts that are to be kept, of these tasks."""
    streams = [_Stream(keys, task, before) for keys in shards for task in tasks]
    found: list[Told] = []
    at, looked, read, unreadable, step = before, 0, 0, 0, limit
    while len(found) < limit:
        hungry = [stream for stream in streams if not (stream.entries or stream.through)]
        if hungry:
            if read >= MOST_ENTRIES:
                return VerdictPage(tuple(found), at, looked, unreadable)
            got, bad = yield from _read(hungry, step)
            # Few of them match, perhaps.
            read, unreadable, step = read + got, unreadable + bad, 2 * step
            continue
        heads = [stream for stream in streams if stream.entries]
        if not heads:
            return VerdictPage(tuple(found), None, looked, unreadable)
        stream = max(heads, key=lambda each: each.entries[0][0])
        key, entry = stream.entries[0]
        told = before.told if before and key == before.key else 0
        for outcome in islice(entry, told, None):
            told, looked = told + 1, looked + 1
            if keep(outcome):
                found.append(Told(outcome, entry, stream.task))
                if len(found) == limit:
                    break
        else:
            stream.entries.popleft()
        at = Behind(key, told)
    return VerdictPage(tuple(found), at, looked, unreadable)


def choose(backlog: dict[str, int], shards: int) -> list[str]:
    """The tasks for which most waits, so many that their streams may be looked at."""
    waiting = sorted((name for name in backlog if backlog[name] > 0), key=lambda n: -backlog[n])
    return waiting[: max(1, STREAMS // shards)]


@dataclass
class _Stream:
    keys: ShardKeys
    task: str
    before: Behind | None
    entries: deque[tuple[Key, Entry]] = field(default_factory=deque)
    through: bool = False
    last: str = "+"

    def __post_init__(self) -> None:
        if self.before:
            ms, number, *place = self.before.key
            # Of one id, those of smaller shards and tasks come later.
            behind = [self.keys.shard, self.task] > place
            self.last = f"{'(' if behind else ''}{ms}-{number}"


def _read(streams: Sequence[_Stream], step: int) -> Flow[tuple[int, int]]:
    """Read on in some streams; how many entries came, and how many of them were unreadable."""
    count = max(1, min(step, ENTRIES // len(streams)))
    replies = yield AskAll(
        tuple(
            ("XREVRANGE", each.keys.outcomes(each.task), each.last, "-", "COUNT", count)
            for each in streams
        )
    )
    got = bad = 0
    for stream, reply in zip(streams, replies, strict=True):
        got += len(reply)
        stream.through = len(reply) < count
        if reply:
            stream.last = f"({reply[-1][0].decode()}"
        entries = list(_parse(stream, reply))
        bad += len(reply) - len(entries)
        stream.entries.extend(entries)
    return got, bad


def _parse(stream: _Stream, reply: Sequence[tuple[bytes, object]]) -> Iterator[tuple[Key, Entry]]:
    for id_, fields in reply:
        try:
            entry = parse_entry(stream.keys.shard, id_, fields)
            ms, _, number = entry.id.partition("-")
            list(entry)
        except (KeyError, ValueError, TypeError, AttributeError):
            continue  # somebody has put it there past the scripts
        yield (int(ms), int(number), stream.keys.shard, stream.task), entry


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
