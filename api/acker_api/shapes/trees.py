"""Shapes of trees and blocks, as ``acker-redis find --json`` prints them.

Anchors and numbers of blocks are text: many JSON readers round numbers beyond 2^53.
"""

from collections.abc import Sequence
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from acker_api.acting.fail_all import MOST, FailAll
from acker_api.reading.expired import Expired
from acker_api.reading.walk import Kind
from acker_redis import BlockEntry, BlockState, EdgeWaits, TreeState, Waits
from acker_redis.operate import NAME
from acker_redis.operate.status import BlockInBrief, TreeInBrief


class BlockOfTree(BlockInBrief):
    """The block of a tree, and the state of its other trees."""

    open: list[int] = Field(description="Slots with outstanding messages", examples=[[1]])
    failed: list[int] = Field(description="Slots that have failed", examples=[[]])
    absent: list[int] = Field(
        description="Slots that hold no tree, and have no verdict", examples=[[]]
    )

    @classmethod
    def of(cls, block: BlockState) -> "BlockOfTree":
        """Convert the block of a tree."""
        return cls(
            block=str(block.block),
            slots=block.slots,
            open=list(block.open),
            failed=list(block.failed),
            absent=list(block.absent),
        )


class Tree(TreeInBrief):
    """A pending tree."""

    checksum: str | None = Field(
        description="XOR of the ids of its outstanding messages, 16 hex digits; 0 in a block: "
        "complete. null: the caller is no operator",
        examples=["010000000000003e"],
    )
    block: BlockOfTree | None = Field(description="null: a loose tree")

    @classmethod
    def seen(cls, tree: TreeState, edges: Sequence[str], ids: bool) -> "Tree":
        """Convert a tree for a caller; ``ids``: whether it may see ids of messages."""
        return cls.of(tree, edges, checksum=f"{tree.checksum:016x}" if ids else None)

    @classmethod
    def _block(cls, block: BlockState) -> BlockOfTree:
        return BlockOfTree.of(block)


class Block(BaseModel):
    """A pending block; `GET blocks/{block}` shows which of its slots are open."""

    block: str = Field(examples=["815"])
    first_anchor: str = Field(
        description="Anchor of slot 0; for another slot add its number",
        examples=["4611686018430726144"],
    )
    slots: int = Field(examples=[3])
    partial: bool = Field(description="Whether some slots hold no tree", examples=[False])
    source: str = Field(description="The source that tracked it", examples=["shop"])
    label: str = Field(examples=["page 1"])
    age_ms: int = Field(examples=[5200])
    idle_ms: int = Field(description="Time since its last row, to within a tick", examples=[4100])
    bucket: int = Field(examples=[0])

    @classmethod
    def of(cls, entry: BlockEntry) -> "Block":
        """Convert an entry of a list."""
        return cls(
            block=str(entry.block),
            first_anchor=str(entry.anchors[0]),
            slots=entry.slots,
            partial=entry.partial,
            source=entry.source,
            label=entry.label,
            age_ms=entry.age_ms,
            idle_ms=entry.idle_ms,
            bucket=entry.bucket,
        )


class Scan(BaseModel):
    """The cost of the answer."""

    looked: int = Field(description="Records and headers that were read", examples=[100])
    unreadable: int = Field(description="Those that no script has written", examples=[0])
    cost: str = Field(
        examples=["one page of the pending trees: follow next until it is null to read all records"]
    )


class Trees(BaseModel):
    """A page of the pending trees. With filters it may be empty and still have a ``next``."""

    trees: list[Tree]
    blocks: list[Block]
    next: str | None = Field(
        description="`cursor` of the next page; null: everything was read",
        examples=["0.pending.17.4096"],
    )
    looked: int = Field(description="Records and headers that were read", examples=[100])
    complete: bool = Field(description="Whether there is no next page")
    scan: Scan


class WaitingOnEdge(BaseModel):
    """The sampled trees that have messages outstanding on one edge."""

    edge: str = Field(
        description="'': on none of the named edges, or two messages on one edge",
        examples=["packed"],
    )
    trees: int = Field(
        description="Sampled trees with an odd number of messages outstanding there", examples=[170]
    )
    idle_ms: int = Field(description="Median of the times since their last row", examples=[4100])
    max_idle_ms: int = Field(description="The longest of these times", examples=[61_000])

    @classmethod
    def of(cls, waits: EdgeWaits) -> "WaitingOnEdge":
        """Convert the numbers of an edge."""
        return cls(
            edge=waits.edge,
            trees=waits.trees,
            idle_ms=waits.idle_ms,
            max_idle_ms=waits.max_idle_ms,
        )


