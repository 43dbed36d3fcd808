"""The command size: what a load needs. It needs no Redis."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acker_redis.errors import ConfigError
from acker_redis.ops.sizing import BUSY, KINDS, ROWS, Kind, Load, size
from acker_redis.protocol.config import AckerConfig
from tests.cli.support import run


def test_a_small_load_fits_on_one_server() -> None:
    shell = run("size", "--trees-per-s", "2000", "--messages-per-tree", "5", "--lifetime", "5")
    lines = dict(line.split(maxsplit=1) for line in shell.out.splitlines())
    assert lines["messages"] == "10,000 a second"
    assert lines["servers"].startswith("1, each at most half busy, for 0.0")
    assert lines["shards"] == "1"
    assert lines["pending"].startswith("10,000 trees, ")
    assert lines["stalled"].startswith("180,000 trees, ")  # 2000 x 3 ticks of 30 s
    assert lines["stalled"].endswith(": none completes for 90 s")


def test_json_has_the_same_figures_and_all_needs() -> None:
    options = ("size", "--trees-per-s", "2e6", "--kind", "rows", "--node-price", "0.5", "--json")
    found = json.loads(run(*options).out)
    assert found["load"]["messages_per_tree"] == 5
    assert found["price_per_month"] == pytest.approx(found["servers"] * 0.5 * 730)
    assert found["namespaces"] * found["shards"] >= 2 * found["servers"]
    assert found["shards"] == 16
    used = [each["used"] for each in found["needs"]]
    assert used == sorted(used, reverse=True)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--trees-per-s", "0"), "trees_per_s is a number above 0, not 0"),
        (("--trees-per-s", "nan"), "trees_per_s is a number above 0, not nan"),
        (("--trees-per-s", "inf"), "trees_per_s is a number above 0, not inf"),
        (("--trees-per-s", "1", "--messages-per-tree", "0.5"), "a number of 1 or more, not 0.5"),
        (("--trees-per-s", "1", "--lifetime", "-1"), "lifetime_s is a number above 0, not -1"),
        (("--trees-per-s", "1", "--lifetime", "1e308"), "lifetime_s is at most 1e+12, not 1e+308"),
        (("--trees-per-s", "1e300"), "trees_per_s is at most 1e+12, not 1e+300"),
        (("--trees-per-s", "1", "--buckets", "1"), "buckets"),
        (("--trees-per-s", "1", "--node-price", "-3"), "Invalid value for '--node-price'"),
    ],
)
def test_senseless_loads_are_refused(options: tuple[str, ...], words: str) -> None:
    shell = run("size", *options)
    assert shell.code != 0
    assert words in shell.err
    assert not shell.out


@given(
    st.floats(1, 1e7), st.floats(1, 100), st.floats(0.1, 100), st.sampled_from(["rows", "blocks"])
)
def test_more_load_never_needs_less(
    rate: float, messages: float, lifetime: float, kind: Kind
) -> None:
    found = size(Load(rate, messages, lifetime, kind=kind))
    assert found.redis_cores <= BUSY * found.servers
    more = size(Load(2 * rate, messages, lifetime, kind=kind))
    assert more.servers >= found.servers
    assert more.namespaces * more.shards >= found.namespaces * found.shards
    assert more.stalled_bytes >= found.stalled_bytes
    assert more.bytes_in_per_s >= found.bytes_in_per_s
    AckerConfig(shards=found.shards, high_water=max(1, found.high_water))  # valid settings


def test_costs_of_several_servers_are_not_below_those_of_one() -> None:
    for one, several in KINDS.values():
        for name in ("track_us", "row_us", "last_us", "take_us"):
            assert getattr(several, name) >= getattr(one, name)


def test_a_load_of_another_kind_is_refused() -> None:
    with pytest.raises(ConfigError, match="kind is rows or blocks, not 'row'"):
        Load(1, kind="row")  # type: ignore[arg-type]


def test_cores_are_the_sum_of_the_parts() -> None:
    per_tree = ROWS.track_us + 2 * ROWS.row_us + ROWS.last_us + ROWS.take_us
    assert size(Load(1000, 3)).redis_cores == pytest.approx(per_tree / 1000)
