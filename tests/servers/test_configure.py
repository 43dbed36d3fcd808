"""configure.lua: the settings of a live shard, and each step of a reshard."""

from collections.abc import Callable
from typing import Any

import pytest

from acker_redis.errors import ChangedBatchError, InvalidBatchError, ReshardError, SchemaError
from acker_redis.protocol import commands
from acker_redis.protocol.commands import Fence
from acker_redis.protocol.keys import ShardKeys
from acker_redis.sync.client import Acker
from tests.conftest import MakeAcker
from tests.support import (
    advance,
    columns,
    drain,
    drain_blocks,
    dump,
    fences,
    rotate,
    row,
    send,
    send_blocks,
    tick,
    track,
    track_block,
    tracked_block,
    verdicts,
)

A = 0x3333_9999_3333


def configure(acker: Acker, *changes: str | int, shard: int = 0) -> int:
    """Call configure once with field, value, .., and return the number of changed fields."""
    keys = ShardKeys(acker.namespace, shard)
    reply = acker.connection.run(commands.Call("configure", keys.both, changes))
    return int(reply)


def reshard(acker: Acker, shard: int = 0) -> str:
    """Return the field reshard, '' if it is missing."""
    keys = ShardKeys(acker.namespace, shard)
    return (acker.connection.client.hget(keys.meta, "reshard") or b"").decode()


def test_configure_is_idempotent(acker: Acker) -> None:
    changes = ("high_water", 7, "tick_ms", 9, "outcomes_limit", 11)
    assert configure(acker, *changes) == 3
    config = acker.status().config
    assert (config.high_water, config.tick_ms, config.outcomes_limit) == (7, 9, 11)
    before = dump(acker)
    assert configure(acker, *changes) == 0
    assert dump(acker) == before
    assert configure(acker, "tick_ms", 10, "high_water", 7) == 1


@pytest.mark.parametrize("target", ["50", "99", "99.9", "99.95", "99.005", "99.999", "90.01"])
def test_objective_is_changed(acker: Acker, target: str) -> None:
    before = acker.status().config
    assert (before.slo_target, before.slo_ms) == (99, 0)
    assert configure(acker, "slo_target", target, "slo_ms", 60_000) == 1 + (target != "99")
    config = acker.status().config
    assert (config.slo_target, config.slo_ms) == (float(target), 60_000)
    assert configure(acker, "slo_target", target, "slo_ms", 0) == 1
    assert acker.status().config.slo_ms == 0


@pytest.mark.parametrize(
    "changes",
    [
        (),
        ("high_water",),
        ("high_water", 0),
        ("high_water", "1e3"),
        ("high_water", " 7"),
        ("high_water", "1000000000001"),
        ("high_water", "inf"),
        ("tick_ms", "-1"),
        ("tick_ms", 5, "tick_ms", 6),
        ("outcomes_limit", ""),
        ("slo_ms", "-1"),
        ("slo_ms", "00"),
        ("slo_ms", "1000000000001"),
        ("slo_target", "49.999"),
        ("slo_target", "100"),
        ("slo_target", "99."),
        ("slo_target", "99.90"),
        ("slo_target", "99.9999"),
        ("slo_target", "099"),
        ("slo_target", ".5"),
        ("buckets", 4),
        ("refresh", "update"),
        ("schema", "1"),
        ("tracked", 5),
        ("shards", 3),
        ("shards", 2048),
        ("shards", "0x2"),
        ("shards", 2, "tick_ms", 5),
        ("reshard", "1:2", "tick_ms", 5),
        ("reshard", "1"),
        ("reshard", "1:1"),
        ("reshard", "1:3"),
        ("reshard", "1:2048"),
        ("reshard", "1:2:later"),
        ("reshard", "1:2 "),
        ("lane:q", "1:1"),
        ("lane:@q", "0:1"),
        ("lane:@q", "1"),
        ("lane:@q", "1:aa:1"),
        ("lane:@q", "1:1", "lane:@q", "2:1"),
        ("lane:@q", "1:1", "tick_ms", 5),
        ("lane:@" + 128 * "q", "1:1"),
        tuple(each for n in range(501) for each in (f"lane:@{n}", "1:1")),
    ],
)
def test_invalid_changes_are_refused(acker: Acker, changes: tuple[Any, ...]) -> None:
    before = dump(acker)
    with pytest.raises(InvalidBatchError):
        configure(acker, *changes)
    assert dump(acker) == before


def test_new_high_water_applies_from_the_next_call(make_acker: MakeAcker) -> None:
    acker = make_acker(shards=4)
    configure(acker, "high_water", 5)
    assert track(acker, 4, A).high_water == 2
    configure(acker, "high_water", 4)
    for anchor in (8, 12):
        reply = track(acker, anchor, A)
    assert (reply.high_water, reply.rejected) == (1, (12,))


