"""Configuration: the range of each field, and its wire format."""

import pytest

from acker_redis.errors import ConfigError
from acker_redis.protocol.config import AckerConfig

FIELDS = ("shards", "buckets", "tick_ms", "high_water", "refresh", "outcomes_limit", "publish")


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
    ],
)
def test_values_out_of_range_are_refused(field: str, value: object, words: str) -> None:
    with pytest.raises(ConfigError, match=words) as caught:
        AckerConfig(**{field: value})  # type: ignore[arg-type]
    assert field in str(caught.value)


@pytest.mark.parametrize(
    "config",
    [
        AckerConfig(),
        AckerConfig(1024, 16, 1, 1, "update", 1, False),
    ],
)
def test_config_survives_a_wire_round_trip(config: AckerConfig) -> None:
    assert AckerConfig.from_wire(dict(zip(FIELDS, config.to_wire(), strict=True))) == config


def test_timeouts_follow_from_ticks() -> None:
    config = AckerConfig(buckets=4, tick_ms=1000)
    assert config.timeout_ms == 4000
    assert config.fence_ms == 3000
