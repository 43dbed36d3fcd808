"""One master of three hangs, as a stopped process does: the shards of the others go on."""

import asyncio
import contextlib
import os
import queue
import signal
import threading
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
import redis
import redis.asyncio as aio
from redis.backoff import NoBackoff
from redis.cluster import ClusterNode
from redis.retry import Retry

from acker_redis import Acker, AckerConfig, Bolt, MessageId, Producer, Record, Rotator, Source
from acker_redis.aio import AsyncAcker, AsyncBolt, AsyncProducer, AsyncSource
from acker_redis.errors import RedisUnavailableError
from acker_redis.protocol.keys import ShardKeys
from tests.cluster.servers import Cluster, Node, slot_of, spread
from tests.support import total
from tests.waiting import LIMIT, wait_until

SHARDS = 16
TIMEOUT = 0.5
"""Timeout of the clients in seconds."""
MANY = 300
"""Acks of records that are emitted while the master hangs."""


class Shop:
    """A namespace on three masters; records are emitted all the time, and bolts process them."""

    def __init__(self, cluster: Cluster, first: bool) -> None:
        self.name = spread(cluster, SHARDS)
        self.admin = Acker(cluster.client(), self.name)
        self.admin.create(AckerConfig(shards=SHARDS, tick_ms=60_000, high_water=10**6))
        nodes = [ClusterNode("127.0.0.1", node.server.port) for node in cluster.nodes]
        self.options: dict[str, Any] = {
            "socket_timeout": TIMEOUT, "socket_connect_timeout": TIMEOUT
        }  # fmt: skip
        self.nodes = nodes
        owners = [cluster.owner(slot_of(ShardKeys(self.name, n))) for n in range(SHARDS)]
        zero = owners[0]
        self.victim = zero if first else next(node for node in owners if node is not zero)
        self.dead = {n for n, owner in enumerate(owners) if owner is self.victim}
        self.acked: Counter[str] = Counter()
        self.nacks: list[str] = []
        self.shard_of: dict[str, int] = {}
        self.emitted = 0
        self.over = threading.Event()

    def client(self) -> "redis.RedisCluster":
        return redis.RedisCluster(
            startup_nodes=self.nodes, retry=Retry(NoBackoff(), 0), **self.options
        )

    def async_client(self) -> "aio.RedisCluster":
        nodes = [aio.cluster.ClusterNode(node.host, node.port) for node in self.nodes]
        retry = aio.retry.Retry(NoBackoff(), 0)
        return aio.RedisCluster(startup_nodes=nodes, retry=retry, **self.options)

    def sent(self, record: Record, ids: tuple[MessageId, ...]) -> None:
        self.shard_of[record.source_id] = next(iter(ids[0])) % SHARDS

    def next(self) -> str:
        self.emitted += 1
        return str(self.emitted)

    def on_ack(self, record: Record) -> None:
        self.acked[record.source_id] += 1

    def on_fail(self, record: Record, reason: str, why: str) -> None:
        self.nacks.append(f"{record.source_id} {reason} {why}")

    def hang(self) -> None:
        """Stop the master until many records that were emitted meanwhile are acked."""
        wait_until(lambda: len(self.acked) > 50, "acks before")
        with stopped(self.victim):
            before, asked = set(self.shard_of), self.emitted
            wait_until(lambda: self.emitted >= asked + MANY, "emits while the master hangs")
            wait_until(lambda: len(self.acked.keys() - before) >= MANY, "acks while it hangs")
            during = {self.shard_of[name] for name in self.acked.keys() - before}
            assert not during & self.dead
            assert during == set(range(SHARDS)) - self.dead
        self.over.set()

    def check(self) -> None:
        assert len(self.acked) == self.emitted, "each record is acked"
        assert set(self.acked.values()) == {1}
        assert self.nacks == []
        counters = total(self.admin)
        assert (counters["tracked"], counters["conflict"]) == (self.emitted, 0)
        assert counters["pending"] == 0


