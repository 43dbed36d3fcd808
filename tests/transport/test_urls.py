"""URLs: parsing, error messages, and the clients that are made from them."""

import asyncio
import inspect
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import redis
import redis.asyncio as aio

from acker_redis.batching.batch import Batch
from acker_redis.embedded import EmbeddedRedis
from acker_redis.embedded.binary import find_server
from acker_redis.errors import ConfigError, RedisRefusedError, RedisUnavailableError
from acker_redis.protocol.config import AckerConfig
from acker_redis.sync.client import Acker
from acker_redis.transport.connect import connect, connect_async
from acker_redis.transport.urls import NOT_SHOWN, RedisUrl, redact
from tests.cluster.servers import Cluster
from tests.conftest import missing
from tests.transport.listener import Listener
from tests.transport.proxy import proxied
from tests.waiting import LIMIT, wait_until

A, B = ("a", 6379), ("b", 7001)
GOOD = {
    "redis://": RedisUrl("server", False, (("localhost", 6379),)),
    "redis:///3": RedisUrl("server", False, (("localhost", 6379),), db=3),
    "redis://a": RedisUrl("server", False, (A,)),
    "REDIS://a:6379/": RedisUrl("server", False, (A,)),
    "redis://a/2\n": RedisUrl("server", False, (A,), db=2),
    "redis://a/2/": RedisUrl("server", False, (A,), db=2),
    "redis://a/2?db=4": RedisUrl("server", False, (A,), db=4),
    "rediss://[::1]:7": RedisUrl("server", True, (("::1", 7),)),
    "redis://:p%2F%40%2Bw@a": RedisUrl("server", False, (A,), password="p/@+w"),
    "redis://u:p@ss:w@a": RedisUrl("server", False, (A,), username="u", password="p@ss:w"),
    "redis://u%3A:p@a": RedisUrl("server", False, (A,), username="u:", password="p"),
    "redis://u@a": RedisUrl("server", False, (A,), username="u"),
    "redis://@a": RedisUrl("server", False, (A,)),
    "redis://a?username=u&password=p%26": RedisUrl(
        "server", False, (A,), username="u", password="p&"
    ),
    "redis://u:p@a?username=v&password=q": RedisUrl(
        "server", False, (A,), username="u", password="p"
    ),
    "unix:///run/a%40b.sock?db=1": RedisUrl("unix", False, (), path="/run/a@b.sock", db=1),
    "unix://u:p@/s": RedisUrl("unix", False, (), path="/s", username="u", password="p"),
    "redis+cluster://a": RedisUrl("cluster", False, (A,)),
    "redis+cluster://a:6379,b:7001/": RedisUrl("cluster", False, (A, B)),
    "rediss+cluster://u:p,q@a,b:7001/0?ssl_cert_reqs=none": RedisUrl(
        "cluster",
        True,
        (A, B),
        username="u",
        password="p,q",
        options=(("ssl_cert_reqs", "none"),),
    ),
    "redis+cluster://[::1]:7000,[fe80::1]": RedisUrl(
        "cluster", False, (("::1", 7000), ("fe80::1", 6379))
    ),
    "redis+sentinel://a/svc": RedisUrl("sentinel", False, (("a", 26379),), service="svc"),
    "redis+sentinel://a:6379,b:7001/my%20svc/5/": RedisUrl(
        "sentinel", False, (A, B), service="my svc", db=5
    ),
    "rediss+sentinel://:p@a:6379/svc?sentinel_username=s&sentinel_password=q%2F"
    "&ssl_check_hostname=no&ssl_min_version=771&socket_timeout=0.5": RedisUrl(
        "sentinel",
        True,
        (A,),
        service="svc",
        password="p",
        sentinel_username="s",
        sentinel_password="q/",
        options=(
            ("ssl_check_hostname", False),
            ("ssl_min_version", ssl.TLSVersion.TLSv1_2),
            ("socket_timeout", 0.5),
        ),
    ),
}
SECRET = "s3cr3t"
BAD = {
    "": "known schemes",
    "a:6379": "known schemes",
    "http://a": "known schemes",
    "redis:/a": "known schemes",
    "redis+tls://a": "known schemes",
    "redis://a:": "a number up to",
    "redis://a:x": "a number up to",
    "redis://a:0": "a number up to",
    "redis://a:65536": "a number up to",
    "redis://a b": "a number up to",
    "redis://::1": "a host is empty",
    "redis://fe80::1": "a number up to",
    "redis://[": "a number up to",
    "redis://:6379": "a host is empty",
    "redis://a,b": "several hosts",
    "redis://a/x": "a database is a number",
    "redis://a/-1": "a database is a number",
    "redis://a/1/2": "more segments",
    "redis://a%ff": "UTF-8",
    f"redis://u:x/{SECRET}@a": "the password contains",
    f"redis://u:1/{SECRET}@a": "the password contains",
    f"redis://u:1?{SECRET}=x@a": "the password contains",
    f"redis://u:1#{SECRET}@a": "the password contains",
    f"redis://u:1?{SECRET}=x": "none of client_name",
    f"redis://a?{SECRET}": "NAME=VALUE",
    f"redis://a?decode_responses={SECRET}": "the option decode_responses, which is none of client_",
    "redis://a?decode_responses=true": "leave it out, because acker-redis decodes",
    "redis://a?retry_on_timeout=yes": "the option retry_on_timeout, which is none of client_name",
    "redis://a?timeout=3": "its name is socket_timeout",
    "redis://a?db=": "db is empty",
    "redis://a?db=1&db=2": "db is empty, or given twice",
    f"redis://a?db={SECRET}": "db has an invalid value",
    "redis://a?socket_timeout=0": "socket_timeout has an invalid value",
    "redis://a?socket_timeout=nan": "socket_timeout has an invalid value",
    "redis://a?protocol=4": "protocol has an invalid value",
    "redis://a?ssl_cert_reqs=none": "ssl_cert_reqs needs TLS",
    "rediss://a?ssl_cert_reqs=never": "ssl_cert_reqs has an invalid value",
    "rediss://a?ssl_min_version=1": "ssl_min_version has an invalid value",
    f"rediss://a?ssl_password={SECRET}": "none of client_name",
    f"redis://a?sentinel_password={SECRET}": "the option sentinel_password, which is none of cli",
    "unix://": "three slashes",
    "unix://run/s": "three slashes",
    "redis+cluster://": "a host is empty",
    "redis+cluster://a,": "a host is empty",
    "redis+cluster://a,,b": "a host is empty",
    "redis+cluster://a,:7": "a host is empty",
    "redis+cluster://a/1": "only database 0",
    "redis+cluster://a/svc": "only database 0",
    "redis+cluster://a?db=1": "none of client_name",
    "redis+cluster://a:1;b:2": "a number up to",
    f"redis+cluster://u:{SECRET}@a,u:{SECRET}@b": "more than one @",
    "redis+sentinel:///svc": "a host is empty",
    "redis+sentinel://a": "name for the master",
    "redis+sentinel://a/": "name for the master",
    "redis+sentinel://a//0": "name for the master",
    "redis+sentinel://a/svc/x": "a database is a number",
    "redis+sentinel://a/svc/0/x": "more segments",
    f"redis+sentinel://a/svc#{SECRET}": "contains a #",
    f"redis+sentinel://u:1/{SECRET}@a/svc": "the password contains",
    f"redis+sentinel://a/svc?sentinel_password={SECRET}@": "or an @",
}