def test_longer_tick_delays_expiry_and_shorter_tick_hastens_it(
    make_acker: MakeAcker,
) -> None:
    acker = make_acker(tick_ms=3_600_000, buckets=2)
    track(acker, 1, A)
    advance(acker, 3_600_000)
    configure(acker, "tick_ms", 7_200_000)
    assert not rotate(acker, force=False)
    advance(acker, 3_600_000)
    assert rotate(acker, force=False)
    drain(acker)
    assert verdicts(acker) == []
    advance(acker, 60_000)
    assert not rotate(acker, force=False)
    configure(acker, "tick_ms", 60_000)
    assert rotate(acker, force=False)
    drain(acker)
    assert [v[:3] for v in verdicts(acker)] == [("nack", "expired", 1)]


def test_configure_works_at_maxmemory(acker: Acker) -> None:
    client = acker.connection.client
    client.config_set("maxmemory", 1)
    try:
        assert configure(acker, "high_water", 5) == 1
        assert configure(acker, "reshard", "1:2") == 1
        assert configure(acker, "reshard", "1:2:switch") == 1
        assert configure(acker, "shards", 2) == 1
    finally:
        client.config_set("maxmemory", 0)


def ticks(acker: Acker) -> bool:
    """Tick until the first bucket expires, without a drain."""
    return rotate(acker) and rotate(acker) and rotate(acker)


PENDING: dict[str, Callable[[Acker], object]] = {
    "pending:0": lambda acker: track(acker, 1, A),
    "pending:1": lambda acker: (rotate(acker), row(acker, 1, A)),
    "expiring": lambda acker: (track(acker, 1, A), ticks(acker)),
    "blocks:0": lambda acker: track_block(acker, 1, [A]),
    "blocks_expiring": lambda acker: (track_block(acker, 1, [A]), ticks(acker)),
    "verdicts of t": lambda acker: track(acker, 1, 0),
    "verdicts of u": lambda acker: track_block(acker, 1, [0], task="u"),
    "verdicts of v": lambda acker: (
        track(acker, 1, 0, task="v"),
        acker.connection.client.hset(ShardKeys(acker.namespace, 0).meta, "backlog:v", 0),
    ),
    "verdicts of w": lambda acker: (
        track(acker, 1, 0, task="w"),
        acker.connection.client.delete(ShardKeys(acker.namespace, 0).outcomes("w")),
    ),
}


TREES = [what for what in PENDING if not what.startswith("verdicts")]


@pytest.mark.parametrize("what", TREES)
def test_reshard_is_refused_while_trees_are_pending(acker: Acker, what: str) -> None:
    PENDING[what](acker)
    configure(acker, "reshard", "1:2")
    refused(acker, 0, "1:2", what)
    drain(acker)
    drain_blocks(acker)


@pytest.mark.parametrize("what", [what for what in PENDING if what not in TREES])
def test_shard_is_not_removed_while_verdicts_wait(acker: Acker, what: str) -> None:
    """On a shard that stays, verdicts may wait."""
    PENDING[what](acker)
    client, keys = acker.connection.client, ShardKeys(acker.namespace, 0)
    assert configure(acker, "reshard", "1:2") == 1
    assert configure(acker, "reshard", "1:2:switch") == 1
    assert configure(acker, "shards", 2) == 1
    # Simulate a shard that the reshard removes.
    client.hset(keys.meta, mapping={"shard": 1, "reshard": "2:1"})
    refused(acker, 1, "2:1", what)


def refused(acker: Acker, shard: int, reshard: str, what: str) -> None:
    """Check that the steps of a reshard that need an empty shard are refused."""
    client, meta, before = acker.connection.client, ShardKeys(acker.namespace, 0).meta, dump(acker)
    with pytest.raises(ReshardError, match=f"is not empty: .*{what}"):
        configure(acker, "reshard", f"{reshard}:switch")
    # Force the commit, which nothing else does: still no tree is left on a wrong shard.
    client.hset(meta, "reshard", f"{reshard}:switch")
    with pytest.raises(ReshardError, match=f"is not empty: .*{what}"):
        configure(acker, "shards", reshard[-1])
    client.hset(meta, "reshard", reshard)
    assert dump(acker) == before


