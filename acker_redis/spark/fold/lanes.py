"""Apply a micro-batch once, even if Spark runs it several times.

A *lane* is the sequence of calls of one streaming query. Its name consists of the app id and the
query's id. Spark keeps the query's id in the checkpoint, so a restart continues the same lane. Each
shard has one fence for the lane: the highest number that the shard has applied, and a digest. The
fence is durable, so it survives days of downtime.

The number of a call is ``(batch_id * 10 + generation) * 100_000 + chunk + 1``. Three safety
arguments rest on it:

- **A retry is idempotent.** A later run of the batch, a retried task and a speculative twin send
  the same calls under the same numbers. A shard skips a call whose number is not above the fence.
- **A batch with other content is detected.** Each call carries the digest of the whole batch. The
  driver compares it with the digests of the lane before it sends (:func:`applied_content`). The
  shard compares it for the number that the fence holds, and :func:`send` compares it after skipped
  calls.
- **A changed batch can be failed.** The failures of all its trees are another content of the same
  batch, sent in the next *generation*. Their numbers are above those of the first content.
"""

import hashlib
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from acker_redis.batching.sent import Part
from acker_redis.errors import ChangedBatchError, ConfigError, InvalidBatchError, LaneError
from acker_redis.flows.steps import run_until
from acker_redis.protocol import commands
from acker_redis.protocol.commands import Fence, ShardApplied
from acker_redis.protocol.keys import ShardKeys, check_name
from acker_redis.protocol.rows import Columns
from acker_redis.spark.fold.content import Sealed
from acker_redis.spark.fold.report import ShardReport
from acker_redis.sync.client import Acker

CHUNKS = 100_000
"""Maximum calls of one batch per shard: 102 million loose trees, and at least 29 million trees in
blocks (a call carries 4096 absent slots, and a block has up to 8 slots for each tree)."""
GENERATIONS = 10
"""Maximum number of contents of one batch."""
MAX_BATCH_ID = 10**9 - 2
_LONGEST = 128


@dataclass(frozen=True, slots=True)
class LaneTurn:
    """A micro-batch of a query, and the content to apply for it."""

    lane: str
    batch_id: int
    generation: int
    digest: str
    """The digest of the contents of all shards."""


@dataclass(frozen=True, slots=True)
class AppliedContent:
    """The content of a batch that at least one shard has applied, completely or partially."""

    generation: int
    digest: str


def lane_of(app_id: str, query_id: str) -> str:
    """Return the name of a query's lane. Raises ConfigError above 128 characters."""
    name = f"@spark/{check_name('app id', app_id)}/{check_name('query id', query_id)}"
    if len(name) > _LONGEST:
        raise ConfigError(
            f"app id and query id must have at most {_LONGEST - 8} characters together, not "
            f"{len(name) - 8}"
        )
    return name


