"""Shapes of trees and blocks, as ``acker-redis find --json`` prints them.

Anchors and numbers of blocks are text: a number beyond 2^53 is bent by many readers of JSON.
"""

from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, Field

from acker_api.acting.fail_all import MOST, FailAll
from acker_api.reading.walk import Kind
from acker_redis.flows.browse import BlockEntry
from acker_redis.protocol.tree import BlockState, State, TreeState


class BlockInBrief(BaseModel):
    """The block that a tree stands in."""

    block: str = Field(examples=["815"])
    slots: int = Field(description="Trees in it", examples=[3])


class BlockOfTree(BlockInBrief):
    """The block that a tree stands in, and what is known of its other trees."""

    open: list[int] = Field(description="Slots of which something is outstanding", examples=[[1]])
    failed: list[int] = Field(description="Slots that have failed", examples=[[]])

    @classmethod
    def of(cls, block: BlockState) -> "BlockOfTree":
        """From what ``show`` says."""
        return cls(
            block=str(block.block),
            slots=block.slots,
            open=list(block.open),
            failed=list(block.failed),
        )


class TreeInBrief(BaseModel):
    """A pending tree, in the state of a namespace: without the thousands of slots of its block."""

    anchor: str = Field(examples=["4711"])
    checksum: str = Field(
        description="XOR of the ids of its messages, 16 hex digits; 0 in a block: complete",
        examples=["000000000000003e"],
    )
    task: str = Field(description="'' if it was not tracked yet", examples=["shop"])
    source_id: str = Field(description="Of a tree in a block: the label", examples=["order-17"])
    state: State
    why: str = Field(description="What a bolt said when it failed it", examples=[""])
    age_ms: int = Field(description="Since its first row", examples=[5200])
    bucket: int = Field(description="0 is the newest; as many as there are: it expires now")
    block: BlockInBrief | None = Field(description="null: a loose tree")

    @classmethod
    def of(cls, tree: TreeState) -> Self:
        """From what is known of it."""
        return cls(
            anchor=str(tree.anchor),
            checksum=f"{tree.checksum:016x}",
            task=tree.task,
            source_id=tree.source_id,
            state=tree.state,
            why=tree.why,
            age_ms=tree.age_ms,
            bucket=tree.bucket,
            block=cls._block(tree.block) if tree.block else None,
        )

    @classmethod
    def _block(cls, block: BlockState) -> BlockInBrief:
        return BlockInBrief(block=str(block.block), slots=block.slots)


class Tree(TreeInBrief):
    """A pending tree."""

    block: BlockOfTree | None = Field(description="null: a loose tree")

    @classmethod
    def _block(cls, block: BlockState) -> BlockOfTree:
        return BlockOfTree.of(block)


class Oldest(BaseModel):
    """The oldest pending tree of a sample."""

    exact: bool = Field(description="Whether the oldest buckets were seen whole")
    tree: TreeInBrief


class Block(BaseModel):
    """A pending block; what is open in it, its trees tell."""

    block: str = Field(examples=["815"])
    first_anchor: str = Field(
        description="Anchor of slot 0; of the others add the slot", examples=["4611686018430726144"]
    )
    slots: int = Field(examples=[3])
    task: str = Field(examples=["shop"])
    label: str = Field(examples=["page 1"])
    age_ms: int = Field(examples=[5200])
    bucket: int = Field(examples=[0])

    @classmethod
    def of(cls, entry: BlockEntry) -> "Block":
        """From a list."""
        return cls(
            block=str(entry.block),
            first_anchor=str(entry.anchors[0]),
            slots=entry.slots,
            task=entry.task,
            label=entry.label,
            age_ms=entry.age_ms,
            bucket=entry.bucket,
        )


class Scan(BaseModel):
    """What the answer has cost."""

    looked: int = Field(description="Records and headers that were looked at", examples=[100])
    unreadable: int = Field(description="Those of them that no script has written", examples=[0])
    cost: str = Field(
        examples=["every pending record is looked at, a page at a time: follow next to the end"]
    )


