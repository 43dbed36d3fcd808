"""The calls of a rotator to one shard, and its reaction to the replies."""

from typing import Any

from acker_redis.flows.drain import Round, ShardRotation, Step
from acker_redis.protocol.keys import ShardKeys

KEYS = ShardKeys("orders", 3)


def play(rotation: ShardRotation, *replies: tuple[str, list[Any], float]) -> list[Step]:
    """Answer each call, which must be of the given script."""
    steps = []
    for script, reply, now in replies:
        call = rotation.call()
        assert call.script == script
        assert call.keys == KEYS.both
        steps.append(rotation.reply(reply, now))
    return steps


def test_tick_is_followed_by_its_drain() -> None:
    rotation = ShardRotation(KEYS, records=100, blocks=5)
    *steps, last = play(
        rotation,
        ("rotate", [1, 2000, 150, 40], 10.0),
        ("expire", [90, 10, 50], 10.1),
        ("expire", [50, 0, 0], 10.2),
        ("expire_blocks", [7, 3, 1], 10.3),
        ("expire_blocks", [0, 2, 0], 10.5),
    )
    assert steps == [Step(more=True)] * 4
    assert last.round == Round(
        ticked=True, late_ms=40, expired=145, acked=7, orphaned=10, drain_ms=500, calls=4
    )
    assert not last.more
    assert round(last.due, 6) == 1.5


def test_look_without_a_due_tick_or_drain() -> None:
    rotation = ShardRotation(KEYS)
    (step,) = play(rotation, ("rotate", [0, 700, 0, 0], 10.0))
    assert round(step.due, 6) == 0.7
    assert step.round == Round(False, 0, 0, 0, 0, 0, 0)
    assert rotation.call().args == (0,)


def test_tick_due_during_a_drain_follows_at_once() -> None:
    """And not before: the shard rotates once the bucket is drained."""
    rotation = ShardRotation(KEYS)
    *_, last = play(
        rotation,
        ("rotate", [0, 100, 1, 0], 10.0),
        ("expire", [1, 0, 0], 20.0),
        ("expire_blocks", [0, 0, 0], 20.1),
    )
    assert last.due == 0.0
    assert last.round
    assert not last.round.ticked


def test_forced_rotation_ticks_once() -> None:
    rotation = ShardRotation(KEYS, force=True)
    drained, forced = play(
        rotation, ("rotate", [0, 700, 0, 0], 10.0), ("rotate", [1, 900, 0, 0], 10.0)
    )
    assert drained.more
    assert forced.round
    assert forced.round.ticked
    assert rotation.call().args == (0,)


def test_forced_rotation_first_drains_the_bucket_of_an_earlier_tick() -> None:
    rotation = ShardRotation(KEYS, force=True)
    play(rotation, ("rotate", [0, 700, 0, 0], 10.0))
    assert rotation.call().args == (1,)
    *_, last = play(
        rotation,
        ("rotate", [0, 900, 4, 0], 10.0),  # another rotator was faster
        ("expire", [4, 0, 0], 10.0),
        ("expire_blocks", [0, 0, 0], 10.0),
        ("rotate", [1, 900, 0, 0], 10.0),
    )
    assert not last.more


def test_due_tick_is_not_forced_a_second_time() -> None:
    rotation = ShardRotation(KEYS, force=True)
    (step,) = play(rotation, ("rotate", [1, 700, 0, 5], 10.0))
    assert not step.more
    assert rotation.call().args == (0,)


def test_call_without_reply_is_repeated() -> None:
    rotation = ShardRotation(KEYS)
    play(rotation, ("rotate", [1, 700, 9, 0], 10.0))
    assert rotation.call() == rotation.call()