def test_reshard_steps_follow_a_fixed_order_and_are_idempotent(make_acker: MakeAcker) -> None:
    """Each step is accepted only after certain others, and repeating a step changes nothing."""
    acker = make_acker(shards=2)

    def refused(value: str, shard: int = 0) -> None:
        before = dump(acker)
        with pytest.raises(ReshardError):
            configure(acker, "reshard", value, shard=shard)
        assert dump(acker) == before

    for value in ("2:4:switch", "2:4:cancel", "4:2", "4:8", "1:2"):
        refused(value)
    assert configure(acker, "reshard", "") == 0
    for shard in (0, 1):
        assert configure(acker, "reshard", "2:4", shard=shard) == 1
        assert configure(acker, "reshard", "2:4", shard=shard) == 0
        refused("2:8", shard)
    with pytest.raises(ReshardError):  # only shard 0 decides it
        configure(acker, "shards", 4)
    refused("")  # after a failover, shard 0 may have lost the commit that the others have
    assert configure(acker, "reshard", "2:4:switch", shard=1) == 1
    assert configure(acker, "reshard", "2:4", shard=1) == 0
    assert reshard(acker, 1) == "2:4:switch"
    assert configure(acker, "reshard", "2:4:cancel") == 1
    for value in ("2:4", "2:4:switch"):
        refused(value)
    with pytest.raises(ReshardError):
        configure(acker, "shards", 4)
    for shard in (1, 0):
        assert configure(acker, "reshard", "", shard=shard) == 1
        assert not reshard(acker, shard)

    for shard in (0, 1):
        configure(acker, "reshard", "2:4", shard=shard)
    for shard in (1, 0):
        configure(acker, "reshard", "2:4:switch", shard=shard)
    for value in ("", "2:4", "2:4:cancel"):
        refused(value)
    for wrong in (2, 8):
        with pytest.raises(ReshardError):
            configure(acker, "shards", wrong)
    for shard in (1, 0):
        assert configure(acker, "shards", 4, shard=shard) == 1
        assert configure(acker, "shards", 4, shard=shard) == 0
    # A shard that lost the field in a failover closes again; shard 0 must have the old number.
    assert configure(acker, "reshard", "", shard=1) == 1
    assert configure(acker, "reshard", "2:4", shard=1) == 1
    assert configure(acker, "reshard", "") == 1
    refused("2:4")


def test_fences_and_durable_lanes_stay(acker: Acker) -> None:
    part = columns([(2, A, 0)])
    send(acker, part, Fence("@spark/app/q", 5, "aa"))
    send(acker, part, Fence("lane", 5, "aa"))
    send_blocks(acker, tracked_block(1, [A]), fence=Fence("@spark/app/r", 1))
    assert fences(acker) == 3
    tick(acker, 2)
    configure(acker, "reshard", "1:2")
    send(acker, part, Fence("lane", 6, "ab"))
    tick(acker)
    verdicts(acker)
    configure(acker, "reshard", "1:2:switch")
    configure(acker, "shards", 2)
    shard = acker.connection.run(commands.status(ShardKeys(acker.namespace, 0)))
    assert commands.parse_status(shard, ShardKeys(acker.namespace, 0)).fences == 3
    for lane, seq, digest in [
        ("lane", 6, "ab"),
        ("@spark/app/q", 5, "aa"),
        ("@spark/app/r", 1, ""),
    ]:
        assert send(acker, part, Fence(lane, seq, digest)).highest == seq


def test_durable_lanes_are_raised_and_never_lowered(acker: Acker) -> None:
    part, keys = columns([(2, A, 0)]), ShardKeys(acker.namespace, 0)
    send(acker, part, Fence("@q", 5, "aa"))
    held = acker.connection.client.hget(keys.durable_fences, "@q")
    assert configure(acker, "lane:@q", "5:9", "lane:@r\n", "7:8") == 1
    assert acker.connection.client.hget(keys.durable_fences, "@q") == held
    assert acker.connection.client.hget(keys.durable_fences, "@r\n") == b"7:%b:8" % (b"0" * 32)
    assert configure(acker, "lane:@q", "6:9", "lane:@r\n", "6:10") == 1
    raised = held.replace(b"5:aa", b"6:" + b"0" * 32)
    assert acker.connection.client.hget(keys.durable_fences, "@q") == raised
    before = dump(acker)
    assert configure(acker, "lane:@q", "6:9", "lane:@r\n", "7:8") == 0
    assert dump(acker) == before
    for digest in ("aa", "ab", ""):
        with pytest.raises(ChangedBatchError):
            send(acker, part, Fence("@q", 6, digest))
    assert send(acker, part, Fence("@q", 5, "aa")).highest == 6
    assert send(acker, part, Fence("@q", 7, "aa")).highest is None
    acker.connection.client.hset(keys.durable_fences, "@q", "x")
    with pytest.raises(SchemaError, match="tampered"):
        configure(acker, "lane:@q", "6:9")
