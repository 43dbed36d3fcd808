"""Servers in a failover or out of memory, users without a right, and a cluster's outage."""

import threading
from collections.abc import Iterator

import pytest
import redis

from acker_redis.batching.batch import Batch
from acker_redis.embedded import EmbeddedRedis
from acker_redis.errors import EmbeddedServerError, RedisRefusedError, RedisUnavailableError
from acker_redis.protocol.config import AckerConfig
from acker_redis.rotator.rotator import Rotator
from acker_redis.sync.client import Acker
from tests.open_redis import OpenRedis
from tests.support import row, tick, total, track, verdicts
from tests.waiting import LIMIT, wait_until

A = 0x5A5A_0000_A5A5


@pytest.fixture
def own(server: EmbeddedRedis) -> Iterator[EmbeddedRedis]:
    """A server of the same kind, only for this test."""
    with OpenRedis(binary=server._binary) as running:
        yield running


def made(server: EmbeddedRedis) -> Acker:
    acker = Acker.from_url(server.url, "n", retry_for=0)
    acker.create(AckerConfig(tick_ms=3_600_000))
    return acker


@pytest.mark.parametrize(
    "trouble",
    [("REPLICAOF", "127.0.0.1", "1"), ("CONFIG", "SET", "min-replicas-to-write", "1")],
)
def test_failover_errors_are_transient(own: EmbeddedRedis, trouble: tuple[str, ...]) -> None:
    """READONLY and NOREPLICAS inside a script are retried, not given up."""
    acker = made(own)
    acker.connection.client.execute_command(*trouble)
    batch = Batch("t")
    batch.track(1, "s", [5])
    with pytest.raises(RedisUnavailableError):
        acker.apply(batch)
    if trouble[0] == "REPLICAOF":
        acker.connection.client.execute_command("REPLICAOF", "NO", "ONE")
    else:
        acker.connection.client.config_set("min-replicas-to-write", 0)
    assert acker.apply(batch).tracked == 1


def test_create_retries_transient_errors(own: EmbeddedRedis) -> None:
    with (
        Acker.from_url(own.url, "n", retry_for=LIMIT) as acker,
        redis.Redis.from_url(own.url) as client,
    ):
        client.config_set("min-replicas-to-write", 1)
        later = threading.Timer(0.1, client.config_set, ("min-replicas-to-write", 0))
        later.start()
        assert acker.create(AckerConfig())
        later.join()


def test_out_of_memory_error_says_what_to_do(own: EmbeddedRedis) -> None:
    acker = made(own)
    acker.connection.client.config_set("maxmemory", 1)
    with pytest.raises(RedisRefusedError, match="Raise maxmemory"):
        track(acker, 1, A)


@pytest.mark.parametrize("right", ["-xadd", "-hdel"])
def test_a_missing_right_never_loses_a_verdict(own: EmbeddedRedis, right: str) -> None:
    """A script that is refused halfway may write a verdict twice, but never loses it."""
    acker = made(own)
    client = acker.connection.client
    client.execute_command("ACL", "SETUSER", "p", "on", ">pw", "~*", "&*", "+@all", right)
    limited = Acker.from_url(own.url.replace("//", "//p:pw@"), "n", retry_for=0)
    track(acker, 1, A, "acked")
    track(acker, 2, A, "expired")
    with pytest.raises(RedisRefusedError):
        row(limited, 1, A)
    for _ in range(3):
        try:
            Rotator([limited]).step(force=True)
        except RedisRefusedError:
            continue
    row(acker, 1, A)
    tick(acker, 3)
    found = {v[3] for v in verdicts(acker)}
    assert found == {"acked", "expired"}


def test_producer_without_hdel_does_not_stop_the_drain(own: EmbeddedRedis) -> None:
    """Only this producer's work stays incomplete; the trees of all others still expire."""
    acker = made(own)
    client = acker.connection.client
    client.execute_command("ACL", "SETUSER", "p", "on", ">pw", "~*", "&*", "+@all", "-hdel")
    limited = Acker.from_url(own.url.replace("//", "//p:pw@"), "n", retry_for=0)
    for call in (lambda: track(limited, 1, A, "limited"), lambda: row(limited, 9, A)):
        with pytest.raises(RedisRefusedError):
            call()
    track(acker, 2, A, "healthy")
    tick(acker, 3)
    assert "healthy" in {v[3] for v in verdicts(acker)}
    assert total(acker)["pending"] == total(acker)["expiring"] == 0


def cluster_server() -> EmbeddedRedis:
    """Start a server in cluster mode; the port of its bus, port + 10000, must be valid too."""
    for _ in range(30):
        server = OpenRedis(extra_args=("--cluster-enabled", "yes"))
        try:
            return server.start()
        except EmbeddedServerError as error:
            if "port number too high" not in str(error):
                raise
    raise AssertionError("no port was low enough")


def test_single_node_cluster_and_its_outage() -> None:
    """An Acker over redis-py's cluster client; the cluster's outage is a transient error."""
    with cluster_server() as server:
        single = redis.Redis.from_url(server.url)
        single.execute_command("CLUSTER", "ADDSLOTS", *range(16384))
        wait_until(
            lambda: b"cluster_state:ok" in single.execute_command("CLUSTER", "INFO"),
            "the cluster's state is ok",
        )
        cluster = redis.RedisCluster(host="127.0.0.1", port=server.port)
        acker = Acker(cluster, "n", retry_for=0)
        acker.create(AckerConfig(shards=4, tick_ms=3_600_000))
        batch = Batch("t")
        for anchor in range(1, 101):
            batch.track(anchor, f"s{anchor}", [anchor + 500])
        assert acker.apply(batch).tracked == 100
        done = Batch()
        for anchor in range(1, 51):
            done.ack(anchor, anchor + 500)
        assert acker.apply(done).acked == 50
        tick(acker, 3)
        assert len({o.anchor for o in acker.outcomes("t")}) == 100
        assert total(acker)["expired"] == 50
        server.stop()
        with pytest.raises(RedisUnavailableError):
            acker.status()
        with pytest.raises(RedisUnavailableError):
            Rotator([acker]).step()
