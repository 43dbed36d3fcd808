"""What became of a micro-batch."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass


@dataclass(frozen=True, slots=True)
class ShardReport:
    """Of one shard; see :class:`Report`."""

    shard: int
    messages: int
    trees: int
    tracked: int
    acked: int
    failed: int
    rejected: tuple[int, ...]
    """Anchors of loose trees."""
    rejected_blocks: tuple[int, ...]
    """Numbers of blocks."""
    calls: int
    repeated: int
    bytes: int

    def to_json(self) -> str:
        """As text, to travel from an executor to the driver."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> "ShardReport":
        """Read what :meth:`to_json` wrote."""
        fields = json.loads(text)
        for name in ("rejected", "rejected_blocks"):
            fields[name] = tuple(fields[name])
        return cls(**fields)


@dataclass(frozen=True, slots=True)
class Report:
    """What became of a micro-batch. Repeated calls count in ``repeated`` only."""

    query_id: str
    batch_id: int
    mode: str
    """``driver`` or ``executors``: where it was folded and sent."""
    messages: int
    """Messages that were processed, or tracked."""
    trees: int
    """Trees that the batch was about, as they were sent; the slots of a dense column count all."""
    tracked: int
    acked: int
    """Trees that were completed by this batch."""
    failed: int
    rejected: tuple[int, ...]
    """Anchors of loose trees that were nacked at once (``overflow``): they are not emitted."""
    rejected_blocks: tuple[int, ...]
    """Numbers of blocks of which the same is true."""
    calls: int
    repeated: int
    """Calls that had been applied before: the batch was run again."""
    bytes: int
    """Sent to Redis, without the protocol's overhead."""
    waited_ms: int
    """For room below the high-water mark."""
    ms: int
    """For folding and applying, the evaluation of what was not evaluated before included."""
    changed: bool = False
    """Whether the batch came back with other content, and its trees were failed therefore."""


def combine(
    shards: Sequence[ShardReport],
    *,
    query_id: str,
    batch_id: int,
    mode: str,
    waited_ms: int,
    ms: int,
    changed: bool,
) -> Report:
    """Sum the reports of the shards."""
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
        changed=changed,
    )