def digest_of(shards: Iterable[tuple[int, str]]) -> str:
    """Return the digest of a batch, from the digests of the shards that have content."""
    text = ",".join(f"{shard}:{digest}" for shard, digest in sorted(shards))
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def applied_content(acker: Acker, lane: str, batch_id: int) -> AppliedContent | None:
    """Return the content of a batch that was applied before; None if none was.

    The function reads the lane on all shards, and not only on the shards of the batch's rows: an
    earlier content of the batch may have had rows on other shards. The caller must not have sent
    a call of this run. Raises LaneError if a later batch of the lane was applied before.
    """
    if not 0 <= batch_id <= MAX_BATCH_ID:
        raise InvalidBatchError(f"a batch id must be 0 to {MAX_BATCH_ID}, not {batch_id}")
    found: list[AppliedContent] = []
    for seq, digest in acker.lane(lane).values():
        applied, generation = divmod((seq - 1) // CHUNKS, GENERATIONS)
        if applied > batch_id:
            raise LaneError(
                f"batch {batch_id} runs although batch {applied} of the same query was applied "
                "before: the checkpoint was set back or deleted, or two queries have one name. "
                "The earlier run of this batch stays applied. Start the query with a new "
                "checkpoint (and under a new name, if you name the query yourself), and process "
                "the later data again"
            )
        if applied == batch_id:
            found.append(AppliedContent(generation, digest))
    latest = max((each.generation for each in found), default=None)
    if latest is None:
        return None
    # A driver may have died between two shards, so a shard may still have an earlier generation:
    # only the latest one counts. Two digests in the latest generation come from two drivers that
    # ran the batch at the same time. No content equals both, so return a digest that none has.
    digests = {each.digest for each in found if each.generation == latest}
    return AppliedContent(latest, digests.pop() if len(digests) == 1 else "")


def last_batch(acker: Acker, lane: str) -> int | None:
    """Return the number of the last batch that a lane has applied; None if it has applied none."""
    numbers = [seq for seq, _ in acker.lane(lane).values()]
    return (max(numbers) - 1) // CHUNKS // GENERATIONS if numbers else None


def changed(batch_id: int) -> ChangedBatchError:
    """Return the error for a batch with other content."""
    return ChangedBatchError(
        f"batch {batch_id} came back with other content than was applied before: its plan is not "
        "deterministic (rand, uuid, now, a limit without order), its settings were changed, two "
        "queries have one name, or the namespace was resharded before the batch was committed. "
        "Make the plan deterministic. Until then, or for this one batch, "
        "on_changed_batch='fail_trees' lets the query continue: it fails all trees of such a "
        "batch, and their sources replay them. A job that calls b.write() skips this batch instead "
        "(Run a Spark query safely: A last job whose batch has changed)"
    )


def send(acker: Acker, turn: LaneTurn, sealed: Sealed) -> ShardReport:
    """Apply the calls of one shard, one after the other; idempotent.

    Raises ChangedBatchError if a second driver applied the batch with other content in the
    meantime, LaneError if it applied a later batch, and the errors of :meth:`Acker.apply_part`.
    """
    if len(sealed.parts) > CHUNKS:
        raise InvalidBatchError(
            f"the batch has {len(sealed.parts)} calls for shard {sealed.shard}, more than "
            f"{CHUNKS}; make the batches smaller (maxFilesPerTrigger, maxOffsetsPerTrigger)"
        )
    first = (turn.batch_id * GENERATIONS + turn.generation) * CHUNKS + 1
    replies = []
    for number, part in enumerate(sealed.parts):
        try:
            reply = acker.apply_part(part, Fence(turn.lane, first + number, turn.digest))
        except ChangedBatchError as error:
            # The shard's message has the number of the call instead of Spark's batch id.
            raise changed(turn.batch_id) if str(error).startswith("batch") else error from error
        if reply.highest is not None and (reply.highest - 1) // CHUNKS > (first - 1) // CHUNKS:
            raise LaneError(
                f"while batch {turn.batch_id} was being sent, a second driver applied a later "
                "batch of the same query, or other content of this one: stop one of the two "
                "drivers. Rows of this batch may be missing in Redis, so its messages are not "
                "written"
            )
        replies.append(reply)
    if any(reply.highest is not None for reply in replies):
        _check_same(acker, turn, sealed.shard)
    return _report(acker, sealed, replies)


def _check_same(acker: Acker, turn: LaneTurn, shard: int) -> None:
    # The fence skips a call below the lane's highest number without comparing digests. A second
    # driver may have applied more calls, with other content, since this driver read the lane.
    _, digest = acker.lane(turn.lane)[shard]
    if digest != turn.digest:
        raise changed(turn.batch_id)


def _report(acker: Acker, sealed: Sealed, replies: Sequence[ShardApplied]) -> ShardReport:
    rejected: list[int] = []
    blocks: list[int] = []
    overflow: bool | None = None
    for part, reply in zip(sealed.parts, replies, strict=True):
        if reply.highest is not None and overflow is None:
            counters = _counters(acker, sealed.shard)
            overflow = bool(counters["overflow"] or counters["conflict"])
        named = (
            _not_pending(acker, part) if reply.highest is not None and overflow else reply.rejected
        )
        (rejected if isinstance(part.rows, Columns) else blocks).extend(named)
    return ShardReport(
        shard=sealed.shard,
        messages=sealed.messages,
        trees=sealed.trees,
        tracked=sum(reply.tracked for reply in replies),
        acked=sum(reply.acked for reply in replies),
        failed=sum(reply.failed for reply in replies),
        vanished=sealed.vanished,
        examples=sealed.examples,
        rejected=tuple(rejected),
        rejected_blocks=tuple(blocks),
        calls=len(replies),
        repeated=sum(reply.highest is not None for reply in replies),
        bytes=sum(_size(part) for part in sealed.parts),
        mentioned=sealed.mentioned,
    )


def _counters(acker: Acker, shard: int) -> Mapping[str, int]:
    # Of this shard only: for all shards in parallel a task would need a connection to each.
    keys = ShardKeys(acker.namespace, shard)
    deadline = time.monotonic() + acker.retry_for
    reply = acker.connection.drive(run_until(commands.status(keys), deadline))
    return commands.parse_status(reply, keys).counters


def _not_pending(acker: Acker, part: Part) -> list[int]:
    """Return the trees, or blocks, of a repeated TRACK that are not pending.

    Either the shard rejected the tree in an earlier run, whose reply was lost. Or the tree has
    ended since then. In both cases the tree has its verdict, so no message of it must be written.
    """
    rows = part.rows
    buckets = acker.config.buckets
    if isinstance(rows, Columns):
        tracked = [rows.anchor(row) for row, flags in enumerate(rows.flags) if flags & 1]
        return [anchor for anchor in tracked if acker.show(anchor) is None]
    found = []
    for each in rows.parts:
        if each.header:
            # Slot 0 holds a tree: it is that of the lowest number.
            tree = acker.show(each.anchors[0])
            if tree is None or tree.bucket == buckets:
                found.append(each.block)
    return found


def _size(part: Part) -> int:
    rows = part.rows
    if isinstance(rows, Columns):
        return 17 * len(rows) + sum(map(len, rows.texts))
    return sum(len(each) for each in rows.parts)
