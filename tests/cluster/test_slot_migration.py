"""Slots migrate between masters, key by key, under load: nothing is lost or applied twice."""

import contextlib
import random
import threading
from collections import Counter
from collections.abc import Callable, Iterator

import pytest

from acker_redis.batching.batch import Batch
from acker_redis.errors import RedisUnavailableError
from acker_redis.protocol.config import AckerConfig
from acker_redis.protocol.ids import new_anchor, new_tuple_id
from acker_redis.protocol.keys import ShardKeys
from acker_redis.rotator.rotator import Rotator
from acker_redis.sync.client import Acker
from acker_redis.sync.outcomes import Entry
from tests.cluster.servers import Cluster, slot_of, spread
from tests.support import total
from tests.waiting import LIMIT, wait_until

SHARDS = 8
PRODUCERS = 3
TREES = 100
"""Trees of one round of a producer."""
LONG, PART = 24_000, 900
"""LONG trees exist from the start, to make the buckets large; half of them are finished, PART of
them in each round."""
NEVER = 10**9


class Load:
    """Producers, a rotator and a source, each with a separate client."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.namespace = spread(cluster, SHARDS)
        self.keys = [ShardKeys(self.namespace, shard) for shard in range(SHARDS)]
        self.sources = [*(f"p{number}" for number in range(PRODUCERS)), "long"]
        self.expected: dict[int, str] = {}
        self.entries: dict[tuple[str, int, str], Entry] = {}
        self.rounds = [0] * PRODUCERS
        self.ticks = 0
        self.began = [NEVER] * PRODUCERS
        """For each producer, the tick in which the oldest tree of its current round began."""
        self.lock = threading.Lock()
        self.stopping, self.reading = threading.Event(), threading.Event()
        self.errors: list[BaseException] = []
        self.acker = self.new_acker()
        self.acker.create(AckerConfig(shards=SHARDS, tick_ms=3_600_000, high_water=10**6))
        self.long = self.preload()
        self.workers = [
            *(self.thread(self.produce, number) for number in range(PRODUCERS)),
            self.thread(self.rotate),
        ]
        self.source = self.thread(self.read)

    def new_acker(self) -> Acker:
        return Acker(self.cluster.client(), self.namespace, retry_for=LIMIT)

    def preload(self) -> list[tuple[int, int]]:
        trees = [(new_anchor(), new_tuple_id()) for _ in range(LONG)]
        for start in range(0, LONG, 1000):
            batch = Batch("long")
            for anchor, message in trees[start : start + 1000]:
                batch.track(anchor, "a record of the source", [message])
            self.acker.apply(batch)
        self.expected |= dict.fromkeys((a for a, _ in trees), "expired")
        self.expected |= dict.fromkeys((a for a, _ in trees[::2]), "completed")
        return trees[::2]

    def thread(self, work: Callable[..., None], *args: int) -> threading.Thread:
        def run() -> None:
            try:
                work(*args)
            except BaseException as error:
                self.errors.append(error)

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        return thread

    def check(self) -> bool:
        """Return true; raise the error of the first thread that has failed."""
        for error in self.errors:
            raise error
        return True

    def produce(self, number: int) -> None:
        """Run rounds of trees: each is tracked, processed by two bolts, acked, failed or lost."""
        chance = random.Random(number)
        with self.new_acker() as source, self.new_acker() as bolt:
            while not self.stopping.is_set():
                with self.lock:
                    part, self.long = self.long[:PART], self.long[PART:]
                    self.began[number] = 0 if part else self.ticks
                tracks, first, second = Batch(self.sources[number]), Batch(), Batch()
                for anchor, message in part:
                    second.ack(anchor, message)
                for _ in range(TREES):
                    anchor, message, child = new_anchor(), new_tuple_id(), new_tuple_id()
                    tracks.track(anchor, f"s{anchor}", [message])
                    first.ack(anchor, message, [child])
                    fate = chance.choices(("completed", "failed", "expired"), (8, 1, 1))[0]
                    self.expected[anchor] = fate
                    if fate == "completed":
                        second.ack(anchor, child)
                    elif fate == "failed":
                        second.fail(anchor, "as planned")
                # A bolt may be faster than the source.
                batches = [(source, tracks), (bolt, first)]
                chance.shuffle(batches)
                for acker, batch in (*batches, (bolt, second)):
                    assert not acker.apply(batch).repeated
                with self.lock:
                    self.rounds[number] += 1
                    self.began[number] = NEVER

    def rotate(self) -> None:
        """Tick whenever no tree of a current round could expire by it, and drain."""
        with self.new_acker() as acker:
            rotator = Rotator([acker])
            while not self.stopping.is_set():
                with self.lock:
                    oldest = 0 if self.long else min(self.began)
                    force = self.ticks + 1 < oldest + acker.config.buckets
                # One slot may be migrating; the step has reached the other shards.
                with contextlib.suppress(RedisUnavailableError):
                    rotator.step(force=force)
                with self.lock:
                    # Count it after the tick: a tree that begins before it may still meet it.
                    self.ticks += force

    def read(self) -> None:
        """Read and take the outcomes of all sources."""
        with self.new_acker() as acker:
            readers = [acker.outcomes(source) for source in self.sources]
            while True:
                last = self.reading.is_set()
                left = 0
                for outcomes in readers:
                    try:
                        for entry in outcomes.read():
                            left += 1
                            name = (outcomes.source, entry.shard, entry.id)
                            assert self.entries.setdefault(name, entry) == entry
                            outcomes.take([entry])
                    except RedisUnavailableError:
                        left += 1
                if last and not left:
                    return

    def progress(self) -> None:
        """Wait until each producer has finished a round that it began after this call."""
        before = list(self.rounds)

        def done() -> bool:
            self.check()
            return all(now > then + 1 for now, then in zip(self.rounds, before, strict=True))

        wait_until(done, "two rounds of each producer")

    def finish(self) -> None:
        """Stop the producers, let all trees expire, and take the last verdicts."""
        self.stopping.set()
        for worker in self.workers:
            worker.join()
        rotator = Rotator([self.acker])
        for _ in range(self.acker.config.buckets):
            rotator.step(force=True)
        self.reading.set()
        self.source.join()
        self.check()


@pytest.fixture
def load(cluster: Cluster) -> Iterator[Load]:
    load = Load(cluster)
    yield load
    load.stopping.set()
    load.reading.set()
    load.acker.close()


def test_slot_migration_under_load_loses_and_repeats_nothing(cluster: Cluster, load: Load) -> None:
    """Each shard's slot migrates to another master; scripts meet it after each migrated key."""
    before = Counter(cluster.redirections())
    owners = {cluster.owner(slot_of(keys)).id for keys in load.keys}
    assert owners == {node.id for node in cluster.nodes}
    largest = 0

    def after(step: str) -> None:
        met = cluster.redirections()["TRYAGAIN"]
        if step != "end":
            wait_until(
                lambda: load.check() and cluster.redirections()["TRYAGAIN"] > met + PRODUCERS,
                "scripts that meet the migrating slot",
            )

    for keys in load.keys:
        load.progress()
        slot = slot_of(keys)
        source = cluster.owner(slot)
        to = cluster.others(source)[keys.shard % 2]
        sizes = [source.run("HLEN", keys.pending(i)) for i in range(load.acker.config.buckets)]
        largest = max(largest, *sizes)
        streams = {keys.outcomes(source).encode() for source in load.sources}
        assert {keys.meta.encode(), *streams} < set(source.keys_in(slot))
        assert cluster.move_slot(slot, to, after) > len(streams)
        assert source.keys_in(slot) == []
    load.progress()
    load.finish()

    met = Counter(cluster.redirections())
    met.subtract(before)
    assert min(met.values()) > 0, met
    assert largest > 512, "all buckets were small enough for a listpack"

    verdicts = [o for entry in load.entries.values() for o in entry.outcomes]
    assert len(verdicts) == len(load.expected)
    assert {outcome.anchor: outcome.reason for outcome in verdicts} == load.expected
    counted, fates = total(load.acker), Counter(load.expected.values())
    assert counted["tracked"] == len(load.expected)
    assert counted["acked"] == fates["completed"]
    assert counted["failed"] == fates["failed"]
    assert counted["expired"] == fates["expired"]
    assert counted["pending"] == counted["repeated"] == counted["orphaned"] == 0
    assert set(load.acker.status().backlog.values()) == {0}
    everywhere = [key for node in cluster.nodes for key in node.run("KEYS", "*")]
    assert len(everywhere) == len(set(everywhere))
