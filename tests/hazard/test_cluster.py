"""Hazards on a cluster of three masters, with a bad line to each."""

import asyncio
import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import redis
import redis.asyncio
import redis.asyncio.cluster
import redis.asyncio.retry
from redis.backoff import NoBackoff
from redis.cluster import ClusterNode
from redis.exceptions import RedisClusterException
from redis.retry import Retry

from acker_redis.aio.client import AsyncAcker
from acker_redis.aio.producer import AsyncProducer
from acker_redis.protocol.config import AckerConfig
from acker_redis.sync.client import Acker
from acker_redis.sync.producer import Producer
from tests.cluster.servers import Cluster, spread
from tests.hazard.line import bad_line
from tests.hazard.runs import CONFIG, TIMEOUT, Run, apply_all, in_threads
from tests.hazard.test_hazard import add_all, add_all_async

SHARDS = 4
MakeClusterRun = Callable[[int], Run]


@pytest.fixture
def make_run(three_masters: Cluster) -> Iterator[MakeClusterRun]:
    with contextlib.ExitStack() as stack:

        def make(seed: int) -> Run:
            three_masters.flush()
            urls = [node.server.url for node in three_masters.nodes]
            lines = [stack.enter_context(bad_line(url, seed + n)) for n, url in enumerate(urls)]
            name = spread(three_masters, SHARDS)
            direct = stack.enter_context(Acker(three_masters.client(), name))
            direct.create(AckerConfig(**{"shards": SHARDS, "tick_ms": 3_600_000, **CONFIG}))  # type: ignore[arg-type]
            return Run(direct, lines, seed)

        yield make


def settings(run: Run, cluster: Cluster) -> dict[str, Any]:
    """Return settings of a client that reaches each node through its bad line."""
    ports = {
        node.server.port: line.port for node, line in zip(cluster.nodes, run.lines, strict=True)
    }
    return {
        "address_remap": lambda address: (address[0], ports.get(address[1], address[1])),
        "socket_timeout": TIMEOUT,
        "socket_connect_timeout": TIMEOUT,
    }


def through(run: Run, cluster: Cluster) -> Acker:
    # A new client first reads the commands of each node. With six clients at once a slow machine
    # does not always reply within the timeout that is meant for calls.
    nodes = [ClusterNode("127.0.0.1", line.port) for line in run.lines]
    while True:
        try:
            client = redis.RedisCluster(
                startup_nodes=nodes, retry=Retry(NoBackoff(), 0), **settings(run, cluster)
            )
        except (redis.TimeoutError, RedisClusterException):
            continue
        return Acker(client, run.direct.namespace, retry_for=600)


@pytest.mark.parametrize("seed", [21])
def test_batches_over_three_masters(
    make_run: MakeClusterRun, three_masters: Cluster, seed: int
) -> None:
    run = make_run(seed)

    def work() -> None:
        with through(run, three_masters) as acker:
            apply_all(run, acker, most=400)

    with run.reading():
        in_threads(6, work)
    run.check()
    assert all(line.fates for line in run.lines)


@pytest.mark.parametrize("seed", [31])
def test_a_producer_over_three_masters(
    make_run: MakeClusterRun, three_masters: Cluster, seed: int
) -> None:
    run = make_run(seed)
    with (
        run.reading(),
        through(run, three_masters) as acker,
        Producer(acker, "t", buffer=4000) as producer,
    ):
        in_threads(4, lambda: add_all(run, producer))
        producer.flush()
    run.check()


@pytest.mark.parametrize("seed", [41])
def test_an_asyncio_producer_over_three_masters(
    make_run: MakeClusterRun, three_masters: Cluster, seed: int
) -> None:
    run = make_run(seed)

    async def work() -> None:
        nodes = [redis.asyncio.cluster.ClusterNode("127.0.0.1", line.port) for line in run.lines]
        client = redis.asyncio.RedisCluster(
            startup_nodes=nodes,
            retry=redis.asyncio.retry.Retry(NoBackoff(), 0),
            **settings(run, three_masters),
        )
        async with (
            AsyncAcker(client, run.direct.namespace) as acker,
            AsyncProducer(acker, "t", buffer=4000) as producer,
        ):
            await asyncio.gather(*(add_all_async(run, producer) for _ in range(100)))
            await producer.flush()

    with run.reading():
        asyncio.run(work())
    run.check()
