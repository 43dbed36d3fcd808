"""From the ``do`` of a step to the calls of the Python client: what the client has to pass."""

from typing import Any

from acker_redis.batching.batch import Batch
from acker_redis.batching.sent import Part
from acker_redis.protocol import commands
from acker_redis.protocol.commands import Call, Fence
from acker_redis.protocol.config import AckerConfig
from acker_redis.protocol.ids import shard_of
from acker_redis.protocol.keys import ShardKeys
from acker_redis.protocol.rows import Columns

EXPIRE_RECORDS = 500
EXPIRE_BLOCKS = 64

Json = Any
"""What json.loads gives."""


def track(anchor: int, source_id: str, *emitted: int) -> Json:
    """A source tracks a tree with its first messages."""
    return {"track": {"anchor": str(anchor), "source_id": source_id, "emitted": _ids(emitted)}}


def ack(anchor: int, tuple_id: int, *emitted: int) -> Json:
    """A bolt has processed a message, and it caused others."""
    return {"ack": {"anchor": str(anchor), "tuple": str(tuple_id), "emitted": _ids(emitted)}}


def fail(anchor: int, why: str, tuple_id: int | None = None, *emitted: int) -> Json:
    """A bolt has failed a tree; with a tuple, the message counts as processed."""
    row: Json = {"anchor": str(anchor), "why": why}
    if tuple_id is not None:
        row |= {"tuple": str(tuple_id), "emitted": _ids(emitted)}
    return {"fail": row}


def touch(anchor: int) -> Json:
    """More time is needed."""
    return {"touch": {"anchor": str(anchor)}}


def track_block(block: int, label: str, *deltas: int) -> Json:
    """A source tracks a block: for each slot, the XOR of the ids of its first messages."""
    return {"track_block": {"block": str(block), "label": label, "deltas": _ids(deltas)}}


def anchors_of(do: Json) -> list[int]:
    """Anchors that the rows of a batch name; of a block that is tracked, those of all its slots."""
    found: dict[int, None] = {}
    for row in do["rows"]:
        ((verb, fields),) = row.items()
        if verb == "track_block":
            base = 1 << 62 | int(fields["block"]) << 12
            found |= dict.fromkeys(base | slot for slot in range(len(fields["deltas"])))
        else:
            found[int(fields["anchor"])] = None
    return list(found)


def batch_of(do: Json) -> Batch:
    """The Python client's batch; InvalidBatchError or ConfigError if the client refuses it."""
    batch = Batch(do["task"])
    for row in do["rows"]:
        ((verb, fields),) = row.items()
        if verb == "track_block":
            deltas = [int(delta) for delta in fields["deltas"]]
            batch.track_block(fields["label"], deltas, int(fields["block"]))
            continue
        anchor = int(fields["anchor"])
        emitted = [int(i) for i in fields.get("emitted", ())]
        if verb == "track":
            batch.track(anchor, fields["source_id"], emitted)
        elif verb == "ack":
            batch.ack(anchor, int(fields["tuple"]), emitted)
        elif verb == "fail":
            tuple_id = int(fields["tuple"]) if "tuple" in fields else None
            batch.fail(anchor, fields["why"], tuple_id, emitted)
        else:
            batch.touch(anchor)
    return batch


def parts_of(do: Json, shards: int) -> list[Part]:
    """Parts of a batch, a call for each; the errors of :func:`batch_of`."""
    return batch_of(do).parts(shards)


def fence_of(do: Json, number: int) -> Fence | None:
    """Fence of one call of a batch, counted from 0; without a producer there is none."""
    if not do["producer"]:
        return None
    return Fence(do["producer"], int(do["seq"]) + number, do["digest"])


def call_of(part: Part, fence: Fence | None, namespace: str) -> Call:
    """Call that carries one part."""
    keys = ShardKeys(namespace, part.shard)
    if isinstance(part.rows, Columns):
        return commands.apply(keys, part.rows, fence)
    return commands.apply_blocks(keys, part.rows.parts, fence)


def calls_of(do: Json, config: AckerConfig, namespace: str) -> list[Call]:
    """Calls in the order in which they are sent; for ``take`` without the ids of entries."""
    ((verb, fields),) = do.items()
    if verb == "apply":
        return [
            call_of(part, fence_of(fields, number), namespace)
            for number, part in enumerate(parts_of(fields, config.shards))
        ]
    if verb == "show":
        anchor = int(fields["anchor"])
        return [commands.show(ShardKeys(namespace, shard_of(anchor, config.shards)), anchor)]
    keys = [ShardKeys(namespace, shard) for shard in range(config.shards)]
    if verb == "create":
        return [commands.create(k, config) for k in keys]
    if verb == "rotate":
        return [commands.rotate(k, fields["force"]) for k in keys]
    if verb == "expire":
        return [commands.expire(k, fields["records"]) for k in keys]
    if verb == "expire_blocks":
        return [commands.expire_blocks(k, fields["blocks"]) for k in keys]
    if verb == "take":
        return [commands.take(k, fields["task"], []) for k in keys]
    assert verb == "status", verb
    return [commands.status(k) for k in keys]


def wire(argument: str | bytes | int) -> str:
    """Hex of an argument as it goes over the wire."""
    return (argument if isinstance(argument, bytes) else str(argument).encode()).hex()


def _ids(ids: tuple[int, ...]) -> list[str]:
    return [str(i) for i in ids]
