"""Shapes of answers: the history of a namespace, and its objectives."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from pydantic import BaseModel, Field

from acker_redis.operate import (
    Bucket,
    History,
    Losses,
    Mark,
    Objective,
    Range,
    bucket_json,
    objective_json,
)


class HistoryBucket(BaseModel):
    """What happened between two points of the history."""

    from_ms: int = Field(examples=[1700000000000])
    to_ms: int = Field(examples=[1700000060000])
    tracked: int = Field(examples=[120])
    acked: int = Field(examples=[118])
    failed: int = Field(examples=[1])
    expired: int = Field(examples=[0])
    overflow: int = Field(examples=[0])
    conflict: int = Field(examples=[0])
    good: int = Field(description="Trees that were acked in time, see `slo_ms`", examples=[117])
    open: int = Field(description="Trees without a verdict, at the end", examples=[40])
    pending: int = Field(
        description="Places that count toward the high-water mark: the most", examples=[44]
    )
    waiting: int = Field(description="Verdicts that wait to be taken: the most", examples=[3])
    useless: int = Field(
        description="Trees that got rows after they had expired, and dropped rows", examples=[0]
    )
    window: int = Field(
        description="Records that all sources may have in flight, as reported, at the end; 0: none "
        "reports",
        examples=[1000],
    )
    in_flight: int = Field(description="Records that sources have in flight, at the end")
    held: int = Field(description="Records that wait in sources: the most", examples=[0])
    down: int = Field(
        description="Edges on which a source gets no answer: the most; above 0 is an outage",
        examples=[0],
    )
    ticks: int = Field(examples=[2])
    gap: bool = Field(
        description="Points are missing in between: no rotator ran, or Redis did not answer. The "
        "counts are right, but how they came about is unknown"
    )
    marks: list[Mark] = Field(
        description="`reset`: a counter went back, and its growth counts as 0: a failover or "
        "a drop. `restart`: Redis started again. `settings`: they changed"
    )
    changes: dict[str, tuple[float, float]] = Field(
        description="Settings that changed, before and after; empty if that is unknown",
        examples=[{"high_water": [100000, 200000]}],
    )


class NamespaceHistory(BaseModel):
    """The history of a namespace.

    In a bucket without the mark `reset`, `tracked` is the sum of `acked`, `failed`, `expired`,
    `overflow`, `conflict` and the growth of `open`.
    """

    namespace: str = Field(examples=["orders"])
    range: Range
    from_ms: int = Field(description="Where the range begins, with or without points")
    now_ms: int = Field(description="Time of the answer, by the clock of Redis")
    high_water: int = Field(description="The high-water mark now", examples=[100000])
    buckets: list[HistoryBucket] = Field(description="At most 300, and the gaps; the oldest first")

    @classmethod
    def of(cls, found: History, buckets: Sequence[Bucket]) -> "NamespaceHistory":
        """Convert a history."""
        return cls(
            namespace=found.namespace,
            range=found.range,
            from_ms=found.from_ms,
            now_ms=found.now_ms,
            high_water=found.high_water,
            buckets=[HistoryBucket(**bucket_json(bucket)) for bucket in buckets],
        )


class BurnRate(BaseModel):
    """The burn rate of a recent window."""

    over_ms: int = Field(description="Length of the window, as far as there is history")
    ended: int = Field(examples=[1000])
    good: int = Field(examples=[999])
    rate: float | None = Field(
        description="Share of bad trees, divided by the share that the target allows; null: no "
        "tree ended",
        examples=[0.1],
    )


class CompletenessObjective(BaseModel):
    """How many trees completed in time. A record that is replayed counts for each attempt."""

    source: str = Field(
        description="Empty for the whole namespace; `(others)`: all sources that are not named",
        examples=["shop"],
    )
    target_percent: float = Field(examples=[99.9])
    within_ms: int = Field(description="0: before they expire", examples=[60000])
    over_ms: int = Field(description="Length of the window, 30 days at most")
    ended: int = Field(description="Trees that were acked or nacked", examples=[100000])
    good: int = Field(description="Those of them that were acked in time", examples=[99980])
    good_percent: float | None = Field(description="null: no tree ended", examples=[99.98])
    met: bool | None = Field(description="Whether the target is met; null: no tree ended")
    budget_left_percent: float | None = Field(
        description="The rest of the error budget; negative: it is overspent", examples=[41.0]
    )
    burn_rates: dict[str, BurnRate] = Field(
        description="By window: `5m`, `1h`, `6h`. Those of sources are from points of hours: their "
        "windows begin up to an hour early, and `5m` is missing"
    )
    sentence: str = Field(
        examples=["99.98 % complete within 60 s, 30 days, budget left 41 %"],
    )


class RecentNacks(BaseModel):
    """Nacks of the last 15 minutes, by the points of minutes."""

    over_ms: int = Field(description="Length of the window, as far as there is history")
    ended: int = Field(examples=[12000])
    nacked: int = Field(examples=[114])
    since_ms: int = Field(
        description="When the nacks began, in ms since 1970. Nacks with less than 15 minutes "
        "between them belong together. A tree that expired was lost one lifetime before"
    )
    since_known: bool = Field(description="false: they may have begun before the history")


class Slo(BaseModel):
    """The completeness objective of a namespace over 30 days, and those of its sources."""

    namespace: str = Field(examples=["orders"])
    now_ms: int = Field(description="Time of the answer, by the clock of Redis")
    objectives: list[CompletenessObjective] = Field(
        description="The whole namespace first, then up to 16 sources and all others"
    )
    nacks: RecentNacks | None = Field(description="null: none in the last 15 minutes")

    @classmethod
    def of(
        cls, namespace: str, now_ms: int, found: Sequence[Objective], nacks: Losses | None
    ) -> "Slo":
        """Convert objectives and recent nacks."""
        fields: list[dict[str, Any]] = [objective_json(each) for each in found]
        return cls(
            namespace=namespace,
            now_ms=now_ms,
            objectives=[CompletenessObjective(**each) for each in fields],
            nacks=RecentNacks(**asdict(nacks)) if nacks else None,
        )
