"""A shard that is closed for a reshard: no tree is tracked, all other rows are applied."""

import pytest

from acker_redis.errors import BacklogError
from acker_redis.protocol import commands
from acker_redis.protocol.commands import Fence
from acker_redis.protocol.keys import ShardKeys
from acker_redis.protocol.reshard import Reshard
from proof.reference.acker import Reference
from proof.reference.blocks import BlockRow
from tests.conformance.conftest import MakeTarget
from tests.support import (
    FAIL,
    TRACK,
    Target,
    block_row,
    block_verdicts,
    columns,
    dump,
    fail,
    row,
    send,
    send_blocks,
    tick,
    total,
    touch,
    track,
    track_block,
    tracked_block,
    verdicts,
)

A, B = 0x5A5A_0F0F_3C3C, 0x1111_2222_3333


RESHARD = Reshard(1, 4)


def close(target: Target, reshard: Reshard | None = RESHARD) -> None:
    """Close the shard, or open it again."""
    if isinstance(target, Reference):
        target.reshard = reshard is not None
    else:
        for value in [reshard.to_wire()] if reshard else [RESHARD.at("cancel").to_wire(), ""]:
            changes = {"reshard": value}
            target.connection.run(commands.configure(ShardKeys(target.namespace, 0), changes))


def test_a_batch_that_tracks_is_refused_whole(acker: Target) -> None:
    track(acker, 1, A)
    close(acker)
    before = dump(acker)
    with pytest.raises(BacklogError, match="resharding"):
        send(acker, columns([(2, A, TRACK), (1, A, 0)], "t", ["s2"]))
    with pytest.raises(BacklogError, match="resharding"):
        send(acker, columns([(3, 0, TRACK)], "t", ["at once"]))
    with pytest.raises(BacklogError, match="resharding"):
        track(acker, 1, A, "again")
    assert dump(acker) == before
    close(acker, None)
    reply = send(acker, columns([(2, A, TRACK), (1, A, 0)], "t", ["s2"]))
    assert (reply.tracked, reply.acked) == (1, 1)


def test_closed_shard_refuses_new_blocks_and_serves_pending_ones(acker: Target) -> None:
    track_block(acker, 7, [A, B])
    close(acker)
    before = dump(acker)
    with pytest.raises(BacklogError, match="resharding"):
        send_blocks(acker, tracked_block(8, [A]), BlockRow(7, {0: A}))
    assert dump(acker) == before
    send_blocks(acker, tracked_block(7, [A, B], failed={1: "no"}))
    block_row(acker, 7, {0: A, 1: B})
    assert [(o.verdict, o.reason) for o in block_verdicts(acker)] == [
        ("nack", "failed"),
        ("ack", "completed"),
    ]
    assert total(acker)["pending"] == 0


def test_rows_without_a_tree_are_dropped_and_counted(acker: Target) -> None:
    row(acker, 9, A)
    close(acker)
    row(acker, 10, A)
    fail(acker, 11, "dropped too")
    touch(acker, 12)
    block_row(acker, 5, {0: A})
    counters = total(acker)
    assert (counters["pending"], counters["orphaned"]) == (1, 3)
    row(acker, 9, B)  # an existing record stays
    tick(acker, 3)
    counters = total(acker)
    assert (counters["pending"], counters["orphaned"]) == (0, 4)


@pytest.mark.parametrize("refresh", ["never", "update"])
def test_closed_shard_serves_pending_trees(make_acker: MakeTarget, refresh: str) -> None:
    acker = make_acker(refresh=refresh)
    for anchor in range(1, 6):
        track(acker, anchor, A, f"s{anchor}")
    close(acker)
    assert row(acker, 1, A ^ B).acked == 0
    assert row(acker, 1, B).acked == 1
    assert fail(acker, 2, "no").failed == 1
    touch(acker, 3)
    assert send(acker, columns([(4, A, FAIL), (5, A, 0)], "", ["bad"])).acked == 1
    tick(acker, 3)
    assert sorted(v[:3] for v in verdicts(acker)) == [
        ("ack", "completed", 1),
        ("ack", "completed", 5),
        ("nack", "expired", 3),
        ("nack", "failed", 2),
        ("nack", "failed", 4),
        ("touch", "reset", 3),
    ]
    assert total(acker)["pending"] == 0


@pytest.mark.parametrize("producer", ["p", "@durable"])
def test_retried_track_on_a_closed_shard_is_a_repeat(acker: Target, producer: str) -> None:
    """Its source lost the reply, and must not read BACKLOG as the result."""
    part, before = columns([(7, A, TRACK)], "t", ["s7"]), Fence(producer, 1, "aa")
    block = tracked_block(7, [A])
    send(acker, part, before)
    send_blocks(acker, block, fence=Fence(producer, 2, "bb"))
    close(acker)
    assert send(acker, part, before).highest == 2
    assert send_blocks(acker, block, fence=Fence(producer, 2, "bb")).highest == 2
    assert total(acker)["repeated"] == 2
    with pytest.raises(BacklogError):
        send(acker, columns([(8, A, TRACK)], "t", ["s8"]), Fence(producer, 3, "cc"))
    assert row(acker, 7, A).acked == 1
    close(acker, None)
    # The refused batch did not use up its number.
    tracks = columns([(8, A, TRACK)], "t", ["s8"])
    assert send(acker, tracks, Fence(producer, 3, "cc")).tracked == 1


def test_reshard_is_reported_before_a_full_backlog(make_acker: MakeTarget) -> None:
    """Both conditions refuse the batch. Report the reshard, because it ends by itself."""
    acker = make_acker(outcomes_limit=1)
    track(acker, 1, 0)
    track_block(acker, 1, [0], task="u")
    close(acker)
    with pytest.raises(BacklogError, match="resharding"):
        track(acker, 2, A)
    with pytest.raises(BacklogError, match="resharding"):
        track_block(acker, 2, [A], task="u")