@pytest.mark.parametrize(("url", "parsed"), GOOD.items())
def test_url_is_parsed(url: str, parsed: RedisUrl) -> None:
    assert RedisUrl.parse(url) == parsed


@pytest.mark.parametrize(("url", "why"), BAD.items())
def test_malformed_url_is_refused_with_the_reason(url: str, why: str) -> None:
    for use in (RedisUrl.parse, lambda url: connect(url, 1.0), lambda url: connect_async(url, 1.0)):
        with pytest.raises(ConfigError, match=why) as caught:
            use(url)
        assert "redis+sentinel://HOST:PORT,HOST:PORT/SERVICE" in str(caught.value)
        assert SECRET not in str(caught.value)
        assert caught.value.__suppress_context__


def test_no_repr_contains_a_password() -> None:
    login = f"u:{SECRET}@"
    for url in (
        f"redis://{login}a",
        f"unix://{login}/s",
        f"rediss+cluster://{login}a,b?ssl_ca_certs={SECRET}",
        f"redis+sentinel://{login}a/svc?sentinel_password={SECRET}",
    ):
        assert SECRET not in repr(RedisUrl.parse(url))
        clients: list[Any] = [connect_async(url, 1.0)]
        if "cluster" not in url:
            clients.append(connect(url, 1.0))
        for client in clients:
            assert SECRET not in repr(client)
            if "sentinel" in url:
                assert SECRET not in repr(client.connection_pool.sentinel_manager)
                assert SECRET not in repr(client.connection_pool.sentinel_manager.sentinels)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("redis+cluster://u:s3cr3t@a:1,b/", "redis+cluster://u:***@a:1,b/"),
        ("redis+cluster://[::1]:1,[::2]", "redis+cluster://[::1]:1,[::2]"),
        ("rediss+cluster://u:s3,cr3t@a", "rediss+cluster://u:***@a"),
        ("redis+cluster://u:s3cr3t@a,u:s3cr3t@b", "redis+cluster://u:***@b"),
        (
            "redis+sentinel://:s3cr3t@a,b:2/svc/1?sentinel_password=s3cr3t",
            "redis+sentinel://:***@a,b:2/svc/1",
        ),
        ("redis+sentinel://u:1,2/s3cr3t@a/svc", NOT_SHOWN),
        ("redis+sentinel://a,b:s3cr3t/svc", NOT_SHOWN),
        ("redis+sentinel://a,b:123456/svc", NOT_SHOWN),
        ("redis+sentinel://a/svc?sentinel_password=s3@cr3t", NOT_SHOWN),
        ("redis+sentinel://a/svc#s3cr3t", "redis+sentinel://a/svc"),
        ("redis+cluster://a,,b", "redis+cluster://a,,b"),
        ("redis://s3cr3t@a", "redis://***@a"),
        ("redis://u:s3[cr3t@a", "redis://u:***@a"),
    ],
)
def test_urls_of_several_hosts_are_shown_without_secrets(url: str, shown: str) -> None:
    assert redact(url) == shown


