"""Apply a micro-batch once, however often Spark runs it.

A lane belongs to one streaming query: its name is made of the application's and the query's id,
which lives in the checkpoint, and its fence is durable, so it outlives days of downtime. Each shard
has a fence of its own. A call's number is ``(batch_id * 10 + generation) * 100_000 + chunk + 1``:
whoever sends the batch again, a later run, a retried task or its speculative twin, sends the same
calls under the same numbers, and what was applied is not applied again. The digest of the whole
batch goes along, so that one that came back with other content is known by it; a generation is what
is done with it then.
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
"""Calls of one batch per shard at most: 102 million loose trees at most."""
GENERATIONS = 10
"""Contents that one batch may come back with."""
MAX_BATCH_ID = 10**9 - 2
_LONGEST = 128


@dataclass(frozen=True, slots=True)
class LaneTurn:
    """A micro-batch of a query, and the content that is applied for it."""

    lane: str
    batch_id: int
    generation: int
    digest: str
    """Of the content of all shards."""


@dataclass(frozen=True, slots=True)
class Standing:
    """What was applied of a batch before, on some shard at least."""

    generation: int
    digest: str


def lane_of(app_id: str, query_id: str) -> str:
    """Name of a query's lane. Raises ConfigError if it would have more than 128 characters."""
    name = f"@spark/{check_name('app id', app_id)}/{check_name('query id', query_id)}"
    if len(name) > _LONGEST:
        raise ConfigError(f"app id and query id have {_LONGEST - 8} letters together at most")
    return name


def digest_of(shards: Iterable[tuple[int, str]]) -> str:
    """Digest of a batch: of the digests of those of its shards that have content."""
    text = ",".join(f"{shard}:{digest}" for shard, digest in sorted(shards))
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def standing(acker: Acker, lane: str, batch_id: int) -> Standing | None:
    """What was applied of a batch before; None if nothing was.

    All shards are asked, before anything is applied on one: the batch may have rows on others now.
    Raises LaneError if a later batch of the lane was applied before.
    """
    if not 0 <= batch_id <= MAX_BATCH_ID:
        raise InvalidBatchError(f"a batch id is 0 to {MAX_BATCH_ID}, not {batch_id}")
    found: list[Standing] = []
    for seq, digest in acker.lane(lane).values():
        applied, generation = divmod((seq - 1) // CHUNKS, GENERATIONS)
        if applied > batch_id:
            raise LaneError(
                f"batch {batch_id} comes after batch {applied} of the same query was applied: its "
                "checkpoint was set back or deleted, or two queries go by one name. What the batch "
                "did then stands; start the query with a new checkpoint (or, if you name it "
                "yourself, under a new name), and let it process again what came since"
            )
        if applied == batch_id:
            found.append(Standing(generation, digest))
    latest = max((each.generation for each in found), default=None)
    if latest is None:
        return None
    # Another generation may stand on shards to which this one has not come yet. But two contents
    # of one generation are two drivers' work: what comes now is neither.
    digests = {each.digest for each in found if each.generation == latest}
    return Standing(latest, digests.pop() if len(digests) == 1 else "")


def changed(batch_id: int) -> ChangedBatchError:
    """The error for a batch with other content."""
    return ChangedBatchError(
        f"batch {batch_id} came back with other content; something in its plan changes from run to "
        "run (rand, uuid, now, an unordered limit?), its settings were changed, or the namespace "
        "was moved to another number of shards before the batch was committed. Until the plan is "
        "fixed, or for this one batch, on_changed_batch='fail_trees' lets the query go on: it "
        "fails all trees of such a batch, and their sources replay them"
    )


def send(acker: Acker, turn: LaneTurn, sealed: Sealed) -> ShardReport:
    """Apply the calls of one shard, one after the other.

    Raises ChangedBatchError if the batch was applied with other content meanwhile, LaneError if a
    later one was, and what :meth:`Acker.apply_part` raises. Sending it again is safe.
    """
    if len(sealed.parts) > CHUNKS:
        raise InvalidBatchError(
            f"the batch has {len(sealed.parts)} calls for shard {sealed.shard}, more than "
            f"{CHUNKS}; make it smaller"
        )
    first = (turn.batch_id * GENERATIONS + turn.generation) * CHUNKS + 1
    replies = []
    for number, part in enumerate(sealed.parts):
        try:
            reply = acker.apply_part(part, Fence(turn.lane, first + number, turn.digest))
        except ChangedBatchError as error:
            # Of a batch it names the call's number, which nobody knows.
            raise changed(turn.batch_id) if str(error).startswith("batch") else error from error
        if reply.highest is not None and (reply.highest - 1) // CHUNKS > (first - 1) // CHUNKS:
            raise LaneError(
                f"a later batch than {turn.batch_id} of the same query was applied meanwhile: does "
                "a second driver run it? Rows of this batch may be missing; it is not written"
            )
        replies.append(reply)
    if any(reply.highest is not None for reply in replies):
        _check_same(acker, turn, sealed.shard)
    return _report(acker, sealed, replies)


def _check_same(acker: Acker, turn: LaneTurn, shard: int) -> None:
    # A call below the lane's highest number is passed over whatever its digest is: a second driver
    # may have applied more calls, of other content, since this one has looked at the lane.
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
        named = _gone(acker, part) if reply.highest is not None and overflow else reply.rejected
        (rejected if isinstance(part.rows, Columns) else blocks).extend(named)
    return ShardReport(
        shard=sealed.shard,
        messages=sealed.messages,
        trees=sealed.trees,
        tracked=sum(reply.tracked for reply in replies),
        acked=sum(reply.acked for reply in replies),
        failed=sum(reply.failed for reply in replies),
        rejected=tuple(rejected),
        rejected_blocks=tuple(blocks),
        calls=len(replies),
        repeated=sum(reply.highest is not None for reply in replies),
        bytes=sum(_size(part) for part in sealed.parts),
    )


def _counters(acker: Acker, shard: int) -> Mapping[str, int]:
    # Of all shards side by side a task would need a connection for each.
    keys = ShardKeys(acker.namespace, shard)
    deadline = time.monotonic() + acker.retry_for
    reply = acker.connection.drive(run_until(commands.status(keys), deadline))
    return commands.parse_status(reply, keys).counters


def _gone(acker: Acker, part: Part) -> list[int]:
    """Trees, or blocks, of a repeated TRACK that are pending no more.

    They were rejected then, and that reply was lost; or they have ended since, and what they
    caused was written. Nothing is to be emitted for either.
    """
    rows = part.rows
    buckets = acker.config.buckets
    if isinstance(rows, Columns):
        tracked = [rows.anchor(row) for row, flags in enumerate(rows.flags) if flags & 1]
        return [anchor for anchor in tracked if acker.show(anchor) is None]
    found = []
    for each in rows.parts:
        if each.header:
            tree = acker.show(each.anchors[0])
            if tree is None or tree.bucket == buckets:
                found.append(each.block)
    return found


def _size(part: Part) -> int:
    rows = part.rows
    if isinstance(rows, Columns):
        return 17 * len(rows) + sum(map(len, rows.texts))
    return sum(len(each) for each in rows.parts)
