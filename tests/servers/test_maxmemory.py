"""At maxmemory, batches that create records are refused whole, and those that free succeed."""

from collections.abc import Iterator

import pytest

from acker_redis.errors import RedisRefusedError
from acker_redis.protocol import commands
from acker_redis.protocol.commands import Fence
from acker_redis.protocol.keys import ShardKeys
from acker_redis.rotator.rotator import Rotator
from acker_redis.sync.client import Acker
from tests.support import FAIL, TRACK, columns, dump, send, tick, touch, track, verdicts

A, B = 0x1111_2222, 0x3333_0000_4444


@pytest.fixture
def full(acker: Acker) -> Iterator[Acker]:
    """An acker with three pending trees on a full Redis."""
    for anchor in (1, 2, 3):
        track(acker, anchor, A, f"s{anchor}")
    acker.connection.client.config_set("maxmemory", 1)
    yield acker
    acker.connection.client.config_set("maxmemory", 0)


@pytest.mark.parametrize("fence", [None, Fence("p", 1)])
def test_batch_with_tracks_is_refused_whole_at_maxmemory(full: Acker, fence: Fence | None) -> None:
    before = dump(full)
    part = columns([(9, A, TRACK), (1, A, 0), (2, 0, FAIL)], "t", ["s9", "why"])
    with pytest.raises(RedisRefusedError, match="maxmemory"):
        send(full, part, fence)
    assert dump(full) == before


@pytest.mark.parametrize("fence", [None, Fence("p", 1)])
def test_rows_of_known_trees_are_applied_at_maxmemory(full: Acker, fence: Fence | None) -> None:
    reply = send(full, columns([(1, A, 0), (2, A ^ B, 0), (3, 0, FAIL)], "", ["why"]), fence)
    assert (reply.acked, reply.failed, reply.pending) == (1, 1, 1)
    touch(full, 2)


def test_ticks_and_drains_continue_at_maxmemory(full: Acker) -> None:
    tick(full, 3)
    assert {v[3] for v in verdicts(full)} == {"s1", "s2", "s3"}
    tick(full, 3)


def test_take_of_missing_entries_works_at_maxmemory(full: Acker) -> None:
    send(full, columns([(1, A, 0)]))
    outcomes = full.outcomes("t")
    entries = outcomes.read()
    assert outcomes.take(entries) == 1
    assert outcomes.take(entries) == 0


def test_repeat_is_reported_at_maxmemory(acker: Acker) -> None:
    """The batch was applied before. An error would claim that nothing was changed."""
    part = columns([(1, A, TRACK)], "t", ["s1"])
    send(acker, part, Fence("p", 1))
    acker.connection.client.config_set("maxmemory", 1)
    try:
        assert send(acker, part, Fence("p", 1)).highest == 1
    finally:
        acker.connection.client.config_set("maxmemory", 0)


def test_drain_continues_after_a_clock_jump_back_at_maxmemory(acker: Acker) -> None:
    keys = ShardKeys(acker.namespace, 0)
    track(acker, 1, A, "s1")
    tick(acker, 2)
    acker.connection.run(commands.rotate(keys, force=True))
    client = acker.connection.client
    client.hincrby(keys.meta, "ticked_ms", 7_200_000)
    client.config_set("maxmemory", 1)
    try:
        Rotator([acker]).step()
        assert [v[3] for v in verdicts(acker)] == ["s1"]
    finally:
        client.config_set("maxmemory", 0)


def test_unfenced_batch_that_creates_and_refreshes_is_refused_whole(full: Acker) -> None:
    full.connection.client.config_set("maxmemory", 0)
    send(full, columns([(50, A, 0)]))
    tick(full)
    full.connection.client.config_set("maxmemory", 1)
    before = dump(full)
    with pytest.raises(RedisRefusedError):
        send(full, columns([(50, 0, FAIL), (60, B, TRACK)], "t", ["s60", "why"]))
    assert dump(full) == before
