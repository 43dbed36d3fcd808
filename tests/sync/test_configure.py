"""Settings of a namespace in use: both clients, all shards, and the effect on batches."""

import asyncio
import random
from dataclasses import replace
from typing import Any

import pytest

from acker_redis.aio import AsyncAcker
from acker_redis.batching.batch import Batch
from acker_redis.embedded import EmbeddedRedis
from acker_redis.errors import (
    ConfigError,
    InvalidBatchError,
    LaneError,
    NamespaceExistsError,
    NamespaceNotFoundError,
    RedisUnavailableError,
)
from acker_redis.protocol.commands import Call
from acker_redis.protocol.config import AckerConfig
from acker_redis.protocol.keys import ShardKeys
from acker_redis.sync.client import Acker
from proof.reference.acker import Reference, TreeRow
from tests.conftest import MakeAcker
from tests.support import TRACK, tick, total, track

A, B = 0x4444_8888_4444, 0x0101_1010_0101


def configs(acker: Acker) -> set[AckerConfig]:
    """Return the configurations of all shards."""
    return {shard.config for shard in acker.status().shards}


def test_configure_changes_all_shards_and_the_cached_configuration(
    make_any_acker: MakeAcker, any_server: EmbeddedRedis
) -> None:
    acker = make_any_acker(shards=4, high_water=100)
    assert acker.config.high_water == 100
    wanted = AckerConfig(shards=4, tick_ms=60_000, high_water=8, outcomes_limit=16)
    changes = {"tick_ms": 60_000, "high_water": 8, "outcomes_limit": 16}
    assert acker.configure(**changes) == acker.config == wanted
    assert configs(acker) == {wanted}
    assert acker.configure() == wanted

    async def twin() -> AckerConfig:
        async with AsyncAcker.from_url(any_server.url, acker.namespace) as other:
            before = await other.config()
            after = await other.configure(high_water=12)
            assert (before.high_water, await other.config()) == (8, after)
            return after

    assert {asyncio.run(twin())} == configs(acker)
    assert acker.status().config.high_water == 12


def test_create_sets_the_objective_of_all_shards(
    make_any_acker: MakeAcker, any_server: EmbeddedRedis
) -> None:
    """The script create does not take it, so create makes further calls."""
    acker = make_any_acker(shards=2)
    plain = acker.config
    wanted = replace(plain, slo_target=99.95, slo_ms=60_000)
    assert not acker.create(wanted)
    assert configs(acker) == {wanted}
    assert acker.config == wanted
    # A create without an objective keeps it, and one with another objective is refused.
    with Acker.from_url(any_server.url, acker.namespace) as other:
        assert not other.create(plain)
        assert other.config == wanted
        with pytest.raises(NamespaceExistsError, match=r"with slo_target 99\.95, not 99\.9;"):
            other.create(replace(plain, slo_target=99.9))
    # A shard that was lost in a failover gets it again.
    acker.connection.client.delete(ShardKeys(acker.namespace, 1).meta)
    assert acker.create(plain)
    assert configs(acker) == {wanted}


def test_interrupted_create_is_completed(make_any_acker: MakeAcker) -> None:
    acker = make_any_acker(shards=4)
    wanted = replace(acker.config, slo_target=99.9)
    for stop in range(4):
        run, made = acker.connection.run, list[str]()

        def run_some(call: Call, run: Any = run, made: list[str] = made, stop: int = stop) -> Any:
            if call.script == "configure":
                made.append(call.keys[0])
                if len(made) > stop:
                    raise KeyboardInterrupt
            return run(call)

        acker.connection.run = run_some  # type: ignore[method-assign]
        with pytest.raises(KeyboardInterrupt):
            acker.create(wanted)
        acker.connection.run = run  # type: ignore[method-assign]
    acker.create(wanted)
    assert configs(acker) == {wanted}


@pytest.mark.parametrize(
    "wrong",
    [
        {"high_water": 0},
        {"tick_ms": 1.5},
        {"outcomes_limit": True},
        {"slo_target": 100},
        {"slo_ms": -1},
    ],
)
def test_invalid_setting_changes_no_shard(make_any_acker: MakeAcker, wrong: Any) -> None:
    acker = make_any_acker(shards=2)
    before = configs(acker)
    with pytest.raises(ConfigError):
        acker.configure(**wrong)
    assert configs(acker) == before


def test_configure_of_an_unknown_namespace_is_refused(any_server: EmbeddedRedis) -> None:
    with (
        Acker.from_url(any_server.url, "nowhere") as acker,
        pytest.raises(NamespaceNotFoundError),
    ):
        acker.configure(high_water=5)


