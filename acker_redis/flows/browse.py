"""What is pending, page by page: the walk over shards, kinds and buckets, without the I/O.

The walk takes shard after shard; of each the loose trees and then the blocks, from the bucket that
expires, or the oldest, to the newest. A bucket is named by a number that stays with it while it
grows older, so a tick between two pages neither skips nor repeats one. What is promised is what
HSCAN promises:

* What is pending from the first page to the last, and does not move, is seen at least once. What
  is tracked or ends in between may be seen or not.
* A TOUCH, a FAIL before its TRACK, and with ``refresh=update`` every row, moves a tree to the
  newest bucket: it may be seen twice, and is never missed for that.
* A cursor belongs to the server that gave it. Over a restart, a failover or a slot that moves,
  trees may be missed: begin again.
"""

import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace

from acker_redis.errors import ConfigError, NamespaceNotFoundError, SchemaError, WrongShardError
from acker_redis.flows.known import Known
from acker_redis.flows.steps import Flow, run_until, together
from acker_redis.protocol import commands
from acker_redis.protocol.commands import Kind, Listed
from acker_redis.protocol.ids import BLOCK_MAX, block_anchor, check_anchor, shard_of
from acker_redis.protocol.keys import ShardKeys, check_name
from acker_redis.protocol.texts import check_text
from acker_redis.protocol.tree import TreeState, parse_show

MAX_CALLS = 16
"""Calls of the script that a page takes at most."""
MAX_RECORDS = 1000
"""Records that a call looks at, about."""
SAMPLE = 500
"""Records of a bucket that are looked at for its oldest tree; a listpack always comes whole."""

_TEXT = re.compile(r"([0-9]{1,4})\.(pending|blocks)\.([0-9]{1,15})\.([0-9]{1,19})", re.ASCII)


@dataclass(frozen=True, slots=True)
class PageCursor:
    """Where a walk over all that is pending goes on; a text for URLs and shells.

    >>> from acker_redis.flows.browse import PageCursor
    >>> str(PageCursor.parse("2.blocks.17.4096"))
    '2.blocks.17.4096'
    """

    shard: int = 0
    kind: Kind = "pending"
    bucket: int = 0
    """Number of the bucket; 0 or one that is gone: the oldest, from its beginning."""
    at: int = 0
    """Cursor of HSCAN in this bucket."""

    def __str__(self) -> str:
        return f"{self.shard}.{self.kind}.{self.bucket}.{self.at}"

    @classmethod
    def parse(cls, text: str) -> "PageCursor":
        """Read the text form; ConfigError for what no page has given."""
        match = _TEXT.fullmatch(text) if isinstance(text, str) else None
        if not match:
            raise ConfigError(
                f"a cursor is a text that a page gave, such as 0.pending.17.4096, not {text!r:.60}"
            )
        shard, kind, bucket, at = match.groups()
        return cls(int(shard), "blocks" if kind == "blocks" else "pending", int(bucket), int(at))


@dataclass(frozen=True, slots=True)
class BlockEntry:
    """A pending block in a list; what is open in it, ``Acker.show(entry.anchors[0])`` tells.

    >>> acker = Acker.from_url(url, "orders")
    >>> anchors = acker.track_block("shop", "page 1", [40, 41])
    >>> (entry,) = acker.page().blocks
    >>> entry.label, entry.slots, entry.anchors == anchors
    ('page 1', 2, True)
    """

    block: int
    slots: int
    """Trees in it."""
    task: str
    label: str
    age_ms: int
    """Milliseconds since it was tracked."""
    bucket: int
    """0 is the newest; as many as the namespace has: it expires just now."""

    @property
    def anchors(self) -> range:
        """Anchors of its trees, by slot."""
        first = block_anchor(self.block, 0)
        return range(first, first + self.slots)


@dataclass(frozen=True, slots=True)
class TreePage:
    """Some of what is pending; what a walk over all pages sees is said in the module's docstring.

    >>> acker, batch = Acker.from_url(url, "orders"), Batch("shop")
    >>> batch.track(7, "order-1", [40])
    >>> applied = acker.apply(batch)
    >>> page = acker.page()
    >>> [tree.source_id for tree in page.trees], page.next, page.looked
    (['order-1'], None, 1)
    """

    trees: tuple[TreeState, ...]
    """Loose trees, also those of which only rows are there, and no TRACK yet: without a task."""
    blocks: tuple[BlockEntry, ...]
    next: PageCursor | None
    """Where the next page begins; None: all was looked at."""
    looked: int
    """Records and headers that were looked at."""
    unreadable: int
    """Those of them that no script has written; they are in neither list."""


