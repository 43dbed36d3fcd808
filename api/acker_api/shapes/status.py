"""Shapes of answers; they agree with the output of ``acker-redis status --json``.

Fields are only ever added. Times are in ms; a ``_ms`` that is a point in time counts from 1970.
"""

from collections.abc import Mapping
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, PrivateAttr

from acker_api.shapes.trees import Oldest
from acker_redis import AckerConfig, OldestTree, Status
from acker_redis.operate import Growth, Phase, config_json, feed_tag, status_json


class ProblemDetails(BaseModel):
    """A problem (RFC 9457)."""

    model_config = ConfigDict(
        json_schema_extra={
            "example": {
                "type": "urn:acker-redis:problem:namespace-not-found",
                "title": "Not Found",
                "status": 404,
                "detail": "not created: acker:{orders:0}; create it (acker-redis create), or "
                "finish dropping it (acker-redis drop)",
            }
        }
    )

    type: str = Field(description="URN that stays the same for this kind of problem")
    title: str = Field(description="The kind of problem, in words")
    status: int = Field(description="Status code of the response")
    detail: str | None = Field(default=None, description="The cause, and what to do about it")
    errors: list[dict[str, str]] | None = Field(
        default=None, description="The single errors: where, and what"
    )


class Live(BaseModel):
    """The process answers."""

    status: Literal["ok"] = "ok"


class Ready(BaseModel):
    """Redis accepts trees and returns verdicts, and a rotator runs."""

    status: Literal["ok"] = "ok"
    namespaces: int = Field(description="Number of namespaces", examples=[3])
    canary: Literal["ok", "denied", "off"] = Field(
        description="`ok`: a canary tree got its verdict; `denied`: the user in Redis may "
        "only read; `off`: it is switched off"
    )


class Named(BaseModel):
    """A namespace."""

    name: str = Field(examples=["orders"])
    href: str = Field(description="Path of its state", examples=["/api/v1/namespaces/orders"])


class Namespaces(BaseModel):
    """A page of namespaces, by name."""

    namespaces: list[Named]
    total: int = Field(description="Number of namespaces on all pages", examples=[1])
    next: str | None = Field(
        description="`after` of the next page; null on the last", examples=[None]
    )


class Configuration(BaseModel):
    """The configuration of a namespace."""

    shards: int = Field(examples=[1])
    buckets: int = Field(examples=[3])
    tick_ms: int = Field(examples=[30000])
    high_water: int = Field(examples=[100000])
    refresh: Literal["never", "update"] = Field(
        description="`never`: the timeout of a tree counts from its first row; `update`: from its "
        "last one"
    )
    deadline_ms: int = Field(
        description="With `update`: the age at which a tree expires, however many rows arrive; "
        "with `never` 0",
        examples=[0],
    )
    outcomes_limit: int = Field(examples=[1000000])
    publish: bool
    edges: list[str] = Field(
        description="Names of the ways on which messages go from one step to the next",
        examples=[["paid", "packed"]],
    )
    slo_target: float = Field(
        description="Service level objective: percentage of trees that must complete in time",
        examples=[99.9],
    )
    slo_ms: int = Field(
        description="Time in which a tree must complete to count as good; 0: before it expires",
        examples=[60000],
    )
    timeout_ms: int = Field(
        description="Time after which a tree expires, see `refresh`", examples=[90000]
    )
    lifetime_ms: int = Field(
        description="Maximum age of a tree while a rotator is on time, touches aside",
        examples=[90000],
    )

    @classmethod
    def of(cls, config: AckerConfig) -> "Configuration":
        """Convert a configuration."""
        return cls(**config_json(config))


class Counters(BaseModel):
    """Counters since the namespace was created."""

    tracked: int = Field(examples=[1200])
    acked: int = Field(examples=[1180])
    failed: int = Field(examples=[3])
    expired: int = Field(examples=[5])
    overflow: int = Field(examples=[0])
    conflict: int = Field(examples=[0])
    repeated: int = Field(description="Repeated batches, not applied again", examples=[2])
    orphaned: int = Field(
        description="Records that expired without a tree, and dropped rows", examples=[0]
    )
    after_failure: int = Field(
        description="Those of `orphaned` that late rows of failed trees explain", examples=[0]
    )


class LatencyCounts(BaseModel):
    """Times of trees from their first row to their ack, since the namespace was created.

    The difference of two readings covers the trees that were acked in between.
    """

    upper_ms: list[int] = Field(
        description="1, 2, 4, ..: the trees of each count took less than this",
        examples=[[1, 2, 4, 8]],
    )
    counts: list[int] = Field(
        description="Trees that took at least the previous upper_ms, and less than their own",
        examples=[[0, 1, 0, 3]],
    )
    sum_ms: int = Field(description="Sum of the times of all trees", examples=[20])


class RecentVerdicts(BaseModel):
    """Trees that ended since a point of the history, of some 15 minutes ago."""

    over_ms: int = Field(description="Time since then", examples=[912_000])
    ended: int = Field(examples=[12_000])
    nacked: int = Field(examples=[114])


