"""Examine a Redis and its namespaces: read facts, check them, run the canary."""

import time
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any, Protocol

from acker_redis.doctor import (
    canary,
    checks_clients,
    checks_clock,
    checks_cluster,
    checks_namespace,
    checks_replication,
    checks_rights,
    checks_server,
    checks_stalls,
    reading,
)
from acker_redis.doctor.addresses import addressed
from acker_redis.doctor.facts import ClockSample, ClusterFacts, Missing, NamespaceFacts, NodeFacts
from acker_redis.doctor.finding import Finding, error, merge, ok, skipped
from acker_redis.doctor.reading_namespaces import read_namespace
from acker_redis.doctor.rights import try_commands
from acker_redis.errors import RedisRefusedError, RedisUnavailableError
from acker_redis.flows import namespace_list
from acker_redis.sync.connection import Connection
from acker_redis.transport.bounded import bound
from acker_redis.transport.connect import connect
from acker_redis.transport.readers import waiting_readers

STALE_MS = 600_000
"""Milliseconds without a tick after which a canary counts as left by a killed doctor."""


class Connects(Protocol):
    """An object that creates a redis-py client, as :class:`acker_redis.ops.settings.Settings`."""

    def connect(self) -> Any:
        """Create a client, which the caller closes."""


def examine(
    target: "Connects | Any",
    namespaces: Sequence[str] | None = None,
    role: str | None = None,
    *,
    retry_for: float | None = None,
    interval: float = 1.0,
    canaries: bool = True,
) -> Iterator[Finding]:
    """Yield findings as they are made; ``Report(tuple(examine(...)))`` has the exit code.

    ``target`` is a URL, settings that connect, or a redis-py client, which stays open.
    ``namespaces`` are names; None: all namespaces. ``role`` is the role that the user should have,
    one of ``acker_redis.ops.acl.roles()``; None: the doctor finds the roles that the user can have.
    ``retry_for`` is the time in seconds for which the programs' clients retry a batch; the default
    is that of ``target``, or 10. Each namespace is read twice, at least ``interval`` seconds apart.
    With ``canaries`` the doctor creates a temporary namespace and removes it. It changes nothing
    else.

    A Redis that does not answer is a finding. Raise ConfigError if a URL, name or role is invalid.
    Run the iterator to its end, or close it.

    >>> from acker_redis.doctor import Report
    >>> report = Report(tuple(examine(url, ["orders"], interval=0)))
    >>> [finding.id for finding in report.findings if finding.level == "error"]
    []
    """
    tried = checks_rights.commands(role)
    if retry_for is None:
        retry_for = float(getattr(target, "retry_for", 10.0))
    ours = isinstance(target, str) or hasattr(target, "connect")
    try:
        client: Any = bound(connect(target, 5.0)) if isinstance(target, str) else target
        client = client.connect() if hasattr(client, "connect") else client
    except (RedisUnavailableError, RedisRefusedError) as failed:
        yield _unreachable(str(failed))
        return
    try:
        yield from _Examination(client, namespaces, role, tried, retry_for, interval, canaries)
    except (RedisUnavailableError, RedisRefusedError) as failed:
        yield _unreachable(f"during the examination: {failed}")
    finally:
        if ours:
            client.close()


