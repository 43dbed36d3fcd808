"""Recent nacks, and since when there are such."""

from acker_redis.protocol.growth import Growth
from acker_redis.protocol.history import MINUTE_MS, Point
from acker_redis.protocol.losses import Losses, base, losses
from acker_redis.protocol.series import series
from acker_redis.protocol.status import Status
from tests.doctor.made import status

NOW = 1_800_000_000_000


def lost(*expired: int | None, acked: int = 99) -> Losses | None:
    """Return the losses after minutes with that many expired trees; None: no point was written."""
    points, bad = [], 0
    for ago, count in enumerate(reversed((0, *expired))):
        points.insert(0, (NOW - ago * MINUTE_MS, count))
    made = []
    for number, (at_ms, count) in enumerate(points):
        bad += count or 0
        if count is not None:
            done = number * acked
            made.append(Point(at_ms, tracked=done + bad, acked=done, expired=bad))
    return losses(series(made, "m"), NOW)


def test_nothing_is_lost_without_nacks() -> None:
    assert lost(0, 0, 0) is None
    assert losses([], NOW) is None
    assert lost(5, *[0] * 20) is None


def test_share_is_that_of_the_last_fifteen_minutes() -> None:
    found = lost(50, *[1] * 15)
    assert found
    assert (found.over_ms, found.ended, found.nacked) == (15 * MINUTE_MS, 1500, 15)


def test_beginning_is_the_first_minute_with_a_nack() -> None:
    found = lost(0, 0, 1, 0, 0, 3, 1)
    assert found
    assert (NOW - found.since_ms, found.since_known) == (5 * MINUTE_MS, True)


def test_older_nacks_far_away_do_not_belong_to_it() -> None:
    found = lost(9, *[0] * 16, 1)
    assert found
    assert (NOW - found.since_ms, found.nacked) == (MINUTE_MS, 1)
    found = lost(9, *[0] * 15, 1)
    assert found
    assert NOW - found.since_ms == 17 * MINUTE_MS


def test_beginning_is_unknown_if_history_begins_with_a_nack_or_has_a_gap_there() -> None:
    found = lost(1, 1)
    assert found
    assert not found.since_known
    found = lost(0, 0, None, None, None, 1, 1)
    assert found
    assert not found.since_known
    assert NOW - found.since_ms == 5 * MINUTE_MS  # the beginning of the gap


def test_growth_begins_with_the_first_point_from_which_on_counters_only_grew() -> None:
    shard = status(counters={"tracked": 9, "acked": 6, "failed": 2}, now_ms=NOW)
    now = Status("orders", shard.config, (shard,))
    points = [
        Point(NOW - ago * MINUTE_MS, tracked=tracked, acked=acked)
        for ago, tracked, acked in ((9, 90, 80), (5, 3, 1), (2, 7, 4))
    ]
    first = base(points, now)
    assert first == points[1]
    assert first
    found = Growth.since(first, now)
    assert found
    assert (found.over_ms, found.ended, found.nacked) == (5 * MINUTE_MS, 7, 2)
    assert base(points[:1], now) is None
    assert Growth.since(points[0], now) is None
    assert base([], now) is None
