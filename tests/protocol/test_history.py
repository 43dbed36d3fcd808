"""Points of a history: their content survives, and old or damaged points are dropped."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from acker_redis.protocol.config import AckerConfig
from acker_redis.protocol.history import (
    HOUR_MS,
    HOURS,
    MINUTE_MS,
    MINUTES,
    Point,
    Settings,
    name_of,
    names_of,
    parse,
    within,
)
from acker_redis.protocol.series import series
from tests.tiers import examples

NOW = 1_800_000_000_000
COUNTS = st.integers(0, 2**53)
NAMES = st.text("abcXYZ019_.-", min_size=1, max_size=64)
CONFIG = AckerConfig(shards=4, high_water=10**12, slo_target=99.995, slo_ms=60_000)
POINTS = st.builds(
    Point,
    st.integers(1, 2**48 - 1),
    *[COUNTS] * 15,
    mark=st.binary(min_size=2, max_size=2),
    run=st.binary(min_size=2, max_size=2),
    settings=st.sampled_from([Settings.of(CONFIG), Settings.of(AckerConfig())]),
    sources=st.dictionaries(NAMES, st.tuples(COUNTS, COUNTS), max_size=4),
    more_sources=st.booleans(),
)


@given(point=POINTS)
@settings(max_examples=examples(0.5))
def test_point_survives_a_round_trip(point: Point) -> None:
    minute, hour = point.fields().values()
    assert parse(hour) == point
    found = parse(minute)
    assert found is not None
    names = [
        name for name in Point.__slots__ if name not in ("settings", "sources", "more_sources")
    ]
    assert [getattr(found, name) for name in names] == [getattr(point, name) for name in names]
    assert (found.settings, found.sources) == (None, {})


def test_point_of_version_1_says_nothing_of_useless_work() -> None:
    now = Point(NOW, tracked=9, acked=5, ticks=3, settings=Settings.of(CONFIG))
    first = parse(b"\1" + now.fields()[name_of("m", NOW)][1:-5])
    assert first == replace(now, settings=None, useless=-1)
    after = replace(now, at_ms=NOW + MINUTE_MS, useless=700)
    (bucket,) = series([first, after], "m")
    assert (bucket.counts["useless"], bucket.marks) == (0, set())
    (bucket,) = series([now, after], "m")
    assert bucket.counts["useless"] == 700


@given(point=POINTS, cut=st.integers(0, 200))
@settings(max_examples=examples(0.5))
def test_damaged_point_is_dropped(point: Point, cut: int) -> None:
    """A value that ends early is no point, or the point of the minute that it begins with."""
    minute, hour = point.fields().values()
    for value in (minute, hour):
        found = parse(value[:cut])
        assert found is None or cut >= len(minute)
    assert parse(b"\3" + hour[1:]) is None


def test_rings_have_a_field_for_each_minute_of_a_day_and_each_hour_of_30_days() -> None:
    assert len({name_of("m", NOW + n * MINUTE_MS) for n in range(3 * MINUTES)}) == MINUTES == 1440
    assert len({name_of("h", NOW + n * HOUR_MS) for n in range(3 * HOURS)}) == HOURS == 720
    names = names_of("m", 15, NOW)
    assert (len(names), names[-1]) == (15, name_of("m", NOW))
    assert name_of("m", NOW - 14 * MINUTE_MS) == names[0]
    assert len(set(names_of("m", MINUTES, NOW))) == MINUTES


def test_points_of_an_earlier_round_and_of_the_future_are_dropped() -> None:
    """While a rotator stands still, its ring keeps points of yesterday in the fields of today."""
    config = Settings.of(CONFIG)
    times = [NOW - 24 * HOUR_MS, NOW - 2 * MINUTE_MS, NOW - MINUTE_MS, NOW + MINUTE_MS]
    values = [Point(at, settings=config).fields()[name_of("m", at)] for at in reversed(times)]
    found = within([*values, None, b"", b"?"], NOW - 10 * MINUTE_MS, NOW)
    assert [point.at_ms for point in found] == times[1:3]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("shards", 2),
        ("tick_ms", 60_000),
        ("high_water", 5),
        ("outcomes_limit", 5),
        ("slo_target", 99.999),
        ("slo_ms", 0),
    ],
)
def test_each_setting_changes_the_fingerprint(name: str, value: float) -> None:
    before = Settings.of(CONFIG)
    after = Settings.of(AckerConfig(**{"slo_target": 99.995, "slo_ms": 60_000, "shards": 4,
                                       "high_water": 10**12, name: value}))  # type: ignore[arg-type]  # fmt: skip
    assert before.mark != after.mark
    assert before.changes(after) == {name: (getattr(CONFIG, name), value)}
    assert before.mark == Settings.of(CONFIG).mark
