"""The completeness objective: shares, error budget, burn rates, and their words."""

from typing import Any

import pytest

from acker_redis.protocol.config import AckerConfig
from acker_redis.protocol.history import HOUR_MS, MINUTE_MS, Point, Settings
from acker_redis.protocol.series import series
from acker_redis.protocol.slo import OTHERS, Objective, Share, objectives, percent, time_of

NOW = 1_800_000_000_000
CONFIG = AckerConfig(slo_target=99.9, slo_ms=60_000)
SETTINGS = Settings.of(CONFIG)


def point(at_ms: int, **fields: Any) -> Point:
    return Point(at_ms, settings=SETTINGS, mark=SETTINGS.mark, **fields)


def test_shares_of_the_namespace_and_of_its_sources() -> None:
    hours = [
        point(NOW - 48 * HOUR_MS, tracked=100, acked=100, sources={"a": (100, 100)}),
        point(
            NOW - 7 * HOUR_MS, tracked=1100, acked=1100, sources={"a": (600, 600), "b": (500, 500)}
        ),
        point(
            NOW - HOUR_MS // 2,
            tracked=2100,
            acked=2090,
            expired=10,
            slow=2,
            sources={"a": (1100, 1090), "b": (990, 988)},
        ),
    ]
    minutes = [
        point(NOW - 7 * MINUTE_MS, tracked=2000, acked=2000),
        point(NOW - 2 * MINUTE_MS, tracked=2050, acked=2040, expired=10),
        point(NOW, tracked=2100, acked=2090, expired=10, slow=2),
    ]
    found = objectives(CONFIG, series(hours, "h"), series(minutes, "m"), NOW)
    assert [each.source for each in found] == ["", "a", "b", OTHERS]
    whole, a, b, others = (each.share for each in found)
    assert (whole.ended, whole.good, whole.bad) == (2000, 1988, 12)
    assert (a.ended, a.good, b.ended, b.good) == (1000, 990, 990, 988)
    assert (others.ended, others.good) == (10, 10)
    assert found[0].ratio == 99.4
    assert found[0].met is False
    assert found[0].budget_left == -500.0
    assert found[0].sentence == "99.4 % complete within 60 s, 2 days, budget left -500 %"
    burns = found[0].burns
    assert (burns["5m"].ended, burns["5m"].good) == (100, 88)
    assert burns["5m"].burn_rate(99.9) == 120.0
    assert burns["5m"].over_ms == 7 * MINUTE_MS
    # Sources have points of hours only.
    assert "5m" not in found[1].burns
    assert found[1].burns["6h"].ended == 500
    assert found[3].burns == {}


def test_gap_counts_in_the_objective() -> None:
    """A chart shows nothing there, but its trees have ended all the same."""
    hours = [point(NOW - 9 * HOUR_MS), point(NOW, tracked=10, acked=5, expired=5)]
    (whole, others) = objectives(CONFIG, series(hours, "h"), [], NOW)
    assert series(hours, "h")[0].gap
    assert (whole.share.ended, whole.share.good) == (10, 5)
    assert others.share == whole.share
    assert whole.burns["5m"].burn_rate(99.9) is None


def test_objective_without_trees_says_so() -> None:
    (whole,) = objectives(AckerConfig(), series([point(NOW - HOUR_MS), point(NOW)], "h"), [], NOW)
    assert (whole.ratio, whole.budget_left, whole.met) == (None, None, None)
    assert whole.sentence == "no tree ended within 60 min"


@pytest.mark.parametrize(
    ("bad", "target", "left", "met"),
    [
        (0, 99.9, 100.0, True),
        (10, 99.9, 0.0, True),
        (11, 99.9, -10.0, False),
        (1, 99.999, -900.0, False),
    ],
)
def test_budget(bad: int, target: float, left: float, met: bool) -> None:
    made = Objective("", target, 0, Share(HOUR_MS, 10_000, 10_000 - bad))
    assert (made.budget_left, made.met) == (left, met)
    assert "before they expire" in made.sentence


def test_share_is_never_rounded_up_to_all() -> None:
    assert percent(100 * 999_999_999 / 1_000_000_000) == "99.999"
    assert percent(99.29) == "99.29"
    assert time_of(30 * 24 * HOUR_MS - HOUR_MS) == "30 days"
