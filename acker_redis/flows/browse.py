"""Pagination over all pending trees and blocks, across shards and buckets. No I/O.

A scan visits shard after shard: first the loose trees of a shard, then its blocks. Buckets are
visited from the expiring (or oldest) one to the newest. A bucket keeps its number while it ages, so
a tick between two pages neither skips nor repeats a bucket. The guarantees are those of HSCAN:

* A tree that is pending from the first page to the last, and stays in its bucket, is returned at
  least once. A tree that begins or ends during the scan may be returned or not.
* A TOUCH, a FAIL before its TRACK, and with ``refresh=update`` every row, puts a tree into the
  newest bucket. Such a tree may be returned twice, but it is not missed.
* A cursor belongs to the server that returned it. After a restart, a failover or the migration of a
  slot, pages may miss trees: begin again.
"""

import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from acker_redis.errors import ConfigError, NamespaceNotFoundError, SchemaError, WrongShardError
from acker_redis.flows.known import KnownNamespace
from acker_redis.flows.steps import Flow, run_until, together
from acker_redis.protocol import commands
from acker_redis.protocol.commands import Kind, Listed
from acker_redis.protocol.ids import BLOCK_MAX, block_anchor, check_anchor, shard_of
from acker_redis.protocol.keys import ShardKeys, check_name
from acker_redis.protocol.record import HEADER_FIRST, RECORD_FIRST, parse_header
from acker_redis.protocol.texts import check_text
from acker_redis.protocol.tree import TreeState, parse_show, parse_show_block

MAX_CALLS = 16
"""Maximum number of script calls per page."""
MAX_RECORDS = 1000
"""Records that one call examines, approximately."""
SAMPLE = 500
"""Records of a bucket that ``oldest`` examines; a listpack is always read whole."""

_TEXT = re.compile(r"([0-9]{1,4})\.(pending|blocks)\.([0-9]{1,15})\.([0-9]{1,19})", re.ASCII)


@dataclass(frozen=True, slots=True)
class PageCursor:
    """The position of a scan over all pending trees and blocks; a text for URLs and shells.

    Examples:
        >>> from acker_redis.flows.browse import PageCursor
        >>> str(PageCursor.parse("2.blocks.17.4096"))
        '2.blocks.17.4096'

    """

    shard: int = 0
    kind: Kind = "pending"
    bucket: int = 0
    """Number of the bucket.

    0, or a number that no bucket has any more: the oldest bucket, from its start.
    """
    at: int = 0
    """HSCAN's cursor in this bucket."""

    def __str__(self) -> str:
        return f"{self.shard}.{self.kind}.{self.bucket}.{self.at}"

    @classmethod
    def parse(cls, text: str) -> "PageCursor":
        """Parse the text form; raise ConfigError for a text that no page has returned."""
        match = _TEXT.fullmatch(text) if isinstance(text, str) else None
        if not match:
            raise ConfigError(
                f"invalid cursor {text!r:.60}: use the text of a page's next, as 0.pending.17.4096"
            )
        shard, kind, bucket, at = match.groups()
        return cls(int(shard), "blocks" if kind == "blocks" else "pending", int(bucket), int(at))


@dataclass(frozen=True, slots=True)
class BlockEntry:
    """A pending block in a list.

    ``Acker.show_block(entry.block)`` returns which of its trees are open.

    Examples:
        >>> acker = Acker.from_url(url, "orders")
        >>> anchors = acker.track_block("shop", "page 1", [40, 41])
        >>> (entry,) = acker.page().blocks
        >>> entry.label, entry.slots, entry.anchors == anchors
        ('page 1', 2, True)

    """

    block: int
    slots: int
    """Slots of the block; each holds a tree, unless the block is ``partial``."""
    source: str
    label: str
    age_ms: int
    """Milliseconds since it was tracked."""
    bucket: int
    """Age of its bucket in ticks: 0 is the newest.

    The number of buckets means that the block is expiring.
    """
    idle_ms: int = 0
    """Milliseconds since its last row, to within a tick."""
    partial: bool = False
    """Whether some slots hold no tree; ``Acker.show_block`` returns which."""

    @property
    def anchors(self) -> range:
        """Anchors of the block, by slot."""
        first = block_anchor(self.block, 0)
        return range(first, first + self.slots)


@dataclass(frozen=True, slots=True)
class TreePage:
    """One page of pending trees and blocks.

    See :mod:`acker_redis.flows.browse` for the guarantees of a scan over all pages.

    Examples:
        >>> acker, batch = Acker.from_url(url, "orders"), Batch("shop")
        >>> batch.track(7, "order-1", [40])
        >>> applied = acker.apply(batch)
        >>> page = acker.page()
        >>> [tree.source_id for tree in page.trees], page.next, page.looked
        (['order-1'], None, 1)

    """

    trees: tuple[TreeState, ...]
    """Loose trees, also records without a source: rows whose TRACK has not come yet."""
    blocks: tuple[BlockEntry, ...]
    next: PageCursor | None
    """Position of the next page; None after the last one."""
    looked: int
    """Records and headers that were examined."""
    unreadable: int
    """Examined records and headers that no script has written; they are in neither list."""


