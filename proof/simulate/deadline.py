"""The bucket to which a row moves a record: the newest one that ends it in time."""

from acker_redis.protocol.config import AckerConfig


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
