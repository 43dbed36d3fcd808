"""Sources, bolts and a faulty connection at random, checked against who processed each message."""

import asyncio
import contextlib
import queue
import random
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest

from acker_redis import Acker, Backoff, Bolt, MessageId, OpenTree, Producer, Record, Rotator, Source
from acker_redis.aio import AsyncAcker, AsyncBolt, AsyncProducer, AsyncSource
from acker_redis.errors import LaneError, RedisUnavailableError
from tests.conftest import MakeAcker
from tests.source.masters import Masters
from tests.support import total
from tests.transport.proxy import Proxy
from tests.waiting import LIMIT

RECORDS = 200
Key = tuple[str, int]
"""Source id and attempt."""


class World:
    """The random events, and the true outcome of each attempt."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.calm = False
        """Set when faults end, except for records that always fail."""
        self.messages: dict[Key, set[str]] = {}
        """Messages that were sent per attempt, whether they arrived or not."""
        self.processed: dict[Key, set[str]] = {}
        self.sent: set[Key] = set()
        """Attempts whose messages are all known."""
        self.acked: list[str] = []
        self.dead: list[str] = []
        self.wrong: list[str] = []

    def at(self, probability: float) -> bool:
        return not self.calm and self.chance.random() < probability

    def edges(self, number: int) -> int | None:
        return (1, 2, 3, None, 0)[number % 5]

    def begin(self, record: Record, given: Any) -> tuple[Key, list[MessageId]]:
        """Return the key and the messages of an attempt."""
        key = record.source_id, record.attempt
        assert key not in self.messages
        ids = (
            [given.emit() for _ in range(self.chance.randint(0, 3))]
            if isinstance(given, OpenTree)
            else list(given)
        )
        self.messages[key] = {str(each) for each in ids}
        self.processed[key] = set()
        if ids and not isinstance(given, OpenTree):
            # If send() raises after all messages were sent, they are processed all the same; only
            # an open tree fails.
            self.sent.add(key)
        return key, ids

    def poisoned(self, key: Key) -> bool:
        return key[0].endswith("7")

    def refuse(self, key: Key) -> None:
        """Raise, if the message is one that a bolt cannot process."""
        if self.poisoned(key) or self.at(0.05):
            raise ValueError("no such address")

    def children(self, depth: int) -> int:
        return self.chance.randint(0, 2) if depth < 2 else 0

    def complete(self, source_id: str) -> bool:
        return any(
            self.messages[key] == self.processed[key] for key in self.sent if key[0] == source_id
        )

    def on_ack(self, record: Record) -> None:
        if self.at(0.005):
            raise OSError("disk full")
        if not self.complete(record.source_id):
            self.wrong.append(f"{record.source_id} is acked, but no attempt was processed")
        self.acked.append(record.source_id)

    def dead_letter(self, record: Record, reason: str, why: str) -> None:
        self.dead.append(record.source_id)

    def check(self, acker: Acker) -> None:
        """Check that every record has an ack or a dead letter, and none was acked falsely."""
        assert self.wrong == []
        names = {f"record-{number}" for number in range(RECORDS)}
        assert set(self.acked) | set(self.dead) == names
        assert len(self.acked) + len(self.dead) == RECORDS
        poisoned = {key[0] for key in self.messages if self.poisoned(key) and self.messages[key]}
        assert not poisoned & set(self.acked)
        counters = total(acker)
        assert counters["acked"] >= len(self.acked)
        assert counters["conflict"] == 0
        assert counters["failed"] > 0
        assert counters["expired"] > 0


OPTIONS: dict[str, Any] = {
    "max_pending": 40, "attempts": 12, "backoff": Backoff(0.001, 0.01), "poll": 0.005,
}  # fmt: skip


@contextmanager
def trouble(
    world: World, acker: Acker, proxy: Proxy, masters: Sequence[Masters] = ()
) -> Iterator[None]:
    """Lose replies, cut requests, and cut single shards off, until the world is calm.

    Ticks are not forced: fences must hold as long as the clients expect.
    """
    over, rotator = threading.Event(), Rotator([acker])

    def make() -> None:
        acked = 0
        while not over.wait(0.05):
            rotator.step()
            for each in masters:
                each.cut = {shard for shard in each.cut if world.at(0.8)}
                each.lost = {shard for shard in each.lost if world.at(0.5)}
            # Only while calls are made: a client that backs off after each error would get a fault
            # on every call.
            before, acked = acked, len(world.acked)
            if world.calm or acked == before:
                continue
            if world.at(0.1):
                proxy.swallow = 1
            if world.at(0.1):
                proxy.cut = 1
            for each in masters:
                if world.at(0.2):
                    faults = world.chance.choice([each.cut, each.lost])
                    faults |= set(world.chance.sample(range(4), world.chance.randint(1, 3)))

    maker = threading.Thread(target=make)
    maker.start()
    try:
        yield
    finally:
        over.set()
        maker.join()


BEYOND_THE_HORIZON = contextlib.suppress(LaneError, RedisUnavailableError)
"""On a slow machine a batch stays in doubt for longer than two ticks of 150 ms. The producer then
gives it up with the error of its last attempt, and its trees expire."""


@pytest.mark.parametrize("shards", [4, pytest.param(1, marks=pytest.mark.full)])
def test_threaded_source_loses_no_record_and_never_acks_falsely(
    make_any_acker: MakeAcker, proxy: Proxy, shards: int
) -> None:
    seed = random.randrange(10**6)
    print("seed", seed)
    world, acker = World(seed), make_any_acker(shards=shards, high_water=30, tick_ms=150)
    jobs: queue.SimpleQueue[tuple[Key, MessageId, int] | None] = queue.SimpleQueue()
    through = Acker.from_url(proxy.url, acker.namespace)
    own = Acker.from_url(proxy.url, acker.namespace, retry_for=0.2)
    masters = [Masters(each.connection) for each in (own, through)] if shards > 1 else []
    producer = Producer(through, linger=0.001)
    bolt = Bolt(producer)

    def send(record: Record, given: Any) -> None:
        key, ids = world.begin(record, given)
        for message_id in ids:
            jobs.put((key, message_id, 0))
        if world.at(0.03):
            raise OSError("no queue")
        world.sent.add(key)

    def work() -> None:
        while (job := jobs.get()) is not None:
            key, message_id, depth = job
            if world.at(0.03):
                continue  # lost
            try:
                with bolt.process(message_id) as t:
                    for _ in range(world.children(depth)):
                        child = t.emit()
                        world.messages[key].add(str(child))
                        jobs.put((key, child, depth + 1))
                    world.refuse(key)
                    world.processed[key].add(str(message_id))
            except ValueError:
                continue

    workers = [threading.Thread(target=work) for _ in range(2)]
    for worker in workers:
        worker.start()
    source = Source(own, "t", send, on_ack=world.on_ack, dead_letter=world.dead_letter, **OPTIONS)
    try:
        with trouble(world, acker, proxy, masters), source:
            for number in range(RECORDS):
                source.emit(f"record-{number}", messages=world.edges(number))
            world.calm = True
            proxy.swallow = proxy.cut = 0
            assert source.join(LIMIT)
    finally:
        for _ in workers:
            jobs.put(None)
        for worker in workers:
            worker.join()
        with BEYOND_THE_HORIZON:
            producer.close()
        own.close()
        through.close()
    world.check(acker)


@pytest.mark.parametrize("shards", [4, pytest.param(1, marks=pytest.mark.full)])
def test_asyncio_source_loses_no_record_and_never_acks_falsely(
    make_any_acker: MakeAcker, proxy: Proxy, shards: int
) -> None:
    seed = random.randrange(10**6)
    print("seed", seed)
    world, acker = World(seed), make_any_acker(shards=shards, high_water=30, tick_ms=150)
    masters: list[Masters] = []

    joined = False

    async def main() -> None:
        nonlocal joined
        jobs: asyncio.Queue[tuple[Key, MessageId, int]] = asyncio.Queue()

        async def send(record: Record, given: Any) -> None:
            key, ids = world.begin(record, given)
            for message_id in ids:
                await jobs.put((key, message_id, 0))
                await asyncio.sleep(0)
            if world.at(0.03):
                raise OSError("no queue")
            world.sent.add(key)

        async def work(bolt: AsyncBolt) -> None:
            while True:
                key, message_id, depth = await jobs.get()
                if world.at(0.03):
                    continue  # lost
                try:
                    async with bolt.process(message_id) as t:
                        for _ in range(world.children(depth)):
                            child = t.emit()
                            world.messages[key].add(str(child))
                            await jobs.put((key, child, depth + 1))
                        world.refuse(key)
                        await asyncio.sleep(0)
                        world.processed[key].add(str(message_id))
                except ValueError:
                    continue

        async with (
            AsyncAcker.from_url(proxy.url, acker.namespace) as through,
            AsyncProducer(through, linger=0.001) as producer,
            AsyncAcker.from_url(proxy.url, acker.namespace, retry_for=0.2) as own,
        ):
            if shards > 1:
                masters.extend(Masters(each.connection) for each in (own, through))
            bolt = AsyncBolt(producer)
            workers = [asyncio.create_task(work(bolt)) for _ in range(2)]
            source = AsyncSource(
                own, "t", send, on_ack=world.on_ack, dead_letter=world.dead_letter, **OPTIONS
            )
            async with source:
                for number in range(RECORDS):
                    await source.emit(f"record-{number}", messages=world.edges(number))
                world.calm = True
                proxy.swallow = proxy.cut = 0
                assert await source.join(LIMIT)
                joined = True
            for worker in workers:
                worker.cancel()
            await asyncio.wait(workers)

    with trouble(world, acker, proxy, masters), BEYOND_THE_HORIZON:
        asyncio.run(main())
    assert joined
    world.check(acker)
