"""Fail all trees that match a filter, in bounded calls; each returns the cursor of the next.

Loose trees are failed one by one; of a block that matches, its open trees. A tree may end between
the read of its page and its FAIL. The FAIL then leaves a record without a tree, which expires by
itself, like any late message; ``ended`` counts these.
"""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from acker_api.reading.walk import Filter, Kind, walk
from acker_redis import Batch, PageCursor, TreePage, TreeState, block_anchor
from acker_redis.aio import AsyncAcker
from acker_redis.operate import Lane

SAMPLE = 20
"""Maximum number of matching trees that an answer shows."""
MOST = 10_000
"""Maximum number of trees that one call fails."""
PAGE = 500
"""Records of a page."""


@dataclass
class FailAll:
    """The result of a call."""

    matched: int = 0
    failed: int = 0
    """Trees that this call nacked."""
    ended: int = 0
    """Trees that this call did not nack: they had ended or failed before their FAIL arrived, or
    were only marked, because they have no TRACK yet."""
    looked: int = 0
    next: PageCursor | None = None
    sample: list[TreeState] = field(default_factory=list)
    edges: tuple[str, ...] = ()
    """The edges of the namespace."""

    def counts(self) -> dict[str, Any]:
        """Return the counts, for the audit log."""
        return {
            "matched": self.matched,
            "failed": self.failed,
            "ended": self.ended,
            "looked": self.looked,
            "next": str(self.next) if self.next else None,
        }


@dataclass(frozen=True)
class Failing:
    """A request: the trees to fail, and the reason."""

    source_id: str = ""
    source: str = ""
    bucket: int | None = None
    min_age_ms: int = 0
    state: Literal["open", "untracked"] = "open"
    kind: Kind | None = None
    why: str = ""
    most: int = MOST
    cursor: PageCursor | None = None
    dry_run: bool = True

    def asked(self) -> dict[str, Any]:
        """Return the request, for the audit log."""
        told = {
            "source_id": self.source_id,
            "source": self.source,
            "bucket": self.bucket,
            "min_age_ms": self.min_age_ms,
            "state": self.state,
            "kind": self.kind,
            "why": self.why,
            "most": self.most,
            "cursor": str(self.cursor) if self.cursor else None,
        }
        return {name: value for name, value in told.items() if value not in ("", None)}

    async def run(self, acker: AsyncAcker, lane: "Lane[asyncio.Lock]") -> FailAll:
        """Read some pages, and fail the trees that match unless it is a dry run."""
        if self.state == "untracked" and self.kind == "block":
            return FailAll()  # a tree in a block is always tracked
        done = FailAll(next=self.cursor, edges=(await acker.config()).edges)
        meant = Filter(
            self.source_id,
            self.source,
            self.bucket,
            self.min_age_ms,
            kind="tree" if self.state == "untracked" else self.kind,
        )
        async for at, page, next_ in walk(acker, meant, self.cursor, PAGE):
            done.looked += page.looked
            done.next = next_
            sender = _Sender(acker, lane, self.why)
            async for tree in self._trees(acker, meant, page):
                if done.matched == self.most and not self.dry_run:
                    # The next call reads this page again; failed trees no longer match.
                    done.next = at or PageCursor()
                    break
                done.matched += 1
                if len(done.sample) < SAMPLE:
                    done.sample.append(tree)
                if not self.dry_run:
                    await sender.fail(tree.anchor)
            done.failed += await sender.send()
            if done.matched >= self.most:
                break
        done.ended = 0 if self.dry_run else done.matched - done.failed
        return done

    async def _trees(
        self, acker: AsyncAcker, meant: Filter, page: TreePage
    ) -> AsyncIterator[TreeState]:
        for tree in meant.trees(page):
            if tree.state == self.state:
                yield tree
        for entry in meant.blocks(page):
            first = await acker.show_block(entry.block)
            if not first or not first.block or first.source_id != entry.label:
                continue  # the block has ended
            block, failed = first.block, {*first.block.failed}
            waits = [slot for slot in block.open if slot not in failed]
            for slot, checksum in zip(waits, block.outstanding, strict=True):
                anchor = block_anchor(block.block, slot)
                yield replace(first, anchor=anchor, checksum=checksum, failed=False)


class _Sender:
    """Sends FAILs in batches."""

    def __init__(self, acker: AsyncAcker, lane: "Lane[asyncio.Lock]", why: str) -> None:
        self._acker, self._lane, self._why = acker, lane, why
        self._batch, self._failed = Batch(), 0

    async def fail(self, anchor: int) -> None:
        if self._batch.full:
            await self.send()
        self._batch.fail(anchor, self._why)

    async def send(self) -> int:
        """Send the FAILs so far; return the number of trees nacked in total."""
        if self._batch:
            batch, self._batch = self._batch, Batch()
            self._failed += (await self._acker.apply(batch, self._lane)).failed
        return self._failed
