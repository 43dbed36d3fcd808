"""Shapes of the answer of a search."""

from collections.abc import Iterable
from typing import Any, Self

from pydantic import BaseModel, Field

from acker_api.reading.search import Found
from acker_api.reading.verdicts import ReadVerdict
from acker_api.shapes.trees import Block, Tree
from acker_api.shapes.verdicts import Outcome
from acker_redis import BlockOutcome, block_anchor, split_anchor


class FoundVerdict(Outcome):
    """A verdict that matches."""

    block: str | None = Field(
        description="Number of its block; null: a loose tree", examples=[None]
    )
    trees: int = Field(
        description="Trees of the block with this verdict, if it was found by its label; "
        "otherwise 1",
        examples=[1],
    )

    @classmethod
    def waiting(cls, told: ReadVerdict, anchor: int | None, ids: bool) -> "FoundVerdict":
        """Convert an untaken verdict; ``anchor`` is the one that was searched for.

        ``ids``: whether the caller may see ids of messages.
        """
        outcome, block = told.outcome, told.entry.block
        alone = block is None or outcome.anchor == anchor
        place = split_anchor(outcome.anchor)
        return cls(
            **Outcome.of(told, ids).model_dump(),
            block=str(place[0]) if place else None,
            trees=1 if alone or block is None else _trees(block, outcome.verdict),
        )

    @classmethod
    def passed(cls, told: dict[str, Any]) -> "FoundVerdict":
        """Convert a verdict of an event."""
        place = split_anchor(int(told["anchor"]))
        return cls(**told, block=str(place[0]) if place else None, trees=1)

    @classmethod
    def of_block(cls, told: dict[str, Any]) -> "Iterable[FoundVerdict]":
        """Yield the verdicts on a block of an event: one for its acks, one for its nacks."""
        verdict, reason, expired = told["verdict"], told["reason"], bool(told["cause"])
        kinds = [(verdict, reason, told["count"])]
        if verdict == "mixed":
            kinds = [("ack", "completed", told["acked"]), ("nack", reason, told["nacked"])]
        for kind, why, trees in kinds:
            if trees:
                nacked = expired and kind == "nack"
                yield cls(
                    **{name: told[name] for name in ("source", "at_ms", "age_ms", "block")},
                    verdict=kind,
                    reason=why,
                    source_id=told["label"],
                    slot=None,
                    anchor=str(block_anchor(int(told["block"]), 0)),
                    why="",
                    cause=told["cause"] if nacked else "",
                    residual=None,
                    edges=list(told["edges"]) if nacked else [],
                    idle_ms=told["idle_ms"] if nacked else None,
                    entry="",
                    trees=trees,
                )


def _trees(block: BlockOutcome, verdict: str) -> int:
    if block.verdict != "mixed":
        return block.count
    nacked = len(block.nacked)
    return nacked if verdict == "nack" else block.count - nacked


class Looked(BaseModel):
    """How far a search has read one place."""

    looked: int = Field(
        description="Entries that this request has read: records and headers of blocks, or "
        "verdicts",
        examples=[20_000],
    )
    total: int = Field(
        description="Their number now. Of pending trees: the records of loose trees; headers of "
        "blocks are not counted",
        examples=[40_000],
    )
    complete: bool = Field(description="Whether `next` has nothing left to read there")


class LookedRecent(BaseModel):
    """What the service knows about verdicts that passed."""

    looked: int = Field(
        description="Verdicts that the process which answers has received and kept", examples=[350]
    )
    since_ms: int | None = Field(
        description="Since when; null: no client has listened to events of the namespace",
        examples=[1_700_000_000_000],
    )
    complete: bool = Field(
        description="Whether no verdict since then was dropped: the process keeps some hundred "
        "events"
    )


class Places(BaseModel):
    """Where a search has looked."""

    pending: Looked
    verdicts: Looked
    recent: LookedRecent


class SearchResult(BaseModel):
    """A part of the result of a search; continue with ``next`` until it is null."""

    trees: list[Tree] = Field(description="Pending trees, also records of late or early rows")
    blocks: list[Block] = Field(description="Pending blocks whose label begins with the text")
    verdicts: list[FoundVerdict] = Field(description="Untaken verdicts, of each page newest first")
    recent: list[FoundVerdict] = Field(
        description="Verdicts that the process has received lately, taken or not; only in the "
        "first answer"
    )
    next: str | None = Field(
        description="`cursor` of the next request; null: everything was read", examples=[None]
    )
    places: Places

    @classmethod
    def of(
        cls,
        found: Found,
        anchor: int | None,
        recent: Iterable[FoundVerdict],
        looked_recent: LookedRecent,
        ids: bool,
    ) -> Self:
        """Convert the result of one call, and of the events, for a caller.

        ``ids``: whether it may see ids of messages.
        """
        status, next_ = found.status, found.next
        return cls(
            trees=[Tree.seen(tree, status.config.edges, ids) for tree in found.trees.values()],
            blocks=[Block.of(block) for block in found.blocks.values()],
            verdicts=[FoundVerdict.waiting(told, anchor, ids) for told in found.verdicts],
            recent=list(recent),
            next=str(next_) if next_ else None,
            places=Places(
                pending=Looked(
                    looked=found.looked_pending,
                    total=max(0, status.pending - status.in_blocks),
                    complete=next_ is None or next_.pending is None,
                ),
                verdicts=Looked(
                    looked=found.looked_verdicts,
                    total=sum(status.backlog.values()),
                    complete=next_ is None or next_.verdicts is None,
                ),
                recent=looked_recent,
            ),
        )
