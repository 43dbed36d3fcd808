"""Clients after a reshard, and repairs after a failover set a node back."""

import pytest

from acker_redis.batching.batch import Batch
from acker_redis.batching.sent import Part
from acker_redis.embedded import EmbeddedRedis
from acker_redis.errors import ChangedBatchError, RedisUnavailableError, ReshardError
from acker_redis.flows import namespace as flows_module
from acker_redis.flows import reshard as reshard_module
from acker_redis.ops.reshard import cancel, reshard
from acker_redis.protocol.commands import Fence
from acker_redis.protocol.keys import ShardKeys
from acker_redis.sync.client import Acker
from tests.cli.support import Shell
from tests.conftest import MakeAcker


@pytest.fixture
def shell(any_server: EmbeddedRedis) -> Shell:
    """Run commands on this server."""
    return Shell(any_server)


def fresh(acker: Acker) -> Acker:
    """Return a client with an empty cache."""
    return Acker(acker.connection.client, acker.namespace, retry_for=2)


def tracks(*anchors: int) -> Batch:
    batch = Batch("shop")
    for anchor in anchors:
        batch.track(anchor, f"order-{anchor}", [anchor + 90])
    return batch


def parts(shards: int, *anchors: int) -> dict[int, Part]:
    return {part.shard: part for part in tracks(*anchors).parts(shards)}


def ended(acker: Acker) -> list[str]:
    """Take the waiting verdicts, and return their source ids."""
    return [outcome.source_id for outcome in acker.outcomes("shop")]


def test_raised_fence_is_no_repeat_of_a_batch_without_digest(
    make_any_acker: MakeAcker,
) -> None:
    """Otherwise the batch would pass for applied, and its trees would get no verdict."""
    acker = make_any_acker(shards=2, tick_ms=20, buckets=2)
    acker.apply_part(parts(2, 4, 5)[1], Fence("@mine", 2))  # the client dies before shard 0
    reshard(acker, 4)
    again = parts(4, 4, 5)
    with pytest.raises(ChangedBatchError, match="was resharded since"):
        fresh(acker).apply_part(again[0], Fence("@mine", 2))
    assert fresh(acker).apply_part(again[1], Fence("@mine", 2)).highest == 2
    assert [acker.lane("@mine")[shard] for shard in range(4)] == [
        (2, "0" * 32),
        (2, ""),  # it was applied there before
        (2, "0" * 32),
        (2, "0" * 32),
    ]


def test_reshard_keeps_settings_changed_while_shard_0_was_set_back(
    make_any_acker: MakeAcker,
) -> None:
    acker = make_any_acker(tick_ms=20, buckets=2)
    client, meta = acker.connection.client, ShardKeys(acker.namespace, 0).meta
    before = client.dump(meta)
    reshard(acker, 2)
    client.restore(meta, 0, before, replace=True)
    fresh(acker).configure(high_water=5000, slo_target=99.9, slo_ms=1000)
    assert reshard(fresh(acker), 2).high_water == 5000
    assert fresh(acker).apply(tracks(4, 5)).tracked == 2
    (config,) = {shard.config for shard in fresh(acker).status().shards}
    assert (config.high_water, config.slo_target, config.slo_ms) == (5000, 99.9, 1000)


def test_verdicts_of_a_restored_shard_are_carried_to_a_read_shard(
    make_any_acker: MakeAcker,
) -> None:
    """A client with the old number has tracked there, and its reply confirmed that."""
    acker = make_any_acker(shards=2, tick_ms=20, buckets=2)
    stale, client, meta = fresh(acker), acker.connection.client, ShardKeys(acker.namespace, 1).meta
    assert stale.config.shards == 2
    before = client.dump(meta)
    reshard(acker, 1)
    client.restore(meta, 0, before)
    stale.apply(tracks(5, 7))
    stale.apply_part(parts(2, 9)[1], Fence("@lane", 1))
    reshard(fresh(acker), 1)
    assert fresh(acker).status().backlog == {"shop": 3}
    assert sorted(ended(fresh(acker))) == ["order-5", "order-7", "order-9"]
    assert fresh(acker).status().backlog == {"shop": 0}
    assert not client.exists(meta)


def test_recreated_shard_raises_no_fence_on_the_others(
    make_any_acker: MakeAcker,
) -> None:
    """A shard that is lost and created again fences no batch on the others."""
    acker = make_any_acker(shards=4)
    batch = parts(4, 4, 5)
    acker.apply_part(batch[0], Fence("@lane", 1, "aa"))
    client = acker.connection.client
    client.delete(*client.keys(f"acker:{{{acker.namespace}:3}}*"))
    reshard(fresh(acker), 4)
    assert acker.apply_part(batch[1], Fence("@lane", 1, "aa")).tracked == 1
    assert acker.lane("@lane")[3] == (1, "0" * 32)


def test_reshard_refuses_more_lanes_than_a_shard_holds(
    make_any_acker: MakeAcker, monkeypatch: pytest.MonkeyPatch
) -> None:
    acker = make_any_acker(shards=2, tick_ms=20, buckets=2)
    for number, shard in enumerate((0, 0, 1, 1)):
        part = parts(2, 10 * number + 10 + shard)[shard]
        acker.apply_part(part, Fence(f"@lane-{number}", 1))
    monkeypatch.setattr(reshard_module, "MAX_LANES", 3)
    with pytest.raises(ReshardError, match="hold 4 durable lanes, and one shard holds 3 at most"):
        reshard(acker, 1)
    assert acker.status().shards[0].reshard is None
    monkeypatch.setattr(reshard_module, "MAX_LANES", 4)
    ended(acker)
    while acker.status().pending:
        ended(acker)
        reshard(acker, 4)
    assert len(acker.lane("@lane-0")) == 4


def test_reshard_command_repairs_a_namespace_without_a_shard(
    make_any_acker: MakeAcker, shell: Shell
) -> None:
    acker = make_any_acker(shards=2, tick_ms=20, buckets=2)
    client, ns = acker.connection.client, acker.namespace
    before = client.dump(ShardKeys(ns, 0).meta)
    reshard(acker, 1)
    client.restore(ShardKeys(ns, 0).meta, 0, before, replace=True)
    asked = shell("reshard", ns, "--shards", "1", stdin="y\n")
    assert (asked.code, asked.out) == (0, f"{ns}: has 1 shard\n")
    assert cancel(fresh(acker)).shards == 1


def test_rejected_tree_after_a_lost_reply_has_no_output_line(
    make_any_acker: MakeAcker, shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    acker = make_any_acker(high_water=1)
    acker.apply(tracks(1, 2))
    send, lost = flows_module.Flows._send, []

    def losing(self, part, fence):  # type: ignore[no-untyped-def]
        reply = yield from send(self, part, fence)
        if not lost:
            lost.append(reply)
            raise RedisUnavailableError("the reply was lost")
        return reply

    monkeypatch.setattr(flows_module.Flows, "_send", losing)
    ran = shell("track", acker.namespace, "shop", "order-3")
    assert len(lost[0].rejected) == 1
    assert (ran.code, ran.out) == (3, "")
    assert "rejected, too many trees are pending: order-3" in ran.err