@contextlib.contextmanager
def stopped(node: Node) -> Iterator[None]:
    process = node.redis.info("server")["process_id"]
    os.kill(process, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(process, signal.SIGCONT)


@pytest.fixture(params=[True, False], ids=["shard-0-hangs", "others-hang"])
def shop(cluster: Cluster, request: pytest.FixtureRequest) -> Iterator[Shop]:
    made = Shop(cluster, request.param)
    with Acker(made.client(), made.name) as rotated, Rotator([rotated]):
        yield made
    made.admin.close()


def test_threads_go_on(shop: Shop) -> None:
    jobs: queue.SimpleQueue[MessageId | None] = queue.SimpleQueue()

    def send(record: Record, ids: tuple[MessageId, ...]) -> None:
        shop.sent(record, ids)
        jobs.put(ids[0])

    with (
        Acker(shop.client(), shop.name) as acker,
        Acker(shop.client(), shop.name) as other,
        Producer(other) as producer,
    ):
        bolt = Bolt(producer)

        def work() -> None:
            while (job := jobs.get()) is not None:
                with bolt.process(job):
                    pass

        def emit() -> None:
            while not shop.over.is_set():
                source.emit(shop.next(), timeout=LIMIT)
                time.sleep(0.002)

        source = Source(acker, "t", send, on_ack=shop.on_ack, on_fail=shop.on_fail)
        threads = [threading.Thread(target=each) for each in (work, emit)]
        with source:
            for thread in threads:
                thread.start()
            try:
                shop.hang()
            finally:
                shop.over.set()
            threads[1].join(LIMIT)
            assert source.join(LIMIT)
        jobs.put(None)
        threads[0].join(LIMIT)
    shop.check()


def test_tasks_go_on(shop: Shop) -> None:
    async def main() -> None:
        jobs: asyncio.Queue[MessageId] = asyncio.Queue()

        async def send(record: Record, ids: tuple[MessageId, ...]) -> None:
            shop.sent(record, ids)
            await jobs.put(ids[0])

        async def work(bolt: AsyncBolt) -> None:
            while True:
                async with bolt.process(await jobs.get()):
                    pass

        async with (
            AsyncAcker(shop.async_client(), shop.name) as acker,
            AsyncAcker(shop.async_client(), shop.name) as other,
            AsyncProducer(other) as producer,
        ):
            working = asyncio.create_task(work(AsyncBolt(producer)))
            async with AsyncSource(
                acker, "t", send, on_ack=shop.on_ack, on_fail=shop.on_fail
            ) as source:
                hanging = asyncio.create_task(asyncio.to_thread(shop.hang))
                while not hanging.done():
                    await source.emit(shop.next(), timeout=LIMIT)
                    await asyncio.sleep(0.002)
                await hanging
                assert await source.join(LIMIT)
            working.cancel()

    asyncio.run(main())
    shop.check()


def test_commands_to_a_master_that_hangs_cost_one_timeout(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """redis-py's pipeline over several nodes repeats each command of that master."""
    timeouts: list[int] = []
    read = redis.connection.Connection.read_response

    def counted(self: Any, *args: Any, **options: Any) -> Any:
        try:
            return read(self, *args, **options)
        except redis.TimeoutError:
            if not threading.current_thread().name.startswith(("acker-rotator", "acker-probe")):
                timeouts.append(self.port)
            raise

    commands = [("HGET", ShardKeys(shop.name, shard).meta, "shards") for shard in range(SHARDS)]
    with Acker(shop.client(), shop.name) as acker:
        acker.connection.each(commands)
        monkeypatch.setattr(redis.connection.Connection, "read_response", counted)
        with stopped(shop.victim):
            replies = acker.connection.each(commands)
            here = [port for port in timeouts if port == shop.victim.server.port]
        assert len(here) == 1
        for shard, reply in enumerate(replies):
            assert isinstance(reply, RedisUnavailableError) == (shard in shop.dead)
        with pytest.raises(RedisUnavailableError), stopped(shop.victim):
            acker.connection.commands(commands)
