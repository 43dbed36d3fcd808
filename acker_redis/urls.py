"""URLs of a Redis, of a cluster, and of a master that sentinels know; clients for them.

====================================================  ==========================================
``redis://[USER:PASSWORD@]HOST[:6379][/DB]``          one server
``unix://[USER:PASSWORD@]/PATH[?db=DB]``              one server, by its socket
``redis+cluster://[...@]HOST[:6379][,HOST...]``       a cluster; some of its nodes are enough
``redis+sentinel://[...@]HOST[:26379][,HOST...]``     the master of SERVICE, by its sentinels;
``/SERVICE[/DB]``                                     USER and PASSWORD are the master's
====================================================  ==========================================

``rediss`` instead of ``redis`` means TLS, to the sentinels too. Options follow as in redis-py's
own URLs, ``?NAME=VALUE&...``: see ``_OPTIONS``. What sentinels ask for is ``sentinel_username`` and
``sentinel_password``: the master's password is not sent to them. All parts may be %-encoded; a
password must be where it holds one of ``/?#@%``.

There is no standard for sentinels. This is the form of redis-sentinel-url on PyPI, which LangChain,
RedisVL, Harbor and Prefect took over, with Prefect's names for the credentials. Others have one URL
per sentinel and the name of the service outside of it (kombu), or the name in an option or behind a
``#`` (Lettuce's ``redis-sentinel://``).
"""

import re
import ssl
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal
from urllib.parse import parse_qsl, unquote

import redis
import redis.asyncio as aio
import redis.asyncio.cluster
import redis.asyncio.retry
import redis.asyncio.sentinel
import redis.cluster
import redis.sentinel
from redis.backoff import NoBackoff
from redis.credentials import UsernamePasswordCredentialProvider
from redis.exceptions import (
    MasterDownError,
    ReadOnlyError,
    RedisClusterException,
    RedisError,
    ResponseError,
)
from redis.retry import Retry

from acker_redis.errors import AckerError, ConfigError, RedisRefusedError, RedisUnavailableError

Kind = Literal["server", "unix", "cluster", "sentinel"]

NOT_SHOWN = "(not shown: not a URL)"
FORMS = (
    "write redis://HOST:PORT/DB, rediss://HOST:PORT/DB or unix://PATH, "
    "redis+cluster://HOST:PORT,HOST:PORT or redis+sentinel://HOST:PORT,HOST:PORT/SERVICE, "
    "and %2F for / in a password (%23 for #, %3F for ?, %40 for @)"
)
_SCHEMES: dict[str, tuple[Kind, bool]] = {
    "redis": ("server", False),
    "rediss": ("server", True),
    "unix": ("unix", False),
    "redis+cluster": ("cluster", False),
    "rediss+cluster": ("cluster", True),
    "redis+sentinel": ("sentinel", False),
    "rediss+sentinel": ("sentinel", True),
}
_PORTS: dict[Kind, int] = {"server": 6379, "cluster": 6379, "sentinel": 26379}
_URL = re.compile(r"([a-z][a-z0-9+.-]*)://([^/?#]*)([^?#]*)\??([^#]*)(#.*)?", re.I | re.S)
_HOST = re.compile(r"(\[[0-9a-f:.]+(?:%[\w.-]+)?\]|[^\s:\[\]@,]+)(?::([0-9]+))?", re.I)
_DEMOTED = re.compile(r"(?:^| -)(?:READONLY|MASTERDOWN|NOREPLICAS) ")
"""Refusals of what is no master any longer, or was left alone by its replicas and may be replaced;
with a dash where Redis 6.2 tells of them from inside a script."""


@dataclass(frozen=True)
class RedisUrl:
    """A URL in its parts. Its repr holds neither user nor password, and no option."""

    kind: Kind
    tls: bool
    hosts: tuple[tuple[str, int], ...]
    """Host and port of the server, of nodes of the cluster, or of the sentinels."""
    path: str = ""
    """Of the socket."""
    service: str = ""
    """The sentinels' name for the master."""
    db: int = 0
    username: str | None = field(default=None, repr=False)
    password: str | None = field(default=None, repr=False)
    sentinel_username: str | None = field(default=None, repr=False)
    sentinel_password: str | None = field(default=None, repr=False)
    options: tuple[tuple[str, Any], ...] = field(default=(), repr=False)
    """Arguments for redis-py's connections."""

    @classmethod
    def parse(cls, url: str) -> "RedisUrl":
        """Parse a URL; nothing is looked up and nothing sent.

        Raises ConfigError with a sentence that says what is wrong, and quotes nothing that a
        password may be part of.
        """
        try:
            return _parse(str(url).strip())
        except _MalformedError as error:
            raise ConfigError(f"cannot use the URL {redact(url)}: {error}; {FORMS}") from None


