"""From the ``do`` of a step to the calls of the Python client: what the client has to pass."""

from typing import Any

from acker_redis import commands
from acker_redis.batch import Batch
from acker_redis.commands import Call, Fence
from acker_redis.config import AckerConfig
from acker_redis.keys import ShardKeys

EXPIRE_RECORDS = 500

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


def batch_of(do: Json) -> Batch:
    """The Python client's batch; InvalidBatchError or ConfigError if the client refuses it."""
    batch = Batch(do["task"])
    for row in do["rows"]:
        ((verb, fields),) = row.items()
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


def fence_of(do: Json) -> Fence | None:
    """Fence of a batch; without a producer there is none."""
    return Fence(do["producer"], int(do["seq"]), do["digest"]) if do["producer"] else None


def calls_of(do: Json, config: AckerConfig, namespace: str) -> list[Call]:
    """Calls in the order in which they are sent; for ``take`` without the ids of entries."""
    ((verb, fields),) = do.items()
    if verb == "apply":
        return [
            commands.apply(ShardKeys(namespace, shard), part, fence_of(fields))
            for shard, part in batch_of(fields).columns(config.shards).items()
        ]
    keys = [ShardKeys(namespace, shard) for shard in range(config.shards)]
    if verb == "create":
        return [commands.create(k, config) for k in keys]
    if verb == "rotate":
        return [commands.rotate(k, fields["force"]) for k in keys]
    if verb == "expire":
        return [commands.expire(k, fields["records"]) for k in keys]
    if verb == "take":
        return [commands.take(k, fields["task"], []) for k in keys]
    assert verb == "status", verb
    return [commands.status(k) for k in keys]


def wire(argument: str | bytes | int) -> str:
    """Hex of an argument as it goes over the wire."""
    return (argument if isinstance(argument, bytes) else str(argument).encode()).hex()


def _ids(ids: tuple[int, ...]) -> list[str]:
    return [str(i) for i in ids]