class _Examination:
    def __init__(
        self,
        client: Any,
        namespaces: Sequence[str] | None,
        role: str | None,
        tried: frozenset[str],
        retry_for: float,
        interval: float,
        canaries: bool,
    ) -> None:
        self._client = client
        self._connection = Connection(client)
        self._names = namespaces
        self._role = role
        self._tried = tried
        self._retry_for = retry_for
        self._interval = interval
        self._canaries = canaries

    def __iter__(self) -> Iterator[Finding]:
        named = reading.ask("TIME", lambda: reading.node_clients(self._client))
        if isinstance(named, Missing):
            yield _unreachable(named.why)
            return
        read = {name: reading.read_node(name, client) for name, client in named.items()}
        silent = {name: each for name, each in read.items() if isinstance(each, Missing)}
        nodes = tuple(each for each in read.values() if isinstance(each, NodeFacts))
        away = {name: each.why for name, each in silent.items() if not each.denied}
        said = "; ".join(f"{name}: {why}" for name, why in away.items())
        if len(away) == len(read):
            yield _unreachable(said)
            return
        text = f"{len(read) - len(away)} of {len(read)} servers answer"
        if away:
            yield error("reachable", f"{text}; {said}", "start the others, or CLUSTER FORGET them")
        else:
            yield ok("reachable", text, ", ".join(read))
        for name in silent.keys() - away.keys():
            yield silent[name].finding("clock", name)
        cluster = self._read_cluster({name: named[name] for name in named if name not in away})
        known = {node.name: node for node in nodes}
        for finding in chain(self._servers(nodes, cluster), self._namespaces(nodes, cluster)):
            yield addressed(finding, known, clustered=cluster is not None)
        again = {node.name: reading.ask("TIME", _clock(named[node.name])) for node in nodes}
        if nodes:
            yield checks_clock.check({node.name: _both(node, again) for node in nodes})

    def _read_cluster(self, named: dict[str, Any]) -> ClusterFacts | Missing | None:
        if not reading.is_cluster(self._client):
            return None
        return reading.read_cluster(named)

    def _servers(
        self, nodes: tuple[NodeFacts, ...], cluster: ClusterFacts | Missing | None
    ) -> Iterator[Finding]:
        yield from checks_server.check(nodes)
        yield from checks_stalls.check(nodes)
        yield from checks_replication.check(nodes, clustered=cluster is not None)
        sentinels = reading.read_sentinels(self._client)
        if sentinels:
            yield checks_replication.sentinels(sentinels)
        if isinstance(cluster, Missing):
            yield cluster.finding("cluster-state")
        elif cluster:
            yield from checks_cluster.check(cluster, nodes)
        yield from checks_clients.check(nodes)
        yield checks_clients.retries(reading.own_retries(self._client))

    def _namespaces(
        self, nodes: tuple[NodeFacts, ...], cluster: ClusterFacts | Missing | None
    ) -> Iterator[Finding]:
        try:
            names, others = self._listed()
        except RedisRefusedError as refused:
            yield skipped(
                "namespace",
                f"this user may not list the namespaces: {refused}",
                "name the namespaces that it may read: acker-redis doctor NAMESPACE",
            )
            names, others = [], None
        clients = (node.clients for node in nodes if not isinstance(node.clients, Missing))
        readers = waiting_readers(chain.from_iterable(clients))
        began = time.monotonic()
        first = {name: read_namespace(self._connection, name) for name in names}
        yield from merge(
            checks_rights.check(try_commands(self._connection, name, self._tried), self._role)
            for name in names or [f"{canary.PREFIX}tried"]
        )
        writable = not all(node.is_replica for node in nodes) or not nodes
        if self._canaries and writable:
            yield from canary.examine(self._connection, _shards(first, cluster))
        if names:
            time.sleep(max(0.0, began + self._interval - time.monotonic()))
        for name in names:
            before, after = first[name], read_namespace(self._connection, name)
            if isinstance(after, Missing):
                yield checks_namespace.refused(name, after)
                continue
            before = after if isinstance(before, Missing) else before
            yield from checks_namespace.check(before, after, self._retry_for, readers)
            if isinstance(cluster, ClusterFacts):
                yield checks_cluster.spread(cluster, after)
        if others is not None:
            stale = tuple(name for name in others if self._is_stale(name))
            yield checks_namespace.canaries(stale)

    def _listed(self) -> tuple[list[str], list[str] | None]:
        """Return the namespaces to examine, and the canaries that exist, None if unknown."""
        try:
            listed = self._connection.drive(namespace_list.read_names())
        except RedisRefusedError:
            if self._names is None:
                raise
            return list(self._names), None
        others = [name for name in listed if name.startswith(canary.PREFIX)]
        names = [name for name in listed if name not in others]
        return (names if self._names is None else list(self._names)), others

    def _is_stale(self, name: str) -> bool:
        facts = read_namespace(self._connection, name)
        # A running canary may have been removed since it was listed.
        if isinstance(facts, Missing) or facts.listed is not True:
            return False
        return all(each.now_ms - each.ticked_ms > STALE_MS for each in facts.known)


def _clock(client: Any) -> Any:
    return lambda: reading.read_clock(client)


def _both(node: NodeFacts, again: dict[str, ClockSample | Missing]) -> list[ClockSample]:
    second = again[node.name]
    return [node.clock] if isinstance(second, Missing) else [node.clock, second]


def _shards(
    namespaces: dict[str, NamespaceFacts | Missing], cluster: ClusterFacts | Missing | None
) -> int:
    """Return the shards of the largest namespace; on a cluster, enough for all masters."""
    counts = [len(each.shards) for each in namespaces.values() if isinstance(each, NamespaceFacts)]
    most = max(counts, default=1)
    return canary.MAX_SHARDS if cluster is not None else most


def _unreachable(why: str) -> Finding:
    return error(
        "reachable",
        why,
        "start Redis, or correct URL, user and password: ACKER_REDIS_URL=redis://USER@HOST:6379/0",
    )
