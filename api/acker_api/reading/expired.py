"""Expired trees by edge over at most a day, from the readings of this process. No I/O.

Redis counts expired trees by edge since the namespace was created. The service keeps a reading per
hour, so that it can say how many expired lately: during an incident, the lifetime counts of an old
namespace hide those of today.
"""

from collections import OrderedDict, deque
from dataclasses import dataclass

from acker_redis import Status

APART_MS = 3_600_000
"""Minimum distance of two readings that are kept."""
MOST_MS = 24 * APART_MS
"""Maximum time over which expired trees are counted."""
NAMES = 1000
"""Maximum number of namespaces whose readings are kept, those read last: 25 readings of up to nine
numbers each."""


@dataclass(frozen=True, slots=True)
class Expired:
    """Expired trees by the edges on which an odd number of their messages is unaccounted for."""

    since_ms: int
    """Time of the first reading, by Redis's clock: at most a day ago."""
    edges: dict[str, int]
    """Trees by edge; '' for none of the named edges. Empty in a namespace without edges."""


class ExpiredByEdge:
    """Keeps hourly readings of namespaces for a day."""

    def __init__(self) -> None:
        self._kept: OrderedDict[str, deque[Expired]] = OrderedDict()

    def note(self, status: Status) -> Expired:
        """Add a reading; return the growth since the oldest one that is kept.

        If a count or Redis's clock went back, the older readings are removed: the namespace was
        created again, or Redis lost data.
        """
        now = Expired(status.shards[0].now_ms, status.odd)
        kept = self._kept.pop(status.namespace, None) or deque()
        self._kept[status.namespace] = kept
        if len(self._kept) > NAMES:
            self._kept.popitem(last=False)
        if kept and not _follows(now, kept[-1]):
            kept.clear()
        # The newest reading that is a day old stays: the time is then a day, or up to an hour more.
        while len(kept) > 1 and now.since_ms - kept[1].since_ms >= MOST_MS:
            kept.popleft()
        if not kept or now.since_ms - kept[-1].since_ms >= APART_MS:
            kept.append(now)
        first = kept[0]
        grown = {edge: count - first.edges.get(edge, 0) for edge, count in now.edges.items()}
        return Expired(first.since_ms, grown)


def _follows(now: Expired, last: Expired) -> bool:
    """Return whether a reading has the same counters, and not smaller ones.

    Concurrent readings may overtake each other by some seconds.
    """
    if now.since_ms < last.since_ms - 60_000 or now.edges.keys() != last.edges.keys():
        return False
    return all(count >= last.edges[edge] for edge, count in now.edges.items())