class Rates(BaseModel):
    """Growth of the counters per second, between two readings of this process."""

    over_ms: int = Field(description="Time between them, by Redis's clock", examples=[5_000])
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
    open: int = Field(description="Trees without a verdict", examples=[9])
    pending: list[int] = Field(
        description="Places in each bucket, the newest bucket first", examples=[[10, 2, 0]]
    )
    in_blocks: list[int] = Field(
        description="Of these, slots of blocks, also those without a tree", examples=[[0, 0, 0]]
    )
    expiring: int = Field(description="Records and blocks that wait to be drained", examples=[0])
    fences: int = Field(description="Producer lanes that the shard remembers", examples=[4])
    now_ms: int = Field(description="Redis's clock", examples=[1_700_000_010_000])
    ticked_ms: int = Field(description="Time of the last tick", examples=[1_700_000_000_000])
    rotator: Literal["on_time", "late", "away", "unknown"] = Field(
        description="`late`: a tick is overdue, `away`: by more than is allowed; `unknown`: the "
        "first tick is not due yet"
    )
    lag_ms: int = Field(description="Time by which the next tick is overdue", examples=[0])
    late_ms: int = Field(description="Time by which the last tick was late", examples=[12])


class Finding(BaseModel):
    """A finding of the doctor."""

    id: str = Field(description="Id of the check", examples=["rotator"])
    title: str = Field(description="Name of the check", examples=["Rotator"])
    level: Literal["warning", "error"]
    headline: str = Field(
        description="The problem, in a few words",
        examples=["No rotator runs: a tick is 2 min late"],
    )
    detail: str = Field(description="The problem, with figures")
    fix: str = Field(description="What to do, with the command to type")
    where: str = Field(description="The namespace", examples=["orders"])


class NamespaceStatus(BaseModel):
    """State of a namespace, read shard by shard (not a snapshot of one instant)."""

    namespace: str = Field(examples=["orders"])
    findings: list[Finding] = Field(
        description="Problems, errors first; empty: the namespace is healthy", examples=[[]]
    )
    open: int = Field(
        description="Trees without a verdict, also those that wait to be drained", examples=[9]
    )
    pending: int = Field(
        description="Places in the buckets, which count toward the high-water mark: records of "
        "trees, of rows that came early or late, and all slots of blocks",
        examples=[12],
    )
    pending_by_bucket: list[int] = Field(
        description="Of all shards, newest bucket first", examples=[[10, 2, 0]]
    )
    in_blocks: int = Field(description="Of these, slots of blocks", examples=[0])
    expiring: int = Field(description="Records and blocks that wait to be drained", examples=[0])
    high_water: Literal["ok", "high", "over"] = Field(
        description="`high` from the mark on, `over` from twice the mark; the worst shard counts"
    )
    high_water_ratio: float = Field(
        description="Pending trees of the worst shard, as a ratio of its share of the mark",
        examples=[0.00012],
    )
    rotator: Literal["on_time", "late", "away", "unknown"] = Field(
        description="`late`: a tick is overdue, `away`: by more than is allowed; `unknown`: the "
        "first tick is not due yet; the worst shard counts"
    )
    lag_ms: int = Field(
        description="Time by which the next tick is overdue, on the worst shard", examples=[0]
    )
    late_ms: int = Field(
        description="Time by which the last tick was late, on the worst shard", examples=[12]
    )
    ticks: int = Field(
        description="Ticks of the shard with the most; 0: no rotator has run yet", examples=[17]
    )
    counters: Counters
    odd: dict[str, int] = Field(
        description="Expired trees by the edges on which an odd number of their messages is "
        "unaccounted for, since the namespace was created; with two such edges, a tree counts for "
        "both. '': on none of the named edges. Empty in a namespace without edges",
        examples=[{"paid": 0, "packed": 5, "": 0}],
    )
    latency: LatencyCounts
    backlog: dict[str, int] = Field(
        description="Untaken verdicts per source; beyond 1000 sources, `(others)` has the rest",
        examples=[{"shop": 5}],
    )
    backlog_ratio: dict[str, float] = Field(
        description="Untaken verdicts of the fullest shard, as a ratio of its share of "
        "`outcomes_limit`: from 1 on the source can track no more there",
        examples=[{"shop": 0.000005}],
    )
    resharding_to: int | None = Field(
        description="Number of shards after the reshard; nothing is tracked until it ends",
        examples=[None],
    )
    reshard_phase: Phase | None = Field(
        description="Phase of the reshard. `closed`: it waits until nothing is pending; `switch`: "
        "it must be completed; `cancel`: it is cancelled",
        examples=[None],
    )
    recent: RecentVerdicts | None = Field(
        description="Trees that ended in some 15 minutes up to now; null: there is no history yet"
    )
    rates: Rates | None = Field(
        description="Growth of the counters; null until this process has read the namespace twice, "
        "5 to 60 s apart"
    )
    oldest: Oldest | None = Field(
        description="The oldest pending tree, cached for some seconds; null: none, or unknown"
    )
    config: Configuration
    shards: list[Shard]
    _feed_tag: str = PrivateAttr("")

    @classmethod
    def of(
        cls,
        status: Status,
        oldest: OldestTree | None = None,
        growth: Growth | None = None,
        rates: Growth | None = None,
        untaken: Mapping[str, int] | None = None,
        recent: Growth | None = None,
    ) -> "NamespaceStatus":
        """Convert a status."""
        found = cls.model_validate(status_json(status, growth, oldest, rates, untaken, recent))
        found._feed_tag = feed_tag(status.shards[0].salt.reveal())
        return found

    @property
    def feed_tag(self) -> str:
        """What the published verdicts of this namespace end with; it is in no answer."""
        return self._feed_tag
