"""What no script knows of a namespace that is being dropped. No I/O: see ``steps.py``."""

from acker_redis.flows.steps import Ask, AskAll, Flow
from acker_redis.protocol.keys import ShardKeys
from acker_redis.protocol.stored import MAX_SHARDS


def present(namespace: str, first: int) -> Flow[list[ShardKeys]]:
    """Return the shards from number ``first`` on that exist, damaged or being dropped or not."""
    keys = [ShardKeys(namespace, shard) for shard in range(first, MAX_SHARDS)]
    if not keys:
        return []
    found = yield AskAll(tuple(("EXISTS", each.meta, each.dropping) for each in keys))
    return [each for each, exists in zip(keys, found, strict=True) if exists]


def drop_groups(first: ShardKeys) -> Flow[None]:
    """Delete all completion groups. ``first`` is shard 0, which is closed. Idempotent.

    An index of another type, which a program has damaged, is deleted, too.
    """
    is_index = (yield Ask(("TYPE", first.groups))) == b"hash"
    for each in (yield Ask(("HKEYS", first.groups))) if is_index else ():
        source, _, name = each.decode(errors="replace").partition(":")
        yield Ask(("UNLINK", first.group(source, name)))
    yield Ask(("UNLINK", first.groups))
