"""The needs of a load: cores of Redis, memory, network, servers, and the first bottleneck. No I/O.

Everything is proportional to the costs of one tree, which ``benchmarks/scale.py`` measures, on one
server or on several. ``docs/explanation/scale.md`` says how far that holds.
"""

from dataclasses import dataclass
from math import ceil, inf
from typing import Literal

from acker_redis.errors import ConfigError
from acker_redis.protocol.config import AckerConfig

Kind = Literal["rows", "blocks"]

BUSY = 0.5
"""Share of a server's core that a namespace should use: the rest is for bursts and drains."""
MOST = 1e12
"""The largest number of a load: products of them are still whole numbers that one can read."""
MANY_SHARDS = 16
"""Shards of a namespace at most: with more, the batches of one producer become small."""
NETWORK = 125e6
"""Bytes a second of a network of 1 Gbit/s."""
MEMORY_FACTOR = 3
"""``maxmemory`` for each byte of pending trees: the limit is twice the high-water mark, and
verdicts need memory, too."""


@dataclass(frozen=True, slots=True)
class Costs:
    """What the parts of one tree cost, measured with Redis 7.0.15 and a thousand rows a call.

    ``track`` is the first row of a tree, ``row`` a message but the last, ``last`` the message that
    completes it, ``take`` its verdict, read and taken. ``us`` are microseconds of Redis's core,
    ``in`` bytes to Redis.
    """

    track_us: float
    row_us: float
    last_us: float
    take_us: float
    track_in: float
    row_in: float
    last_in: float
    take_in: float
    take_out: float
    """Bytes from Redis for a verdict."""
    pending_bytes: float
    """Memory of a pending tree, with a source id of 14 bytes."""
    verdict_bytes: float
    """Memory of a verdict that waits to be taken."""
    python_us: float
    """Microseconds of Python in the program that processes a message."""


ROWS = Costs(2.6, 2.2, 2.8, 0.15, 38.2, 17.2, 17.2, 0.1, 45.2, 109, 50, 16)
ROWS_IN_CLUSTER = Costs(5.6, 2.5, 3.4, 0.24, 41.6, 17.3, 17.3, 0.2, 46.2, 109, 50, 16)
"""Rows on a cluster of six masters, with 16 shards: a call of 1000 tracks has 62 for each."""
BLOCKS = Costs(0.10, 0.05, 0.055, 0.007, 8.1, 8.1, 8.1, 0.1, 0.2, 8.4, 0.2, 0.9)
"""Blocks of 4000 trees, and consumers that poll batches (``process_batch``)."""
BLOCKS_IN_CLUSTER = Costs(0.13, 0.066, 0.12, 0.04, 8.1, 8.1, 8.1, 0.1, 0.8, 8.4, 0.2, 0.9)
KINDS = {"rows": (ROWS, ROWS_IN_CLUSTER), "blocks": (BLOCKS, BLOCKS_IN_CLUSTER)}
"""The costs on one server, and on several."""


@dataclass(frozen=True, slots=True)
class Load:
    """A load, in steady state.

    Raises:
        ConfigError: A number is out of its range.

    Examples:
        >>> Load(trees_per_s=2000, messages_per_tree=5).messages_per_s
        10000

    """

    trees_per_s: float
    messages_per_tree: float = 5
    lifetime_s: float = 5
    """Seconds from the first row of a tree to its verdict."""
    tick_ms: int = 30_000
    buckets: int = 3
    kind: Kind = "rows"

    def __post_init__(self) -> None:
        _positive("trees_per_s", self.trees_per_s)
        _positive("messages_per_tree", self.messages_per_tree, least=1)
        _positive("lifetime_s", self.lifetime_s)
        AckerConfig(tick_ms=self.tick_ms, buckets=self.buckets)
        if self.kind not in KINDS:
            raise ConfigError(f"kind is rows or blocks, not {self.kind!r}")

    @property
    def messages_per_s(self) -> float:
        """Messages a second, of all trees."""
        return self.trees_per_s * self.messages_per_tree


