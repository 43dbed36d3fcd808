"""Apply a micro-batch once, however often Spark runs it.

A lane belongs to one streaming query: its name is derived from the query's id, which
lives in the checkpoint, and its fence is durable, so it outlives days of downtime. The
number of a call is ``batch_id * 100_000 + chunk + 1``: a batch that is run again sends the
same numbers, and what was applied is not applied again. The digest of the whole batch
goes along, so that a batch that came back with other content is refused.
"""

from collections.abc import Callable
from dataclasses import dataclass

from acker_redis.client import Acker
from acker_redis.commands import Fence, ShardApplied
from acker_redis.errors import ChangedBatchError, InvalidBatchError, LaneError
from acker_redis.parts import Part
from acker_redis.spark.fold import Folded

CHUNKS = 100_000
"""Calls of one batch per shard at most: 102 million trees at most."""
MAX_BATCH_ID = 10**10 - 2


@dataclass(frozen=True, slots=True)
class Report:
    """What became of a micro-batch. Repeated chunks count in ``repeated`` only."""

    batch_id: int
    messages: int
    """Rows that were folded."""
    trees: int
    """Rows after folding: trees that the batch touched."""
    tracked: int
    acked: int
    failed: int
    rejected: tuple[int, ...]
    """Anchors nacked for overflow."""
    chunks: int
    repeated: int
    """Chunks that had been applied before."""


def send(acker: Acker, query_id: str, batch_id: int, task: str, folded: Folded) -> Report:
    """Apply a folded batch under its query's lane.

    Raises ChangedBatchError when the batch was applied before with other content,
    LaneError when a later batch of the query was applied before, and what
    :meth:`Acker.apply_part` raises. Sending it again after an error is safe.
    """
    if not 0 <= batch_id <= MAX_BATCH_ID:
        raise InvalidBatchError(f"a batch id is 0 to {MAX_BATCH_ID}, not {batch_id}")
    digest = folded.digest
    _check_lane(acker, query_id, batch_id, digest)
    replies: list[ShardApplied] = []
    for shard, chunks in folded.columns(task, acker.config.shards).items():
        if len(chunks) > CHUNKS:
            raise InvalidBatchError(f"{len(chunks)} chunks in one batch; make the batch smaller")
        first = batch_id * CHUNKS + 1
        for number, columns in enumerate(chunks):
            fence = Fence(_lane(query_id), first + number, digest)
            reply = acker.apply_part(Part(shard, columns), fence)
            if reply.highest is not None and (reply.highest - 1) // CHUNKS > batch_id:
                raise LaneError(
                    f"a later batch than {batch_id} of the same query was applied meanwhile: does "
                    "a second driver run it? Rows of this batch may be missing; it is not written"
                )
            replies.append(reply)
    return Report(
        batch_id=batch_id,
        messages=folded.messages,
        trees=len(folded),
        tracked=_total(replies, lambda r: r.tracked),
        acked=_total(replies, lambda r: r.acked),
        failed=_total(replies, lambda r: r.failed),
        rejected=tuple(anchor for reply in replies for anchor in reply.rejected),
        chunks=len(replies),
        repeated=_total(replies, lambda r: r.highest is not None),
    )


def was_sent(acker: Acker, query_id: str, batch_id: int) -> bool:
    """Whether some of the batch was applied before: it is run again, or its lane went on."""
    return any(seq > batch_id * CHUNKS for seq, _ in acker.lane(_lane(query_id)).values())


def _check_lane(acker: Acker, query_id: str, batch_id: int, digest: str) -> None:
    # On every shard, before anything is applied on one: the batch may have rows on others now.
    for seq, applied_digest in acker.lane(_lane(query_id)).values():
        applied = (seq - 1) // CHUNKS
        if applied > batch_id:
            raise LaneError(
                f"batch {batch_id} comes after batch {applied} of the same query was applied: its "
                "checkpoint was set back. What the batch did then stands; start the query with a "
                "new checkpoint, and let it process again what came since"
            )
        if applied == batch_id and applied_digest != digest:
            raise ChangedBatchError(
                f"batch {batch_id} came back with other content; something in its plan changes "
                "from run to run (rand, uuid, now, an unordered limit?)"
            )


def _lane(query_id: str) -> str:
    return f"@spark/{query_id}/0"


def _total(replies: list[ShardApplied], count: Callable[[ShardApplied], int]) -> int:
    return sum(count(reply) for reply in replies)