@dataclass(frozen=True, slots=True)
class Found:
    """The result of a search, each tree and block once.

    Examples:
        >>> acker, batch = Acker.from_url(url, "orders"), Batch("shop")
        >>> batch.track(7, "order-1", [40])
        >>> applied = acker.apply(batch)
        >>> found = acker.find("order-1")
        >>> [tree.anchor for tree in found.trees], found.looked, found.complete
        ([7], 1, True)

    """

    trees: tuple[TreeState, ...]
    blocks: tuple[BlockEntry, ...]
    """Blocks with this label."""
    looked: int
    """Records and headers that were examined."""
    complete: bool
    """Whether everything was examined and every match is in the result."""


@dataclass(frozen=True, slots=True)
class OldestTree:
    """The oldest pending tree of a sample.

    Examples:
        >>> acker, batch = Acker.from_url(url, "orders"), Batch("shop")
        >>> batch.track(7, "order-1", [40])
        >>> applied = acker.apply(batch)
        >>> oldest = acker.oldest()
        >>> oldest.tree.source_id, oldest.exact
        ('order-1', True)

    """

    tree: TreeState
    """The tree; of a block, its first open tree."""
    exact: bool
    """Whether the oldest bucket with trees of each shard was read whole."""


@dataclass
class ScannedTrees:
    """The entries of several calls, each tree and block once: HSCAN may return one twice."""

    trees: dict[int, TreeState] = field(default_factory=dict)
    blocks: dict[int, BlockEntry] = field(default_factory=dict)
    looked: int = 0
    unreadable: int = 0

    def __len__(self) -> int:
        return len(self.trees) + len(self.blocks)

    def add(self, kind: Kind, listed: Listed) -> None:
        """Add the reply of a call."""
        self.looked += listed.looked
        for name, record in listed.page:
            if len(name) != 8:
                self.unreadable += 1
            elif kind == "blocks":
                self._block(int.from_bytes(name, "big"), record, listed)
            else:
                self._tree(int.from_bytes(name, "big"), record, listed)

    def _tree(self, anchor: int, record: bytes, listed: Listed) -> None:
        tree = None
        with suppress(SchemaError):
            tree = parse_show((listed.now_ms, listed.age, record), anchor)
        if tree:
            self.trees[anchor] = tree
        else:
            self.unreadable += 1

    def _block(self, block: int, stored: bytes, listed: Listed) -> None:
        header = None
        with suppress(SchemaError):
            header = parse_header(stored)
        if not header or block > BLOCK_MAX:
            self.unreadable += 1
            return
        self.blocks[block] = BlockEntry(
            block=block,
            slots=header.slots,
            source=header.task,
            label=header.label,
            age_ms=max(0, listed.now_ms - header.first_ms),
            bucket=listed.age,
            idle_ms=max(0, listed.now_ms - header.last_ms),
            partial=header.partial,
        )


Look = Callable[[PageCursor, int], Flow[Listed]]
"""Calls the script once, for approximately this many records."""


def following(cursor: PageCursor, listed: Listed) -> PageCursor | None:
    """Return the position after a reply; None at the end of the scan."""
    if listed.cursor:
        return replace(cursor, bucket=listed.bucket, at=listed.cursor)
    if listed.age:
        return replace(cursor, bucket=listed.bucket + 1, at=0)
    if cursor.kind == "pending":
        return PageCursor(cursor.shard, "blocks")
    return PageCursor(cursor.shard + 1) if cursor.shard + 1 < listed.shards else None


def read_page(look: Look, cursor: PageCursor | None, count: int, filtered: bool) -> Flow[TreePage]:
    """Return a page of about ``count`` entries, with ``MAX_CALLS`` calls at most."""
    if type(count) is not int or not 1 <= count <= MAX_RECORDS:
        raise ConfigError(f"count must be 1 to {MAX_RECORDS} entries, not {count!r}")
    seen, at = ScannedTrees(), cursor or PageCursor()
    next_: PageCursor | None = at
    for _ in range(MAX_CALLS):
        listed = yield from look(at, MAX_RECORDS if filtered else count - len(seen))
        seen.add(at.kind, listed)
        next_ = following(at, listed)
        if next_ is None or len(seen) >= count:
            break
        at = next_
    trees, blocks = tuple(seen.trees.values()), tuple(seen.blocks.values())
    return TreePage(trees, blocks, next_, seen.looked, seen.unreadable)