@dataclass(frozen=True, slots=True)
class Need:
    """A resource, and how much of it the load needs."""

    name: str
    used: float
    """1: as much as one unit offers."""
    unit: str
    """What one unit is."""


@dataclass(frozen=True, slots=True)
class Size:
    """What a load needs."""

    load: Load
    redis_cores: float
    """Cores of Redis that are busy all the time, of all masters."""
    servers: int
    """Masters, each at most half busy; each has one core for its commands."""
    namespaces: int
    """1 if the load fits into one namespace of 16 shards."""
    shards: int
    """Shards of each namespace."""
    pending: int
    """Trees that are pending at a time while all is well."""
    stalled: int
    """Trees that are pending if no tree completes: they stay for N ticks."""
    pending_bytes: int
    stalled_bytes: int
    maxmemory: int
    """Bytes for ``maxmemory``, of all masters."""
    bytes_in_per_s: float
    bytes_out_per_s: float
    verdicts_per_s: float
    verdict_bytes_per_s: float
    """Growth of Redis's memory while no source takes verdicts."""
    python_cores: float
    """Cores of the programs that process the messages, in Python, without their own work."""
    needs: tuple[Need, ...]
    """What one unit of each resource offers; the fullest first: it is short first."""

    @property
    def high_water(self) -> int:
        """A setting of ``high_water`` that admits all trees of a stall."""
        return self.stalled


def size(load: Load) -> Size:
    """Return what a load needs.

    >>> size(Load(trees_per_s=2000)).servers
    1
    """
    one, several = KINDS[load.kind]
    costs = one if _cores(load, one) <= BUSY else several
    cores = _cores(load, costs)
    rate, more = load.trees_per_s, load.messages_per_tree - 1
    sent = rate * (costs.track_in + more * costs.row_in + costs.last_in + costs.take_in)
    servers = max(1, ceil(cores / BUSY))
    shards = 1 if servers == 1 else shards_of(servers)
    stalled = ceil(rate * load.buckets * load.tick_ms / 1000)
    pending = ceil(rate * load.lifetime_s)
    stalled_bytes = round(stalled * costs.pending_bytes)
    python = load.messages_per_s * costs.python_us / 1e6
    needs = (
        Need("Redis", cores / BUSY, "half a core of one server"),
        Need("Python", python, "one core of a program that processes messages"),
        Need("network", max(sent, rate * costs.take_out) / NETWORK, "1 Gbit/s"),
        Need("shards", shards / MANY_SHARDS if shards > 1 else 0, f"{MANY_SHARDS} shards"),
        Need("memory", MEMORY_FACTOR * stalled_bytes / 2**34, "16 GiB"),
    )
    return Size(
        load,
        cores,
        servers,
        ceil(shards / MANY_SHARDS),
        min(shards, MANY_SHARDS),
        pending,
        stalled,
        round(pending * costs.pending_bytes),
        stalled_bytes,
        MEMORY_FACTOR * stalled_bytes,
        sent,
        rate * costs.take_out,
        rate,
        rate * costs.verdict_bytes,
        python,
        tuple(sorted(needs, key=lambda need: -need.used)),
    )


def _cores(load: Load, costs: Costs) -> float:
    """Return the cores of Redis that are busy all the time."""
    more = load.messages_per_tree - 1
    per_tree = costs.track_us + more * costs.row_us + costs.last_us + costs.take_us
    return load.trees_per_s * per_tree / 1e6


def shards_of(servers: int) -> int:
    """Return the number of shards on some masters: a power of two, at least two for each.

    >>> [shards_of(each) for each in (2, 3, 6)]
    [4, 8, 16]
    """
    return 1 << (2 * servers - 1).bit_length()


def _positive(name: str, value: float, least: float = 0) -> None:
    # The comparisons are also false for NaN.
    if not (value > 0 and least <= value < inf):
        words = f"a number of {least} or more" if least else "a number above 0"
        raise ConfigError(f"{name} is {words}, not {value:g}")
    if value > MOST:
        raise ConfigError(f"{name} is at most {MOST:g}, not {value:g}")
