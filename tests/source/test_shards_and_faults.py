"""A shard is left out, and meanwhile comes a reshard, a refusal, or a second loss."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from acker_redis import Acker
from acker_redis.errors import RedisRefusedError, RedisUnavailableError
from acker_redis.ops.reshard import reshard
from tests.source.test_shards import SHARDS, Scene, acker, scene
from tests.source.test_timeouts import TIMEOUT
from tests.support import total

__all__ = ["acker", "scene"]
MakeScene = Callable[..., Scene]


def test_ack_that_waits_on_a_shard_that_is_left_out_survives_a_reshard(scene: MakeScene) -> None:
    """After it, half of the anchors count as those of a new shard, which answers."""
    it = scene(attempts=1)
    it.emit("a")
    it.steps()
    it.masters.cut = {1}
    done = it.process(*range(SHARDS))
    it.steps(5)
    reshard(it.bolts.acker, 2 * SHARDS)
    it.steps(40, 4 * TIMEOUT)
    it.masters.cut = set()
    it.until(lambda: it.source.pending == 0)
    words = sorted(it.called.take())
    assert words == sorted(f"ack {name}" for name in done), "no dead letter, and no ack is missing"


def test_batches_whose_look_up_fails_are_sent_with_those_before_them(scene: MakeScene) -> None:
    """A server with all shards: the connection is lost once more when the batches are repeated."""
    it = scene(attempts=1)
    source = it.source._flows
    it.masters._count, source._reach._places = 1, []
    it.source.step()
    it.masters.lost = {0}
    it.emit("a", 20)
    for _ in range(2):
        with pytest.raises(RedisUnavailableError):
            it.source.step()
    last = list(source._doubts)[-1]
    it.masters.lost = set()
    flows, show = source._flows, source._flows.show

    def fails(anchor: int) -> Iterator[Any]:
        if anchor % SHARDS == last:
            raise RedisUnavailableError("lost again")
        return (yield from show(anchor))

    flows.show = fails
    it.clock.advance(1)
    with pytest.raises(RedisUnavailableError, match="lost again"):
        it.source.step()
    flows.show = show
    it.until(lambda: len(it.bolts.sent) == 20)
    assert total(it.bolts.acker)["tracked"] == 20


def test_refusal_of_shard_0_does_not_stop_the_others(scene: MakeScene) -> None:
    """Rights are those of a node: it may refuse the scripts and answer reads."""
    it = scene()
    it.emit("a")
    it.steps()
    it.masters.refused = {0: RedisRefusedError("NOPERM this user has no permissions")}
    done = it.process(1, 2, 3)
    it.clock.advance(11.0)  # the configuration is due
    it.steps(10, 10.0)
    assert it.acked() == done
    it.masters.refused = {}
    it.finish()


def test_closing_rows_of_a_removed_shard_do_not_stop_the_others(
    scene: MakeScene, acker: Acker
) -> None:
    """The replies were lost, and the shard was removed while the source was cut from it."""
    it = scene()
    send, settings = it.bolts.send, it.source._flows.settings

    def cuts(record: Any, tree: Any) -> None:
        send(record, tree)
        it.masters.lost = {3}

    object.__setattr__(settings, "send", cuts)
    for number in range(20):
        it.source.emit(f"open-{number}", messages=None)
    it.steps()
    object.__setattr__(settings, "send", send)
    it.bolts.ack()
    it.steps()
    assert 3 in it.source._flows._work
    it.masters.lost, it.masters.cut = set(), {3}
    waiting = acker.outcomes("t")
    waiting.take([entry for entry in waiting.read(100) if entry.shard > 1])
    reshard(acker, 2)
    it.bolts.sent.clear()
    it.emit("late", 20)
    it.steps(10, 10.0)
    assert len(it.bolts.sent) >= 20
