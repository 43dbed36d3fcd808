"""What the counters of namespaces grew by, from readings that others make. No I/O."""

from collections import OrderedDict, deque
from collections.abc import Container, Sequence
from dataclasses import dataclass

from acker_redis.protocol.growth import Growth
from acker_redis.protocol.status import Status

LEAST_MS = 5_000
"""Two readings are compared that are so far apart at least."""
MINUTE_MS = 60_000
"""For rates so far apart at most. To judge by, so far if there is such a reading."""
OLD_MS = 300_000
"""To judge by, so far apart at most: readings may be some minutes apart."""
APART_MS = 1_000
"""Readings that are kept for rates are so far apart at least: seven of a namespace at most. Those
to judge by are ``LEAST_MS`` apart: fourteen at most."""
NAMES = 1000
"""Namespaces whose readings are kept: those read last."""


@dataclass(frozen=True, slots=True)
class _Reading:
    at_ms: int
    shards: int
    counters: dict[str, int]

    def grown(self, since: "_Reading") -> Growth:
        counts = {name: count - since.counters[name] for name, count in self.counters.items()}
        return Growth(self.at_ms - since.at_ms, counts)


class Readings:
    """Remembers readings of namespaces for up to five minutes, to compare the next one with."""

    def __init__(self, lately: bool = True, names: int = NAMES) -> None:
        """With ``lately``, a reading is compared with the last that is 5 s older, for rates.

        Otherwise with the last that is a minute older, or with the oldest, to judge by.
        """
        self._names = names
        self._apart_ms = APART_MS if lately else LEAST_MS
        self._enough_ms, self._most_ms = (LEAST_MS, MINUTE_MS) if lately else (MINUTE_MS, OLD_MS)
        self._kept: OrderedDict[str, deque[_Reading]] = OrderedDict()

    def add(self, status: Status) -> Growth | None:
        """Add a reading; how the counters grew since one that is 5 s older or more.

        None if there is none. A counter or Redis's clock that went back, or other shards, mean
        that it starts over: the namespace was created again, or moved, or Redis was set back.
        """
        now = _Reading(status.shards[0].now_ms, len(status.shards), status.counters)
        kept = self._kept.pop(status.namespace, None) or deque()
        self._kept[status.namespace] = kept
        if len(self._kept) > self._names:
            self._kept.popitem(last=False)
        if kept and not _follows(now, kept):
            kept.clear()
        while kept and now.at_ms - kept[0].at_ms > self._most_ms:
            kept.popleft()
        # The newest that is old enough stands first; what is older is of no use any more.
        while len(kept) > 1 and now.at_ms - kept[1].at_ms >= self._enough_ms:
            kept.popleft()
        if not kept or now.at_ms - kept[-1].at_ms >= self._apart_ms:
            kept.append(now)
        return now.grown(kept[0]) if now.at_ms - kept[0].at_ms >= LEAST_MS else None

    def forget_others(self, names: Container[str]) -> None:
        """Forget the readings of all namespaces but these."""
        for name in [name for name in self._kept if name not in names]:
            del self._kept[name]


def _follows(now: _Reading, kept: Sequence[_Reading]) -> bool:
    if now.at_ms < kept[-1].at_ms - LEAST_MS:
        return False
    # Of two that were under way at once either may have read a shard first.
    return all(
        now.shards == each.shards
        and all(now.counters[name] >= count for name, count in each.counters.items())
        for each in kept
        if now.at_ms - each.at_ms >= APART_MS
    )
