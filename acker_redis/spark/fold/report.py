"""The report of a micro-batch."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field

from acker_redis.spark.fold.steps import NO_TIME, Timings

EXAMPLES = 3
"""Maximum number of vanished messages that a report names."""


@dataclass(frozen=True, slots=True)
class ShardReport:
    """The report of one shard; see :class:`Report`."""

    shard: int
    messages: int
    trees: int
    tracked: int
    acked: int
    failed: int
    vanished: int
    examples: tuple[str, ...]
    rejected: tuple[int, ...]
    """Anchors of loose trees."""
    rejected_blocks: tuple[int, ...]
    """Numbers of blocks."""
    calls: int
    repeated: int
    bytes: int
    mentioned: int = 0

    def to_json(self) -> str:
        """Return the report as text, to be sent from an executor to the driver."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> "ShardReport":
        """Return the report that :meth:`to_json` wrote."""
        fields = json.loads(text)
        for name in ("examples", "rejected", "rejected_blocks"):
            fields[name] = tuple(fields[name])
        return cls(**fields)


@dataclass(frozen=True, slots=True)
class Report:
    """The result of a micro-batch, in numbers.

    Calls that were already applied by an earlier run count in ``calls`` and ``repeated``, and not
    in ``tracked``, ``acked`` and ``failed``.
    """

    query_id: str
    """The id or name of the query."""
    batch_id: int
    """The number of the batch."""
    mode: str
    """``driver`` or ``executors``: where the batch was folded and sent."""
    messages: int
    """Messages of the batch, or records that were to be tracked."""
    trees: int
    """Trees that the calls name; a dense column of a bolt counts all slots of its block."""
    tracked: int
    """Trees that were tracked."""
    acked: int
    """Trees that this batch completed."""
    failed: int
    """Trees that this batch failed."""
    rejected: tuple[int, ...]
    """Anchors of loose trees that were nacked at once (``overflow``); they are not emitted."""
    rejected_blocks: tuple[int, ...]
    """Numbers of blocks that were nacked at once; their trees are not emitted."""
    calls: int
    """Calls that were sent, including repeated ones."""
    repeated: int
    """Calls that an earlier run of the batch had already applied."""
    bytes: int
    """Bytes that were sent to Redis, without the overhead of the protocol."""
    waited_ms: int
    """Milliseconds of waiting for room below the high-water mark."""
    ms: int
    """Milliseconds of folding and applying, including Spark's evaluation of rows that were not
    evaluated before."""
    vanished: int = 0
    """Trees with a message that vanished: nothing was emitted from it, and it was neither acked nor
    failed. With ``unmentioned='fail'`` these trees count in ``failed``, too."""
    examples: tuple[str, ...] = field(default=(), repr=False)
    """``anchor:tuple`` of up to three messages that vanished. If several of one tree did, ``tuple``
    is the XOR of their ids. The log has the anchors only."""
    mentioned: int = 0
    """How often rows of one message mentioned it at most; 0 if the job calls ``split()``, and if
    mentions are not compared. Of many mentions, a sixteenth is counted."""
    changed: bool = False
    """Whether the batch came back with other content, so that its trees were failed."""
    bad: int = 0
    """Rows that were not tracked, and went to ``bad_rows`` instead."""
    timings: Timings = NO_TIME
    """Milliseconds of each step: ``write``, ``read_ids``, ``fold``, ``apply``."""


def combine(
    shards: Sequence[ShardReport],
    *,
    query_id: str,
    batch_id: int,
    mode: str,
    waited_ms: int,
    ms: int,
    changed: bool,
    bad: int = 0,
    timings: Timings = NO_TIME,
) -> Report:
    """Return the report of the batch: the sum of the reports of its shards."""
    return Report(
        query_id=query_id,
        batch_id=batch_id,
        mode=mode,
        messages=sum(each.messages for each in shards),
        trees=sum(each.trees for each in shards),
        tracked=sum(each.tracked for each in shards),
        acked=sum(each.acked for each in shards),
        failed=sum(each.failed for each in shards),
        rejected=tuple(anchor for each in shards for anchor in each.rejected),
        rejected_blocks=tuple(block for each in shards for block in each.rejected_blocks),
        calls=sum(each.calls for each in shards),
        repeated=sum(each.repeated for each in shards),
        bytes=sum(each.bytes for each in shards),
        waited_ms=waited_ms,
        ms=ms,
        vanished=sum(each.vanished for each in shards),
        examples=tuple(example for each in shards for example in each.examples)[:EXAMPLES],
        mentioned=max((each.mentioned for each in shards), default=0),
        changed=changed,
        bad=bad,
        timings=timings,
    )
