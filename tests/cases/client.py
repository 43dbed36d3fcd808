"""Convert the ``do`` of a step into the calls of the Python client, which is under test."""

from acker_redis.batching.batch import Batch
from acker_redis.batching.sent import Part
from acker_redis.protocol import commands
from acker_redis.protocol.alive import alive, anchors_by_call
from acker_redis.protocol.commands import Call, Fence
from acker_redis.protocol.config import AckerConfig
from acker_redis.protocol.ids import shard_of
from acker_redis.protocol.keys import ShardKeys
from acker_redis.protocol.rows import Columns
from proof.cases import lines
from proof.cases.lines import Json


def batch_of(do: Json) -> Batch:
    """Return the Python client's batch. Raise InvalidBatchError or ConfigError if it refuses."""
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
    """Return the parts of a batch, one per call. Raise the errors of :func:`batch_of`."""
    return batch_of(do).parts(shards)


def fence_of(do: Json, number: int) -> Fence | None:
    """Return the fence of one call of a batch, counted from 0; None without a producer."""
    if not do["producer"]:
        return None
    return Fence(do["producer"], int(do["seq"]) + number, do["digest"])


def call_of(part: Part, fence: Fence | None, namespace: str) -> Call:
    """Return the call that carries one part."""
    keys = ShardKeys(namespace, part.shard)
    if isinstance(part.rows, Columns):
        return commands.apply(keys, part.rows, fence)
    return commands.apply_blocks(keys, part.rows.parts, fence)


def calls_of(do: Json, config: AckerConfig, namespace: str) -> list[Call]:
    """Return the calls in the order of sending; for ``take`` without the ids of entries."""
    ((verb, fields),) = do.items()
    if verb == "apply":
        return [
            call_of(part, fence_of(fields, number), namespace)
            for number, part in enumerate(parts_of(fields, config.shards))
        ]
    if verb == "show":
        anchor = int(fields["anchor"])
        return [commands.show(ShardKeys(namespace, shard_of(anchor, config.shards)), anchor)]
    if verb == "alive":
        asked = anchors_by_call(config.shards, map(int, fields["anchors"]))
        return [alive(ShardKeys(namespace, shard), anchors) for shard, anchors in asked]
    keys = [ShardKeys(namespace, shard) for shard in range(config.shards)]
    if verb == "create":
        return [commands.create(k, config, lines.SALT) for k in keys]
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
    """Return the hex of an argument as it is on the wire."""
    return (argument if isinstance(argument, bytes) else str(argument).encode()).hex()
