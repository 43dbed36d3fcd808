"""The status of a namespace: what REST, ``acker-redis status --json`` and the dashboard show.

The only list of its figures. A field has the value of the attribute of this name of
:class:`~acker_redis.protocol.status.Status`, or of the shard, tree or configuration, unless
:meth:`NamespaceStatus.of` computes it. Fields are only ever added. Numbers are numbers. Ids are
text, because many JSON readers round a number beyond 2^53. Times are in ms; a ``_ms`` that is a
point in time counts from 1970.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, PrivateAttr

from acker_redis.doctor.backlog import backlog_ratio, most_waiting
from acker_redis.doctor.health import Rotation, judge, rotation, wrong
from acker_redis.flows.browse import OldestTree
from acker_redis.protocol.config import Refresh
from acker_redis.protocol.growth import Growth
from acker_redis.protocol.keys import feed_tag
from acker_redis.protocol.reshard import Phase
from acker_redis.protocol.status import HighWater, Status
from acker_redis.protocol.tree import BlockState, State, TreeState


class _Read(BaseModel):
    """A shape whose fields have the values of the attributes of an object."""

    model_config = ConfigDict(from_attributes=True)

    @classmethod
    def read(cls, source: object, /, **computed: Any) -> Self:
        """Return the shape of an object; ``computed`` are the fields that are no attribute."""
        names = cls.model_fields.keys() - computed.keys()
        return cls(**{name: getattr(source, name) for name in names}, **computed)


class BlockInBrief(BaseModel):
    """The block of a tree."""

    block: str = Field(examples=["815"])
    slots: int = Field(description="Number of its slots", examples=[3])


class TreeInBrief(_Read):
    """A pending tree in the state of a namespace: without the slots of its block, and without ids.

    All callers get the same state.
    """

    anchor: str = Field(examples=["4711"])
    edges: list[str] = Field(
        description="Edges on which an odd number of its messages is outstanding; two messages on "
        "one edge do not show. Empty if the tree is not tracked yet",
        examples=[["packed"]],
    )
    source: str = Field(
        description="The source that tracked it; '' if it is not tracked yet", examples=["shop"]
    )
    source_id: str = Field(description="For a tree in a block: the label", examples=["order-17"])
    state: State
    why: str = Field(
        description="Reason that the bolt gave for the failure. '' for a tree in a block: its "
        "verdict has the reason",
        examples=[""],
    )
    age_ms: int = Field(description="Time since its first row", examples=[5200])
    idle_ms: int = Field(
        description="Time since its last row; in a block, since the last row of the block, to "
        "within a tick",
        examples=[4100],
    )
    bucket: int = Field(description="0 is the newest; the number of buckets: it expires now")
    block: BlockInBrief | None = Field(description="null: a loose tree")

    @classmethod
    def of(cls, tree: TreeState, edges: Sequence[str], **more: Any) -> Self:
        """Convert a tree of a namespace with these edges; ``more`` are fields of a subclass."""
        block = cls._block(tree.block) if tree.block else None
        edges = list(tree.open_edges(edges))
        return cls.read(tree, anchor=str(tree.anchor), edges=edges, block=block, **more)

    @classmethod
    def _block(cls, block: BlockState) -> BlockInBrief:
        return BlockInBrief(block=str(block.block), slots=block.slots)


class Oldest(BaseModel):
    """The oldest pending tree of a sample."""

    exact: bool = Field(description="Whether the oldest buckets were read completely")
    tree: TreeInBrief


class Configuration(_Read):
    """The configuration of a namespace."""

    shards: int = Field(examples=[1])
    buckets: int = Field(examples=[3])
    tick_ms: int = Field(examples=[30000])
    high_water: int = Field(examples=[100000])
    refresh: Refresh = Field(
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


class LatencyCounts(_Read):
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


class RecentVerdicts(_Read):
    """Trees that ended since a point of the history, of some 15 minutes ago."""

    over_ms: int = Field(description="Time since then", examples=[912_000])
    ended: int = Field(examples=[12_000])
    nacked: int = Field(examples=[114])


class SourceReport(_Read):
    """What a source has said of one of its edges."""

    source: str = Field(examples=["shop"])
    edge: str = Field(
        description="Edge of the first messages; '' for records without one", examples=["paid"]
    )
    window: int | None = Field(
        description="Records that may be in flight; null: there is no window", examples=[1000]
    )
    in_flight: int = Field(description="Records sent, without a verdict", examples=[12])
    waiting: int = Field(
        description="Records that wait for the window, or for their back-off", examples=[0]
    )
    down_ms: int | None = Field(
        description="Time since no answer comes, so that only probes are sent; null: answers come",
        examples=[None],
    )
    age_ms: int = Field(description="Time since the report", examples=[400])


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


class Shard(_Read):
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
    rotator: Rotation = Field(
        description="`late`: a tick is overdue, `away`: by more than is allowed; `unknown`: the "
        "first tick is not due yet"
    )
    lag_ms: int = Field(description="Time by which the next tick is overdue", examples=[0])
    late_ms: int = Field(description="Time by which the last tick was late", examples=[12])


class Finding(_Read):
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


class NamespaceStatus(_Read):
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
    high_water: HighWater = Field(
        description="`high` from the mark on, `over` from twice the mark; the worst shard counts"
    )
    high_water_ratio: float = Field(
        description="Pending trees of the worst shard, as a ratio of its share of the mark",
        examples=[0.00012],
    )
    rotator: Rotation = Field(
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
    reports: list[SourceReport] = Field(
        description="What the sources have said of their edges within the last three minutes",
        examples=[[]],
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
        """Return the state of a namespace and its problems.

        ``oldest`` is its oldest pending tree; None if there is none, or if it is unknown.
        ``growth`` is the recent growth of its counters, for the findings; None if unknown.
        ``rates`` is the growth that is shown; None: ``growth``. ``untaken`` is the age of the
        oldest untaken verdict in ms by source, for the findings; None if unknown. ``recent`` is
        the growth over some 15 minutes.
        """
        reshard, shown, edges = status.reshard, rates or growth, status.config.edges
        age_ms = oldest.tree.age_ms if oldest else None
        stands = oldest.tree.open_edges(edges) if oldest else ()
        found = judge(status, growth, age_ms, untaken=untaken, recent=recent, stands=stands)
        shape = cls.read(
            status,
            findings=list(wrong(found)),
            rotator=rotation(status.shards),
            counters=Counters(**status.counters, after_failure=status.after_failure),
            backlog=most_waiting(status.backlog),
            backlog_ratio=backlog_ratio(status),
            resharding_to=reshard.target if reshard else None,
            reshard_phase=reshard.phase if reshard else None,
            recent=recent,
            reports=_reports(status),
            rates=shown and Rates(over_ms=shown.over_ms, **shown.per_second()),
            oldest=oldest and Oldest(exact=oldest.exact, tree=TreeInBrief.of(oldest.tree, edges)),
            shards=[Shard.read(each, rotator=rotation([each])) for each in status.shards],
        )
        shape._feed_tag = feed_tag(status.shards[0].salt.reveal())
        return shape

    @property
    def feed_tag(self) -> str:
        """What the published verdicts of this namespace end with; it is in no answer."""
        return self._feed_tag


def _reports(status: Status) -> list[SourceReport]:
    return [
        SourceReport.read(each, source=name, age_ms=report.age_ms, down_ms=report.down_ms(each))
        for name, report in status.reports.items()
        for each in report.windows
    ]
