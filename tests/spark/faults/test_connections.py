"""Connections to Redis: at most one per Python worker, reused for all batches."""

from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

from acker_redis.protocol.config import AckerConfig
from acker_redis.sync.client import Acker
from tests.open_redis import OpenRedis
from tests.spark.faults.conftest import MakeCase
from tests.spark.faults.stage import Stage
from tests.spark.faults.work import STEPS


@pytest.mark.parametrize("shards", [pytest.param(1, marks=pytest.mark.nightly), 4])
def test_one_connection_per_worker(stage: Stage, make_case: MakeCase, shards: int) -> None:
    given, _ = make_case(shards, "loose", mode="executors")
    with OpenRedis() as server, Acker.from_url(server.url, "connections", timeout=60) as client:
        client.create(AckerConfig(shards=shards))
        case = replace(given, url=server.url, namespace="connections")
        seen: list[dict[str, int]] = []
        for step in (STEPS["track"], STEPS["middle"], *3 * [STEPS["last"]]):
            stage.run(step, case)
            seen.append(_connections(stage, client))
        # The last batch was run again twice. The first connections must still serve all batches.
        for before, after in pairwise(seen):
            assert before.items() <= after.items(), "a connection was opened again"
        workers = [pid for pid in seen[-1].values() if pid != stage.pid]
        assert len(set(workers)) == len(workers), "a worker has two connections"
        assert 1 <= len(workers) <= 2, "there are two cores"


def _connections(stage: Stage, client: Acker) -> dict[str, int]:
    """Return the ids of the stage's connections, and the process of each."""
    port = client.connection.client.connection_pool.connection_kwargs["port"]
    processes = {
        f"{each.laddr.ip}:{each.laddr.port}": process.pid
        for process in stage.members()
        for each in process.net_connections("tcp")
        if each.raddr and each.raddr.port == port
    }
    listed: list[dict[str, Any]] = client.connection.client.client_list()
    return {each["id"]: processes[each["addr"]] for each in listed if each["addr"] in processes}
