"""The names of all keys and channels.

A namespace has ``shards`` shards. All keys of a shard share the hash tag
``{<namespace>:<shard>}``, so on a Redis Cluster they are in one slot.
"""

import hashlib
import re
from dataclasses import dataclass

from acker_redis.errors import ConfigError

PREFIX = "acker:"
"""The beginning of all keys."""
RESERVED = "acker-canary-"
"""Prefix of namespaces that are reserved for the canary of the admin service."""
NAMESPACES = "acker:namespaces"
"""SET of the names of all namespaces."""
AUDIT = "acker:audit"
"""STREAM of requests that the admin service refused and that name no existing namespace."""
AUDITED = "acker:audited"
"""SET of the namespaces that have, or had, a stream of audit entries."""

DOTS = frozenset({".", ".."})
"""Valid names of a source, but not of a namespace: a path of a URL cannot contain them, so clients
of the admin service could not address it. create() refuses them; an existing one can be dropped."""

NAME = r"[A-Za-z0-9_.-]{1,64}"
"""Pattern of the name of a namespace, a source or an edge."""
_NAME = re.compile(NAME)


def is_name(name: str) -> bool:
    """Return whether a text is a valid name of a namespace, a source or an edge."""
    return bool(_NAME.fullmatch(name))


def check_name(kind: str, name: str) -> str:
    """Return ``name`` of a namespace or source; raise ConfigError if it is invalid."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise ConfigError(f"a {kind} is 1 to 64 characters of A-Z a-z 0-9 _ . -, not {name!r}")
    return name


@dataclass(frozen=True, slots=True)
class ShardKeys:
    """Names of the keys of one shard of a namespace."""

    namespace: str
    shard: int

    @property
    def prefix(self) -> str:
        """``KEYS[1]`` of every script: the prefix of all keys, never a key itself."""
        return f"acker:{{{self.namespace}:{self.shard}}}"

    @property
    def meta(self) -> str:
        """``KEYS[2]`` of every script: HASH of configuration, clock and counters."""
        return f"{self.prefix}:meta"

    @property
    def both(self) -> tuple[str, str]:
        """The KEYS of every script."""
        return self.prefix, self.meta

    @property
    def expiring(self) -> str:
        """HASH of the bucket that is being drained."""
        return f"{self.prefix}:expiring"

    @property
    def blocks_expiring(self) -> str:
        """HASH of the bucket of blocks that is being drained."""
        return f"{self.prefix}:blocks_expiring"

    @property
    def durable_fences(self) -> str:
        """HASH of the fences of durable lanes."""
        return f"{self.prefix}:fence:durable"

    @property
    def dropping(self) -> str:
        """HASH, the renamed ``meta`` of a shard that is being dropped."""
        return f"{self.prefix}:dropping"

    @property
    def history(self) -> str:
        """HASH of the namespace's history; only shard 0 has it."""
        return f"{self.prefix}:history"

    @property
    def reports(self) -> str:
        """HASH of the reports of programs: name -> ``ms:text``; only shard 0 has it."""
        return f"{self.prefix}:reports"

    @property
    def groups(self) -> str:
        """HASH of the completion groups: ``source:group`` -> JSON; only shard 0 has it."""
        return f"{self.prefix}:groups"

    def group(self, source: str, name: str) -> str:
        """HASH of the members of a completion group: source id -> verdict; only on shard 0."""
        return f"{self.prefix}:group:{source}:{name}"

    def pending(self, bucket: int) -> str:
        """HASH of the records of a bucket: anchor (8 bytes) -> record."""
        return f"{self.prefix}:pending:{bucket}"

    def blocks(self, bucket: int) -> str:
        """HASH of the blocks of a bucket: number (8 bytes) -> header."""
        return f"{self.prefix}:blocks:{bucket}"

    def block(self, number: int) -> str:
        """STRING of the checksums of a block."""
        return f"{self.prefix}:block:{number:013x}"

    def failed(self, number: int) -> str:
        """STRING, the bitmap of the failed trees of a block."""
        return f"{self.prefix}:failed:{number:013x}"

    def present(self, number: int) -> str:
        """STRING, the bitmap of the slots of a block that hold a tree; missing if all do."""
        return f"{self.prefix}:present:{number:013x}"

    def fence(self, bucket: int) -> str:
        """HASH of the fences of a bucket: producer -> ``seq:digest``."""
        return f"{self.prefix}:fence:{bucket}"

    def outcomes(self, task: str) -> str:
        """STREAM of the outcomes of a task that have not been taken yet."""
        return f"{self.prefix}:outcomes:{task}"


def audit_of(namespace: str) -> str:
    """Return the key of the STREAM of admin actions in a namespace; it outlives the namespace."""
    return f"{AUDIT}:{namespace}"


def channel(namespace: str, verdict: str, task: str) -> str:
    """Return the pub/sub channel of a task's verdicts (``ack``, ``nack`` or ``touch``)."""
    return f"acker:{namespace}:{verdict}:{task}"


def feed_tag(salt: str) -> str:
    """Return the member ``of`` of the messages of a namespace on its channels: 16 hex digits.

    All databases of a server have the same channels, and a namespace that is created again has
    those of the old one. The tag tells them apart, and reveals nothing of the salt.

    >>> feed_tag("00" * 16)
    '2b2156b9d82c72f6'
    """
    return hashlib.sha1(f"feed:{salt}".encode(), usedforsecurity=False).hexdigest()[:16]
