"""The jobs of a rotator: one turn of a job is one short call to Redis, and its consequences.

``ask()`` runs a turn, without any lock. It returns the seconds until the job's next turn; None
means at once, because the job has more to do.
"""

import logging
import random
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from acker_redis.errors import AckerError, NamespaceNotFoundError, SchemaError
from acker_redis.flows.drain import DRAIN_BLOCKS, DRAIN_RECORDS, Round, ShardRotation
from acker_redis.flows.namespace_list import among, read_names
from acker_redis.logs import Event
from acker_redis.protocol.config import SCHEMA, STORED, AckerConfig
from acker_redis.protocol.keys import NAMESPACES, ShardKeys
from acker_redis.sync.connection import Connection

LATE_MS = 1000
"""Milliseconds from which a late tick is a warning: rotators are too few or slow, or were down."""
_SHORTEST_WAIT = 0.005

log = logging.getLogger("acker_redis.rotator")


@dataclass(frozen=True, slots=True)
class Pace:
    """How much a rotator requests per call, and how often. Times are in seconds."""

    records: int = DRAIN_RECORDS
    """Records per call of a drain, 1 .. 1000."""
    blocks: int = DRAIN_BLOCKS
    """Blocks per call of a drain, 1 .. 100."""
    look_every: float = 10.0
    """Longest time between two looks at a shard, however far its next tick is."""
    follow_every: float = 5.0
    """Time between two reads of the configurations and of the names of all namespaces."""


@dataclass(frozen=True, slots=True)
class Home:
    """A namespace, and the connection to its Redis."""

    connection: Connection
    name: str

    def shards(self) -> list[ShardKeys]:
        """Read the namespace's shards from Redis.

        Raises:
            NamespaceNotFoundError: The namespace does not exist.
            SchemaError: Another version has written it, or its configuration is none.

        """
        meta = ShardKeys(self.name, 0).meta
        schema, *values = self.connection.command("HMGET", meta, "schema", *STORED)
        if schema is None:
            if any(value is not None for value in values):
                raise SchemaError(
                    f"{meta} has no schema, so something else has written it; "
                    f"acker-redis doctor {self.name} says what to do"
                )
            there = ""
            with suppress(AckerError):  # the user may not list them
                there = "; " + among(self.connection.drive(read_names()), self.name)
            raise NamespaceNotFoundError(
                f"namespace {self.name} does not exist; create it: acker-redis create "
                f"{self.name}{there}"
            )
        if schema != b"%d" % SCHEMA:
            raise SchemaError(
                f"namespace {self.name} has schema {schema[:40].decode(errors='replace')}, this "
                f"program knows {SCHEMA}; use the version of acker-redis that wrote it"
            )
        try:
            found = {
                name: value.decode()
                for name, value in zip(STORED, values, strict=True)
                if value is not None
            }
            config = AckerConfig.from_wire(found)
        except ValueError as error:
            raise SchemaError(f"{meta} has been tampered with: {error!s:.160}") from None
        return [ShardKeys(self.name, shard) for shard in range(config.shards)]


class ShardJob:
    """The job of one shard: ticks and drains it."""

    def __init__(self, connection: Connection, keys: ShardKeys, pace: Pace) -> None:
        self.connection = connection
        self.keys = keys
        self.key = keys.meta
        self._rotation = ShardRotation(keys, pace.records, pace.blocks)
        self._longest = pace.look_every

    @property
    def fields(self) -> dict[str, Any]:
        """The job's fields in log events."""
        return {"namespace": self.keys.namespace, "shard": self.keys.shard}

    def ask(self) -> float | None:
        """Send the next call of this shard."""
        reply = self.connection.run(self._rotation.call())
        step = self._rotation.reply(reply, time.monotonic())
        if step.round:
            tell(self.keys, step.round)
        return None if step.more else wait_for(step.due, self._longest)


class NamespaceJob:
    """The job of one namespace: reads its number of shards."""

    def __init__(self, home: Home, every: float, *, named: bool) -> None:
        self.connection = home.connection
        self.home = home
        self.key = ShardKeys(home.name, 0).meta
        self.named = named
        """Whether the user named it, rather than the rotator found it among all."""
        self.found: list[ShardKeys] | None = None
        """Its shards at the last read; None if it does not exist, or was not read yet."""
        self.jobs: dict[int, ShardJob] = {}
        self.missed = False
        """Whether the log says already that it does not exist."""
        self._every = every

    @property
    def fields(self) -> dict[str, Any]:
        """The job's fields in log events."""
        return {"namespace": self.home.name}

    def ask(self) -> float | None:
        """Read the configuration."""
        try:
            self.found = self.home.shards()
        except NamespaceNotFoundError:
            self.found = None
        return spread(self._every)


class NamesJob:
    """The job that reads the names of all namespaces."""

    def __init__(self, connection: Connection, every: float) -> None:
        self.connection = connection
        self.key = NAMESPACES
        self.found: list[str] = []
        self.fields: dict[str, Any] = {}
        self._every = every

    def ask(self) -> float | None:
        """Read the names."""
        self.found = self.connection.drive(read_names())
        return spread(self._every)


def tell(keys: ShardKeys, done: Round) -> None:
    """Log a round: a tick, or a drain of a bucket that another rotator's tick began."""
    if not done.ticked and not done.calls:
        return
    level = logging.INFO if done.expired or done.acked or done.orphaned else logging.DEBUG
    if done.late_ms >= LATE_MS:
        level = logging.WARNING
    event = Event(
        "tick" if done.ticked else "drain",
        namespace=keys.namespace,
        shard=keys.shard,
        late_ms=done.late_ms,
        expired=done.expired,
        acked=done.acked,
        orphaned=done.orphaned,
        drain_ms=done.drain_ms,
        calls=done.calls,
    )
    log.log(level, event)


def wait_for(due: float, longest: float) -> float:
    """Return the seconds until the next look at a shard whose tick is due in ``due`` seconds."""
    late = random.uniform(0.0, min(0.05 * due, 0.25))  # noqa: S311 - jitter, not a secret
    return max(_SHORTEST_WAIT, min(due + late, spread(longest)))


def spread(seconds: float) -> float:
    """Return ``seconds``, or up to a fifth less, so that not all jobs run at once."""
    return seconds * random.uniform(0.8, 1.0)  # noqa: S311 - jitter, not a secret


def where(connection: Connection, key: str) -> str:
    """Return the server of a key, as far as the client knows: ``host:port``, without password."""
    client = connection.client
    try:
        if hasattr(client, "get_node_from_key"):
            return str(client.get_node_from_key(key).name)
        pool = client.connection_pool
        options = pool.connection_kwargs
        if "path" in options:
            return str(options["path"])
        return getattr(pool, "service_name", "") or f"{options['host']}:{options['port']}"
    except Exception:
        # For example a slot that no node serves at the moment: such jobs form one group.
        return "redis"