def connect(url: str, timeout: float) -> "redis.Redis | redis.RedisCluster":
    """Client for a URL of this module's forms; ConfigError for another one.

    ``timeout`` is in seconds, for connecting and for each reply, also of sentinels and of each
    node of a cluster; ``socket_timeout`` and ``socket_connect_timeout`` in the URL win. The client
    never sends a command again by itself after its reply was lost: whoever sends again must do so
    under the same fence. On a cluster it follows MOVED and ASK, and waits at TRYAGAIN: those have
    run nothing. By sentinels it asks them for the master whenever it connects, and connects anew
    when the master refuses to write as one does that was replaced.

    Nothing is sent yet, except to a cluster: its nodes are asked at once who has which slots.
    RedisUnavailableError if none of them answers, RedisRefusedError if none lets this user in,
    ConfigError if none is in cluster mode.
    """
    try:
        client: redis.Redis | redis.RedisCluster = _make(RedisUrl.parse(url), timeout, _SYNC)
    except (RedisError, RedisClusterException) as error:
        # The others do nothing yet that could fail.
        raise _no_cluster(url, error) from error
    return client


def connect_async(url: str, timeout: float) -> "aio.Redis | aio.RedisCluster":
    """As :func:`connect`, for asyncio; nothing is sent yet, to a cluster neither."""
    client: aio.Redis | aio.RedisCluster = _make(RedisUrl.parse(url), timeout, _ASYNC)
    return client


def redact(url: str) -> str:
    """The URL for people to read: without password, user name kept, no query."""
    found = _URL.fullmatch(str(url).strip())
    if not found:
        return NOT_SHOWN
    scheme, authority, path, *rest = (part or "" for part in found.groups())
    user, at, hosts = authority.rpartition("@")
    # An @ further behind: then what stands before it may be the rest of a password.
    if any("@" in part for part in (path, *rest)) or not (hosts or scheme.lower() == "unix"):
        return NOT_SHOWN
    try:
        _hosts(hosts, 0)
    except _MalformedError:
        return NOT_SHOWN
    name, colon, _ = user.partition(":")
    # Without a colon it is a user name; but who writes one alone often means a password.
    login = f"{name}:***@" if colon else "***@" if at else ""
    return f"{scheme.lower()}://{login}{hosts}{path}"


class _Master(redis.Redis):
    """Client of whichever server the sentinels call the master."""

    def parse_response(self, connection: Any, command_name: Any, **options: Any) -> Any:
        try:
            return super().parse_response(connection, command_name, **options)  # type: ignore[no-untyped-call]
        except ResponseError as error:
            if _is_demoted(error):
                connection.disconnect()
            raise

    def close(self) -> None:
        super().close()
        pool: Any = self.connection_pool
        for sentinel in pool.sentinel_manager.sentinels:
            sentinel.close()


class _AsyncMaster(aio.Redis):
    """Client of whichever server the sentinels call the master."""

    async def parse_response(self, connection: Any, command_name: Any, **options: Any) -> Any:
        try:
            return await super().parse_response(connection, command_name, **options)
        except ResponseError as error:
            if _is_demoted(error):
                await connection.disconnect()
            raise

    async def aclose(self, close_connection_pool: bool | None = None) -> None:
        await super().aclose(close_connection_pool)
        pool: Any = self.connection_pool
        for sentinel in pool.sentinel_manager.sentinels:
            await sentinel.aclose()


def _is_demoted(error: ResponseError) -> bool:
    return isinstance(error, ReadOnlyError | MasterDownError) or bool(_DEMOTED.search(str(error)))


@dataclass(frozen=True)
class _Kit:
    """Classes of redis-py, sync or asyncio."""

    retry: Any
    cluster: Any
    node: Any
    sentinel: Any
    master: Any
    client: Any
    pool: Any
    connections: dict[tuple[Kind, bool], Any]


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
)