EXPECTED = {"socket_timeout": 1.5, "socket_connect_timeout": 1.5, "decode_responses": False}
ASK = "redis+sentinel://u:p@a,b/svc/3?sentinel_username=s&sentinel_password=q&client_name=me"


def login_of(kwargs: dict[str, Any]) -> Any:
    assert not kwargs.get("password")
    provider = kwargs.get("credential_provider")
    return provider and provider.get_credentials()


@pytest.mark.parametrize("make", [connect, connect_async])
@pytest.mark.parametrize(
    ("url", "more"),
    [
        ("redis://u:p@a:7/3", {"host": "a", "port": 7, "db": 3}),
        ("unix://u:p@/s?db=3", {"path": "/s", "db": 3}),
        ("rediss://u:p@a?ssl_ciphers=x", {"host": "a", "ssl_ciphers": "x"}),
    ],
)
def test_options_reach_a_server(make: Callable[..., Any], url: str, more: dict[str, Any]) -> None:
    pool = make(url, 1.5).connection_pool
    for name, value in (EXPECTED | more).items():
        assert pool.connection_kwargs[name] == value
    assert login_of(pool.connection_kwargs) == ("u", "p")
    connection = pool.connection_class(**pool.connection_kwargs)
    assert connection.retry.get_retries() == 0
    assert ("SSL" in type(connection).__name__) == url.startswith("rediss")


