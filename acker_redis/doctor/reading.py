"""Read the facts of servers, cluster and sentinels. A refused fact becomes ``Missing``."""

import contextlib
import ipaddress
import socket
import time
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

import redis
from redis.exceptions import ResponseError

from acker_redis.doctor.facts import (
    ClockSample,
    ClusterFacts,
    ClusterNode,
    Missing,
    NodeFacts,
    SentinelFacts,
    SlowCall,
)
from acker_redis.protocol import scripts
from acker_redis.protocol.keys import ShardKeys
from acker_redis.transport.errors import FAILED, is_denied

T = TypeVar("T")

# One call each, because 6.2 accepts one pattern. Not CONFIG GET *, which returns passwords, too.
_SETTINGS = (
    "appendfsync",
    "bind",
    "cluster-*",
    "disable-thp",
    "hash-max-*",
    "min-replicas-*",
    "protected-mode",
    "save",
)
_SLOW_CALLS = 128


def ask(command: str, read: Callable[[], T]) -> T | Missing:
    """Return the result of ``read``; Missing if Redis refuses it or does not answer."""
    try:
        return read()
    except FAILED as error:
        return Missing(command, str(error), is_denied(error))


def is_cluster(client: Any) -> bool:
    """Return whether a redis-py client is that of a cluster."""
    return isinstance(client, redis.RedisCluster)


def node_clients(client: Any) -> dict[str, Any]:
    """Return a client for each node, replicas included, that calls only this node; by name."""
    if not is_cluster(client):
        return {_name(client): client}
    nodes = sorted(client.get_nodes(), key=lambda node: (node.host, node.port))
    return {f"{node.host}:{node.port}": client.get_redis_connection(node) for node in nodes}


def server_of(client: Any, keys: ShardKeys) -> Any:
    """Return a client that sends every command unchanged to the server of a shard."""
    if not is_cluster(client):
        return client
    return client.get_redis_connection(client.get_node_from_key(keys.prefix))


def read_clock(client: Any) -> ClockSample:
    """Ask a node for its time; raise the errors of redis-py."""
    here, steady = time.time(), time.monotonic()
    seconds, micros = client.time()
    doubt = (time.monotonic() - steady) / 2
    return ClockSample(int(seconds) + int(micros) / 1e6, here + doubt, steady + doubt, doubt)


def read_node(name: str, client: Any) -> NodeFacts | Missing:
    """Return all facts of one node; Missing if it does not answer TIME."""
    clock = ask("TIME", lambda: read_clock(client))
    if isinstance(clock, Missing):
        return clock
    pool = client.connection_pool
    host = name.rpartition(":")[0]
    return NodeFacts(
        name=name,
        addresses=() if _is_socket(pool) else _addresses(host),
        tls=_is_tls(pool),
        socket=_is_socket(pool),
        clock=clock,
        info=ask("INFO", lambda: client.info("everything")),
        config=ask("CONFIG GET", lambda: _config(client)),
        nopass=_nopass(client),
        clients=ask("CLIENT LIST", lambda: tuple(client.client_list())),
        slow=ask("SLOWLOG GET", lambda: _slow(client.slowlog_get(_SLOW_CALLS))),
        events=ask("LATENCY LATEST", lambda: _events(client.latency_latest())),
    )


def read_cluster(clients: dict[str, Any]) -> ClusterFacts | Missing:
    """Return the nodes' view of the cluster; Missing if no node answers CLUSTER NODES."""
    states, silent, moving = {}, [], set()
    nodes: tuple[ClusterNode, ...] = ()
    missing = refused = None
    for name, client in clients.items():
        known = ask("CLUSTER NODES", partial(client.cluster, "NODES"))
        if isinstance(known, Missing):
            missing = known
            silent.append(name)
            continue
        nodes = nodes or tuple(_cluster_node(each, its) for each, its in known.items())
        # A node reports the migrations of its own slots only.
        for its in known.values():
            moving |= {int(each["slot"]) for each in its["migrations"]}
        state = ask("CLUSTER INFO", partial(client.cluster, "INFO"))
        if isinstance(state, Missing):
            refused = state
        else:
            states[name] = state
    if not nodes:
        return missing or Missing("CLUSTER NODES", "the cluster has no nodes", denied=False)
    return ClusterFacts(states, nodes, tuple(sorted(moving)), tuple(silent), refused)


