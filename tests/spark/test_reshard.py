"""A batch that must be tracked while its namespace is being resharded; needs no Spark."""

import logging
from collections.abc import Callable
from types import SimpleNamespace

import pytest

from acker_redis.errors import (
    BacklogError,
    ChangedBatchError,
    LaneError,
    RedisUnavailableError,
    WrongShardError,
)
from acker_redis.ops.reshard import reshard
from acker_redis.protocol import commands
from acker_redis.protocol.keys import ShardKeys
from acker_redis.spark import admission
from acker_redis.spark.fold import lanes
from acker_redis.sync.client import Acker
from tests.conftest import MakeAcker
from tests.spark.test_lanes import Driver, loose, numbers
from tests.support import columns, send, tick, total


class Clock:
    """A fake ``time``: a sleep advances it, and calls ``meanwhile``."""

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
    monkeypatch.setattr(admission, "time", names)
    return clock


def set_reshard(acker: Acker, value: str) -> None:
    """Close the namespace for a reshard, or open it again."""
    if not value:
        set_reshard(acker, "1:4:cancel")
    acker.connection.run(commands.configure(ShardKeys(acker.namespace, 0), {"reshard": value}))


@pytest.mark.parametrize("again", [False, True])
def test_batch_waits_for_the_end_of_a_reshard(
    make_any_acker: MakeAcker, clock: Clock, again: bool, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    acker = make_any_acker()
    set_reshard(acker, "1:4")
    with pytest.raises(BacklogError, match="is still being resharded after 60 s"):
        admission.wait_for_room(acker, "t", [10], 60.0, again)
    assert "is being resharded, is waiting for room" in caplog.text
    clock.meanwhile[0] = lambda: set_reshard(acker, "")
    assert admission.wait_for_room(acker, "t", [10], 60.0, again) > 0
    set_reshard(acker, "1:4")
    clock.meanwhile[0] = lambda: reshard(acker, 4)
    with pytest.raises(WrongShardError, match="run the batch again"):
        admission.wait_for_room(acker, "t", [10], 60.0, again)


def test_applied_content_reads_all_shards_after_a_reshard(
    make_any_acker: MakeAcker,
) -> None:
    """The driver was started before the reshard."""
    acker = make_any_acker()
    assert acker.config.shards == 1
    other = Acker(acker.connection.client, acker.namespace)
    reshard(other, 4)
    seq = 7 * lanes.GENERATIONS * lanes.CHUNKS + 1
    fence = commands.Fence("@spark/app/q", seq, "aa")
    send(other, columns([(6, 5, 0)]), fence, shard=2)
    assert lanes.applied_content(acker, "@spark/app/q", 7) == lanes.AppliedContent(0, "aa")
    assert acker.config.shards == 4


@pytest.mark.parametrize(("before", "after"), [(1, 4), (4, 1), (4, 2)])
def test_retry_after_a_reshard_is_refused_and_the_next_batch_is_applied(
    make_any_acker: MakeAcker, before: int, after: int
) -> None:
    """With the same or other content, and applied or not: it is packed for the new shards."""
    acker = make_any_acker(shards=before)
    driver = Driver(acker)
    assert numbers(driver.apply(6, loose(8)), "tracked") == 8
    with pytest.raises(RedisUnavailableError):
        driver.apply(7, loose(8, 8), dies_before=1 if before > 1 else 0)
    driver.apply(7, loose(8, 8)) if before == 1 else None
    tick(acker, 3)
    assert len(list(acker.outcomes("t"))) >= 9
    reshard(acker, after)
    acker.flows.known = None
    for terms in (loose(8, 8), loose(8, 16)):
        with pytest.raises(ChangedBatchError, match="was resharded before"):
            Driver(acker).apply(7, terms)
    with pytest.raises(LaneError, match="batch 6 runs although batch 7"):
        Driver(acker).apply(6, loose(8))
    assert total(acker)["pending"] == 0
    failed = Driver(acker, "fail_trees").apply(7, loose(8, 8))
    assert failed.changed
    assert numbers(failed, "failed") == 8
    assert numbers(Driver(acker).apply(8, loose(8, 24)), "tracked") == 8


def test_query_stopped_at_a_committed_batch_continues_after_a_reshard(
    make_any_acker: MakeAcker,
) -> None:
    acker = make_any_acker(shards=2)
    batch = 0
    for after in (8, 4, 1, 2):
        batch += 1
        assert numbers(Driver(acker).apply(batch, loose(8, 8 * batch)), "tracked") == 8
        tick(acker, 3)
        list(acker.outcomes("t"))
        reshard(acker, after)
        acker.flows.known = None
    assert numbers(Driver(acker).apply(batch + 1, loose(8, 100)), "tracked") == 8
