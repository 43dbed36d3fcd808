"""Nacks of the last minutes, and since when there are such: from the points of minutes. No I/O.

A namespace that loses fewer trees than its ``slo_target`` permits is healthy. Its page still says
how many it loses, and since when.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from acker_redis.protocol.commands import ENDED
from acker_redis.protocol.history import MINUTE_MS, Point
from acker_redis.protocol.series import Bucket
from acker_redis.protocol.status import Status

RECENT_MS = 15 * MINUTE_MS
"""Length of the window. Nacks further apart than this do not belong together."""


@dataclass(frozen=True, slots=True)
class Losses:
    """Trees that ended in the last 15 minutes, and those of them that were nacked."""

    over_ms: int
    """Length of the window, as far as history has it."""
    ended: int
    nacked: int
    """Above 0."""
    since_ms: int
    """Time at which the nacks began, in ms since 1970: up to 15 minutes without a nack between two
    of them belong to the same loss. A tree that expired was lost one lifetime before that."""
    since_known: bool
    """Whether there were readings without nacks before; if not, they may have begun earlier."""


def base(points: Sequence[Point], status: Status) -> Point | None:
    """Return the first of these points from which on the counters only grew, up to a status."""
    found, growing = None, Point.of(status)
    for point in reversed(points):
        if any(getattr(point, name) > getattr(growing, name) for name in ("tracked", *ENDED)):
            break
        found = growing = point
    return found


def losses(minutes: Sequence[Bucket], now_ms: int) -> Losses | None:
    """Return the recent nacks; None if there are none.

    Args:
        minutes: The buckets of the last hours, in the order of their time.
        now_ms: Time of the last reading.

    """
    recent = [each for each in minutes if each.to_ms > now_ms - RECENT_MS]
    nacked = sum(map(_nacked, recent))
    if not nacked:
        return None
    first = len(minutes)
    for at in reversed(range(len(minutes))):
        if first < len(minutes) and minutes[first].from_ms - minutes[at].to_ms > RECENT_MS:
            break
        if _nacked(minutes[at]):
            first = at
    return Losses(
        minutes[-1].to_ms - recent[0].from_ms,
        sum(each.ended for each in recent),
        nacked,
        minutes[first].from_ms,
        # There are no readings in a gap, or before the first point.
        since_known=first > 0 and not minutes[first].gap and not minutes[first - 1].gap,
    )


def _nacked(bucket: Bucket) -> int:
    return bucket.ended - bucket.counts["acked"]
