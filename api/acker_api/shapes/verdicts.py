"""Shapes of verdicts, as ``acker-redis outcomes --json`` prints them."""

from pydantic import BaseModel, Field

from acker_api.reading.verdicts import ReadVerdict, VerdictPage
from acker_redis.operate import Cause


class Outcome(BaseModel):
    """An untaken verdict."""

    verdict: str = Field(description="ack, nack or touch", examples=["nack"])
    reason: str = Field(
        description="completed, failed, expired, overflow, conflict or reset", examples=["failed"]
    )
    source_id: str = Field(description="For a tree in a block: the label", examples=["order-17"])
    slot: int | None = Field(description="For a tree in a block", examples=[None])
    anchor: str = Field(examples=["4711"])
    age_ms: int = Field(description="From its first row to the verdict", examples=[5200])
    why: str = Field(examples=["no such address"])
    cause: Cause = Field(
        description="Of an expired tree: `idle`, no row came in time; `deadline`, it was too old "
        "although rows may have come",
        examples=[""],
    )
    residual: str | None = Field(
        description="Of an expired tree: the XOR of the ids of all messages that are unaccounted "
        "for, 16 hex digits. If one message is missing, this is its id. Zeros: unknown. null: not "
        "expired, or the caller is no operator",
        examples=[None],
    )
    edges: list[str] = Field(
        description="Of an expired tree: the edges on which an odd number of its messages is "
        "unaccounted for",
        examples=[[]],
    )
    idle_ms: int | None = Field(
        description="Of an expired tree: time from its last row to the verdict; in a block, from "
        "the last row of the block, to within a tick",
        examples=[None],
    )
    at_ms: int = Field(description="Time of the verdict", examples=[1_700_000_000_000])
    source: str = Field(description="The source that gets the verdict", examples=["shop"])
    entry: str = Field(description="Shard and stream id", examples=["0:1700000000000-0"])

    @classmethod
    def of(cls, told: ReadVerdict, ids: bool) -> "Outcome":
        """Convert a verdict for a caller; ``ids``: whether it may see ids of messages."""
        outcome, entry = told.outcome, told.entry
        return cls(
            verdict=outcome.verdict,
            reason=outcome.reason,
            source_id=outcome.source_id,
            slot=outcome.slot,
            anchor=str(outcome.anchor),
            age_ms=outcome.age_ms,
            why=outcome.why,
            cause=outcome.cause,
            residual=f"{outcome.residual:016x}" if outcome.cause and ids else None,
            edges=list(outcome.edges),
            idle_ms=outcome.idle_ms if outcome.cause else None,
            at_ms=entry.at_ms,
            source=told.source,
            entry=f"{entry.shard}:{entry.id}",
        )


class Outcomes(BaseModel):
    """Untaken verdicts, newest first. With filters it may be empty and still have a ``next``."""

    outcomes: list[Outcome]
    next: str | None = Field(
        description="`before` of the next page, with older ones; null: there are none",
        examples=["1700000000000-0:3:shop:17"],
    )
    looked: int = Field(
        description="Verdicts that were examined; an entry that cannot match counts as one",
        examples=[100],
    )
    unreadable: int = Field(description="Entries that no script has written", examples=[0])
    sources: list[str] = Field(description="The sources that were read", examples=[["shop"]])

    @classmethod
    def of(cls, page: VerdictPage, sources: list[str], ids: bool) -> "Outcomes":
        """Convert a page for a caller; ``ids``: whether it may see ids of messages."""
        return cls(
            outcomes=[Outcome.of(told, ids) for told in page.verdicts],
            next=str(page.next) if page.next else None,
            looked=page.looked,
            unreadable=page.unreadable,
            sources=sources,
        )


class Waiting(BaseModel):
    """The untaken verdicts of one source."""

    source: str = Field(description="Name of the source", examples=["shop"])
    waiting: int = Field(description="Untaken verdicts", examples=[5])
    oldest_at_ms: int | None = Field(
        description="Time of the oldest of them; null: there is none, or it was not read",
        examples=[1_700_000_000_000],
    )
    ratio: float = Field(
        description="Untaken verdicts of the fullest shard, as a ratio of its share of the limit: "
        "from 1 on it refuses batches",
        examples=[0.000005],
    )
    limit: int = Field(
        description="Maximum of untaken verdicts, at which batches of the source are refused",
        examples=[1_000_000],
    )


class Backlog(BaseModel):
    """Sources, those with the most untaken verdicts first."""

    sources: list[Waiting]
    total: int = Field(description="Number of sources", examples=[1])