class Trees(BaseModel):
    """Some of what is pending. With filters it may be empty and have a ``next`` all the same."""

    trees: list[Tree]
    blocks: list[Block]
    next: str | None = Field(
        description="Give it as `cursor` for the next page; null: all was looked at",
        examples=["0.pending.17.4096"],
    )
    looked: int = Field(description="Records and headers that were looked at", examples=[100])
    complete: bool = Field(description="Whether there is no next page")
    scan: Scan


class Why(BaseModel):
    """Why a tree is failed."""

    model_config = ConfigDict(extra="forbid")

    why: str = Field(
        default="", max_length=255, description="Told to its source", examples=["sent by hand"]
    )


class Failed(BaseModel):
    """What came of a FAIL."""

    anchor: str = Field(examples=["4711"])
    failed: Literal[0, 1] = Field(
        description="1: it was nacked by this. 0: it has no TRACK yet and is nacked when it comes, "
        "or it had failed or ended meanwhile"
    )


class Touched(BaseModel):
    """Its clock began anew."""

    anchor: str = Field(examples=["4711"])
    touched: Literal[1] = 1


class Matching(BaseModel):
    """Which trees are meant: all of these hold."""

    model_config = ConfigDict(extra="forbid", strict=True)

    source_id: str = Field(default="", max_length=255, examples=["order-17"])
    task: str = Field(default="", pattern=r"^[A-Za-z0-9_.-]{0,64}$", examples=["shop"])
    bucket: int | None = Field(default=None, ge=0, le=16)
    min_age_ms: int | None = Field(default=None, ge=0, le=10**15, examples=[60000])
    state: Literal["open", "untracked"] = Field(
        default="open", description="Those that have failed or are complete are never meant"
    )
    kind: Kind | None = Field(default=None, description="Loose trees, or those in blocks")

    @property
    def empty(self) -> bool:
        """Whether nothing was said: an empty text may be a variable that was not set."""
        said = self.model_dump(exclude_unset=True)
        return all(value in ("", None) for value in said.values())


class FailTrees(BaseModel):
    """Fail all that match; nothing is changed unless ``dry_run`` is false."""

    model_config = ConfigDict(
        extra="forbid",
        strict=True,  # a dry run that is neither true nor false is none to be guessed
        json_schema_extra={
            "example": {"filter": {"task": "shop", "min_age_ms": 60000}, "why": "shop was down"}
        },
    )

    filter: Matching = Field(description="One field at least; min_age_ms 0 means all")
    why: str = Field(default="", max_length=255, description="Told to the sources")
    dry_run: bool = Field(default=True, description="Only count, and show some")
    most: int = Field(default=1000, ge=1, le=MOST, description="So many at most by this call")
    cursor: str | None = Field(default=None, max_length=64, description="`next` of the last call")


class FailedTrees(BaseModel):
    """What came of it; the next call goes on with ``next``, until it is null."""

    matched: int = Field(description="In a dry run a page more than `most`, perhaps", examples=[17])
    failed: int = Field(description="Trees that were nacked by this", examples=[17])
    ended: int = Field(
        description="Trees that had ended before their FAIL came, and those without a TRACK, which "
        "are nacked when it comes",
        examples=[0],
    )
    looked: int = Field(examples=[100])
    next: str | None = Field(examples=[None])
    sample: list[Tree] = Field(description="Up to 20 of those that match")
    dry_run: bool

    @classmethod
    def of(cls, done: FailAll, dry_run: bool) -> "FailedTrees":
        """From what was done."""
        return cls(
            matched=done.matched,
            failed=done.failed,
            ended=done.ended,
            looked=done.looked,
            next=str(done.next) if done.next else None,
            sample=[Tree.of(tree) for tree in done.sample],
            dry_run=dry_run,
        )
