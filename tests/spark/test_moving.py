"""A batch that is to be tracked while its namespace moves to other shards; no Spark is needed."""

import logging
from collections.abc import Callable
from types import SimpleNamespace

import pytest

from acker_redis import commands
from acker_redis.client import Acker
from acker_redis.errors import BacklogError, WrongShardError
from acker_redis.keys import ShardKeys
from acker_redis.migrate import migrate
from acker_redis.spark import lanes, room
from tests.conftest import MakeAcker
from tests.support import columns, send


class Clock:
    """In place of ``time``: who sleeps moves it, and does something else instead."""

    def __init__(self) -> None:
        self.now = 0.0
        self.meanwhile: list[Callable[[], object]] = [lambda: None]

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += max(seconds, 0.01)
        self.meanwhile[0]()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    names = SimpleNamespace(monotonic=clock.monotonic, sleep=clock.sleep)
    monkeypatch.setattr(room, "time", names)
    return clock


def moving(acker: Acker, value: str) -> None:
    """Close the namespace, or open it."""
    acker.connection.run(commands.configure(ShardKeys(acker.namespace, 0), {"moving": value}))


@pytest.mark.parametrize("again", [False, True])
def test_a_batch_waits_until_it_has_moved(
    make_any_acker: MakeAcker, clock: Clock, again: bool, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    acker = make_any_acker()
    moving(acker, "1:4")
    with pytest.raises(BacklogError, match="still moves to another number of shards after 60 s"):
        room.wait_for_room(acker, "t", [10], 60.0, again)
    assert "moves to other shards, waits for room" in caplog.text
    clock.meanwhile[0] = lambda: moving(acker, "")
    assert room.wait_for_room(acker, "t", [10], 60.0, again) > 0
    moving(acker, "1:4")
    clock.meanwhile[0] = lambda: migrate(acker, 4)
    with pytest.raises(WrongShardError, match="run the batch again"):
        room.wait_for_room(acker, "t", [10], 60.0, again)


def test_what_was_applied_before_is_looked_for_on_the_shards_there_are(
    make_any_acker: MakeAcker,
) -> None:
    """A driver that has run since before the move."""
    acker = make_any_acker()
    assert acker.config.shards == 1
    other = Acker(acker.connection.client, acker.namespace)
    migrate(other, 4)
    seq = 7 * lanes.GENERATIONS * lanes.CHUNKS + 1
    fence = commands.Fence("@spark/app/q", seq, "aa")
    send(other, columns([(6, 5, 0)]), fence, shard=2)
    assert lanes.standing(acker, "@spark/app/q", 7) == lanes.Standing(0, "aa")
    assert acker.config.shards == 4
