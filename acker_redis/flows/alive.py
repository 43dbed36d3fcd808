"""Ask the shards which trees of a batch of anchors are pending. No I/O."""

from collections.abc import Iterable

from acker_redis.errors import NamespaceNotFoundError, WrongShardError
from acker_redis.flows.known import KnownNamespace
from acker_redis.flows.steps import Flow, run_until, together
from acker_redis.protocol.alive import Alive, alive, anchors_by_call, parse_alive
from acker_redis.protocol.keys import ShardKeys, feed_tag


def ask_alive(
    flows: KnownNamespace, anchors: Iterable[int], deadline: float = 0.0
) -> Flow[dict[int, tuple[bool, Alive]]]:
    """Return for each anchor whether its tree is pending, and the reply that says so.

    Args:
        flows: The flows of the namespace.
        anchors: Valid anchors; each may be given several times.
        deadline: On the ``time.monotonic`` clock: until then a call is sent again while Redis does
            not answer; by default each is sent once.

    Raises:
        WrongShardError: A shard belongs to another namespace of this name, or to another number of
            shards. The next call reads the configuration again.
        AckerError: Redis does not answer, or refuses.

    """
    known = flows.known
    if known is None or not flows.ids.was_read:
        known = yield from flows.read_config(patient=deadline > 0)
    calls = anchors_by_call(known.shards, dict.fromkeys(anchors))
    try:
        replies = yield from together(
            [_asked(flows, shard, several, known.shards, deadline) for shard, several in calls]
        )
    except (WrongShardError, NamespaceNotFoundError):
        flows.known, flows.ids_due = None, 0.0
        raise
    return {
        anchor: (pending, its)
        for (_, several), its in zip(calls, replies, strict=True)
        for anchor, pending in zip(several, its.pending, strict=True)
    }


def _asked(
    flows: KnownNamespace, shard: int, anchors: list[int], shards: int, deadline: float
) -> Flow[Alive]:
    call = alive(ShardKeys(flows.namespace, shard), anchors)
    its = parse_alive((yield from run_until(call, deadline)), len(anchors))
    if its.of != feed_tag(flows.ids.salt) or its.shards != shards:
        raise WrongShardError(
            f"shard {shard} of {flows.namespace} was resharded, or dropped and created again; open "
            "it again"
        )
    return its
