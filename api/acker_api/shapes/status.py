"""Shapes of the answers; they agree with what ``acker-redis status --json`` prints.

Fields are only ever added. Times are milliseconds: a ``_ms`` that is a moment counts from 1970.
"""

from dataclasses import asdict
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from acker_api.shapes.trees import Oldest
from acker_redis.doctor.standing import standing
from acker_redis.flows.browse import OldestTree
from acker_redis.protocol.config import AckerConfig
from acker_redis.protocol.growth import Growth
from acker_redis.protocol.reshard import Phase
from acker_redis.protocol.status import Status


class ProblemDetails(BaseModel):
    """What is wrong (RFC 9457)."""

    model_config = ConfigDict(
        json_schema_extra={
            "example": {
                "type": "urn:acker-redis:problem:namespace-not-found",
                "title": "There is no such namespace",
                "status": 404,
                "detail": "not created: acker:{orders:0}; create it (acker-redis create)",
            }
        }
    )

    type: str = Field(description="URN that stays the same for this kind of problem")
    title: str = Field(description="The kind of problem, in words")
    status: int = Field(description="The status of the response")
    detail: str | None = Field(default=None, description="What to do about it")
    errors: list[dict[str, str]] | None = Field(
        default=None, description="Where there are several: where, and what"
    )


class Live(BaseModel):
    """The process answers."""

    status: Literal["ok"] = "ok"


class Ready(BaseModel):
    """Redis takes trees and tells of them, and every namespace is rotated in time."""

    status: Literal["ok"] = "ok"
    namespaces: int = Field(description="How many there are", examples=[3])
    canary: Literal["ok", "denied", "off"] = Field(
        description="A tree of the service's own went the whole way; `denied`: its user in Redis "
        "may only read; `off`: it is not to"
    )


class Named(BaseModel):
    """A namespace."""

    name: str = Field(examples=["orders"])
    href: str = Field(description="Where its state is", examples=["/api/v1/namespaces/orders"])


class Namespaces(BaseModel):
    """A page of namespaces, by name."""

    namespaces: list[Named]
    total: int = Field(description="How many there are on all pages", examples=[1])
    next: str | None = Field(
        description="Give it as `after` for the next page; null on the last", examples=[None]
    )


class Configuration(BaseModel):
    """How a namespace keeps its trees."""

    shards: int = Field(examples=[1])
    buckets: int = Field(examples=[3])
    tick_ms: int = Field(examples=[30000])
    high_water: int = Field(examples=[100000])
    refresh: Literal["never", "update"]
    outcomes_limit: int = Field(examples=[1000000])
    publish: bool
    timeout_ms: int = Field(description="A tree lives so long at most", examples=[90000])

    @classmethod
    def of(cls, config: AckerConfig) -> "Configuration":
        """From a configuration."""
        return cls(**asdict(config), timeout_ms=config.timeout_ms)


class Counters(BaseModel):
    """Counted since the namespace was created."""

    tracked: int = Field(examples=[1200])
    acked: int = Field(examples=[1180])
    failed: int = Field(examples=[3])
    expired: int = Field(examples=[5])
    overflow: int = Field(examples=[0])
    conflict: int = Field(examples=[0])
    repeated: int = Field(description="Batches that were not applied again", examples=[2])
    orphaned: int = Field(
        description="Records that expired without a tree, and rows that were dropped", examples=[0]
    )


class LatencyCounts(BaseModel):
    """How long trees took from their first row to their ack, since the namespace was created.

    Of two readings the difference says how long those took that were acked in between.
    """

    upper_ms: list[int] = Field(
        description="1, 2, 4, ..: what the trees of each count took less than",
        examples=[[1, 2, 4, 8]],
    )
    counts: list[int] = Field(
        description="Trees that took at least the upper_ms before, and less than their own",
        examples=[[0, 1, 0, 3]],
    )
    sum_ms: int = Field(description="What all of them took together", examples=[20])


class Rates(BaseModel):
    """What the counters grew by, a second, between two readings of this process."""

    over_ms: int = Field(description="Between the two, by Redis's clock", examples=[5_000])
    tracked: float = Field(examples=[120.4])
    acked: float = Field(examples=[118.0])
    failed: float = Field(examples=[0.2])
    expired: float = Field(examples=[0.0])
    overflow: float = Field(examples=[0.0])
    conflict: float = Field(examples=[0.0])
    repeated: float = Field(examples=[0.0])
    orphaned: float = Field(examples=[0.0])