def _make(target: RedisUrl, timeout: float, kit: _Kit) -> Any:
    common: dict[str, Any] = {"socket_timeout": timeout, "socket_connect_timeout": timeout}
    # To a cluster client this is how often it sends a command again, to others how often each
    # connection does.
    common |= {**dict(target.options), "retry": kit.retry(NoBackoff(), 0)}
    common["decode_responses"] = False
    login = _credentials(target.username, target.password)
    if target.kind == "cluster":
        nodes = [kit.node(*host) for host in target.hosts]
        return kit.cluster(startup_nodes=nodes, ssl=target.tls, **common, **login)
    if target.kind == "sentinel":
        asking = common | _credentials(target.sentinel_username, target.sentinel_password)
        manager = kit.sentinel(target.hosts, sentinel_kwargs={**asking, "ssl": target.tls})
        common |= {"ssl": target.tls, "db": target.db}
        return manager.master_for(target.service, redis_class=kit.master, **common, **login)
    if target.kind == "unix":
        place: dict[str, Any] = {"path": target.path}
    else:
        [(host, port)] = target.hosts
        place = {"host": host, "port": port}
    connection = kit.connections[target.kind, target.tls]
    pool = kit.pool(connection_class=connection, db=target.db, **place, **common, **login)
    return kit.client.from_pool(pool)


def _credentials(username: str | None, password: str | None) -> dict[str, Any]:
    if not username and not password:
        return {}
    # An object, because there were versions of redis-py that show a password in the repr of a
    # pool; and the error that no sentinel knows the master quotes that repr.
    return {"credential_provider": UsernamePasswordCredentialProvider(username, password)}


def _no_cluster(url: str, error: Exception) -> AckerError:
    cause: BaseException | None = error
    while cause:
        if isinstance(cause, redis.exceptions.AuthenticationError):
            return RedisRefusedError(f"the cluster {redact(url)} refused the user or password")
        if isinstance(cause, ResponseError):
            if "cluster support disabled" in str(cause):
                return ConfigError(f"{redact(url)} is no cluster; write redis:// or rediss://")
            return RedisRefusedError(f"the cluster {redact(url)} refused this client: {cause}")
        cause = cause.__cause__ or cause.__context__
    return RedisUnavailableError(
        f"the cluster {redact(url)} did not answer: {error}; is it running and reachable?"
    )


class _MalformedError(ValueError):
    """Raised with what is wrong with a URL, in words that quote none of it."""


def _parse(url: str) -> RedisUrl:
    found = _URL.fullmatch(url)
    if not found or found[1].lower() not in _SCHEMES:
        raise _MalformedError("it begins with none of the known schemes")
    kind, tls = _SCHEMES[found[1].lower()]
    _, authority, path, query, fragment = found.groups()
    if fragment or "@" in path + query:
        raise _MalformedError("there is a # in it, or an @, or the password holds a / or ?")
    login, _, hosts = authority.rpartition("@")
    if "@" in login and kind in ("cluster", "sentinel"):
        raise _MalformedError("there is more than one @; user and password are written once")
    if kind == "unix" and (hosts or path in ("", "/")):
        raise _MalformedError("a socket has a path and no host: unix:///PATH, with three slashes")
    if kind == "server":
        hosts = hosts or "localhost"
        if "," in hosts:
            raise _MalformedError("several hosts are for redis+cluster:// or redis+sentinel://")
    service, db = ("", 0) if kind == "unix" else _service_and_db(kind, path)
    options = _parse_options(query, kind, tls)
    username, _, password = login.partition(":")
    return RedisUrl(
        kind,
        tls,
        hosts=() if kind == "unix" else _hosts(hosts, _PORTS[kind]),
        path=_decode(path) if kind == "unix" else "",
        service=service,
        db=options.pop("db", db),
        username=_decode(username) or options.pop("username", None),
        password=_decode(password) or options.pop("password", None),
        sentinel_username=options.pop("sentinel_username", None),
        sentinel_password=options.pop("sentinel_password", None),
        options=tuple((name, value) for name, value in options.items() if name not in _LOGIN),
    )


def _hosts(text: str, default_port: int) -> tuple[tuple[str, int], ...]:
    hosts = []
    for item in text.split(","):
        if (not item and default_port) or item.startswith(":"):
            raise _MalformedError("a host is empty")
        found = _HOST.fullmatch(item)
        if item and (not found or not 0 < int(found[2] or 1) < 65536):
            raise _MalformedError("a host is HOST or HOST:PORT, and a port a number up to 65535")
        if found:
            hosts.append((_decode(found[1].strip("[]")), int(found[2] or default_port)))
    return tuple(hosts)