def search(look: Look, limit: int, most: int) -> Flow[Found]:
    """Scan all pending trees until ``limit`` are found or ``most`` records are examined."""
    if limit < 1 or most < 1:
        raise ConfigError(f"limit and most must be at least 1, not {limit!r} and {most!r}")
    seen = ScannedTrees()
    at: PageCursor | None = PageCursor()
    while at and len(seen) < limit and seen.looked < most:
        listed = yield from look(at, MAX_RECORDS)
        seen.add(at.kind, listed)
        at = following(at, listed)
    trees = tuple(seen.trees.values())[:limit]
    blocks = tuple(seen.blocks.values())[: limit - len(trees)]
    all_shown = len(trees) + len(blocks) == len(seen)
    return Found(trees, blocks, seen.looked, at is None and all_shown)


def age_of(entry: TreeState | BlockEntry) -> tuple[int, int]:
    """Sort key: the age in milliseconds, then the age of the bucket."""
    return entry.age_ms, entry.bucket


def oldest_of(look: Look, shard: int) -> Flow[tuple[list[TreeState | BlockEntry], bool]]:
    """Return a shard's oldest tree and block, and whether their buckets were read whole."""
    oldest: list[TreeState | BlockEntry] = []
    whole = True
    for at, first_seen in (
        (PageCursor(shard, "pending"), RECORD_FIRST),
        (PageCursor(shard, "blocks"), HEADER_FIRST),
    ):
        listed = yield from look(at, SAMPLE)
        whole = whole and not listed.cursor
        # Parsing all entries would block an event loop for 30 ms with 16 shards.
        for entry in sorted(listed.page, key=lambda entry: entry[1][first_seen]):
            seen = ScannedTrees()
            seen.add(at.kind, replace(listed, page=(entry,)))
            if seen:
                oldest += [*seen.trees.values(), *seen.blocks.values()]
                break
    return oldest, whole


class BrowseFlows(KnownNamespace):
    """The flows that read the pending trees of a namespace."""

    def show(self, anchor: int) -> Flow[TreeState | None]:
        """See :meth:`Acker.show`."""
        return parse_show((yield from self._show(anchor)), anchor)

    def show_block(self, block: int) -> Flow[TreeState | None]:
        """See :meth:`Acker.show_block`."""
        return parse_show_block((yield from self._show(block_anchor(block, 0))), block)

    def _show(self, anchor: int) -> Flow[Any]:
        """Return the reply of ``show``."""
        known = self.known
        while True:
            shards = (yield from self.config()).shards
            keys = ShardKeys(self.namespace, shard_of(check_anchor(anchor), shards))
            try:
                return (yield from run_until(commands.show(keys, anchor), self.deadline()))
            except (WrongShardError, NamespaceNotFoundError):
                self.known = None
                if known is None:
                    raise
                known = None  # the cached configuration was outdated: try again once

    def page(
        self, cursor: PageCursor | None, count: int, source_id: str, source: str, prefix: bool
    ) -> Flow[TreePage]:
        """See :meth:`Acker.page`."""
        look = self.look(source_id, source, prefix)
        return (yield from read_page(look, cursor, count, bool(source_id or source)))

    def find(self, source_id: str, source: str, limit: int, most: int, prefix: bool) -> Flow[Found]:
        """See :meth:`Acker.find`."""
        check_text("source id", source_id, 1)
        return (yield from search(self.look(source_id, source, prefix), limit, most))

    def oldest(self) -> Flow[OldestTree | None]:
        """See :meth:`Acker.oldest`."""
        look, shards = self.look("", ""), (yield from self._read_config(self.deadline())).shards
        samples = yield from together([oldest_of(look, shard) for shard in range(shards)])
        exact = all(whole for _, whole in samples)
        entries = [entry for oldest, _ in samples for entry in oldest]
        for entry in sorted(entries, key=age_of, reverse=True):
            tree = (yield from self._of_block(entry)) if isinstance(entry, BlockEntry) else entry
            if tree:
                return OldestTree(tree, exact)
            exact = False  # the block has ended since it was read
        return None

    def look(self, source_id: str, source: str, prefix: bool = False) -> Look:
        """Return a function that reads a page of a bucket.

        '' for ``source_id`` or ``source`` means all.
        """
        if source_id:
            check_text("source id", source_id, 1)
        if source:
            check_name("source", source)

        def look(at: PageCursor, count: int) -> Flow[Listed]:
            keys = ShardKeys(self.namespace, at.shard)
            args = (at.kind, at.bucket, at.at, count, source_id, source, prefix)
            try:
                reply = yield from run_until(commands.list_page(keys, *args), self.deadline())
            except NamespaceNotFoundError:
                self.known = None
                shards = (yield from self.config()).shards
                if at.shard < shards:
                    raise
                # The namespace has fewer shards now. Removed shards were empty before.
                return Listed(0, shards, at.bucket, 0, 0, 0, ())
            return commands.parse_list(reply, keys)

        return look

    def _of_block(self, entry: BlockEntry) -> Flow[TreeState | None]:
        """Return the first open tree of a block, or its first tree if none is open.

        None if it has ended.
        """
        first = yield from self.show_block(entry.block)
        if first and first.block and first.block.open:
            return (yield from self.show(entry.anchors[first.block.open[0]]))
        return first
