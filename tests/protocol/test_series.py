"""Buckets between points: exact counts, gaps, and counters that went back."""

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from acker_redis.protocol.commands import ENDED
from acker_redis.protocol.config import AckerConfig
from acker_redis.protocol.history import HOUR_MS, MINUTE_MS, Point, Settings, parse
from acker_redis.protocol.series import Bucket, series
from tests.tiers import examples

NOW = 1_800_000_000_000
CONFIG = Settings.of(AckerConfig())
OTHER = Settings.of(AckerConfig(high_water=7))


def point(minute: float, **fields: object) -> Point:
    """Return a point with the settings of ``CONFIG``."""
    fields = {"settings": CONFIG, "mark": CONFIG.mark, "run": b"aa", **fields}
    return Point(NOW + int(minute * MINUTE_MS), **fields)  # type: ignore[arg-type]


STEPS = st.lists(
    st.tuples(
        *[st.integers(0, 50)] * 6,  # tracked, and the endings
        st.sampled_from(["step"] * 6 + ["failover", "dropped", "away", "restart", "settings"]),
    ),
    max_size=40,
)


@given(steps=STEPS)
@settings(max_examples=examples())
def test_tracked_is_acked_and_nacked_and_the_growth_of_open(
    steps: list[tuple[object, ...]],
) -> None:
    """At every bucket that is not marked as reset; no count is negative in any bucket."""
    now, saved = point(0), point(0)
    points, minute = [now], 0
    for *numbers, kind in steps:
        tracked, *ended = (int(str(number)) for number in numbers)
        minute += 5 if kind == "away" else 1
        if kind == "failover":  # back to an earlier state, and on from there
            now, saved = saved, now
        elif kind == "dropped":
            now = point(0)
        elif kind == "restart":
            now = replace(now, run=b"bb" if now.run == b"aa" else b"aa")
        elif kind == "settings":
            new = OTHER if now.settings == CONFIG else CONFIG
            now = replace(now, settings=new, mark=new.mark)
        open_ = now.open + tracked
        grown = {"tracked": now.tracked + tracked}
        for name, number in zip(ENDED, ended, strict=True):
            grown[name] = getattr(now, name) + min(number, open_)
            open_ -= min(number, open_)
        slow = now.slow + (grown["acked"] - now.acked) // 3
        now = replace(now, at_ms=NOW + minute * MINUTE_MS, slow=slow, **grown)  # type: ignore[arg-type]
        points.append(now)
        if kind == "step" and tracked > 40:
            saved = now
    # As readers get them, from the fields of the hash.
    read = [parse(list(each.fields().values())[1]) for each in points]
    found = series([each for each in read if each], "m")
    assert len(found) == len(points) - 1
    open_before = points[0].open
    for bucket, after in zip(found, points[1:], strict=True):
        counts, open_now = bucket.counts, bucket.gauges["open"]
        assert min(counts.values()) >= 0
        assert open_now == after.open
        if "reset" not in bucket.marks:
            assert counts["tracked"] == bucket.ended + open_now - open_before
        assert counts["good"] <= counts["acked"]
        open_before = open_now


def one(before: Point, after: Point, unit: str = "m") -> Bucket:
    (bucket,) = series([before, after], unit)  # type: ignore[arg-type]
    return bucket


def test_missing_point_is_a_gap_and_its_growth_is_kept() -> None:
    before = point(0, tracked=5, acked=5)
    assert not one(before, point(1.98, tracked=6, acked=6)).gap
    found = one(before, point(4, tracked=9, acked=8))
    assert (found.gap, found.counts["acked"], found.marks) == (True, 3, set())
    hour = HOUR_MS / MINUTE_MS
    assert not one(before, point(1.98 * hour), "h").gap
    assert one(before, point(2.02 * hour), "h").gap


def test_counter_that_went_back_is_clamped_and_marked() -> None:
    found = one(point(0, tracked=50, acked=40), point(1, tracked=45, acked=42, ticks=3))
    assert (found.marks, found.counts["tracked"], found.counts["acked"]) == ({"reset"}, 0, 2)


def test_restart_and_changed_settings_are_marked() -> None:
    before = point(0)
    assert one(before, point(1, run=b"bb")).marks == {"restart"}
    assert one(before, point(1, run=b"\0\0")).marks == set()  # unknown
    found = one(before, point(1, settings=OTHER, mark=OTHER.mark))
    assert (found.marks, found.changes) == ({"settings"}, {"high_water": (100_000, 7)})
    # Points of minutes have the fingerprint only.
    minutes = [point(0, settings=None), point(1, settings=None, mark=OTHER.mark)]
    (found,) = series(minutes, "m", [CONFIG, OTHER])
    assert found.changes == {"high_water": (100_000, 7)}
    (found,) = series(minutes, "m", [CONFIG])
    assert (found.marks, found.changes) == ({"settings"}, {})


def test_sources_that_come_and_go() -> None:
    before = point(0, sources={"a": (10, 9), "b": (5, 5), "gone": (7, 7)})
    after = point(60, sources={"a": (30, 19), "b": (2, 2), "new": (4, 3)})
    assert one(before, after, "h").sources == {"a": (20, 10), "b": (0, 0), "new": (4, 3)}
    # The first point had no room for all: the growth of a source that it lacks is unknown.
    full = replace(before, more_sources=True)
    assert one(full, after, "h").sources == {"a": (20, 10), "b": (0, 0)}
    assert one(replace(before, settings=None), after).sources == {}
