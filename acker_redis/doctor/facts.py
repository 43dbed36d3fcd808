"""What is known of servers, cluster, sentinels and namespaces before it is judged.

Facts are read by ``reading`` and ``namespaces``, and judged by the ``checks_*`` modules, which do
no I/O. A fact that could not be read is ``Missing``: a user may lack a right, and a managed Redis
has no CONFIG.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from acker_redis.doctor.finding import Finding, skipped
from acker_redis.protocol.commands import ShardStatus
from acker_redis.protocol.keys import ShardKeys

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Missing:
    """A fact that could not be read: by which command, and what Redis said."""

    command: str
    why: str
    denied: bool
    """For want of a right, and not because the server has no such command."""

    def finding(self, id_: str, where: str = "") -> Finding:
        """The finding that there is instead of the one that needs the fact."""
        if self.denied:
            rule = "+" + self.command.lower().replace(" ", "|")
            return skipped(
                id_,
                f"this user may not run {self.command}",
                f"to have it looked at: redis-cli ACL SETUSER <user> {rule}",
                where,
            )
        return skipped(
            id_,
            f"{self.command} was not answered: {self.why}",
            f"look at it by whatever this Redis offers instead of {self.command}",
            where,
        )


@dataclass(frozen=True, slots=True)
class ClockSample:
    """A node's TIME beside the clocks of this machine."""

    node: float
    """Seconds since 1970 by the node."""
    here: float
    """Seconds since 1970 by this machine, half way between question and answer."""
    steady: float
    """Seconds of this machine's monotonic clock, likewise."""
    doubt: float
    """Seconds by which ``here`` and ``steady`` may be off: half of the round trip."""


@dataclass(frozen=True, slots=True)
class SlowCall:
    """An entry of SLOWLOG that is one of the scripts."""

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
    """IP addresses of the host; none of a socket, and none where the name is not known here."""
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
    """LATENCY LATEST: event -> when it was last (seconds since 1970), how long it took (ms)."""

    @property
    def is_replica(self) -> bool:
        """Whether it is one, as far as is known."""
        return not isinstance(self.info, Missing) and self.info.get("role") == "slave"


@dataclass(frozen=True, slots=True)
class ClusterNode:
    """A node as CLUSTER NODES tells of it."""

    name: str
    id: str
    flags: frozenset[str]
    """myself, master, slave, fail?, fail, handshake, noaddr, nofailover, ..."""
    master_id: str
    """Of a replica; '-' of a master."""
    connected: bool
    slots: tuple[tuple[int, int], ...]
    """First and last of each range."""


@dataclass(frozen=True, slots=True)
class ClusterFacts:
    """A cluster, as its nodes see it."""

    states: Mapping[str, Mapping[str, str]]
    """CLUSTER INFO, by the name of the node that was asked."""
    nodes: tuple[ClusterNode, ...]
    """CLUSTER NODES, by one of those that answered."""
    moving: tuple[int, ...]
    """Slots that are moving, by all nodes."""
    silent: tuple[str, ...]
    """Nodes that did not answer."""
    refused: Missing | None = None
    """Set if this user may not ask for CLUSTER INFO."""

    @property
    def masters(self) -> tuple[ClusterNode, ...]:
        """Masters that have slots."""
        return tuple(node for node in self.nodes if "master" in node.flags and node.slots)

    def owner(self, slot: int) -> ClusterNode | None:
        """The master of a slot."""
        for node in self.masters:
            if any(first <= slot <= last for first, last in node.slots):
                return node
        return None


@dataclass(frozen=True, slots=True)
class SentinelFacts:
    """What the sentinels say of the master."""

    service: str
    masters: Mapping[str, str]
    """Sentinel -> HOST:PORT of the master, of those that answered."""
    silent: Mapping[str, str]
    """Sentinel -> why it did not."""
    quorum: str
    """``OK``, or the error by which the first that answered refuses CKQUORUM; '' if not known."""


@dataclass(frozen=True, slots=True)
class ShardFacts:
    """One shard of a namespace. All of it comes from the script ``status``."""

    keys: ShardKeys
    meta: Mapping[str, str]
    """As it stands in Redis; {} if there is no shard."""
    status: ShardStatus | None
    """None if there is no shard, or not one that this version understands."""
    error: str
    """Why there is no ``status``."""
    dropping: bool
    """It is being dropped."""
    lanes: int
    """Fences in the buckets."""
    durable: int
    """Durable fences."""


@dataclass(frozen=True, slots=True)
class Waiting:
    """Verdicts of one task that wait on one shard."""

    task: str
    shard: int
    verdicts: int
    oldest_ms: int | None
    """Age of the oldest entry by Redis's clock, in ms; None if it was not looked at."""


@dataclass(frozen=True, slots=True)
class NamespaceFacts:
    """A namespace."""

    name: str
    listed: bool | Missing
    """Whether it stands in acker:namespaces."""
    shards: tuple[ShardFacts, ...]
    """As many as shard 0 says there are; shard 0 only if it does not exist."""
    waiting: tuple[Waiting, ...] | Missing
    unseen: int
    """Streams that were not looked at, because there are so many."""

    @property
    def known(self) -> tuple[ShardStatus, ...]:
        """Status of the shards that have one."""
        return tuple(shard.status for shard in self.shards if shard.status)


@dataclass(frozen=True, slots=True)
class RightsFacts:
    """What came of trying commands on the keys of a namespace."""

    user: str
    """Its name; '' if it may not ask for it."""
    namespace: str
    tried: frozenset[str]
    """Commands, as in :func:`acker_redis.ops.acl.commands`."""
    refused: Mapping[str, str]
    """Command -> ``command``, ``keys`` or ``channel``: what the user may not."""
    functions: bool = False
    """Whether scripts that only read are called as functions, without EVAL."""

    @property
    def allowed(self) -> frozenset[str]:
        """Commands that were let through."""
        return self.tried - self.refused.keys()