@pytest.mark.parametrize("make", [connect, connect_async])
@pytest.mark.parametrize("tls", [False, True])
def test_options_reach_a_master_and_its_sentinels(make: Callable[..., Any], tls: bool) -> None:
    url = ASK.replace("redis+", "rediss+") + "&ssl_ca_certs=/x" if tls else ASK
    pool = make(url, 1.5).connection_pool
    sentinels = [each.connection_pool for each in pool.sentinel_manager.sentinels]
    assert pool.service_name == "svc"
    assert pool.connection_kwargs["db"] == 3
    hosts = [(s.connection_kwargs["host"], s.connection_kwargs["port"]) for s in sentinels]
    assert hosts == [("a", 26379), ("b", 26379)]
    for each in (pool, *sentinels):
        kwargs = each.connection_kwargs
        for name, value in (EXPECTED | {"client_name": "me"}).items():
            assert kwargs[name] == value
        assert login_of(kwargs) == (("u", "p") if each is pool else ("s", "q"))
        connection = each.connection_class(**kwargs)
        assert connection.retry.get_retries() == 0
        assert ("SSL" in type(connection).__name__) == tls
        assert kwargs.get("ssl_ca_certs") == ("/x" if tls else None)
    assert "db" not in sentinels[0].connection_kwargs or not sentinels[0].connection_kwargs["db"]


def test_master_password_is_not_sent_to_the_sentinels() -> None:
    pool: Any = connect("redis+sentinel://:p@a/svc", 1.0).connection_pool  # type: ignore[union-attr]
    [sentinel] = pool.sentinel_manager.sentinels
    assert login_of(pool.connection_kwargs) == ("p",)
    assert login_of(sentinel.connection_pool.connection_kwargs) is None


def test_timeouts_in_the_url_take_precedence() -> None:
    client: Any = connect("redis+sentinel://a/svc?socket_timeout=7", 1.5)
    [sentinel] = client.connection_pool.sentinel_manager.sentinels
    for pool in (client.connection_pool, sentinel.connection_pool):
        assert pool.connection_kwargs["socket_timeout"] == 7
        assert pool.connection_kwargs["socket_connect_timeout"] == 1.5


def test_options_reach_the_nodes_of_a_cluster() -> None:
    url = "rediss+cluster://u:p@a,b:7?ssl_ca_certs=/x&ssl_check_hostname=false"
    client: Any = connect_async(url, 1.5)
    assert client.retry.get_retries() == 0
    nodes = client.nodes_manager.startup_nodes.values()
    assert {(node.host, node.port) for node in nodes} == {("a", 6379), ("b", 7)}
    for node in nodes:
        assert node.connection_class is aio.SSLConnection
        kwargs = node.connection_kwargs
        for name, value in (EXPECTED | {"ssl_ca_certs": "/x", "ssl_check_hostname": False}).items():
            assert kwargs[name] == value
        assert login_of(kwargs) == ("u", "p")


class Fake:
    """A server that accepts any client, never replies to EVALSHA, and records the commands.

    Of a TLS connection it records the first byte, then closes the connection.
    """

    def __init__(self, hang: bool) -> None:
        self.hang = hang
        self.sent: list[bytes] = []
        self._over = threading.Event()
        self._listener = Listener(self._serve)
        self.port = self._listener.port

    def close(self) -> None:
        self._over.set()
        self._listener.close()

    def count(self, name: bytes) -> int:
        return sum(each == name for each in self.sent)

    def _serve(self, client: socket.socket) -> None:
        with client, client.makefile("rb") as lines:
            while kind := lines.read(1):
                if kind != b"*":
                    self.sent.append(kind)
                    return
                first = lines.readline()
                words = []
                for _ in range(int(first)):
                    lines.readline()
                    words.append(lines.readline().rstrip())
                self.sent.append(words[0].upper())
                if words[0].upper() == b"EVALSHA":
                    if self.hang:
                        self._over.wait()
                    return
                client.sendall(self._reply(words))

    def _reply(self, words: list[bytes]) -> bytes:
        port = str(self.port).encode()
        if words[0].upper() == b"CLUSTER":
            return b"*1\r\n*3\r\n:0\r\n:16383\r\n*2\r\n$9\r\n127.0.0.1\r\n:%s\r\n" % port
        if words[0].upper() == b"SENTINEL":
            state = [b"name", b"svc", b"ip", b"127.0.0.1", b"port", port, b"flags", b"master"]
            state += [b"num-other-sentinels", b"2"]
            bulks = b"".join(b"$%d\r\n%s\r\n" % (len(word), word) for word in state)
            return b"*1\r\n*%d\r\n" % len(state) + bulks
        if words[0].upper() == b"COMMAND":
            return b"*0\r\n"
        return b"+PONG\r\n" if words[0].upper() == b"PING" else b"+OK\r\n"


