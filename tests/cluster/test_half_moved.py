"""A slot that migrates: no script runs on a part of a shard.

The scripts declare two keys, of which one never exists. So during a migration the old master
redirects each script, and the new master replies TRYAGAIN, regardless of the migrated keys.
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
"""Number of these trees that wait to be drained."""
ACKED = 100
"""Number of the other trees whose verdicts wait to be taken."""


class Moving:
    """A shard with all kinds of keys, whose slot migration has started."""

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
        """Return a call of each script that would change or read something."""
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
def test_no_script_runs_until_the_whole_slot_has_migrated(
    moving: Moving, moved: tuple[str, ...]
) -> None:
    if moved:
        moving.migrate(*moved)
    before = moving.dumps()
    assert before[1].keys() == {key.encode() for key in moved}
    assert len(before[0]) + len(before[1]) == 1 + len(REST)
    # If a key is missing 6.2 always replies ASK, 7.0 only if all keys are missing.
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
"""A script that declares only meta."""


def test_script_with_one_declared_key_would_stop_halfway(moving: Moving) -> None:
    """The key that never exists prevents this: the old master, which has meta, runs the script."""
    moving.migrate(PENDING)
    with pytest.raises(ResponseError, match="non local key"):
        moving.source.run("EVAL", SLOPPY, 1, KEYS.meta, PENDING)
    assert moving.source.run("HGET", KEYS.meta, "ran") == b"1"
    moving.finish()


def test_script_with_one_declared_key_would_miss_all_trees(moving: Moving) -> None:
    """The new master, which already has meta, runs the script and finds no records."""
    moving.migrate(KEYS.meta)
    assert moving.source.run("HLEN", PENDING) > 1000
    assert moving.to.run_asking("EVAL", SLOPPY, 1, KEYS.meta, PENDING) == 0
    moving.finish()


def test_client_reports_unavailable_but_reads_outcomes_while_a_slot_migrates(
    moving: Moving,
) -> None:
    """All changes must be retried later; reading outcomes needs one key, and works."""
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
        acker.lane("@lane")  # it first reads the number of shards
    assert outcomes.read() == [moving.entry]
    assert moving.dumps() == before
    moving.finish()
    assert outcomes.take([moving.entry]) == ACKED
    assert acker.lane("@lane") == {0: (1, "")}
    tick(acker, 4)
    assert len(verdicts(acker)) == TREES - ACKED + 1
    assert total(acker)["expired"] == TREES - ACKED + 1


def test_batch_waits_for_the_slot_migration_and_is_applied_once(moving: Moving) -> None:
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
    # More than redis-py retries.
    wait_until(lambda: moving.cluster.redirections()["TRYAGAIN"] > met + 20, "TRYAGAIN met")
    moving.finish()
    producer.join()
    acker.close()
    (reply,) = applied
    assert isinstance(reply, Applied)
    assert (reply.acked, reply.repeated) == (1000, False)
    assert total(moving.acker)["acked"] == ACKED + 1000
    assert sum(verdict[0] == "ack" for verdict in verdicts(moving.acker)) == ACKED + 1000


def test_slot_migrates_to_a_master_unknown_to_the_client(cluster: Cluster) -> None:
    """As when a cluster grows: the new master has no slots, so no client knows it at ASK."""
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
