"""Configuration of a namespace. It is stored in Redis, where all producers read it."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, Literal, Self

from acker_redis.errors import ConfigError, NamespaceExistsError
from acker_redis.protocol.keys import is_name
from acker_redis.protocol.stored import MAX_SHARDS, count

SCHEMA = 2
"""Version of the key layout in Redis that this package and its scripts support."""

# From lua/spec.json, by python -m proof.spec
MAX_EDGES = 8
"""Maximum named edges of a namespace: one bit of each id stands for one edge."""
RANGES = MappingProxyType(
    {
        "shards": (1, 1024),
        "buckets": (2, 16),
        "tick_ms": (1, 10**12),
        "high_water": (1, 10**12),
        "outcomes_limit": (1, 10**12),
        "deadline_ms": (0, 10**12),
        "slo_ms": (0, 10**12),
    }
)
"""Minimum and maximum of each setting that is a whole number."""
OPTIONAL = MappingProxyType({"slo_target": "99", "slo_ms": "0"})
"""Settings that a shard has only once they were changed, and what their absence means."""

Profile = Literal["service", "spark"]
Refresh = Literal["never", "update"]
PROFILES = MappingProxyType(
    {
        # Messages take seconds: the defaults. A tree expires after 60 to 90 seconds.
        "service": MappingProxyType[str, Any]({}),
        # A message waits for the next micro-batch of each query, and a query that starts again
        # needs minutes: a tree expires after 20 to 30 minutes. A micro-batch tracks all its trees
        # at once, so that a million must fit twice; in blocks they take 8 bytes each.
        "spark": MappingProxyType[str, Any](
            {"tick_ms": 600_000, "high_water": 2_000_000, "outcomes_limit": 10_000_000}
        ),
    }
)
"""What the trees of a namespace are for, and the settings that differ from the defaults."""

CREATED = (
    "shards", "buckets", "tick_ms", "high_water", "refresh", "deadline_ms", "outcomes_limit",
    "publish", "edges",
)  # fmt: skip
"""Settings that ``create.lua`` takes, in the order of its arguments."""
CHANGEABLE = ("tick_ms", "high_water", "outcomes_limit", "deadline_ms", "slo_target", "slo_ms")
"""Settings that ``configure.lua`` changes in a namespace in use."""
STORED = (*CREATED, *OPTIONAL)
"""The fields of ``meta`` that hold the configuration."""

_LIMIT = max(high for _, high in RANGES.values())
_TARGET = re.compile(r"[5-9][0-9](?:\.[0-9]{0,2}[1-9])?", re.ASCII)


@dataclass(frozen=True, slots=True)
class AckerConfig:
    """Settings of a namespace: shards, timeout, limits.

    Raises:
        ConfigError: A value is out of its range.

    Examples:
        >>> AckerConfig(buckets=3, tick_ms=60_000).timeout_ms  # three minutes
        180000

    """

    shards: int = 1
    """Number of shards of the namespace, a power of two, 1 .. 1024; changed only by
    :func:`acker_redis.ops.reshard.reshard`."""

    buckets: int = 3
    """Number N of rotating buckets, 2 .. 16; fixed at creation."""

    tick_ms: int = 30_000
    """Milliseconds between rotations. A tree expires after more than N-1 and at most N ticks."""

    high_water: int = 100_000
    """Number of pending trees of the namespace above which producers should slow down. From this
    mark on, rows without a tree are dropped. From twice the mark on, new trees are nacked at
    once."""

    refresh: Refresh = "never"
    """``never``: a tree's timeout runs from its first row. ``update``: every row restarts it, up
    to the deadline."""

    deadline_ms: int = 0
    """With ``refresh="update"``: milliseconds after its first row at which a tree expires, however
    many rows still arrive; required, at least N ticks. With ``never``: 0."""

    outcomes_limit: int = 1_000_000
    """Maximum verdicts that may wait for one source; above it, new batches of the source are
    refused."""

    publish: bool = True
    """Whether to also publish each verdict on pub/sub. The stream always contains the verdicts."""

    edges: tuple[str, ...] = ()
    """Names of up to 8 edges: the ways on which messages go from one step to the next, mostly a
    queue, a topic or a table. The ids of messages name their edge, so that a tree that expires can
    tell where a message is missing. Fixed at creation. A list becomes a tuple."""

    slo_target: float = 99.0
    """Service level objective in percent, 50 <= target < 100, with at most 3 decimals: the share of
    trees that complete in time. The namespace is unhealthy while more than the other trees are
    nacked."""

    slo_ms: int = 0
    """Milliseconds, from its first row, within which a tree must complete to count as good. 0: it
    must complete before it expires."""

    def __post_init__(self) -> None:
        given: object = self.edges
        if isinstance(given, list):
            object.__setattr__(self, "edges", tuple(given))  # this class is frozen
        self.validate()

    @classmethod
    def for_profile(cls, profile: Profile, **settings: Any) -> Self:
        """Return the settings of a profile, ``"service"`` or ``"spark"``, and these ones.

        >>> AckerConfig.for_profile("spark", edges=("orders", "parts")).tick_ms
        600000
        """
        if profile not in PROFILES:
            raise ConfigError(f"profile is {' or '.join(map(repr, PROFILES))}, not {profile!r}")
        return cls(**PROFILES[profile] | settings)

    def validate(self) -> None:
        """Raise ConfigError if a field is out of range; the message names the valid values."""
        for name in ("shards", "buckets", "tick_ms", "high_water", "outcomes_limit", "slo_ms"):
            _whole(name, getattr(self, name), *RANGES[name])
        if self.shards & (self.shards - 1):
            raise ConfigError(
                f"shards is a power of two (1, 2, 4, .. {MAX_SHARDS}), not {self.shards}"
            )
        if self.refresh not in ("never", "update"):
            raise ConfigError(f"refresh is 'never' or 'update', not {self.refresh!r}")
        if not isinstance(self.publish, bool):
            raise ConfigError(f"publish is True or False, not {self.publish!r}")
        self._check_deadline()
        self._check_edges()
        self._check_slo()

    def _check_deadline(self) -> None:
        if self.refresh == "never":
            if self.deadline_ms != 0:
                raise ConfigError(
                    f"deadline_ms is for refresh='update'; with 'never' it is 0, not "
                    f"{self.deadline_ms!r}"
                )
            return
        least = self.buckets * self.tick_ms
        if type(self.deadline_ms) is int and 0 <= self.deadline_ms < least:
            raise ConfigError(
                f"refresh='update' needs deadline_ms, at least buckets * tick_ms = {least}, not "
                f"{self.deadline_ms}"
            )
        _whole("deadline_ms", self.deadline_ms, 1, RANGES["deadline_ms"][1])

    def _check_edges(self) -> None:
        if not isinstance(self.edges, tuple) or not all(isinstance(e, str) for e in self.edges):
            raise ConfigError(f"edges is a list or tuple of names, not {self.edges!r}")
        for edge in self.edges:
            if not is_name(edge):
                raise ConfigError(
                    f"an edge is 1 to 64 characters of A-Z a-z 0-9 _ . -, not {edge!r}"
                )
        if len(self.edges) > MAX_EDGES or len(set(self.edges)) != len(self.edges):
            raise ConfigError(
                f"edges is up to {MAX_EDGES} different names, not {', '.join(self.edges)}"
            )

    def _check_slo(self) -> None:
        target = self.slo_target
        if type(target) not in (int, float) or not (
            50 <= target < 100 and round(target, 3) == target
        ):
            raise ConfigError(
                "slo_target is a percentage from 50 to 99.999, with at most 3 decimals, not "
                f"{target!r}"
            )

    @property
    def timeout_ms(self) -> int:
        """Milliseconds after which a tree expires, while the rotator is on time: N ticks.

        They count from its first row, with ``refresh="update"`` from its last one.
        """
        return self.buckets * self.tick_ms

    @property
    def lifetime_ms(self) -> int:
        """Maximum age of a tree in milliseconds while the rotator is on time, touches aside."""
        return self.deadline_ms + self.tick_ms if self.deadline_ms else self.timeout_ms

    @property
    def share(self) -> int:
        """High-water mark of one shard: ``high_water`` per shard, rounded up."""
        return max(1, -(-self.high_water // self.shards))

    @property
    def backlog_share(self) -> int:
        """Maximum waiting verdicts of a source on one shard: ``outcomes_limit`` per shard."""
        return max(1, -(-self.outcomes_limit // self.shards))

    @property
    def fence_ms(self) -> int:
        """Milliseconds in which a retry of a batch is idempotent: N-1 ticks."""
        return (self.buckets - 1) * self.tick_ms

    @property
    def slo_budget(self) -> float:
        """Error budget in percent: the share of trees that may fail, ``100 - slo_target``.

        >>> AckerConfig(slo_target=99.95).slo_budget
        0.05
        """
        return round(100 - self.slo_target, 3)

    def to_wire(self) -> tuple[str, ...]:
        """Return the values in the order that ``create.lua`` expects, from ``shards`` on."""
        return tuple(_wire(getattr(self, name)) for name in CREATED)

    def optional_on_wire(self) -> dict[str, str]:
        """Return the settings that ``create.lua`` does not take, if they differ from the default.

        >>> AckerConfig(slo_target=99.9).optional_on_wire()
        {'slo_target': '99.9'}
        """
        values = {name: wire(name, getattr(self, name)) for name in OPTIONAL}
        return {name: value for name, value in values.items() if value != OPTIONAL[name]}

    def changeable_on_wire(self) -> dict[str, str]:
        """Return all settings that ``configure.lua`` takes in a namespace of this kind."""
        names = (name for name in CHANGEABLE if name != "deadline_ms" or self.deadline_ms)
        return {name: wire(name, getattr(self, name)) for name in names}

    @classmethod
    def from_wire(cls, meta: Mapping[str, str]) -> Self:
        """Return the configuration that the fields of a shard's ``meta`` describe.

        This is the only reader of a stored configuration: every program trusts its result.

        Raises:
            ValueError: A value is missing, or is none that ``create.lua`` or ``configure.lua``
                writes; a ConfigError names its range.

        Examples:
            >>> config = AckerConfig(shards=2)
            >>> AckerConfig.from_wire(dict(zip(CREATED, config.to_wire()))) == config
            True

        """
        if missing := [name for name in CREATED if name not in meta]:
            raise ValueError(f"it has no {', '.join(missing)}")
        have = dict(OPTIONAL) | {name: meta[name] for name in STORED if name in meta}
        for name, words in (("refresh", ("never", "update")), ("publish", ("yes", "no"))):
            if have[name] not in words:
                raise ValueError(f"{name} is {' or '.join(words)}, not {have[name][:40]!r}")
        if not _TARGET.fullmatch(have["slo_target"]):
            raise ValueError(f"slo_target is no percentage: {have['slo_target'][:40]!r}")
        return cls(
            refresh="update" if have["refresh"] == "update" else "never",
            publish=have["publish"] == "yes",
            edges=tuple(have["edges"].split(",")) if have["edges"] else (),
            slo_target=float(have["slo_target"]),
            **{name: _stored(name, have[name]) for name in RANGES},
        )


def requested_config(
    namespace: str, there: AckerConfig | None, given: Mapping[str, Any]
) -> AckerConfig:
    """Return the settings with which to create a namespace; ``there`` are those that it has.

    A setting that is not ``given`` has its default, or stays as it is.

    Raises:
        NamespaceExistsError: A given setting contradicts one that the namespace has.
        ConfigError: A given setting is out of its range, or contradicts another one.

    >>> requested_config("orders", AckerConfig(high_water=7), {"shards": 1}).high_water
    7

    """
    if there is None:
        return AckerConfig(**given)
    try:
        return replace(there, **given)
    except ConfigError as error:
        for name, value in given.items():
            if (has := getattr(there, name)) != value:
                raise NamespaceExistsError(
                    f"{namespace} was created with {name} {has}, not {value}; {error}"
                ) from None
        raise


def wire(name: str, value: float) -> str:
    """Return the text of a changeable setting as ``configure.lua`` takes it.

    >>> wire("slo_target", 99.90), wire("slo_ms", 60_000)
    ('99.9', '60000')
    """
    return f"{value:.3f}".rstrip("0").rstrip(".") if name == "slo_target" else str(value)


def _wire(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return ",".join(value) if isinstance(value, tuple) else str(value)


def _stored(name: str, text: str) -> int:
    try:
        return count(text, 0, _LIMIT)
    except ValueError as error:
        raise ValueError(f"{name} is {error}") from None


def _whole(name: str, value: int, low: int, high: int) -> None:
    if type(value) is not int or not low <= value <= high:
        raise ConfigError(f"{name} is a whole number from {low} to {high}, not {value!r}")
