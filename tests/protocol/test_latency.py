"""The latency histogram of acked trees."""

import math

from hypothesis import given
from hypothesis import strategies as st

from acker_redis.protocol.latency import DIGITS, Latency

AGES = st.lists(st.integers(0, 2**31 - 1), min_size=1, max_size=50)


@given(AGES)
def test_each_age_is_counted_in_its_bucket(ages: list[int]) -> None:
    latency = Latency()
    for age in ages:
        latency = latency.plus(age)
    assert latency.sum_ms == sum(ages)
    assert latency.count == len(ages)
    uppers = latency.upper_ms
    for upper, count, lower in zip(uppers, latency.counts, (-1, *uppers), strict=False):
        assert count == sum(1 for age in ages if max(lower, 0) <= age < upper)


@given(AGES, st.floats(0.01, 1))
def test_a_quantile_is_right_to_a_factor_of_two(ages: list[int], q: float) -> None:
    latency = Latency()
    for age in ages:
        latency = latency.plus(age)
    exact = sorted(ages)[max(0, math.ceil(q * len(ages) - 1e-9) - 1)]
    found = latency.quantile_ms(q)
    assert exact // 2 <= found <= max(1, 2 * exact)


def test_empty_histogram_has_no_mean_and_no_quantile() -> None:
    assert math.isnan(Latency().mean_ms)
    assert math.isnan(Latency().quantile_ms(0.5))
    assert Latency.total([]) == Latency()


def test_histogram_is_read_from_meta() -> None:
    fields = {"latency:0": "1", "latency:3": "2", "latency_ms": "9", "latency:x": "y"}
    assert Latency.from_meta(fields) == Latency((1, 0, 0, 2), 9)
    assert Latency.from_meta({}) == Latency()
    for tampered in ("many", "", "-1", "1e+15", "\u0661", "9" * 5000):
        assert Latency.from_meta({"latency:3": tampered, "latency_ms": tampered}) == Latency()
    longest = Latency().plus(2**40)
    fields = {f"latency:{DIGITS - 1}": "1", "latency_ms": str(2**31 - 1)}
    assert Latency.from_meta(fields) == longest