@dataclass(frozen=True, slots=True)
class Found:
    """What a search has found, each tree and block once.

    >>> acker, batch = Acker.from_url(url, "orders"), Batch("shop")
    >>> batch.track(7, "order-1", [40])
    >>> applied = acker.apply(batch)
    >>> found = acker.find("order-1")
    >>> [tree.anchor for tree in found.trees], found.looked, found.complete
    ([7], 1, True)
    """

    trees: tuple[TreeState, ...]
    blocks: tuple[BlockEntry, ...]
    """Blocks of which it is the label."""
    looked: int
    """Records and headers that were looked at."""
    complete: bool
    """Whether everything was looked at, and all that was found is told."""


@dataclass(frozen=True, slots=True)
class OldestTree:
    """The oldest pending tree of a sample.

    >>> acker, batch = Acker.from_url(url, "orders"), Batch("shop")
    >>> batch.track(7, "order-1", [40])
    >>> applied = acker.apply(batch)
    >>> oldest = acker.oldest()
    >>> oldest.tree.source_id, oldest.exact
    ('order-1', True)
    """

    tree: TreeState
    """Of a block: its first open tree."""
    exact: bool
    """Whether of each shard the oldest bucket that holds anything was seen whole."""


@dataclass
class Seen:
    """What some calls have brought, each tree and block once: HSCAN may tell one twice."""

    trees: dict[int, TreeState] = field(default_factory=dict)
    blocks: dict[int, BlockEntry] = field(default_factory=dict)
    looked: int = 0
    unreadable: int = 0

    def __len__(self) -> int:
        return len(self.trees) + len(self.blocks)

    def add(self, kind: Kind, listed: Listed) -> None:
        """Take in the reply of a call."""
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
        # With a task there is a source id.
        if len(record) > 15 and (not record[15] or len(record) > 16 + record[15]):
            with suppress(SchemaError):
                tree = parse_show((listed.now_ms, listed.age, record), anchor)
        if tree:
            self.trees[anchor] = tree
        else:
            self.unreadable += 1

    def _block(self, block: int, header: bytes, listed: Listed) -> None:
        """A header: first seen 6, slots 2, digest 8, length of the task 1, task, label."""
        label_at = 17 + header[16] if len(header) > 16 else 0
        try:
            task, label = header[17:label_at].decode(), header[label_at:].decode()
        except UnicodeDecodeError:
            task = label = ""
        if not task or not label or block > BLOCK_MAX:
            self.unreadable += 1
            return
        self.blocks[block] = BlockEntry(
            block=block,
            slots=int.from_bytes(header[6:8], "big"),
            task=task,
            label=label,
            age_ms=max(0, listed.now_ms - int.from_bytes(header[:6], "big")),
            bucket=listed.age,
        )


Look = Callable[[PageCursor, int], Flow[Listed]]
"""Calls the script once, for about so many records."""


def following(cursor: PageCursor, listed: Listed) -> PageCursor | None:
    """Where the walk goes on behind a reply; None at its end."""
    if listed.cursor:
        return replace(cursor, bucket=listed.bucket, at=listed.cursor)
    if listed.age:
        return replace(cursor, bucket=listed.bucket + 1, at=0)
    if cursor.kind == "pending":
        return PageCursor(cursor.shard, "blocks")
    return PageCursor(cursor.shard + 1) if cursor.shard + 1 < listed.shards else None


def read_page(look: Look, cursor: PageCursor | None, count: int, filtered: bool) -> Flow[TreePage]:
    """A page of about ``count`` entries, by ``MAX_CALLS`` calls at most."""
    if type(count) is not int or not 1 <= count <= MAX_RECORDS:
        raise ConfigError(f"a page has 1 to {MAX_RECORDS} entries, not {count!r}")
    seen, at = Seen(), cursor or PageCursor()
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
    """Look at everything, until ``limit`` were found or ``most`` records looked at."""
    if limit < 1 or most < 1:
        raise ConfigError("limit and most are at least 1")
    seen = Seen()
    at: PageCursor | None = PageCursor()
    while at and len(seen) < limit and seen.looked < most:
        listed = yield from look(at, MAX_RECORDS)
        seen.add(at.kind, listed)
        at = following(at, listed)
    trees = tuple(seen.trees.values())[:limit]
    blocks = tuple(seen.blocks.values())[: limit - len(trees)]
    told = len(trees) + len(blocks) == len(seen)
    return Found(trees, blocks, seen.looked, at is None and told)


