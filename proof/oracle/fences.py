"""The expected fences of the lanes, from numbers and ticks alone."""

from acker_redis.protocol.commands import Fence
from proof.oracle.violations import Violation

DURABLE_MS = 30 * 24 * 3600 * 1000
"""A durable lane ends with the first tick later than this after its last batch."""


class Fences:
    """The last number of each lane, and the tick and the time at which it was applied."""

    def __init__(self, buckets: int) -> None:
        self._buckets = buckets
        self._last: dict[str, tuple[int, str, int, int]] = {}

    def copy(self) -> "Fences":
        """Return a copy, for the case that the shard loses all later calls."""
        other = Fences(self._buckets)
        other._last = self._last.copy()
        return other

    def highest(self, fence: Fence, ticks: int) -> tuple[int, str] | None:
        """Return number and digest that the fence's lane still has after ``ticks`` ticks.

        A fence holds for N-1 ticks and is dropped with the Nth; a durable one stays.
        """
        last = self._last.get(fence.producer)
        if last is None:
            return None
        seq, digest, at, _ = last
        if ticks - at >= self._buckets and not fence.producer.startswith("@"):
            return None
        return seq, digest

    def applied(self, fence: Fence, ticks: int, now_ms: int) -> None:
        """Record that a batch was applied after ``ticks`` ticks."""
        self._last[fence.producer] = (fence.seq, fence.digest, ticks, now_ms)

    def ticked(self, now_ms: int) -> None:
        """Drop the durable lanes that had no batch for thirty days."""
        for lane, (*_, used_ms) in list(self._last.items()):
            if lane.startswith("@") and now_ms - used_ms > DURABLE_MS:
                del self._last[lane]

    def check(self, fence: Fence, ticks: int, highest: int | None) -> None:
        """Raise Violation if a batch that was not refused got a wrong reply."""
        stands = self.highest(fence, ticks)
        wanted = stands[0] if stands and fence.seq <= stands[0] else None
        changed = stands and fence.seq == stands[0] and fence.digest != stands[1]
        if highest != wanted or changed:
            lane = f"batch {fence.seq} of lane {fence.producer}, whose fence is {stands}"
            raise Violation("fence", f"{lane}, got the reply highest {highest}")