@contextmanager
def fake(hang: bool = False) -> Iterator[Fake]:
    running = Fake(hang)
    try:
        yield running
    finally:
        running.close()


FORMS = [
    "redis://127.0.0.1:{port}?protocol=2",
    "redis+cluster://127.0.0.1:{port}?protocol=2",
    "redis+sentinel://127.0.0.1:{port}/svc?protocol=2",
]
LOST = (redis.ConnectionError, redis.TimeoutError, redis.exceptions.RedisClusterException)
TIMEOUT = {False: LIMIT, True: 0.3}
"""Timeout of a client in seconds, by whether the server is silent."""


async def answer(ask: Callable[[], Any]) -> Any:
    """Retry until there is a reply: with a short timeout a slow machine loses replies too."""
    deadline = time.monotonic() + LIMIT
    while True:
        try:
            reply = ask()
            return await reply if inspect.isawaitable(reply) else reply
        except (*LOST, RedisUnavailableError):
            assert time.monotonic() < deadline


async def loses_a_reply(server: Fake, client: Any, form: str) -> None:
    """Lose the reply of a script; the client does not retry, and stays usable."""
    await answer(client.ping)
    with pytest.raises(LOST):
        reply = client.evalsha("0" * 40, 1, "{x}")
        if inspect.isawaitable(reply):
            await reply
    # The connection was established, so the server reads the command, now or later.
    await asyncio.to_thread(wait_until, lambda: server.count(b"EVALSHA"), "the call")
    # After the error redis-py 6 has forgotten the only node of a cluster.
    assert "cluster" in form or await answer(client.ping)
    assert server.count(b"EVALSHA") == 1


@pytest.mark.parametrize("hang", [False, True], ids=["closed", "silent"])
@pytest.mark.parametrize("form", FORMS)
def test_lost_reply_raises_and_is_not_retried(form: str, hang: bool) -> None:
    async def run(server: Fake) -> None:
        url = form.format(port=server.port)
        client = await answer(lambda: connect(url, TIMEOUT[hang]))
        await loses_a_reply(server, client, form)
        client.close()

    with fake(hang) as server:
        asyncio.run(run(server))


@pytest.mark.parametrize("hang", [False, True], ids=["closed", "silent"])
@pytest.mark.parametrize("form", FORMS)
def test_lost_reply_raises_and_is_not_retried_in_asyncio(form: str, hang: bool) -> None:
    async def run(server: Fake) -> None:
        client: Any = connect_async(form.format(port=server.port), TIMEOUT[hang])
        await loses_a_reply(server, client, form)
        await client.aclose()

    with fake(hang) as server:
        asyncio.run(run(server))


def test_lost_reply_of_a_real_server_is_not_retried(any_server: EmbeddedRedis) -> None:
    with proxied(any_server.url) as proxy:
        client = connect(proxy.url, LIMIT)
        sha = client.script_load("return redis.call('INCR', KEYS[1])")
        client.delete("n")
        proxy.swallow = 5
        with pytest.raises(redis.ConnectionError):
            client.evalsha(sha, 1, "n")
        assert proxy.lost == 1
        proxy.swallow = 0
        assert client.get("n") == b"1"
        client.close()


@pytest.mark.parametrize("form", ["rediss", "rediss+cluster", "rediss+sentinel"])
def test_connection_uses_tls(form: str) -> None:
    """Also to sentinels and to the nodes of a cluster: the first byte sent is that of TLS."""
    service = "/svc" if "sentinel" in form else ""
    with fake() as server:
        with pytest.raises((redis.RedisError, RedisUnavailableError)):
            connect(f"{form}://127.0.0.1:{server.port}{service}", LIMIT).ping()
        assert server.sent
        assert set(server.sent) == {b"\x16"}


