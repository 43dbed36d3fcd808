"""Events of a cluster of three masters: one node delivers the messages of all."""

import asyncio
from collections.abc import Callable
from typing import Any

import redis

from acker_redis.batching.batch import Batch
from acker_redis.protocol.config import AckerConfig
from acker_redis.sync.client import Acker
from tests.api.streams import streaming
from tests.api.test_namespaces import V1
from tests.cluster.fixtures import three_masters

__all__ = ["three_masters"]


def test_one_subscription_receives_from_all_nodes(
    three_masters: Callable[[], redis.RedisCluster],
) -> None:
    client: Any = three_masters()
    masters = client.get_primaries()
    url = "redis+cluster://" + ",".join(f"{n.host}:{n.port}" for n in masters)

    def listening() -> list[int]:
        return [len(client.client_list(_type="pubsub", target_nodes=node)) for node in masters]

    async def talk(acker: Acker) -> None:
        async with streaming(url) as service:
            stream = await service.open(f"{V1}/heard/events")
            assert (await stream.wait_for("hello")).data["live"] is True
            assert (await stream.wait_for("status")).data["pending"] == 0
            assert sorted(listening()) == [0, 0, 1]
            batch = Batch("t")
            for anchor in range(1, 9):  # each on another shard, on all nodes
                batch.track(anchor, f"s{anchor}", [])
            acker.apply(batch)
            heard: set[str] = set()
            while len(heard) < 8:
                told = (await stream.wait_for("outcome")).data["outcomes"]
                heard.update(each["anchor"] for each in told)
            assert heard == set("12345678")

    with Acker.from_url(url, "heard", timeout=60) as acker:
        acker.create(AckerConfig(shards=8, tick_ms=3_600_000))
        asyncio.run(talk(acker))
    assert listening() == [0, 0, 0]
