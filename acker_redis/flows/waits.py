"""On which edges pending trees wait, from a sample of them. No I/O: see ``flows/steps.py``.

The checksum of a pending tree has the bits of the edges on which an odd number of its messages is
outstanding. So a sample of the pending trees tells where work piles up, at no cost to producers.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median_low

from acker_redis.errors import ConfigError
from acker_redis.flows.browse import BlockEntry, BrowseFlows, PageCursor, ScannedTrees
from acker_redis.flows.steps import Flow, together
from acker_redis.protocol.commands import Kind
from acker_redis.protocol.outcome import odd_edges
from acker_redis.protocol.status import Status
from acker_redis.protocol.tree import TreeState

MAX_SAMPLE = 10_000
"""Most records that one sample reads, approximately."""
MAX_SHARDS = 16
"""Most shards that one sample reads. Anchors are random, so any shard is a fair sample."""
LEAST_RECORDS = 50
"""Records of a shard, approximately, before a sample reads one more shard."""
MAX_BLOCKS = 4
"""Most blocks of the same age that are read: a block has up to 4095 checksums, 32 KiB."""


@dataclass(frozen=True, slots=True)
class EdgeWaits:
    """The sampled trees that have something outstanding on one edge.

    Examples:
        >>> (mill,) = waits_of([(1 << 55 | 4, 10), (1 << 55 | 5, 30)], 2, ["mill"]).edges
        >>> mill.edge, mill.trees, mill.idle_ms, mill.max_idle_ms
        ('mill', 2, 10, 30)

    """

    edge: str
    """Name of the edge; '' for trees whose outstanding messages are on no named edge, or cancel."""
    trees: int
    """Sampled trees with an odd number of messages outstanding on this edge."""
    idle_ms: int
    """Median of the milliseconds since their last row."""
    max_idle_ms: int
    """Longest time since the last row of one of them."""


@dataclass(frozen=True, slots=True)
class Waits:
    """Where pending trees wait, from a sample.

    Examples:
        >>> acker = Acker.from_url(url, "mills")
        >>> acker.create(AckerConfig(edges=("mill", "shop")))
        True
        >>> batch = Batch("farm")
        >>> batch.track(7, "sack-1", [acker.ids.code("mill") | 40])
        >>> applied = acker.apply(batch)
        >>> waits = acker.waits()
        >>> waits.sampled, waits.pending, [(each.edge, each.trees) for each in waits.edges]
        (1, 1, [('mill', 1)])

    """

    sampled: int
    """Trees that were read; a tree that has failed or is complete in its block does not count."""
    pending: int
    """Pending trees of the namespace, rows whose TRACK has not come included."""
    edges: tuple[EdgeWaits, ...]
    """The edges with waiting trees, most trees first. A tree that waits on two edges is in both."""


def waits_of(trees: Sequence[tuple[int, int]], pending: int, edges: Sequence[str]) -> Waits:
    """Return where trees wait, given as checksum and idle time each.

    >>> [each.edge for each in waits_of([(1 << 55 | 4, 10), (4, 20)], 2, ["mill"]).edges]
    ['mill', '']
    """
    idle: dict[str, list[int]] = {}
    for checksum, idle_ms in trees:
        for edge in odd_edges(edges, checksum) or ("",):
            idle.setdefault(edge, []).append(idle_ms)
    found = (
        EdgeWaits(edge, len(times), median_low(times), max(times)) for edge, times in idle.items()
    )
    # In the order of the configuration where the numbers are equal.
    order = {edge: place for place, edge in enumerate((*edges, ""))}
    ranked = sorted(found, key=lambda each: (-each.trees, order[each.edge]))
    return Waits(len(trees), pending, tuple(ranked))


def read_waits(flows: BrowseFlows, status: Status, sample: int) -> Flow[Waits]:
    """See :meth:`Acker.waits`."""
    if type(sample) is not int or not 1 <= sample <= MAX_SAMPLE:
        raise ConfigError(f"sample must be 1 to {MAX_SAMPLE} trees, not {sample!r}")
    config = status.config
    shards = min(config.shards, MAX_SHARDS, -(-sample // LEAST_RECORDS))
    count = min(1000, -(-sample // (shards * (config.buckets + 1))))
    blocks = max(1, MAX_BLOCKS // shards)
    kinds: tuple[Kind, ...] = ("pending", "blocks")
    samples = yield from together(
        [
            _sample(flows, PageCursor(shard, kind), count, blocks)
            for shard in range(shards)
            for kind in kinds
        ]
    )
    trees = [tree for found in samples for tree in found]
    return waits_of(trees, status.pending, config.edges)


def _sample(
    flows: BrowseFlows, at: PageCursor, count: int, blocks: int
) -> Flow[list[tuple[int, int]]]:
    """Read about ``count`` trees of each bucket of a shard: checksums and idle times."""
    look, found = flows.look("", ""), list[tuple[int, int]]()
    while True:
        listed = yield from look(at, count)
        seen = ScannedTrees()
        seen.add(at.kind, listed)
        found += _open(seen.trees.values())
        for entry in list(seen.blocks.values())[:blocks]:
            found += yield from _in_block(flows, entry, -(-count // blocks))
        if not listed.age:
            return found
        at = PageCursor(at.shard, at.kind, listed.bucket + 1)


def _in_block(flows: BrowseFlows, entry: BlockEntry, most: int) -> Flow[list[tuple[int, int]]]:
    """Read up to ``most`` trees of a block, spread over its slots."""
    tree = yield from flows.show_block(entry.block)
    if tree is None or tree.block is None:
        return []  # it has ended since
    outstanding = tree.block.outstanding
    step = max(1, -(-len(outstanding) // most))
    return [(each, tree.idle_ms) for each in outstanding[::step]]


def _open(trees: Iterable[TreeState]) -> list[tuple[int, int]]:
    return [(tree.checksum, tree.idle_ms) for tree in trees if tree.source and not tree.failed]
