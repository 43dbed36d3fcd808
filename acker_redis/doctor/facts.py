"""Facts about servers, cluster, sentinels and namespaces, which the checks examine.

The modules ``reading`` and ``reading_namespaces`` read facts. The ``checks_*`` modules examine them
and do no I/O. A fact that could not be read is ``Missing``: a user may lack a right, and a managed
Redis has no CONFIG.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from acker_redis.doctor.finding import Finding, skipped
from acker_redis.protocol.commands import ShardStatus
from acker_redis.protocol.history import Point
from acker_redis.protocol.keys import ShardKeys

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Missing:
    """A fact that could not be read: the command, and the error of Redis."""

    command: str
    why: str
    denied: bool
    """True if the user lacks a right; False for other errors, as an unknown command."""

    def finding(self, id_: str, where: str = "") -> Finding:
        """Return a skipped finding in place of the one that needs the fact."""
        if self.denied:
            rule = "+" + self.command.lower().replace(" ", "|")
            return skipped(
                id_,
                f"this user may not run {self.command}",
                f"to enable this check: redis-cli ACL SETUSER <user> {rule}",
                where,
            )
        return skipped(
            id_,
            f"{self.command} failed: {self.why}",
            f"check this with the tool that your Redis offers instead of {self.command}",
            where,
        )


@dataclass(frozen=True, slots=True)
class ClockSample:
    """A node's TIME, and the clocks of this machine at the same moment."""

    node: float
    """Seconds since 1970 by the node."""
    here: float
    """Seconds since 1970 by this machine, halfway between request and reply."""
    steady: float
    """Seconds of this machine's monotonic clock, at the same moment as ``here``."""
    doubt: float
    """Maximum error of ``here`` and ``steady`` in seconds: half of the round trip."""


@dataclass(frozen=True, slots=True)
class SlowCall:
    """A call of one of the scripts in SLOWLOG."""

    script: str
    ms: float
    at: int
    """Seconds since 1970, by the node."""


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """One server."""

    name: str
    """``HOST:PORT``, or the path of its socket."""
    addresses: tuple[str, ...]
    """IP addresses of the host; empty for a socket, or if the name does not resolve."""
    tls: bool
    socket: bool
    """A Unix socket."""
    clock: ClockSample
    info: Mapping[str, Any] | Missing
    config: Mapping[str, str] | Missing
    nopass: bool | Missing
    """Whether the default user needs no password."""
    clients: tuple[Mapping[str, str], ...] | Missing
    slow: tuple[SlowCall, ...] | Missing
    events: Mapping[str, tuple[int, float]] | Missing
    """LATENCY LATEST: event -> last time (seconds since 1970), and duration (ms)."""

    @property
    def is_replica(self) -> bool:
        """Return whether the server is known to be a replica."""
        return not isinstance(self.info, Missing) and self.info.get("role") == "slave"


@dataclass(frozen=True, slots=True)
class ClusterNode:
    """A node in the reply of CLUSTER NODES."""

    name: str
    id: str
    flags: frozenset[str]
    """myself, master, slave, fail?, fail, handshake, noaddr, nofailover, ..."""
    master_id: str
    """Id of its master; '-' for a master."""
    connected: bool
    slots: tuple[tuple[int, int], ...]
    """First and last slot of each range."""


@dataclass(frozen=True, slots=True)
class ClusterFacts:
    """A cluster, as its nodes see it."""

    states: Mapping[str, Mapping[str, str]]
    """CLUSTER INFO by the name of the node that answered."""
    nodes: tuple[ClusterNode, ...]
    """CLUSTER NODES of one node that answered."""
    moving: tuple[int, ...]
    """Slots that migrate, from all nodes."""
    silent: tuple[str, ...]
    """Nodes that did not answer."""
    refused: Missing | None = None
    """Set if this user may not run CLUSTER INFO."""

    @property
    def masters(self) -> tuple[ClusterNode, ...]:
        """Return the masters that have slots."""
        return tuple(node for node in self.nodes if "master" in node.flags and node.slots)

    def owner(self, slot: int) -> ClusterNode | None:
        """Return the master of a slot, or None."""
        for node in self.masters:
            if any(first <= slot <= last for first, last in node.slots):
                return node
        return None


@dataclass(frozen=True, slots=True)
class SentinelFacts:
    """The master according to the sentinels."""

    service: str
    masters: Mapping[str, str]
    """Sentinel that answered -> HOST:PORT of the master."""
    silent: Mapping[str, str]
    """Sentinel that did not answer -> the reason."""
    quorum: str
    """Reply of the first sentinel to CKQUORUM: ``OK`` or an error; '' if unknown."""


@dataclass(frozen=True, slots=True)
class ShardFacts:
    """One shard of a namespace, from the script ``status``."""

    keys: ShardKeys
    meta: Mapping[str, str] = field(repr=False)
    """The raw hash in Redis, with the salt, which is secret; {} if the shard does not exist."""
    status: ShardStatus | None
    """None if the shard does not exist, or this version cannot parse it."""
    error: str
    """Reason why ``status`` is None."""
    dropping: bool
    """Whether the shard is being dropped."""
    lanes: int
    """Number of fences in the buckets."""
    durable: int
    """Number of durable fences."""


@dataclass(frozen=True, slots=True)
class Waiting:
    """The verdicts of one source that wait on one shard."""

    source: str
    shard: int
    verdicts: int
    oldest_ms: int | None
    """Age of the oldest entry by Redis's clock, in ms; None if it was not read."""


@dataclass(frozen=True, slots=True)
class NamespaceFacts:
    """A namespace."""

    name: str
    listed: bool | Missing
    """Whether acker:namespaces lists it."""
    shards: tuple[ShardFacts, ...]
    """All shards that shard 0 names; only shard 0 if it does not exist."""
    waiting: tuple[Waiting, ...] | Missing
    unseen: int
    """Number of streams that were not read, because there are too many."""
    base: Point | None = None
    """The point of the history of some 15 minutes ago; None if there is none, or it is unknown."""

    @property
    def known(self) -> tuple[ShardStatus, ...]:
        """Return the status of each shard that has one."""
        return tuple(shard.status for shard in self.shards if shard.status)


@dataclass(frozen=True, slots=True)
class RightsFacts:
    """Results of trying commands on the keys of a namespace."""

    user: str
    """Name of the user; '' if the user may not run ACL WHOAMI."""
    namespace: str
    tried: frozenset[str]
    """Commands, as in :func:`acker_redis.ops.acl.commands`."""
    refused: Mapping[str, str]
    """Command -> the missing right: ``command``, ``keys`` or ``channel``."""
    functions: bool = False
    """Whether read-only scripts are called as functions, without EVAL."""

    @property
    def allowed(self) -> frozenset[str]:
        """Return the commands that were not refused."""
        return self.tried - self.refused.keys()
