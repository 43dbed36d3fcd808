"""URLs of a Redis server, of a cluster, and of a master that sentinels monitor.

====================================================  ==========================================
``redis://[USER:PASSWORD@]HOST[:6379][/DB]``          one server
``unix://[USER:PASSWORD@]/PATH[?db=DB]``              one server, by its Unix socket
``redis+cluster://[...@]HOST[:6379][,HOST...]``       a cluster; some of its nodes are enough
``redis+sentinel://[...@]HOST[:26379][,HOST...]``     the master of SERVICE, by its sentinels;
``/SERVICE[/DB]``                                     USER and PASSWORD are the master's
====================================================  ==========================================

``rediss`` instead of ``redis`` means TLS, also to the sentinels. Options follow as in redis-py's
URLs, ``?NAME=VALUE&...``: see ``_OPTIONS``. Credentials for the sentinels are the options
``sentinel_username`` and ``sentinel_password``; the master's password is not sent to them. All
parts may be %-encoded; a password must be encoded if it contains one of ``/?#@%``. The option
``functions=yes`` is specific to acker-redis, see :mod:`acker_redis.protocol.functions`.

There is no standard for sentinel URLs. This is the form of redis-sentinel-url on PyPI, which
LangChain, RedisVL, Harbor and Prefect adopted, with Prefect's names for the credentials. Other
libraries use one URL per sentinel and the name of the service outside of it (kombu), or the name in
an option or after a ``#`` (Lettuce's ``redis-sentinel://``).
"""

import re
import ssl
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal
from urllib.parse import parse_qsl, unquote

from acker_redis.errors import ConfigError

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


@dataclass(frozen=True)
class RedisUrl:
    """A parsed URL. Its repr contains no user, no password and no options."""

    kind: Kind
    tls: bool
    hosts: tuple[tuple[str, int], ...]
    """Host and port of the server, of nodes of the cluster, or of the sentinels."""
    path: str = ""
    """Path of the Unix socket."""
    service: str = ""
    """The sentinels' name for the master."""
    db: int = 0
    username: str | None = field(default=None, repr=False)
    password: str | None = field(default=None, repr=False)
    sentinel_username: str | None = field(default=None, repr=False)
    sentinel_password: str | None = field(default=None, repr=False)
    options: tuple[tuple[str, Any], ...] = field(default=(), repr=False)
    """Arguments for redis-py's connections."""
    functions: bool = False
    """Whether read-only scripts are called as functions; see ``protocol/functions.py``."""

    @classmethod
    def parse(cls, url: str) -> "RedisUrl":
        """Return the parsed URL, without any I/O.

        Raises:
            ConfigError: The URL is malformed. The message names the mistake, and quotes no part of
                the URL that may contain a password.

        """
        try:
            return _parse(str(url).strip())
        except _MalformedError as error:
            raise ConfigError(f"cannot use the URL {redact(url)}: {error}; {FORMS}") from None


def parse(url: str | RedisUrl) -> RedisUrl:
    """Return the parsed URL; a RedisUrl is returned as it is. See :meth:`RedisUrl.parse`."""
    return url if isinstance(url, RedisUrl) else RedisUrl.parse(url)


def shown(url: str | RedisUrl) -> str:
    """Return a URL, text or parsed, for display, without its password; see :func:`redact`."""
    if not isinstance(url, RedisUrl):
        return redact(url)
    scheme = next(name for name, kind in _SCHEMES.items() if kind == (url.kind, url.tls))
    login = f"{url.username or ''}:***@" if url.username or url.password else ""
    hosts = ",".join(
        f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host, port in url.hosts
    )
    service = f"/{url.service}" if url.service else ""
    database = "" if url.kind == "cluster" else f"/{url.db}"
    return f"{scheme}://{login}{hosts}{service}{url.path or database}"


def redact(url: str) -> str:
    """Return the URL for display: with the user name, but without password and query."""
    found = _URL.fullmatch(str(url).strip())
    if not found:
        return NOT_SHOWN
    scheme, authority, path, *rest = (part or "" for part in found.groups())
    user, at, hosts = authority.rpartition("@")
    # With an @ after the authority, the text before it may be the rest of a password.
    if any("@" in part for part in (path, *rest)) or not (hosts or scheme.lower() == "unix"):
        return NOT_SHOWN
    try:
        _hosts(hosts, 0)
    except _MalformedError:
        return NOT_SHOWN
    name, colon, _ = user.partition(":")
    # Without a colon it is a user name, but users often write a password there by mistake.
    login = f"{name}:***@" if colon else "***@" if at else ""
    return f"{scheme.lower()}://{login}{hosts}{path}"


class _MalformedError(ValueError):
    """Raised for a malformed URL, with a message that quotes no part of it."""


def _parse(url: str) -> RedisUrl:
    found = _URL.fullmatch(url)
    if not found or found[1].lower() not in _SCHEMES:
        raise _MalformedError("it begins with none of the known schemes")
    kind, tls = _SCHEMES[found[1].lower()]
    _, authority, path, query, fragment = found.groups()
    if fragment or "@" in path + query:
        raise _MalformedError("it contains a # or an @, or the password contains a / or ?")
    login, _, hosts = authority.rpartition("@")
    if "@" in login and kind in ("cluster", "sentinel"):
        raise _MalformedError("it contains more than one @; write user and password only once")
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
        functions=options.pop("functions", False),
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
        raise _MalformedError("the sentinels' name for the master is missing after the hosts")
    if len(segments) > 1:
        raise _MalformedError("its path has more segments than this form of URL allows")
    text = segments[0] if segments else ""
    if kind == "cluster" and text not in ("", "0"):
        raise _MalformedError("a cluster has only database 0")
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
            # Another name is not quoted: it may be the end of a password that contains a ?.
            which = f"the option {name}, which" if name in _NAMED else "an option that"
            raise _MalformedError(
                f"it has {which} is none of {', '.join(sorted(known))}{_ADVICE.get(name, '')}"
            )
        if name in options or not text:
            raise _MalformedError(f"the option {name} is empty, or given twice")
        if name.startswith("ssl_") and not tls:
            raise _MalformedError(f"the option {name} needs TLS: a scheme that begins with rediss")
        try:
            options[name] = known[name](text)
        except ValueError:
            raise _MalformedError(f"the option {name} has an invalid value") from None
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
    "functions": _yes_no,
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
# redis-py's cluster clients, sync or asyncio, do not support these, or ignore them silently.
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
"""Options that a URL may have, with redis-py's names. The password of a key file is not among them,
because redis-py shows it in some messages. For that and for other options create the redis-py
client yourself: ``Acker(client, ...)``."""
_ADVICE = {
    "decode_responses": "; leave it out, because acker-redis decodes the replies itself",
    "timeout": "; its name is socket_timeout",
}
_NAMED = {
    *("decode_responses", "encoding", "encoding_errors", "host", "port", "retry", "retry_on_error"),
    *("retry_on_timeout", "single_connection_client", "socket_keepalive_options", "socket_type"),
    *("ssl", "ssl_ca_path", "ssl_password", "ssl_validate_ocsp", "timeout", "unix_socket_path"),
}.union(*_OPTIONS.values())
"""Options of redis-py, and of the other forms of a URL. An error may name them, although such a
word may also be the end of a password that contains a ?: it says next to nothing of that."""
