"""The service with a cluster of three masters."""

from collections.abc import Callable
from typing import Any

import httpx
import redis
from prometheus_client import parser

from acker_redis.batching.batch import Batch
from acker_redis.protocol.config import AckerConfig
from acker_redis.sync.client import Acker
from tests.api.service import asked
from tests.api.test_metrics import of, samples
from tests.api.test_namespaces import V1
from tests.cluster.fixtures import three_masters
from tests.support import track

__all__ = ["three_masters"]


def test_routes_work_on_a_cluster(three_masters: Callable[[], redis.RedisCluster]) -> None:
    client: Any = three_masters()
    url = "redis+cluster://" + ",".join(f"{n.host}:{n.port}" for n in client.get_primaries())
    with Acker.from_url(url, "wide", timeout=60) as acker:
        acker.create(AckerConfig(shards=8, tick_ms=3_600_000))
        track(acker, 8, 40)

    async def acts(client: httpx.AsyncClient, path: str, body: Any = None) -> Any:
        answer = await client.post(path, json=body)
        assert answer.status_code == 200, answer.text
        return answer.json()

    async def talk(client: httpx.AsyncClient) -> None:
        assert (await client.get("/readyz")).json()["namespaces"] == 1
        body = (await client.get(f"{V1}/wide")).json()
        assert (body["pending"], len(body["shards"])) == (1, 8)
        found = samples(parser.text_string_to_metric_families((await client.get("/metrics")).text))
        assert of(found, "acker_trees_pending", namespace="wide", shard="0", bucket="0") == 1
        assert of(found, "acker_redis_script_seconds_total") > 0
        path = f"{V1}/wide"
        batch = Batch("t")
        for anchor in range(40, 47):
            batch.track(anchor, f"s{anchor}", [40])
        with Acker.from_url(url, "wide", timeout=60) as acker:
            acker.apply(batch)
        for anchor in (41, 42, 43):
            await acts(client, f"{path}/trees/{anchor}/fail", {"why": "by hand"})
        await acts(client, f"{path}/trees/40/touch")
        asking = {"filter": {"source": "t"}, "dry_run": False}
        assert (await acts(client, f"{path}/trees/fail", asking))["failed"] == 5
        assert (await acts(client, f"{path}/rotate"))["ticked"] == 8
        body = (await client.get(f"{path}/outcomes", params={"verdict": "nack"})).json()
        assert len(body["outcomes"]) == 8
        (source,) = (await client.get(f"{path}/backlog")).json()["sources"]
        assert (source["waiting"], source["oldest_at_ms"] > 0) == (9, True)
        assert (await client.get(f"{path}/trees")).json()["complete"] is True
        log = (await client.get("/api/v1/audit")).json()["entries"]
        assert [each["result"] for each in log] == ["done"] * 6
        assert (await client.delete(f"{path}?confirm=wide")).status_code == 204

    asked(url, talk)
