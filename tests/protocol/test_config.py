"""Configuration: the range of each field, and its wire format."""

import pytest

from acker_redis.errors import ConfigError
from acker_redis.protocol.config import CHANGEABLE, CREATED, OPTIONAL, AckerConfig, wire


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("shards", 0, "from 1 to 1024"),
        ("shards", 3, "power of two"),
        ("shards", 2048, "from 1 to 1024"),
        ("buckets", 1, "from 2 to 16"),
        ("buckets", 17, "from 2 to 16"),
        ("tick_ms", 0, "from 1 to"),
        ("tick_ms", 0.5, "whole number"),
        ("tick_ms", True, "whole number"),
        ("high_water", 0, "from 1 to"),
        ("outcomes_limit", -1, "from 1 to"),
        ("refresh", "always", "'never' or 'update'"),
        ("publish", "yes", "True or False"),
        ("deadline_ms", 1, "for refresh='update'"),
        ("edges", "mill", "a list or tuple of names"),
        ("edges", ["mill", 7], "a list or tuple of names"),
        ("edges", {"mill"}, "a list or tuple of names"),
        ("edges", ("mill", "mill"), "up to 8 different names"),
        ("edges", tuple("abcdefghi"), "up to 8 different names"),
        ("edges", ("a,b",), "edge is 1 to 64 characters"),
        ("edges", ("",), "edge is 1 to 64 characters"),
        ("edges", ("x" * 65,), "edge is 1 to 64 characters"),
        ("edges", ("mühle",), "edge is 1 to 64 characters"),
        ("edges", ("mill\n",), "edge is 1 to 64 characters"),
    ],
)
def test_values_out_of_range_are_refused(field: str, value: object, words: str) -> None:
    with pytest.raises(ConfigError, match=words) as caught:
        AckerConfig(**{field: value})  # type: ignore[arg-type]
    assert field.removesuffix("s") in str(caught.value)


def test_edges_may_be_a_list() -> None:
    listed = AckerConfig(edges=["mill", "shop"])  # type: ignore[arg-type]
    assert listed == AckerConfig(edges=("mill", "shop"))
    assert hash(listed) == hash(AckerConfig(edges=("mill", "shop")))


def test_settings_that_are_given_replace_those_of_a_profile() -> None:
    assert AckerConfig.for_profile("service") == AckerConfig()
    spark = AckerConfig.for_profile("spark", high_water=7, shards=2)
    assert (spark.tick_ms, spark.high_water, spark.shards) == (600_000, 7, 2)
    with pytest.raises(ConfigError, match="profile is 'service' or 'spark', not 'batch'"):
        AckerConfig.for_profile("batch")  # type: ignore[arg-type]


@pytest.mark.parametrize("deadline_ms", [0, 89_999, -1, 1.5, True, None, 10**12 + 1])
def test_refresh_needs_a_deadline_of_at_least_n_ticks(deadline_ms: object) -> None:
    with pytest.raises(ConfigError, match="deadline_ms"):
        AckerConfig(refresh="update", deadline_ms=deadline_ms)  # type: ignore[arg-type]
    assert AckerConfig(refresh="update", deadline_ms=90_000).lifetime_ms == 120_000


@pytest.mark.parametrize(
    "config",
    [
        AckerConfig(),
        AckerConfig(1024, 16, 1, 1, "update", 16, 1, False, ("a", "b-c.d_e")),
        AckerConfig(slo_target=99.95),
        AckerConfig(slo_target=50, slo_ms=10**12),
    ],
)
def test_config_survives_a_wire_round_trip(config: AckerConfig) -> None:
    meta = dict(zip(CREATED, config.to_wire(), strict=True)) | config.optional_on_wire()
    assert AckerConfig.from_wire(meta) == config
    assert AckerConfig.from_wire(meta | config.changeable_on_wire()) == config
    assert {*CREATED, *OPTIONAL} == set(AckerConfig.__slots__) >= set(CHANGEABLE)


@pytest.mark.parametrize(
    "target", [49.999, 100, 99.9999, -1, 0, True, None, "99", float("nan"), float("inf")]
)
def test_invalid_objective_is_refused(target: object) -> None:
    with pytest.raises(ConfigError, match="percentage from 50 to 99.999, with at most 3 decimals"):
        AckerConfig(slo_target=target)  # type: ignore[arg-type]


@pytest.mark.parametrize("slo_ms", [-1, 0.5, True, None, 10**12 + 1])
def test_invalid_time_of_the_objective_is_refused(slo_ms: object) -> None:
    with pytest.raises(ConfigError, match="slo_ms is a whole number from 0 to"):
        AckerConfig(slo_ms=slo_ms)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("target", "text", "budget"),
    [
        (99, "99", 1.0),
        (99.0, "99", 1.0),
        (99.9, "99.9", 0.1),
        (99.95, "99.95", 0.05),
        (99.999, "99.999", 0.001),
        (50, "50", 50.0),
        (90.01, "90.01", 9.99),
    ],
)
def test_objective_has_one_text_and_an_exact_budget(
    target: float, text: str, budget: float
) -> None:
    assert wire("slo_target", target) == text
    assert AckerConfig(slo_target=target).slo_budget == budget


def test_timeouts_follow_from_ticks() -> None:
    config = AckerConfig(buckets=4, tick_ms=1000)
    assert config.timeout_ms == 4000
    assert config.fence_ms == 3000
    assert config.lifetime_ms == 4000
