"""Growth of the counters of namespaces, from readings that the caller makes. No I/O."""

from collections import OrderedDict, deque
from collections.abc import Container, Sequence
from dataclasses import dataclass

from acker_redis.protocol.growth import Growth
from acker_redis.protocol.status import Status

LEAST_MS = 5_000
"""Minimum distance of two readings that are compared."""
MINUTE_MS = 60_000
"""Maximum distance for rates. Preferred distance for findings."""
OLD_MS = 300_000
"""Maximum distance for findings, because readings may be some minutes apart."""
APART_MS = 1_000
"""Minimum distance of readings kept for rates: at most seven per namespace. Readings for findings
are kept ``LEAST_MS`` apart: at most fourteen per namespace."""
NAMES = 1000
"""Maximum number of namespaces whose readings are kept, those read last."""


@dataclass(frozen=True, slots=True)
class _Reading:
    at_ms: int
    shards: int
    counters: dict[str, int]
    after_failure: int

    def grown(self, since: "_Reading") -> Growth:
        counts = {name: count - since.counters[name] for name, count in self.counters.items()}
        late = self.after_failure - since.after_failure
        return Growth(self.at_ms - since.at_ms, counts, max(0, late))


class Readings:
    """Keeps readings of namespaces for up to five minutes, to compare the next reading."""

    def __init__(self, lately: bool = True, names: int = NAMES) -> None:
        """With ``lately``, compare a reading with the last that is 5 s older, for rates.

        Otherwise compare it with the last that is a minute older, or with the oldest, for findings.
        """
        self._names = names
        self._apart_ms = APART_MS if lately else LEAST_MS
        self._enough_ms, self._most_ms = (LEAST_MS, MINUTE_MS) if lately else (MINUTE_MS, OLD_MS)
        self._kept: OrderedDict[str, deque[_Reading]] = OrderedDict()

    def add(self, status: Status) -> Growth | None:
        """Add a reading; return the growth of the counters since a reading at least 5 s older.

        Return None if there is no such reading. If a counter or Redis's clock went back, or the
        number of shards changed, the older readings are removed: the namespace was created again
        or resharded, or Redis lost data.
        """
        now = _Reading(
            status.shards[0].now_ms, len(status.shards), status.counters, status.after_failure
        )
        kept = self._kept.pop(status.namespace, None) or deque()
        self._kept[status.namespace] = kept
        if len(self._kept) > self._names:
            self._kept.popitem(last=False)
        if kept and not _follows(now, kept):
            kept.clear()
        while kept and now.at_ms - kept[0].at_ms > self._most_ms:
            kept.popleft()
        # The newest reading that is old enough becomes the first; older readings are not needed.
        while len(kept) > 1 and now.at_ms - kept[1].at_ms >= self._enough_ms:
            kept.popleft()
        if not kept or now.at_ms - kept[-1].at_ms >= self._apart_ms:
            kept.append(now)
        return now.grown(kept[0]) if now.at_ms - kept[0].at_ms >= LEAST_MS else None

    def forget_others(self, names: Container[str]) -> None:
        """Remove the readings of all namespaces except these."""
        for name in [name for name in self._kept if name not in names]:
            del self._kept[name]


def _follows(now: _Reading, kept: Sequence[_Reading]) -> bool:
    if now.at_ms < kept[-1].at_ms - LEAST_MS:
        return False
    # If two readings were made at the same time, either may have read a shard first.
    return all(
        now.shards == each.shards
        and all(now.counters[name] >= count for name, count in each.counters.items())
        for each in kept
        if now.at_ms - each.at_ms >= APART_MS
    )
