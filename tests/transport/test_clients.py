"""Clients of redis-py that the package refuses, for threads and for asyncio."""

from typing import Any

import pytest
import redis
import redis.asyncio as aio
from redis.cluster import LoadBalancingStrategy

from acker_redis import Acker
from acker_redis.aio import AsyncAcker
from acker_redis.errors import ConfigError
from acker_redis.integrations.streams import StreamSender


def cluster(option: str, value: object) -> list[Any]:
    """Return both cluster clients with this option; neither connects."""
    threaded = redis.RedisCluster.__new__(redis.RedisCluster)
    threaded.encoder = redis.Redis().get_encoder()  # type: ignore[no-untyped-call]
    setattr(threaded, option, value)
    return [threaded, aio.RedisCluster(host="localhost", **{option: value})]


@pytest.mark.filterwarnings("ignore:.*read_from_replicas:DeprecationWarning")
@pytest.mark.parametrize("kind", [0, 1], ids=["sync", "asyncio"])
@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("read_from_replicas", True),
        ("load_balancing_strategy", LoadBalancingStrategy.ROUND_ROBIN),
        ("load_balancing_strategy", LoadBalancingStrategy.RANDOM_REPLICA),
    ],
)
def test_cluster_client_that_reads_from_replicas_is_refused(
    kind: int, option: str, value: object
) -> None:
    client = cluster(option, value)[kind]
    with pytest.raises(ConfigError, match=f"must read from masters.* without {option}="):
        (Acker, AsyncAcker)[kind](client, "orders")
    if kind == 0:
        with pytest.raises(ConfigError, match="must read from masters"):
            StreamSender(Acker(redis.Redis(), "orders"), client, "hats")


def test_client_of_a_replica_by_sentinel_is_refused() -> None:
    hosts = [("localhost", 26379)]
    replica = redis.sentinel.Sentinel(hosts).slave_for("orders")
    with pytest.raises(ConfigError, match=r"master_for\(\), not slave_for\(\)"):
        Acker(replica, "orders")
    with pytest.raises(ConfigError, match=r"master_for\(\), not slave_for\(\)"):
        AsyncAcker(aio.sentinel.Sentinel(hosts).slave_for("orders"), "orders")
    Acker(redis.sentinel.Sentinel(hosts).master_for("orders"), "orders")
    AsyncAcker(aio.sentinel.Sentinel(hosts).master_for("orders"), "orders")
