"""A slot that is moved half way: no script runs on half a shard.

The scripts declare two keys, of which one never exists. That is why a master whose slot moves
away sends them on, and the one it moves to answers TRYAGAIN, whatever has moved so far.
"""

import threading
from collections.abc import Iterator
from typing import Any

import pytest
from redis.exceptions import AskError, MovedError, ResponseError, TryAgainError

from acker_redis.batching.batch import Batch
from acker_redis.batching.sent import Applied, Part
from acker_redis.errors import RedisUnavailableError
from acker_redis.protocol import commands, scripts
from acker_redis.protocol.commands import Call, Fence
from acker_redis.protocol.config import AckerConfig
from acker_redis.protocol.keys import ShardKeys
from acker_redis.rotator.rotator import Rotator
from acker_redis.sync.client import Acker
from tests.cluster.servers import Cluster, slot_of
from tests.support import TRACK, columns, row, tick, total, verdicts
from tests.waiting import LIMIT, wait_until

KEYS = ShardKeys("half", 0)
TREES = 4000
EXPIRING = 2000
"""So many of them wait to be drained."""
ACKED = 100
"""So many of the others have verdicts that wait to be taken."""


class Moving:
    """A shard with all it may hold, whose slot is announced to move."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.slot = slot_of(KEYS)
        self.acker = Acker(cluster.client(), KEYS.namespace, retry_for=0)
        self.acker.create(AckerConfig(tick_ms=3_600_000, high_water=1_000_000))
        self.track(1, EXPIRING)
        for _ in range(self.acker.config.buckets):
            self.acker.connection.run(commands.rotate(KEYS, force=True))
        self.track(EXPIRING + 1, TREES)
        done = Batch()
        for anchor in range(TREES - ACKED + 1, TREES + 1):
            done.ack(anchor, anchor + TREES)
        self.acker.apply(done)
        lane = columns([(TREES + 1, 5, TRACK)], "t", ["lane"])
        self.acker.apply_part(Part(0, lane), Fence("@lane", 1))
        self.entry = self.acker.outcomes("t").read()[0]
        self.source = cluster.owner(self.slot)
        self.to = cluster.others(self.source)[0]
        cluster.begin_move(self.slot, self.to)

    def track(self, first: int, last: int) -> None:
        for start in range(first, last + 1, 1000):
            batch = Batch("t")
            for anchor in range(start, min(start + 1000, last + 1)):
                batch.track(anchor, f"s{anchor}", [anchor + TREES])
            self.acker.apply(batch)

    def migrate(self, *keys: str) -> None:
        self.cluster.migrate(self.source, self.to, keys)

    def finish(self) -> None:
        keys = self.source.keys_in(self.slot)
        if keys:
            self.cluster.migrate(self.source, self.to, keys)
        self.cluster.end_move(self.slot, self.source, self.to)

    def calls(self) -> list[Call]:
        """Each script, with arguments that would do something."""
        return [
            commands.apply(KEYS, columns([(EXPIRING + 1, 7, 0)]), Fence("p", 1, "ab")),
            commands.apply(KEYS, columns([(TREES + 2, 7, TRACK)], "t", ["new"]), None),
            commands.rotate(KEYS, force=True),
            commands.expire(KEYS, 100),
            commands.take(KEYS, "t", [self.entry.id]),
            commands.status(KEYS),
        ]

    def dumps(self) -> tuple[dict[bytes, Any], dict[bytes, Any]]:
        return self.source.dump(self.slot), self.to.dump(self.slot)


@pytest.fixture
def moving(cluster: Cluster) -> Iterator[Moving]:
    shard = Moving(cluster)
    yield shard
    shard.acker.close()


def wire(call: Call) -> tuple[str | bytes | int, ...]:
    return ("EVAL", scripts.load(call.script).source, 2, *call.keys, *call.args)


PENDING = KEYS.pending(0)
STREAM = KEYS.outcomes("t")
REST = (KEYS.fence(0), KEYS.durable_fences, KEYS.expiring, PENDING, STREAM)


@pytest.mark.parametrize(
    "moved",
    [(), (KEYS.meta,), (PENDING,), (STREAM,), REST, (KEYS.meta, *REST)],
    ids=["nothing", "meta", "pending", "stream", "all-but-meta", "everything"],
)
def test_no_script_runs_before_the_slot_has_moved_whole(
    moving: Moving, moved: tuple[str, ...]
) -> None:
    if moved:
        moving.migrate(*moved)
    before = moving.dumps()
    assert before[1].keys() == {key.encode() for key in moved}
    assert len(before[0]) + len(before[1]) == 1 + len(REST)
    # Where something is missing 6.2 always answers ASK, 7.0 only if all is.
    sent_on: tuple[type[ResponseError], ...] = (AskError, TryAgainError)
    if KEYS.meta in moved:
        sent_on = (AskError,)
    for call in moving.calls():
        with pytest.raises(sent_on):
            moving.source.run(*wire(call))
        with pytest.raises(TryAgainError):
            moving.to.run_asking(*wire(call))
        with pytest.raises(MovedError):
            moving.to.run(*wire(call))
    assert moving.dumps() == before
    moving.finish()
    for call in moving.calls():
        moving.to.run(*wire(call))


SLOPPY = "redis.call('HINCRBY', KEYS[1], 'ran', 1) return redis.call('HLEN', ARGV[1])"
"""A script that declares no more than meta."""


def test_one_declared_key_would_make_a_script_break_off_half_way(moving: Moving) -> None:
    """What the key that never exists is for: the old master, which still has meta, would run."""
    moving.migrate(PENDING)
    with pytest.raises(ResponseError, match="non local key"):
        moving.source.run("EVAL", SLOPPY, 1, KEYS.meta, PENDING)
    assert moving.source.run("HGET", KEYS.meta, "ran") == b"1"
    moving.finish()


def test_one_declared_key_would_make_a_script_miss_all_trees(moving: Moving) -> None:
    """The new master, which has meta already, would find no records and go on from there."""
    moving.migrate(KEYS.meta)
    assert moving.source.run("HLEN", PENDING) > 1000
    assert moving.to.run_asking("EVAL", SLOPPY, 1, KEYS.meta, PENDING) == 0
    moving.finish()


def test_the_client_says_that_it_passes_and_reads_on(moving: Moving) -> None:
    """All that changes something is to be tried again; reading needs one key, and finds it."""
    moving.migrate(KEYS.meta, STREAM)
    before = moving.dumps()
    acker, outcomes = moving.acker, moving.acker.outcomes("t")
    with pytest.raises(RedisUnavailableError):
        row(acker, EXPIRING + 1, 7)
    with pytest.raises(RedisUnavailableError):
        Rotator([acker]).step(force=True)
    with pytest.raises(RedisUnavailableError):
        acker.connection.run(commands.expire(KEYS, 100))
    with pytest.raises(RedisUnavailableError):
        acker.status()
    with pytest.raises(RedisUnavailableError):
        outcomes.take([moving.entry])
    with pytest.raises(RedisUnavailableError):
        acker.lane("@lane")  # it asks first how many shards there are now
    assert outcomes.read() == [moving.entry]
    assert moving.dumps() == before
    moving.finish()
    assert outcomes.take([moving.entry]) == ACKED
    assert acker.lane("@lane") == {0: (1, "")}
    tick(acker, 4)
    assert len(verdicts(acker)) == TREES - ACKED + 1
    assert total(acker)["expired"] == TREES - ACKED + 1


def test_a_batch_waits_until_the_slot_has_moved_and_is_applied_once(moving: Moving) -> None:
    moving.migrate(KEYS.meta)
    acker = Acker(moving.cluster.client(), KEYS.namespace, retry_for=LIMIT)
    done, applied = Batch(), []
    for anchor in range(EXPIRING + 1, EXPIRING + 1001):
        done.ack(anchor, anchor + TREES)

    def apply() -> None:
        applied.append(acker.apply(done))

    met = moving.cluster.redirections()["TRYAGAIN"]
    producer = threading.Thread(target=apply)
    producer.start()
    # More than redis-py puts up with by itself.
    wait_until(lambda: moving.cluster.redirections()["TRYAGAIN"] > met + 20, "TRYAGAIN met")
    moving.finish()
    producer.join()
    acker.close()
    (reply,) = applied
    assert isinstance(reply, Applied)
    assert (reply.acked, reply.repeated) == (1000, False)
    assert total(moving.acker)["acked"] == ACKED + 1000
    assert sum(verdict[0] == "ack" for verdict in verdicts(moving.acker)) == ACKED + 1000


def test_a_slot_moves_to_a_master_that_the_client_has_never_heard_of(cluster: Cluster) -> None:
    """As when a cluster grows: it has no slots yet, so no client knows it when ASK names it."""
    new = cluster.add()
    acker = Acker(cluster.client(), KEYS.namespace, retry_for=0)
    acker.create(AckerConfig(tick_ms=3_600_000))
    batch = Batch("t")
    batch.track(1, "s", [2])
    slot = slot_of(KEYS)
    source = cluster.begin_move(slot, new)
    cluster.migrate(source, new, [KEYS.meta])
    with pytest.raises(RedisUnavailableError):
        acker.apply(batch)
    with pytest.raises(RedisUnavailableError):
        Rotator([acker]).step()
    cluster.end_move(slot, source, new)
    assert acker.apply(batch).tracked == 1
    cluster.move_slot(slot, source)
    assert row(acker, 1, 2).acked == 1
    acker.close()
    cluster.remove(new)
