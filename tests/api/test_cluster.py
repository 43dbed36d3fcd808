"""The service before a cluster of three."""

from collections.abc import Callable
from typing import Any

import httpx
import redis
from prometheus_client import parser

from acker_redis.client import Acker
from acker_redis.config import AckerConfig
from tests.api.service import asked
from tests.api.test_metrics import of, samples
from tests.api.test_namespaces import V1
from tests.cluster.fixtures import three_masters
from tests.support import track

__all__ = ["three_masters"]


def test_shards_on_many_nodes(three_masters: Callable[[], redis.RedisCluster]) -> None:
    client: Any = three_masters()
    url = "redis+cluster://" + ",".join(f"{n.host}:{n.port}" for n in client.get_primaries())
    with Acker.from_url(url, "wide") as acker:
        acker.create(AckerConfig(shards=8, tick_ms=3_600_000))
        track(acker, 8, 40)

    async def talk(client: httpx.AsyncClient) -> None:
        assert (await client.get("/readyz")).json()["namespaces"] == 1
        body = (await client.get(f"{V1}/wide")).json()
        assert (body["pending"], len(body["shards"])) == (1, 8)
        found = samples(parser.text_string_to_metric_families((await client.get("/metrics")).text))
        assert of(found, "acker_trees_pending", namespace="wide", shard="0", bucket="0") == 1
        assert of(found, "acker_redis_script_seconds_total") > 0

    asked(url, talk)
