"""Trees and blocks by filters: pages of ``AsyncAcker.page``, and more where few match."""

import math
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Literal

from acker_redis import BlockEntry, PageCursor, TreePage, TreeState
from acker_redis.aio import AsyncAcker
from acker_redis.operate import State

Kind = Literal["tree", "block"]
MAX_PAGES = 8
"""Maximum number of pages that are read for one answer; each takes up to 16 short calls."""
MAX_LOOKED = 20_000
"""Approximate maximum of records that are read for one answer."""
MAX_GROWN = 4
"""Maximum factor by which pages grow."""
STEP = 200
"""Minimum number of records of a page that is filtered after the read."""


@dataclass(frozen=True)
class Filter:
    """A filter; '' and None match any."""

    source_id: str = ""
    """Of a block: its label."""
    source: str = ""
    bucket: int | None = None
    min_age_ms: int = 0
    state: State | None = None
    kind: Kind | None = None
    tracked: bool = False
    """Only trees that a source has tracked: no records of late or early rows."""
    prefix: bool = False
    """Whether the source id is only the beginning of one."""

    @property
    def afterwards(self) -> bool:
        """Whether a part of the filter, which few records match, applies after a page was read."""
        return bool(self.bucket is not None or self.min_age_ms or self.state or self.kind)

    def trees(self, page: TreePage) -> tuple[TreeState, ...]:
        """Return the loose trees of a page that match."""
        if self.kind == "block":
            return ()
        return tuple(tree for tree in page.trees if self._meant(tree) and self._state(tree))

    def blocks(self, page: TreePage) -> tuple[BlockEntry, ...]:
        """Return the blocks of a page that match; none for a state, which only trees have."""
        if self.kind == "tree" or self.state:
            return ()
        return tuple(filter(self._meant, page.blocks))

    def _state(self, tree: TreeState) -> bool:
        return self.state in (None, tree.state) and bool(tree.source or not self.tracked)

    def _meant(self, each: TreeState | BlockEntry) -> bool:
        return self.bucket in (None, each.bucket) and each.age_ms >= self.min_age_ms


async def walk(
    acker: AsyncAcker,
    meant: Filter,
    cursor: PageCursor | None,
    limit: int,
    within: float = math.inf,
) -> AsyncIterator[tuple[PageCursor, TreePage, PageCursor | None]]:
    """Yield pages, each with its cursor and the next one; as many as one answer may take.

    A caller that has enough stops. No page begins after ``within`` seconds. ``limit`` is the
    approximate number of records of a page. Pages grow if only tracked trees are wanted: mostly
    nearly all records match, but perhaps few.
    """
    kind = meant.kind or ("tree" if meant.state else None)
    shards = (await acker.config()).shards if kind else 0
    looked, at, grown = 0, past(cursor or PageCursor(), kind, shards), 1
    until = time.monotonic() + within
    for _ in range(MAX_PAGES):
        if at is None or looked >= MAX_LOOKED or (looked and time.monotonic() > until):
            return
        count = min(1000, (grown if meant.tracked else 1) * limit)
        page = await acker.page(at, count, meant.source_id, meant.source, prefix=meant.prefix)
        next_ = past(page.next, kind, shards)
        yield at, page, next_
        looked, at, grown = looked + page.looked, next_, min(MAX_GROWN, 2 * grown)


def past(at: PageCursor | None, kind: Kind | None, shards: int) -> PageCursor | None:
    """Return the cursor, moved past entries of the other kind; None if nothing is left."""
    if at and kind == "block" and at.kind == "pending":
        return PageCursor(at.shard, "blocks")
    if at and kind == "tree" and at.kind == "blocks":
        return PageCursor(at.shard + 1) if at.shard + 1 < shards else None
    return at
