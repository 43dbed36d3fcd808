"""Failovers by sentinels: the client finds the new master, and no ack is false."""

import asyncio
import time
from collections.abc import Callable
from typing import Any

import pytest
import redis

from acker_redis.errors import RedisUnavailableError
from acker_redis.protocol.config import AckerConfig
from acker_redis.sync.client import Acker
from acker_redis.transport.connect import connect, connect_async
from tests.sentinel.load import Load
from tests.sentinel.servers import SERVICE, Watched
from tests.support import fences, tick, total
from tests.transport.test_bounded import check_bounded
from tests.waiting import LIMIT, wait_until

WAYS: dict[str, Callable[[Watched], None]] = {
    "requested": Watched.fail_over,
    "killed": Watched.kill_master,
}


@pytest.mark.parametrize("way", WAYS)
def test_failover_under_load_never_acks_falsely(watched: Watched, way: str) -> None:
    """The replica lacks some writes, which are lost; no tree is acked because of that."""
    old, new = watched.master, watched.replica
    with Acker.from_url(watched.url, "n", retry_for=LIMIT) as acker:
        acker.create(AckerConfig(tick_ms=3_600_000, high_water=1_000_000))
        with Load(acker) as load:
            wait_until(lambda: load.ended() or load.rounds > 10, "some rounds")
            # Without the namespace the new master would refuse every call.
            wait_until(lambda: watched.ask(new, "DBSIZE") > 0, "a replica that has the namespace")
            before = len(load.done)
            WAYS[way](watched)
            wait_until(lambda: watched.masters() == {new}, "another master", pause=0.02)
            writes = written(new)
            wait_until(lambda: load.ended() or written(new) > writes + 100, "writes there")
        load.check()
        assert load.rounds > 10
        assert len(load.done) > before
        # One lane all the time: its fence survives the failover.
        assert fences(acker) == 1
        assert acker.connection.client.connection_pool.master_address == ("127.0.0.1", new)

        # The remaining trees expire: an open tree is nacked, if the new master has it.
        tick(acker, 3)
        load.note(acker)
        load.check()
        counted = total(acker)
        assert counted["pending"] == counted["expiring"] == 0
        assert counted["acked"] > 100
        assert counted["expired"] > 0
        nacked = {anchor for verdict, anchor in load.verdicts if verdict == "nack"}
        assert nacked & load.open
        assert acker.status().backlog == {"t": 0}
    assert old != new


def written(port: int) -> int:
    """Return the number of acked trees on this server, by calls or by replication."""
    with redis.Redis(port=port) as client:
        return sum(int(client.hget(key, "acked") or 0) for key in client.scan_iter("*:meta"))


@pytest.mark.parametrize("binary", ["path"], indirect=True)
def test_asyncio_client_follows_a_failover(watched: Watched) -> None:
    async def run() -> None:
        client: Any = connect_async(watched.url + "/1", LIMIT)
        await client.set("before", 1)
        assert watched.ask(watched.master, "DBSIZE") == 0
        new = watched.replica
        watched.kill_master()
        failures, deadline = 0, time.monotonic() + LIMIT
        while True:
            try:
                await client.set("after", 2)
                break
            except redis.RedisError:
                failures += 1
                assert time.monotonic() < deadline
                await asyncio.sleep(0.02)
        assert failures
        assert client.connection_pool.master_address == ("127.0.0.1", new)
        assert await client.get("after") == b"2"
        assert connected(client)
        await client.aclose()
        assert not connected(client)

    asyncio.run(run())


def connected(client: Any) -> list[Any]:
    """Return the open connections to the master and to the sentinels."""
    pools = [each.connection_pool for each in client.connection_pool.sentinel_manager.sentinels]
    every = [c for pool in (client.connection_pool, *pools) for c in pool._available_connections]
    return [connection for connection in every if is_open(connection)]


def is_open(connection: Any) -> bool:
    """Return the same as is_connected of later versions of redis-py."""
    return bool(getattr(connection, "_sock", None) or getattr(connection, "_reader", None))


def test_closing_closes_the_connections_to_the_sentinels(at_rest: Watched) -> None:
    client = connect(at_rest.url, LIMIT)
    assert client.ping()
    assert len(connected(client)) == 2
    client.close()
    assert not connected(client)
    assert client.ping()
    client.close()


def test_separate_users_for_the_master_and_the_sentinels(at_rest: Watched) -> None:
    watched = at_rest
    every = ("on", "~*", "&*", "+@all")
    watched.ask(watched.master, "ACL", "SETUSER", "u", ">p/w", *every)
    for sentinel in watched.sentinels:
        watched.ask(sentinel.port, "ACL", "SETUSER", "s", ">q@w", *every)

    def whoami(login: str, query: str) -> Any:
        url = f"redis+sentinel://{login}{watched.hosts}/{SERVICE}{query}"
        with connect(url, LIMIT) as client:
            return client.execute_command("ACL", "WHOAMI")

    assert whoami("u:p%2Fw@", "?sentinel_username=s&sentinel_password=q%40w") == b"u"
    assert whoami("", "") == b"default"
    with pytest.raises(redis.ConnectionError, match="No master found") as caught:
        whoami("u:p%2Fw@", "?sentinel_username=s&sentinel_password=s3cr3t")
    assert "s3cr3t" not in str(caught.value)
    with pytest.raises(redis.AuthenticationError):
        whoami("u:wrong@", "")
    with (
        Acker.from_url(watched.url.replace(SERVICE, "other"), "n", retry_for=0) as acker,
        pytest.raises(RedisUnavailableError, match="no sentinel names a master for 'other'"),
    ):
        acker.status()


@pytest.mark.parametrize(
    ("trouble", "remedy"),
    [
        (("REPLICAOF", "127.0.0.1", 1), ("REPLICAOF", "NO", "ONE")),
        (
            ("CONFIG", "SET", "min-replicas-to-write", 2),
            ("CONFIG", "SET", "min-replicas-to-write", 0),
        ),
    ],
    ids=["replica", "alone"],
)
def test_client_leaves_a_server_that_refuses_writes(
    at_rest: Watched, trouble: tuple[str | int, ...], remedy: tuple[str | int, ...]
) -> None:
    """Also when a script is refused: the next call asks the sentinels again."""
    port = at_rest.master
    with Acker.from_url(at_rest.url, "n", retry_for=0) as acker:
        acker.create(AckerConfig(tick_ms=3_600_000))
        [connection] = acker.connection.client.connection_pool._available_connections
        assert is_open(connection)
        at_rest.ask(port, *trouble)
        try:
            with pytest.raises(RedisUnavailableError):
                tick(acker)
            assert not is_open(connection)
        finally:
            at_rest.ask(port, *remedy)


def test_reply_beyond_the_bound_is_refused(
    at_rest: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    check_bounded(at_rest.url, monkeypatch)