class Shard(BaseModel):
    """One shard of a namespace."""

    shard: int = Field(examples=[0])
    pending: list[int] = Field(
        description="Pending trees per bucket, the newest bucket first", examples=[[10, 2, 0]]
    )
    in_blocks: list[int] = Field(
        description="Those of them in blocks, likewise", examples=[[0, 0, 0]]
    )
    expiring: int = Field(description="Records and blocks that wait to be drained", examples=[0])
    fences: int = Field(description="Producer lanes that are remembered", examples=[4])
    now_ms: int = Field(description="Redis's clock", examples=[1_700_000_010_000])
    ticked_ms: int = Field(description="When the last tick was", examples=[1_700_000_000_000])
    rotator: Literal["on_time", "late", "away", "unknown"] = Field(
        description="`late`: a tick is overdue, `away`: by more than is allowed; `unknown`: the "
        "first tick is not due yet"
    )
    lag_ms: int = Field(description="By so much the next tick is overdue", examples=[0])
    late_ms: int = Field(description="By so much the last tick was late", examples=[12])


class Finding(BaseModel):
    """Something that is wrong, as the doctor says it."""

    id: str = Field(description="What was looked at", examples=["rotator"])
    title: str = Field(description="The same in words", examples=["Rotator"])
    level: Literal["warning", "error"]
    headline: str = Field(
        description="What is wrong, in a few words",
        examples=["No rotator runs: a tick is 2 min late"],
    )
    detail: str = Field(description="What was found, with figures")
    fix: str = Field(description="What to do, with what to type")
    where: str = Field(description="The namespace", examples=["orders"])


class NamespaceStatus(BaseModel):
    """State of a namespace, read shard by shard (not at one instant)."""

    namespace: str = Field(examples=["orders"])
    findings: list[Finding] = Field(
        description="What is wrong, errors first; empty: the namespace is healthy", examples=[[]]
    )
    pending: int = Field(description="Trees in the buckets", examples=[12])
    pending_by_bucket: list[int] = Field(
        description="Of all shards, the newest bucket first", examples=[[10, 2, 0]]
    )
    in_blocks: int = Field(description="Those of them in blocks", examples=[0])
    expiring: int = Field(description="Records and blocks to be drained", examples=[0])
    high_water: Literal["ok", "high", "over"] = Field(
        description="`high` from the mark on, `over` from twice the mark; the worst shard counts"
    )
    high_water_ratio: float = Field(
        description="Pending trees of the worst shard, of its share of the mark", examples=[0.00012]
    )
    rotator: Literal["on_time", "late", "away", "unknown"] = Field(
        description="`late`: a tick is overdue, `away`: by more than is allowed; `unknown`: the "
        "first tick is not due yet; the worst shard counts"
    )
    lag_ms: int = Field(
        description="By so much the next tick is overdue, on the worst shard", examples=[0]
    )
    late_ms: int = Field(
        description="By so much the last tick was late, on the worst shard", examples=[12]
    )
    ticks: int = Field(
        description="Ticks of the shard that has most; 0: no rotator has come by yet", examples=[17]
    )
    counters: Counters
    latency: LatencyCounts
    backlog: dict[str, int] = Field(
        description="Verdicts that wait, per task; beyond 1000 tasks the others are `(others)`",
        examples=[{"shop": 5}],
    )
    backlog_ratio: dict[str, float] = Field(
        description="The same of the fullest shard, of its share of `outcomes_limit`: from 1 on "
        "the source can track no more there",
        examples=[{"shop": 0.000005}],
    )
    resharding_to: int | None = Field(
        description="Shards that it moves to; nothing is tracked meanwhile", examples=[None]
    )
    reshard_phase: Phase | None = Field(
        description="How far that is: `closed`, it waits until nothing is pending; `switch`, it "
        "is decided; `cancel`, it is called off",
        examples=[None],
    )
    rates: Rates | None = Field(
        description="What the counters grew by; null until this process has read the namespace "
        "twice, 5 to 60 s apart"
    )
    oldest: Oldest | None = Field(
        description="The oldest pending tree, kept for some seconds; null: none, or it is not known"
    )
    config: Configuration
    shards: list[Shard]

    @classmethod
    def of(
        cls,
        status: Status,
        oldest: OldestTree | None = None,
        growth: Growth | None = None,
        rates: Growth | None = None,
    ) -> "NamespaceStatus":
        """From what was read."""
        return cls.model_validate(standing(status, growth, oldest, rates))