class WaitingTrees(BaseModel):
    """On which edges pending trees wait now, from a sample of them."""

    sampled: int = Field(
        description="Trees that were read, failed and complete ones aside", examples=[200]
    )
    pending: int = Field(description="Pending trees of the namespace", examples=[12_000])
    edges: list[WaitingOnEdge] = Field(
        description="Edges with waiting trees, most trees first; a tree may wait on several. "
        "Without edges, all trees are under ''"
    )
    expired: dict[str, int] = Field(
        description="Trees that expired since `expired_since_ms`, by the edges on which an odd "
        "number of their messages is unaccounted for; '': on none of the named edges",
        examples=[{"paid": 0, "packed": 5, "": 0}],
    )
    expired_since_ms: int = Field(
        description="When this process first read the namespace, or a day ago; later if Redis "
        "lost data or the namespace was created again since",
        examples=[1_700_000_000_000],
    )

    @classmethod
    def of(cls, waits: Waits, expired: Expired) -> "WaitingTrees":
        """Convert a sample, and the expired trees."""
        return cls(
            sampled=waits.sampled,
            pending=waits.pending,
            edges=[WaitingOnEdge.of(each) for each in waits.edges],
            expired=expired.edges,
            expired_since_ms=expired.since_ms,
        )


class Why(BaseModel):
    """The reason for a FAIL."""

    model_config = ConfigDict(extra="forbid")

    why: str = Field(
        default="", max_length=255, description="Its source receives it", examples=["sent by hand"]
    )


class Failed(BaseModel):
    """The result of a FAIL."""

    anchor: str = Field(examples=["4711"])
    failed: Literal[0, 1] = Field(
        description="1: this call nacked it. 0: it has no TRACK yet and is nacked when that "
        "arrives, or it failed or ended just before"
    )


class Touched(BaseModel):
    """A tree whose timeout was reset."""

    anchor: str = Field(examples=["4711"])
    touched: Literal[1] = 1


class Matching(BaseModel):
    """Conditions for trees; all of them must hold."""

    model_config = ConfigDict(extra="forbid", strict=True)

    source_id: str = Field(default="", max_length=255, examples=["order-17"])
    source: str = Field(default="", pattern=rf"^({NAME})?$", examples=["shop"])
    bucket: int | None = Field(default=None, ge=0, le=16)
    min_age_ms: int | None = Field(default=None, ge=0, le=10**15, examples=[60000])
    state: Literal["open", "untracked"] = Field(
        default="open", description="Failed and complete trees never match"
    )
    kind: Kind | None = Field(default=None, description="Only loose trees, or only those in blocks")

    @property
    def empty(self) -> bool:
        """Whether no condition is given: an empty text may be an unset variable."""
        said = self.model_dump(exclude_unset=True)
        return all(value in ("", None) for value in said.values())


class FailTrees(BaseModel):
    """A request to fail all trees that match; it changes nothing unless ``dry_run`` is false."""

    model_config = ConfigDict(
        extra="forbid",
        strict=True,  # no other value than true or false is accepted for dry_run
        json_schema_extra={
            "example": {"filter": {"source": "shop", "min_age_ms": 60000}, "why": "shop was down"}
        },
    )

    filter: Matching = Field(description="At least one condition; min_age_ms 0 matches all trees")
    why: str = Field(default="", max_length=255, description="The sources receive it")
    dry_run: bool = Field(default=True, description="Only count the trees, and show some")
    most: int = Field(default=1000, ge=1, le=MOST, description="Maximum number for this call")
    cursor: str | None = Field(default=None, max_length=64, description="`next` of the last call")


class FailedTrees(BaseModel):
    """The result of a call; continue with ``next`` until it is null."""

    matched: int = Field(
        description="Trees that match; a dry run may count a page more than `most`", examples=[17]
    )
    failed: int = Field(description="Trees that this call nacked", examples=[17])
    ended: int = Field(
        description="Trees that had ended before their FAIL arrived, and trees without a TRACK, "
        "which are nacked when it arrives",
        examples=[0],
    )
    looked: int = Field(examples=[100])
    next: str | None = Field(examples=[None])
    sample: list[Tree] = Field(description="Up to 20 of the trees that match")
    dry_run: bool

    @classmethod
    def of(cls, done: FailAll, dry_run: bool) -> "FailedTrees":
        """Convert a result, for an operator."""
        return cls(
            matched=done.matched,
            failed=done.failed,
            ended=done.ended,
            looked=done.looked,
            next=str(done.next) if done.next else None,
            sample=[Tree.seen(tree, done.edges, ids=True) for tree in done.sample],
            dry_run=dry_run,
        )
