"""Create redis-py clients for a URL; see :mod:`acker_redis.transport.urls`."""

from dataclasses import dataclass
from typing import Any

import redis
import redis.asyncio as aio
import redis.asyncio.cluster
import redis.asyncio.retry
import redis.asyncio.sentinel
import redis.cluster
import redis.sentinel
from redis.backoff import NoBackoff
from redis.credentials import UsernamePasswordCredentialProvider
from redis.exceptions import RedisClusterException, RedisError, ResponseError
from redis.retry import Retry

from acker_redis.errors import AckerError, ConfigError, RedisRefusedError, RedisUnavailableError
from acker_redis.protocol import functions
from acker_redis.transport.arguments import Packer
from acker_redis.transport.errors import tls_trouble
from acker_redis.transport.urls import Kind, RedisUrl, parse, shown
from acker_redis.transport.words import plain_words


def connect(url: str | RedisUrl, timeout: float) -> "redis.Redis | redis.RedisCluster":
    """Return a redis-py client for a URL of the forms in ``urls.py``.

    After a lost reply the client never retries a command, because a retry must use the same fence.
    On a cluster it follows MOVED and ASK and waits at TRYAGAIN; these replies mean that the command
    did not run. With sentinels it asks them for the master at each new connection.
    :class:`acker_redis.sync.connection.Connection` leaves a demoted master, for every kind of
    client.

    No command is sent yet, except to a cluster, whose nodes are asked for their slots.

    Args:
        url: The URL, as text or parsed.
        timeout: Seconds for connecting and for each reply, also of sentinels and of each node of a
            cluster. ``socket_timeout`` and ``socket_connect_timeout`` in the URL override it.

    Raises:
        ConfigError: The URL is invalid, or the nodes are not in cluster mode.
        RedisUnavailableError: No node of the cluster answers.
        RedisRefusedError: The cluster refuses this user.

    """
    try:
        client: redis.Redis | redis.RedisCluster = _make(parse(url), timeout, _SYNC)
    except (RedisError, RedisClusterException) as error:
        # Only the cluster client connects here, so only it can fail.
        if trouble := tls_trouble(error, dict(parse(url).options)):
            words = f"the cluster {shown(url)} cannot be reached by TLS: {trouble}"
            raise RedisUnavailableError(words) from error
        raise _no_cluster(shown(url), error) from error
    return client


def connect_async(url: str | RedisUrl, timeout: float) -> "aio.Redis | aio.RedisCluster":
    """Return an asyncio client, as :func:`connect` does; no command is sent, even to a cluster."""
    client: aio.Redis | aio.RedisCluster = _make(parse(url), timeout, _ASYNC)
    return client


class _Master(redis.Redis):
    """Client of the server that the sentinels name as the master."""

    def close(self) -> None:
        super().close()
        pool: Any = self.connection_pool
        for sentinel in pool.sentinel_manager.sentinels:
            sentinel.close()


class _AsyncMaster(aio.Redis):
    """Client of the server that the sentinels name as the master."""

    async def aclose(self, close_connection_pool: bool | None = None) -> None:
        await super().aclose(close_connection_pool)
        pool: Any = self.connection_pool
        for sentinel in pool.sentinel_manager.sentinels:
            await sentinel.aclose()


@dataclass(frozen=True)
class _Kit:
    """The classes of redis-py, sync or asyncio."""

    retry: Any
    cluster: Any
    node: Any
    sentinel: Any
    master: Any
    client: Any
    pool: Any
    connections: dict[tuple[Kind, bool], Any]
    packing: dict[str, Any]
    """Options of a connection. asyncio clients need none: they pack without hiredis."""


_SYNC = _Kit(
    Retry,
    redis.RedisCluster,
    redis.cluster.ClusterNode,
    redis.sentinel.Sentinel,
    _Master,
    redis.Redis,
    redis.ConnectionPool,
    {
        ("server", False): redis.Connection,
        ("server", True): redis.SSLConnection,
        ("unix", False): redis.UnixDomainSocketConnection,
    },
    {"command_packer": Packer()},
)
_ASYNC = _Kit(
    redis.asyncio.retry.Retry,
    aio.RedisCluster,
    redis.asyncio.cluster.ClusterNode,
    redis.asyncio.sentinel.Sentinel,
    _AsyncMaster,
    aio.Redis,
    aio.ConnectionPool,
    {
        ("server", False): aio.Connection,
        ("server", True): aio.SSLConnection,
        ("unix", False): aio.UnixDomainSocketConnection,
    },
    {},
)


def _make(target: RedisUrl, timeout: float, kit: _Kit) -> Any:
    common: dict[str, Any] = {"socket_timeout": timeout, "socket_connect_timeout": timeout}
    # No retries: a cluster client applies this to a command, the others to each connection.
    common |= {**dict(target.options), "retry": kit.retry(NoBackoff(), 0)}
    common["decode_responses"] = False
    login = _credentials(target.username, target.password)
    client = _client(target, kit, common, login)
    return functions.use_functions(client) if target.functions else client


def _client(target: RedisUrl, kit: _Kit, common: dict[str, Any], login: dict[str, Any]) -> Any:
    if target.kind == "cluster":
        nodes = [kit.node(*host) for host in target.hosts]
        return kit.cluster(startup_nodes=nodes, ssl=target.tls, **common, **login)
    if target.kind == "sentinel":
        asking = common | _credentials(target.sentinel_username, target.sentinel_password)
        manager = kit.sentinel(target.hosts, sentinel_kwargs={**asking, "ssl": target.tls})
        common |= {"ssl": target.tls, "db": target.db, **kit.packing}
        return manager.master_for(target.service, redis_class=kit.master, **common, **login)
    if target.kind == "unix":
        place: dict[str, Any] = {"path": target.path}
    else:
        [(host, port)] = target.hosts
        place = {"host": host, "port": port}
    connection = kit.connections[target.kind, target.tls]
    common |= {"db": target.db, **kit.packing}
    pool = kit.pool(connection_class=connection, **place, **common, **login)
    return kit.client.from_pool(pool)


def _credentials(username: str | None, password: str | None) -> dict[str, Any]:
    if not username and not password:
        return {}
    # An object instead of a text: some versions of redis-py show a password in the repr of a pool,
    # and the error that no sentinel knows the master quotes that repr.
    return {"credential_provider": UsernamePasswordCredentialProvider(username, password)}


def _no_cluster(shown: str, error: Exception) -> AckerError:
    cause: BaseException | None = error
    while cause:
        if isinstance(cause, redis.exceptions.AuthenticationError):
            return RedisRefusedError(f"the cluster {shown} refused the user or password")
        if isinstance(cause, ResponseError):
            if "cluster support disabled" in str(cause):
                return ConfigError(f"{shown} is no cluster; write redis:// or rediss://")
            return RedisRefusedError(f"the cluster {shown} refused this client: {cause}")
        cause = cause.__cause__ or cause.__context__
    words = plain_words(str(error)).rstrip(".")
    return RedisUnavailableError(
        f"the cluster {shown} did not answer: {words}; is it running and reachable?"
    )