@pytest.mark.parametrize(("tick_ms", "order"), [(60_000, "0123"), (7_200_000, "1230")])
def test_shard_0_always_has_the_shorter_tick_when_interrupted(
    make_any_acker: MakeAcker, tick_ms: int, order: str
) -> None:
    """A fence never lasts for less time than clients read, wherever configure is interrupted.

    Running configure again completes it.
    """
    for stop in range(1, 5):
        acker = make_any_acker(shards=4)
        run, made = acker.connection.run, list[str]()

        def run_some(call: Call, run: Any = run, made: list[str] = made, stop: int = stop) -> Any:
            if call.script == "configure":
                made.append(call.keys[0].rpartition(":")[2].rstrip("}"))
                if len(made) > stop:
                    raise KeyboardInterrupt
            return run(call)

        acker.connection.run = run_some  # type: ignore[method-assign]
        if stop < 4:
            with pytest.raises(KeyboardInterrupt):
                acker.configure(tick_ms=tick_ms)
        else:
            acker.configure(tick_ms=tick_ms)
        assert "".join(made) == order[: stop + 1]
        acker.connection.run = run  # type: ignore[method-assign]
        shards = acker.status().shards
        assert acker.config.tick_ms == min(shard.config.tick_ms for shard in shards)
        assert acker.configure(tick_ms=tick_ms).tick_ms == tick_ms
        assert {config.tick_ms for config in configs(acker)} == {tick_ms}


def test_batch_is_not_retried_after_a_shorter_tick_ended_its_fence(
    make_any_acker: MakeAcker, any_server: EmbeddedRedis
) -> None:
    """The reply was lost, then ticks became shorter, and the fence is deleted."""
    acker = make_any_acker(buckets=2)
    track(acker, 1, A)
    with Acker.from_url(any_server.url, acker.namespace, retry_for=0) as client:
        batch = Batch()
        batch.ack(1, A, [B])
        assert client.config.fence_ms == 3_600_000
        run = client.connection.run

        def lose(call: Call) -> Any:
            run(call)
            raise RedisUnavailableError("the reply was lost")

        client.connection.run = lose  # type: ignore[method-assign]
        with pytest.raises(RedisUnavailableError):
            client.apply(batch)
        client.connection.run = run  # type: ignore[method-assign]
        acker.configure(tick_ms=1000)
        assert batch.sent
        batch.sent.times[0] -= 1.0
        with pytest.raises(LaneError, match="too long ago"):
            client.apply(batch)
    assert total(acker)["repeated"] == 0


def test_rows_applied_twice_never_ack_falsely() -> None:
    """A shorter tick may delete a fence right before its batch is retried."""
    told = {"ack": 0, "nack": 0}
    for seed in range(300):
        rng = random.Random(seed)
        shard = Reference(AckerConfig(buckets=rng.randint(2, 4)), now_ms=1)
        # A tree of some messages: a row is a message's id XOR the ids of all messages it caused.
        ids = [rng.getrandbits(62) | 1 << 62 for _ in range(rng.randint(1, 5))]
        parents = [None, *(rng.randrange(n) for n in range(1, len(ids)))]
        rows = []
        for number, id_ in enumerate(ids):
            delta = id_
            for child, parent in enumerate(parents):
                delta ^= ids[child] if parent == number else 0
            rows.append(TreeRow(7, delta))
        rows.append(TreeRow(7, ids[0], TRACK, "s"))
        calls = [n for n in range(len(rows)) for _ in range(rng.choice((1, 1, 1, 2, 3)))]
        rng.shuffle(calls)
        applied: set[int] = set()
        for number in calls[: rng.randint(1, len(calls))]:
            shard.apply([rows[number]], "t" if rows[number].flags else "")
            applied.add(number)
            if rng.random() < 0.1:
                tick(shard)
            for outcome in shard.take("t"):
                told[outcome.verdict] += 1
                if outcome.verdict == "ack":
                    assert applied == set(range(len(rows)))
    assert min(told.values()) > 30


def test_block_that_fits_below_a_raised_mark_is_sent(
    make_any_acker: MakeAcker, any_server: EmbeddedRedis
) -> None:
    """The client has cached the old mark, with which it refuses blocks that can never fit."""
    acker = make_any_acker(high_water=2)
    with Acker.from_url(any_server.url, acker.namespace) as client:
        with pytest.raises(InvalidBatchError, match="raise high_water"):
            client.track_block("t", "b", [A] * 5, 1)
        acker.configure(high_water=3)
        assert len(client.track_block("t", "b", [A] * 5, 1)) == 5
    assert total(acker)["pending"] == 5


def test_lost_reply_counts_as_a_change(acker: Acker, monkeypatch: pytest.MonkeyPatch) -> None:
    flows, run, lost = acker.flows, acker.connection.run, list[Call]()

    def lose_once(call: Call) -> Any:
        reply = run(call)
        if call.script == "configure" and not lost:
            lost.append(call)
            raise RedisUnavailableError("the reply was lost")
        return reply

    def change(**given: int) -> bool:
        return acker.connection.drive(flows.change(given))[1]

    assert change(high_water=7)
    assert not change(high_water=7)
    monkeypatch.setattr(acker.connection, "run", lose_once)
    assert change(high_water=8), "the attempt without a reply changed it"
    assert not change(high_water=8)