def _service_and_db(kind: Kind, path: str) -> tuple[str, int]:
    segments = path.removeprefix("/").removesuffix("/").split("/")
    service = _decode(segments.pop(0)) if kind == "sentinel" else ""
    if kind == "sentinel" and not service:
        raise _MalformedError("the sentinels' name for the master is missing behind the hosts")
    if len(segments) > 1:
        raise _MalformedError("there is more behind the hosts than belongs there")
    text = segments[0] if segments else ""
    if kind == "cluster" and text not in ("", "0"):
        raise _MalformedError("a cluster has no database but 0")
    try:
        return service, _number(text or "0")
    except ValueError:
        raise _MalformedError("a database is a number") from None


def _parse_options(query: str, kind: Kind, tls: bool) -> dict[str, Any]:
    known, options = _OPTIONS[kind], {}
    try:
        pairs = parse_qsl(query, keep_blank_values=True, strict_parsing=True) if query else []
    except ValueError:
        raise _MalformedError("an option is not NAME=VALUE") from None
    for name, text in pairs:
        if name not in known:
            # Not quoted: it may be the end of a password with a ? in it.
            raise _MalformedError(f"it has an option that is none of {', '.join(sorted(known))}")
        if name in options or not text:
            raise _MalformedError(f"the option {name} is empty, or there twice")
        if name.startswith("ssl_") and not tls:
            raise _MalformedError(f"the option {name} is for TLS, whose schemes begin with rediss")
        try:
            options[name] = known[name](text)
        except ValueError:
            raise _MalformedError(f"the option {name} has a value that cannot be") from None
    return options


def _decode(text: str) -> str:
    try:
        return unquote(text, errors="strict")
    except UnicodeDecodeError:
        raise _MalformedError("a %-code in it is not UTF-8") from None


def _number(text: str) -> int:
    if not re.fullmatch(r"[0-9]{1,9}", text):
        raise ValueError
    return int(text)


def _seconds(text: str) -> float:
    if not 0 < float(text) < 1e6:
        raise ValueError
    return float(text)


def _one_of(**values: Any) -> Callable[[str], Any]:
    def read(text: str) -> Any:
        if text.lower() not in values:
            raise ValueError
        return values[text.lower()]

    return read


_yes_no = _one_of(true=True, yes=True, false=False, no=False, **{"1": True, "0": False})
_LOGIN: dict[str, Callable[[str], Any]] = {"username": str, "password": str}
_EACH: dict[str, Callable[[str], Any]] = _LOGIN | {
    "client_name": str,
    "max_connections": _number,
    "protocol": _one_of(**{"2": 2, "3": 3}),
    "socket_connect_timeout": _seconds,
    "socket_timeout": _seconds,
}
_TCP: dict[str, Callable[[str], Any]] = _EACH | {
    "socket_keepalive": _yes_no,
    "ssl_ca_certs": str,
    "ssl_ca_data": str,
    "ssl_cert_reqs": _one_of(none="none", optional="optional", required="required"),
    "ssl_certfile": str,
    "ssl_check_hostname": _yes_no,
    "ssl_keyfile": str,
}
# redis-py's cluster clients, sync or asyncio, do not know these, or pass them over in silence.
_NO_CLUSTER: dict[str, Callable[[str], Any]] = {"db": _number, "health_check_interval": _number}
_MORE_TLS: dict[str, Callable[[str], Any]] = {
    "ssl_ciphers": str,
    "ssl_min_version": lambda text: ssl.TLSVersion(int(text)),
}
_OPTIONS: dict[Kind, dict[str, Callable[[str], Any]]] = {
    "server": _TCP | _MORE_TLS | _NO_CLUSTER,
    "unix": _EACH | _NO_CLUSTER,
    "cluster": _TCP,
    "sentinel": _TCP
    | _MORE_TLS
    | _NO_CLUSTER
    | {"sentinel_username": str, "sentinel_password": str},
}
"""What may follow in a query, by redis-py's names; not the password of a key file, which redis-py
shows in places. For that, and for all else, make the client oneself: ``Acker(client, ...)``."""
