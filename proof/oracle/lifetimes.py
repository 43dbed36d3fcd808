"""The bucket that a record or a block is in, as the number of the tick that began it."""

from dataclasses import dataclass

from acker_redis.protocol.config import AckerConfig


@dataclass(slots=True)
class Place:
    """The bucket that a record or a block is in, and when it began."""

    born: int
    """The tick that began its bucket. The Nth tick after it drains the bucket."""
    first_ms: int
    """Time of its first row, by the server's clock."""
    capped: bool = False
    """Whether its deadline kept its last move out of the newest bucket."""

    def move(self, newest: int, ticks: int) -> bool:
        """Move it to the bucket that tick ``newest`` began, but never to an older one.

        Return whether its clock was restarted: the deadline has not left it where it is.
        """
        old, self.capped = self.born, newest < ticks
        self.born = max(old, newest)
        return self.born > old or not self.capped


def newest_bucket(
    config: AckerConfig, first_ms: int, *, ticks: int, ticked_ms: int, now_ms: int
) -> int:
    """Return the newest bucket that may hold a record now, as the number of the tick it began with.

    A bucket expires N ticks after the tick that began it. With a deadline it must expire with the
    first tick that is not before the deadline, or with an earlier one, as if all ticks to come were
    on time. A tick that is late comes now. If the clock was set back, the next tick comes within
    ``tick_ms``.
    """
    due = min(max(ticked_ms + config.tick_ms, now_ms), now_ms + config.tick_ms)
    if config.deadline_ms:
        for tick in range(ticks + 1, ticks + config.buckets):
            if due >= first_ms + config.deadline_ms:
                return tick - config.buckets
            due += config.tick_ms
    return ticks
