"""The limit on tasks, and how idle tasks are forgotten."""

import pytest

from acker_redis.protocol import commands
from acker_redis.protocol.keys import ShardKeys
from acker_redis.sync.client import Acker
from proof.reference.acker import QUIET_TICKS
from tests.support import backlog, names, row, tick, track, verdicts

A = 0x7777_7777


def test_at_most_a_thousand_tasks(acker: Acker) -> None:
    for i in range(1, 1001):
        track(acker, i, 0, "s", f"task{i}")
    with pytest.raises(Exception, match="at most 1000 tasks"):
        track(acker, 2000, 0, "s", "one-too-many")
    track(acker, 2001, 0, "s", "task1000")
    row(acker, 2002, A)


def test_a_thousand_idle_tasks_make_room_for_others(acker: Acker) -> None:
    """Autoscaled sources have a task name per pod, and pods come and go."""
    for i in range(1, 1001):
        track(acker, i, 0, "s", f"pod-{i}")
        verdicts(acker, f"pod-{i}")
    with pytest.raises(Exception, match="forgotten after 100 ticks"):
        track(acker, 2000, 0, "s", "one-too-many")
    tick(acker, QUIET_TICKS + 1)
    assert len(names(acker)) == 900, "each tick forgets at most a hundred, to stay short"
    track(acker, 2000, A, "s", "one-too-many")
    tick(acker, 9)
    keys, client = ShardKeys(acker.namespace, 0), acker.connection.client
    assert names(acker) == {"one-too-many"}
    assert client.hget(keys.meta, "tasks") == b"1"
    assert [field for field in client.hgetall(keys.meta) if field.startswith(b"used:")] == [
        b"used:one-too-many"
    ]
    assert list(client.scan_iter(keys.outcomes("*"))) == [keys.outcomes("one-too-many").encode()]


def test_task_of_an_older_client_counts_as_used_at_the_first_tick(acker: Acker) -> None:
    keys, client = ShardKeys(acker.namespace, 0), acker.connection.client
    tick(acker, QUIET_TICKS)
    track(acker, 7, 0, "s7")
    verdicts(acker)
    client.hdel(keys.meta, "used:t")
    tick(acker, QUIET_TICKS)
    assert names(acker) == {"t"}
    tick(acker)
    assert names(acker) == set()


def test_forgotten_task_with_a_tree_still_gets_its_verdict(acker: Acker) -> None:
    """A failover may lose the last use of a task, and older clients do not record it."""
    keys, client = ShardKeys(acker.namespace, 0), acker.connection.client
    tick(acker, QUIET_TICKS)
    for anchor in (7, 8):
        track(acker, anchor, A, f"s{anchor}")
    client.hset(keys.meta, "used:t", 0)
    tick(acker)
    assert names(acker) == set()
    row(acker, 7, A)
    assert (names(acker), backlog(acker)) == ({"t"}, 1)
    tick(acker, 3)
    assert verdicts(acker) == [
        ("ack", "completed", 7, "s7", ""), ("nack", "expired", 8, "s8", ""),
    ]  # fmt: skip
    assert client.hget(keys.meta, "tasks") == b"1", "each tick counts them again"


def test_a_task_whose_stream_is_not_empty_is_not_forgotten(acker: Acker) -> None:
    """The count is ignored."""
    keys, client = ShardKeys(acker.namespace, 0), acker.connection.client
    track(acker, 7, 0, "s7")
    client.hset(keys.meta, "backlog:t", 0)
    tick(acker, QUIET_TICKS + 10)
    assert names(acker) == {"t"}


def test_a_task_whose_stream_was_deleted_is_not_forgotten_before_its_time(acker: Acker) -> None:
    """The first tick corrects the count. After that the task has no verdicts."""
    keys, client = ShardKeys(acker.namespace, 0), acker.connection.client
    track(acker, 7, 0, "s7")
    client.delete(keys.outcomes("t"))
    tick(acker, QUIET_TICKS)
    assert (names(acker), backlog(acker)) == ({"t"}, 0)
    tick(acker)
    assert names(acker) == set()


def test_a_rotator_without_the_right_to_xlen_ticks_and_forgets_nothing(acker: Acker) -> None:
    keys, client = ShardKeys(acker.namespace, 0), acker.connection.client
    track(acker, 7, 0, "s7")
    verdicts(acker)
    tick(acker, QUIET_TICKS)
    client.execute_command("ACL", "SETUSER", "default", "-xlen")
    try:
        rotated = commands.parse_rotate(acker.connection.run(commands.rotate(keys, True)))
        assert (rotated.rotated, names(acker)) == (True, {"t"})
    finally:
        client.execute_command("ACL", "SETUSER", "default", "+xlen")
    tick(acker)
    assert names(acker) == set()
