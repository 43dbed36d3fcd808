"""Pages of the audit log: the streams of several namespaces, merged by time. No I/O.

Entries are ordered by the time and number of their id, then by the name of their namespace; the
name of the shared stream is ''. A page first reads a few entries of each stream, then more of each
stream whose entries are used up.
"""

import heapq
import re
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from acker_redis.errors import ConfigError
from acker_redis.operate import AUDIT, NAME, AskAll, Flow, audit_of

FIRST = 4
"""Entries of a stream in the first read."""
AT_ONCE = 256
"""Streams that one round of calls reads."""

_TEXT = re.compile(rf"([0-9]{{1,15}})-([0-9]{{1,15}})(?::({NAME}))?", re.ASCII)
Key = tuple[int, int, str]
"""Time and number of an entry's id, and its namespace: the sort key of the merge."""


@dataclass(frozen=True, slots=True)
class Found:
    """An entry as it was read."""

    key: Key
    fields: Any

    @property
    def id(self) -> str:
        """The id of the entry, unique within its namespace."""
        return f"{self.key[0]}-{self.key[1]}"


def parse(cursor: str) -> Key:
    """Return the entry after which a page begins. Raise ConfigError for a text of no page.

    >>> parse("1700000000000-0:orders")
    (1700000000000, 0, 'orders')
    """
    if not (found := _TEXT.fullmatch(cursor)):
        raise ConfigError("before is invalid; give the next of a page of the audit log")
    return int(found[1]), int(found[2]), found[3] or ""


def cursor(key: Key) -> str:
    """Return the text form of a key, for URLs."""
    ms, number, name = key
    return f"{ms}-{number}:{name}" if name else f"{ms}-{number}"


class _Stream:
    """Entries of one stream, newest first, that were read and are not used yet."""

    def __init__(self, name: str, before: Key | None) -> None:
        self.name, self.entries, self.ended = name, deque[Found](), False
        self._last = "+"
        if before:
            ms, number, other = before
            self._last = f"{'' if name > other else '('}{ms}-{number}"

    def more(self, count: int) -> tuple[str | bytes | int, ...]:
        """Return the command that reads more."""
        key = audit_of(self.name) if self.name else AUDIT
        return ("XREVRANGE", key, self._last, "-", "COUNT", count)

    def add(self, reply: Iterable[Any], count: int) -> None:
        """Add the entries of a reply."""
        got = [(id_.decode(), fields) for id_, fields in reply]
        for id_, fields in got:
            ms, _, number = id_.partition("-")
            self.entries.append(Found((int(ms), int(number), self.name), fields))
        self.ended = len(got) < count
        if got:
            self._last = f"({got[-1][0]}"


def newest(names: Iterable[str], limit: int, before: Key | None) -> Flow[list[Found]]:
    """Return the newest entries of these streams, newest first, at most ``limit``."""
    streams = [_Stream(name, before) for name in names]
    count = max(FIRST, -(-limit // max(1, len(streams))))
    page: list[Found] = []
    heap: list[tuple[int, int, str, _Stream]] = []  # keys are unique: streams are not compared
    empty = deque(streams)

    def offer(stream: _Stream) -> None:
        if stream.entries:
            ms, number, name = stream.entries[0].key
            heapq.heappush(heap, (-ms, -number, name, stream))
        elif not stream.ended:
            empty.append(stream)

    while True:
        while empty:
            some = [empty.popleft() for _ in range(min(AT_ONCE, len(empty)))]
            replies = yield AskAll(tuple(stream.more(count) for stream in some))
            for stream, reply in zip(some, replies, strict=True):
                stream.add(reply, count)
                offer(stream)
        if not heap or len(page) == limit:
            return page
        count = max(FIRST, limit - len(page))
        stream = heapq.heappop(heap)[-1]
        page.append(stream.entries.popleft())
        offer(stream)