def read_sentinels(client: Any) -> SentinelFacts | None:
    """Return the sentinels' view of the master; None for a client without sentinels."""
    pool: Any = getattr(client, "connection_pool", None)
    manager = getattr(pool, "sentinel_manager", None)
    if manager is None:
        return None
    service, masters, silent, quorum = str(pool.service_name), {}, {}, ""
    for sentinel in manager.sentinels:
        name = _name(sentinel)
        found = ask(
            "SENTINEL GET-MASTER-ADDR-BY-NAME",
            partial(sentinel.sentinel_get_master_addr_by_name, service),
        )
        if isinstance(found, Missing):
            silent[name] = found.why
        elif not found:
            silent[name] = f"it does not know {service}"
        else:
            host = found[0].decode() if isinstance(found[0], bytes) else found[0]
            masters[name] = f"{host}:{found[1]}"
            quorum = quorum or _quorum(sentinel, service)
    return SentinelFacts(service, masters, silent, quorum)


def own_retries(client: Any) -> int | None:
    """Return how often a redis-py client retries a command by itself; None if unknown."""
    retry: Any = getattr(client, "retry", None)  # of a cluster's client
    if retry is None:
        pool = getattr(client, "connection_pool", None)
        retry = getattr(pool, "connection_kwargs", {}).get("retry")
    with contextlib.suppress(AttributeError, TypeError):
        return int(retry.get_retries())
    return None


def _quorum(sentinel: Any, service: str) -> str:
    try:
        # redis-py returns False for "OK 3 usable Sentinels"; without a quorum Redis sends an error.
        sentinel.execute_command("SENTINEL CKQUORUM", service)
    except ResponseError as error:
        return "" if is_denied(error) else str(error)
    except FAILED:
        return ""
    return "OK"


def _name(client: Any) -> str:
    pool = client.connection_pool
    if hasattr(pool, "sentinel_manager"):
        host, port = pool.get_master_address()
        return f"{host}:{port}"
    known = pool.connection_kwargs
    return str(known.get("path") or f"{known.get('host', 'localhost')}:{known.get('port', 6379)}")


def _is_socket(pool: Any) -> bool:
    return issubclass(pool.connection_class, redis.UnixDomainSocketConnection)


def _is_tls(pool: Any) -> bool:
    return issubclass(pool.connection_class, redis.SSLConnection)


def _addresses(host: str) -> tuple[str, ...]:
    try:
        found = socket.getaddrinfo(host.strip("[]"), None, type=socket.SOCK_STREAM)
    except OSError:
        return ()
    addresses = {str(entry[4][0]).partition("%")[0] for entry in found}
    return tuple(sorted(addresses, key=lambda each: (ipaddress.ip_address(each).version, each)))


def _config(client: Any) -> dict[str, str]:
    found: dict[str, str] = {}
    for setting in _SETTINGS:
        found.update(client.config_get(setting))
    return found


def _nopass(client: Any) -> bool | Missing:
    known = client.connection_pool.connection_kwargs
    if not any(known.get(name) for name in ("credential_provider", "username", "password")):
        return True  # this client has connected without a password
    user = ask("ACL GETUSER", lambda: client.acl_getuser("default"))
    if isinstance(user, Missing):
        return user
    return "nopass" in user["flags"] and "on" in user["flags"]


def _slow(entries: list[dict[str, Any]]) -> tuple[SlowCall, ...]:
    known = {script.sha: script.name for script in map(scripts.load, scripts.NAMES)}
    found = []
    for entry in entries:
        verb, _, rest = bytes(entry["command"]).decode(errors="replace").partition(" ")
        name = known.get(rest.partition(" ")[0])
        if verb.upper() == "EVALSHA" and name:
            found.append(SlowCall(name, entry["duration"] / 1000, int(entry["start_time"])))
    return tuple(found)


def _events(entries: list[Any]) -> dict[str, tuple[int, float]]:
    return {
        name.decode() if isinstance(name, bytes) else str(name): (int(at), float(latest))
        for name, at, latest, *_ in entries
    }


def _cluster_node(name: str, its: dict[str, Any]) -> ClusterNode:
    ranges = ((int(each[0]), int(each[-1])) for each in its["slots"])
    return ClusterNode(
        name=name,
        id=its["node_id"],
        flags=frozenset(its["flags"].split(",")),
        master_id=its["master_id"],
        connected=bool(its["connected"]),
        slots=tuple(ranges),
    )
