"""Rates: growth of the counters between two readings of one process."""

import asyncio
import random
from dataclasses import replace
from typing import Any

import pytest

from acker_redis.doctor.readings import APART_MS, LEAST_MS, MINUTE_MS, OLD_MS, Readings
from acker_redis.embedded import EmbeddedRedis
from acker_redis.protocol.commands import COUNTERS, ShardStatus
from acker_redis.protocol.config import AckerConfig
from acker_redis.protocol.keys import ShardKeys
from acker_redis.protocol.reshard import Reshard
from acker_redis.protocol.status import Status
from tests.api.service import app_of, client_of
from tests.api.test_namespaces import V1
from tests.conftest import MakeAcker
from tests.support import track


def reading(at_ms: int, *acked: int, name: str = "orders", tracked: int = 0) -> Status:
    """Return a status in which each shard has so many acked trees."""
    config = AckerConfig(shards=len(acked))
    return Status(
        name,
        config,
        tuple(
            ShardStatus(
                shard=shard,
                config=config,
                now_ms=at_ms,
                pending=(0, 0, 0),
                in_blocks=(0, 0, 0),
                expiring=0,
                fences=0,
                ticked_ms=0,
                counters={**dict.fromkeys(COUNTERS, 0), "acked": count, "tracked": tracked},
                backlog={},
            )
            for shard, count in enumerate(acked)
        ),
    )


def acked(growth: Readings, at_ms: int, *counts: int, **more: Any) -> tuple[int, float] | None:
    found = growth.add(reading(at_ms, *counts, **more))
    return (found.over_ms, found.per_second()["acked"]) if found else None


def test_rate_needs_two_readings_far_enough_apart() -> None:
    growth = Readings()
    assert acked(growth, 1_000, 50) is None
    assert acked(growth, 1_000 + LEAST_MS - 1, 90) is None
    assert acked(growth, 1_000 + LEAST_MS, 100) == (LEAST_MS, 10.0)
    found = growth.add(reading(1_000 + LEAST_MS, 101, tracked=7))
    assert found
    assert found.counts == {**dict.fromkeys(COUNTERS, 0), "acked": 51, "tracked": 7}
    assert found.per_second()["tracked"] == 1.4


def test_rate_covers_the_last_seconds_at_any_interval() -> None:
    growth = Readings()
    for at_ms in range(0, 60_000, 100):  # 1 per second, and from 30 s on 10 per second
        count = at_ms // 1000 if at_ms < 30_000 else 30 + (at_ms - 30_000) // 100
        found = acked(growth, at_ms, count)
        assert (found is None) == (at_ms < LEAST_MS)
        if found:
            assert LEAST_MS <= found[0] <= LEAST_MS + APART_MS
        if at_ms > 40_000:
            assert found
            assert 9.9 < found[1] < 10.1
    assert len(growth._kept["orders"]) <= 7


def test_readings_too_far_apart_give_no_rate() -> None:
    growth = Readings()
    acked(growth, 0, 0)
    assert acked(growth, MINUTE_MS, 60) == (MINUTE_MS, 1.0)
    assert acked(growth, 2 * MINUTE_MS + 1, 120) is None
    assert acked(growth, 2 * MINUTE_MS + 1 + LEAST_MS, 130) == (LEAST_MS, 2.0)


@pytest.mark.parametrize(
    ("counts", "at_ms"),
    [((3,), 20_000), ((120, 0), 20_000), ((120,), 3_000)],
    ids=["a counter went back", "other shards", "the clock went back"],
)
def test_rates_restart_after_a_recreation(counts: tuple[int, ...], at_ms: int) -> None:
    growth = Readings()
    acked(growth, 10_000, 100)
    assert acked(growth, 15_000, 110) == (5_000, 2.0)
    assert acked(growth, at_ms, *counts) is None
    later = (counts[0] + 10, *counts[1:])
    assert acked(growth, at_ms + LEAST_MS, *later) == (LEAST_MS, 2.0)


def test_overtaken_reading_does_not_restart_rates() -> None:
    """Two concurrent readings may read the shards in different order."""
    growth = Readings()
    acked(growth, 0, 0, 0)
    assert acked(growth, 6_000, 30, 30) == (6_000, 10.0)
    assert acked(growth, 5_990, 29, 31) == (5_990, 10.017)
    assert acked(growth, 6_010, 31, 29) == (6_010, 9.983)
    assert acked(growth, 12_000, 60, 60) == (6_000, 10.0)


@pytest.mark.parametrize("every_s", [1, 5, 10, 20, 30, 35, 40, 50, 60, 61, 120, 299])
def test_findings_compare_readings_a_minute_apart_at_any_interval(every_s: int) -> None:
    """After a minute, the compared readings are a minute apart or more."""
    readings, draw, at_ms = Readings(lately=False), random.Random(every_s), 0
    spans = []
    for _ in range(100):
        found = acked(readings, at_ms, at_ms)
        spans.append(found[0] if found else 0)
        at_ms += 1000 * every_s + draw.randrange(-100, 100)
    later = spans[1 + 62 // every_s :]
    assert min(later) >= MINUTE_MS - 1000
    assert max(later) <= min(OLD_MS, MINUTE_MS + 2000 * max(every_s, 5))
    assert len(readings._kept["orders"]) <= 15


def test_other_namespaces_are_forgotten() -> None:
    readings = Readings(lately=False)
    for name in ("a", "b"):
        acked(readings, 0, 0, name=name)
    readings.forget_others({"b"})
    assert list(readings._kept) == ["b"]


def test_memory_is_bounded() -> None:
    growth, draw = Readings(names=3), random.Random(7)
    for at_ms in range(0, 200_000, 50):
        acked(growth, at_ms + draw.randrange(2_000), at_ms, name=f"n{draw.randrange(5)}")
    assert len(growth._kept) == 3
    assert max(map(len, growth._kept.values())) <= 7
    growth = Readings(names=2)
    for name in "aba":
        acked(growth, 0, 0, name=name)
    acked(growth, 0, 0, name="c")
    assert acked(growth, LEAST_MS, 5, name="a") is not None, "b is the least recent one"


def test_state_has_rates_and_the_reshard(
    any_server: EmbeddedRedis, make_any_acker: MakeAcker
) -> None:
    acker = make_any_acker()
    path = f"{V1}/{acker.namespace}"

    async def run() -> None:
        app = app_of(any_server.url)
        async with client_of(app) as client:
            body = (await client.get(path)).json()
            assert (body["rates"], body["resharding_to"], body["reshard_phase"]) == (
                None,
                None,
                None,
            )
            kept = app.state.services.lately._kept[acker.namespace]
            kept[0] = replace(kept[0], at_ms=kept[0].at_ms - 10_000)
            for anchor in range(1, 101):
                track(acker, anchor, 40)
            move = Reshard(1, 4).to_wire()
            acker.connection.client.hset(ShardKeys(acker.namespace, 0).meta, "reshard", move)
            body = (await client.get(path)).json()
            assert (body["resharding_to"], body["reshard_phase"]) == (4, "closed")
            rates = body["rates"]
            assert set(rates) == {"over_ms", *COUNTERS}
            assert rates["over_ms"] >= 10_000
            assert rates["tracked"] == round(100_000 / rates["over_ms"], 3)
            assert rates["acked"] == 0.0

    asyncio.run(run())