def age_of(entry: TreeState | BlockEntry) -> tuple[int, int]:
    """What the oldest has most of: milliseconds, and within one the bucket tells."""
    return entry.age_ms, entry.bucket


def oldest_of(look: Look, shard: int) -> Flow[tuple[list[TreeState | BlockEntry], bool]]:
    """The oldest tree and block of a shard's oldest buckets; whether they were seen whole."""
    oldest: list[TreeState | BlockEntry] = []
    whole = True
    for at, first_seen in (
        (PageCursor(shard, "pending"), slice(9, 15)),
        (PageCursor(shard, "blocks"), slice(0, 6)),
    ):
        listed = yield from look(at, SAMPLE)
        whole = whole and not listed.cursor
        # To read all of them would keep an event loop from its work for 30 ms with 16 shards.
        for entry in sorted(listed.page, key=lambda entry: entry[1][first_seen]):
            seen = Seen()
            seen.add(at.kind, replace(listed, page=(entry,)))
            if seen:
                oldest += [*seen.trees.values(), *seen.blocks.values()]
                break
    return oldest, whole


class Browses(Known):
    """Looks at what is pending in a namespace."""

    def show(self, anchor: int) -> Flow[TreeState | None]:
        """As :meth:`Acker.show`."""
        known = self.known
        while True:
            shards = (yield from self.config()).shards
            keys = ShardKeys(self.namespace, shard_of(check_anchor(anchor), shards))
            try:
                reply = yield from run_until(commands.show(keys, anchor), self._deadline())
            except (WrongShardError, NamespaceNotFoundError):
                self.known = None
                if known is None:
                    raise
                known = None  # that was of before it moved, say
            else:
                return parse_show(reply, anchor)

    def page(
        self, cursor: PageCursor | None, count: int, source_id: str, task: str, prefix: bool
    ) -> Flow[TreePage]:
        """As :meth:`Acker.page`."""
        look = self._look(source_id, task, prefix)
        return (yield from read_page(look, cursor, count, bool(source_id or task)))

    def find(self, source_id: str, task: str, limit: int, most: int, prefix: bool) -> Flow[Found]:
        """As :meth:`Acker.find`."""
        check_text("source id", source_id, 1)
        return (yield from search(self._look(source_id, task, prefix), limit, most))

    def oldest(self) -> Flow[OldestTree | None]:
        """As :meth:`Acker.oldest`."""
        look, shards = self._look("", ""), (yield from self._read_config(self._deadline())).shards
        samples = yield from together([oldest_of(look, shard) for shard in range(shards)])
        exact = all(whole for _, whole in samples)
        entries = [entry for oldest, _ in samples for entry in oldest]
        for entry in sorted(entries, key=age_of, reverse=True):
            tree = (yield from self._of_block(entry)) if isinstance(entry, BlockEntry) else entry
            if tree:
                return OldestTree(tree, exact)
            exact = False  # it has ended meanwhile
        return None

    def _look(self, source_id: str, task: str, prefix: bool = False) -> Look:
        """Reads a page of a bucket; ``source_id`` and ``task`` are '' for all."""
        if source_id:
            check_text("source id", source_id, 1)
        if task:
            check_name("task", task)

        def look(at: PageCursor, count: int) -> Flow[Listed]:
            keys = ShardKeys(self.namespace, at.shard)
            args = (at.kind, at.bucket, at.at, count, source_id, task, prefix)
            try:
                reply = yield from run_until(commands.list_page(keys, *args), self._deadline())
            except NamespaceNotFoundError:
                self.known = None
                shards = (yield from self.config()).shards
                if at.shard < shards:
                    raise
                # It has fewer shards now; before they went there was nothing left in them.
                return Listed(0, shards, at.bucket, 0, 0, 0, ())
            return commands.parse_list(reply)

        return look

    def _of_block(self, entry: BlockEntry) -> Flow[TreeState | None]:
        """The first open tree of a block, or the first if none is; None if it has ended."""
        tree = yield from self.show(entry.anchors[0])
        if tree and tree.block and tree.block.open:
            return (yield from self.show(entry.anchors[tree.block.open[0]]))
        return tree
