"""Fail all trees that match a filter: a call looks at some, and says where the next goes on.

Loose trees are failed as they are met; of a block that matches, the trees that are open. A tree
that ends between the page and its FAIL leaves a record without a tree, which expires by itself, as
any message that comes too late: ``ended`` counts these.
"""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any, Literal

from acker_api.reading.walk import Filter, Kind, walk
from acker_redis.aio import AsyncAcker
from acker_redis.batching.batch import Batch
from acker_redis.flows.browse import PageCursor, TreePage
from acker_redis.flows.lane import Lane
from acker_redis.protocol.ids import block_anchor
from acker_redis.protocol.tree import TreeState

SAMPLE = 20
"""Trees that are shown of those that match."""
MOST = 10_000
"""Trees that one call fails at most."""
PAGE = 500
"""Records of a page."""


@dataclass
class FailAll:
    """What came of a call."""

    matched: int = 0
    failed: int = 0
    """Trees that were nacked by this."""
    ended: int = 0
    """Trees that had ended, or were failed, before their FAIL came, or were only marked: without a
    TRACK there is nobody to tell."""
    looked: int = 0
    next: PageCursor | None = None
    sample: list[TreeState] = field(default_factory=list)

    def counts(self) -> dict[str, Any]:
        """For the audit log."""
        return {
            "matched": self.matched,
            "failed": self.failed,
            "ended": self.ended,
            "looked": self.looked,
            "next": str(self.next) if self.next else None,
        }


@dataclass(frozen=True)
class Failing:
    """What to fail, and why."""

    source_id: str = ""
    task: str = ""
    bucket: int | None = None
    min_age_ms: int = 0
    state: Literal["open", "untracked"] = "open"
    kind: Kind | None = None
    why: str = ""
    most: int = MOST
    cursor: PageCursor | None = None
    dry_run: bool = True

    def asked(self) -> dict[str, Any]:
        """For the audit log."""
        told = {
            "source_id": self.source_id,
            "task": self.task,
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
        """Look at some pages, and fail what matches unless it is a dry run."""
        if self.state == "untracked" and self.kind == "block":
            return FailAll()  # a block is tracked
        done = FailAll(next=self.cursor)
        meant = Filter(
            self.source_id,
            self.task,
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
                    # The page is read again: what was failed is not met any more.
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
            first = await acker.show(entry.anchors[0])
            if not first or not first.block or first.source_id != entry.label:
                continue  # it has ended
            for slot in sorted({*first.block.open} - {*first.block.failed}):
                yield _in_block(first, slot)


def _in_block(first: TreeState, slot: int) -> TreeState:
    """An open tree of a block, by what is known of its first; not its checksum."""
    assert first.block  # noqa: S101 - for mypy
    return TreeState(
        anchor=block_anchor(first.block.block, slot),
        checksum=first.checksum if slot == 0 else 0,
        task=first.task,
        source_id=first.source_id,
        failed=False,
        why="",
        age_ms=first.age_ms,
        bucket=first.bucket,
        block=first.block,
    )


class _Sender:
    """Fails trees in batches."""

    def __init__(self, acker: AsyncAcker, lane: "Lane[asyncio.Lock]", why: str) -> None:
        self._acker, self._lane, self._why = acker, lane, why
        self._batch, self._failed = Batch(), 0

    async def fail(self, anchor: int) -> None:
        if self._batch.full:
            await self.send()
        self._batch.fail(anchor, self._why)

    async def send(self) -> int:
        """Send what there is; how many were nacked in all."""
        if self._batch:
            batch, self._batch = self._batch, Batch()
            self._failed += (await self._acker.apply(batch, self._lane)).failed
        return self._failed