@pytest.fixture
def closed_port() -> Iterator[int]:
    """A port that refuses connections: it is bound, but no process listens."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield int(taken.getsockname()[1])


def test_unreachable_cluster(closed_port: int) -> None:
    url = f"redis+cluster://u:{SECRET}@127.0.0.1:{closed_port},localhost:{closed_port}"
    with pytest.raises(RedisUnavailableError, match=r"redis\+cluster://u:\*\*\*@127") as caught:
        connect(url, LIMIT)
    assert SECRET not in str(caught.value)
    connect_async(url, LIMIT)


def test_a_server_that_is_no_cluster(any_server: EmbeddedRedis) -> None:
    with pytest.raises(ConfigError, match="is no cluster; write redis://"):
        connect(f"redis+cluster://127.0.0.1:{any_server.port}", LIMIT)


def test_cluster_that_refuses_the_login(any_server: EmbeddedRedis) -> None:
    with pytest.raises(RedisRefusedError, match="user or password") as caught:
        connect(f"redis+cluster://u:{SECRET}@127.0.0.1:{any_server.port}", LIMIT)
    assert SECRET not in str(caught.value)


def test_unreachable_sentinels(closed_port: int) -> None:
    url = f"redis+sentinel://:{SECRET}@127.0.0.1:{closed_port}/svc?sentinel_password={SECRET}"
    with (
        Acker.from_url(url, "n", retry_for=0) as acker,
        pytest.raises(
            RedisUnavailableError, match="no sentinel names a master for 'svc'"
        ) as caught,
    ):
        acker.status()
    assert SECRET not in str(caught.value)


@pytest.fixture(scope="module")
def masters() -> Iterator[Cluster]:
    binary = find_server()
    if binary is None:
        missing("redis-server")
    with Cluster(binary) as running:
        yield running


@pytest.fixture
def cluster_url(masters: Cluster, closed_port: int) -> str:
    """A URL with a dead node and two living ones; the client finds the third through them."""
    hosts = [closed_port, *(node.server.port for node in masters.nodes[:2])]
    return "redis+cluster://" + ",".join(f"127.0.0.1:{port}" for port in hosts)


def test_a_cluster_by_its_url(masters: Cluster, cluster_url: str) -> None:
    client: Any = connect(cluster_url, LIMIT)
    assert client.ping()
    for number in range(50):
        client.set(f"key-{number}", number)
        assert client.get(f"key-{number}") == str(number).encode()
    assert {node.port for node in client.get_nodes()} == {n.server.port for n in masters.nodes}
    for node in client.get_nodes():
        kwargs = node.redis_connection.connection_pool.connection_kwargs
        assert [kwargs[name] for name in EXPECTED] == [LIMIT, LIMIT, False]
        assert kwargs["retry"].get_retries() == 0
    assert client.retry.get_retries() == 0
    client.close()


def test_a_cluster_by_its_url_for_asyncio(cluster_url: str) -> None:
    async def run() -> None:
        client: Any = connect_async(cluster_url, LIMIT)
        assert await client.ping()
        for number in range(50):
            await client.set(f"aio-{number}", number)
            assert await client.get(f"aio-{number}") == str(number).encode()
        await client.aclose()

    asyncio.run(run())


def test_an_acker_on_a_cluster_by_its_url(cluster_url: str) -> None:
    with Acker(connect(cluster_url, LIMIT), "by-url") as acker:
        assert acker.create(AckerConfig(shards=4, tick_ms=3_600_000))
        batch = Batch("t")
        for anchor in range(1, 101):
            batch.track(anchor, f"s{anchor}", [anchor + 500])
        assert acker.apply(batch).tracked == 100
        done = Batch()
        for anchor in range(1, 51):
            done.ack(anchor, anchor + 500)
        assert acker.apply(done).acked == 50
        status = acker.status()
        assert (status.pending, status.backlog) == (50, {"t": 50})
        assert len(status.shards) == 4
