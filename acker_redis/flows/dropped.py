"""Remove what no script knows from a namespace that is being dropped. No I/O: see ``steps.py``."""

from acker_redis.flows.steps import Ask, Flow
from acker_redis.protocol.keys import ShardKeys


def drop_groups(first: ShardKeys) -> Flow[None]:
    """Delete all completion groups. ``first`` is shard 0, which is closed. Idempotent."""
    for each in (yield Ask(("HKEYS", first.groups))):
        source, _, name = each.decode(errors="replace").partition(":")
        yield Ask(("UNLINK", first.group(source, name)))
    yield Ask(("UNLINK", first.groups))
