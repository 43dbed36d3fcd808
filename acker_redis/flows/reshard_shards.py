"""The actions of a reshard on one shard, or between two shards. No I/O."""

import time
from collections.abc import Iterable
from typing import Any, TypeVar

from acker_redis.errors import (
    AckerError,
    NamespaceNotFoundError,
    ReshardError,
    SchemaError,
)
from acker_redis.flows.drain import ShardRotation
from acker_redis.flows.namespace import Flows
from acker_redis.flows.steps import Ask, AskAll, Flow, run_until, together
from acker_redis.protocol import commands
from acker_redis.protocol.commands import Call, ShardStatus
from acker_redis.protocol.config import AckerConfig
from acker_redis.protocol.keys import ShardKeys
from acker_redis.protocol.reshard import Reshard
from acker_redis.protocol.stored import MAX_SHARDS

DRAIN_RECORDS = 500
DRAIN_BLOCKS = 64
TURN_CALLS = 41
"""Calls that tick and drain one shard before the progress of all shards is read again."""
# From lua/spec.json, by python -m proof.spec
MAX_RAISED = 500
"""Durable lanes per call."""

REPLICA_MS = 300
"""Milliseconds to wait until a replica has the writes to shard 0."""
MAX_LANES = 100_000
"""Durable lanes that a shard holds."""

T = TypeVar("T")


def close(flows: Flows, shard: int, reshard: Reshard) -> Flow[None]:
    """Close a shard other than 0; if it is still in an earlier, ended reshard, leave that first."""
    try:
        yield from set_field(flows, shard, "reshard", reshard.at("closed"))
    except ReshardError:
        first = yield from status_of(flows, 0)
        ours = first.reshard and first.reshard.at("closed") == reshard.at("closed")
        if not ours and first.config.shards != reshard.target:
            raise
        yield from set_field(flows, shard, "reshard", "")
        yield from set_field(flows, shard, "reshard", reshard.at("closed"))


def unless_gone(flow: Flow[T], gone: bool) -> Flow[T | None]:
    """Run a flow; return None if its shard does not exist and ``gone`` allows that."""
    try:
        return (yield from flow)
    except NamespaceNotFoundError:
        if not gone:
            raise
        return None


def others(flows: Flows, shards: int) -> Flow[list[int]]:
    """Return the shards from ``shards`` on that exist and should not."""
    keys = keys_of(flows, range(shards, MAX_SHARDS))
    asked = [("HGET", key, "schema") for each in keys for key in (each.meta, each.dropping)]
    if not asked:
        return []
    replies = yield AskAll(tuple(asked))
    pairs = zip(keys, replies[::2], replies[1::2], strict=True)
    return [each.shard for each, meta, dropping in pairs if meta or dropping]


def carry(flows: Flows, shard: int, to: int) -> Flow[None]:
    """Carry the verdicts of a removed shard, which no source reads, to a shard that is read.

    Delivery is at least once: a source may have received some of these verdicts before the failover
    that set the shard back.
    """
    keys, others = ShardKeys(flows.namespace, shard), ShardKeys(flows.namespace, to)
    for source in (yield from status_of(flows, shard)).backlog:
        while entries := (
            yield Ask(("XRANGE", keys.outcomes(source), "-", "+", "COUNT", commands.MAX_TAKE))
        ):
            for _, fields in entries:
                flat = _flat(fields)
                count = int(flat[flat.index(b"n") + 1])
                yield Ask(("XADD", others.outcomes(source), "*", *flat))
                yield Ask(("HINCRBY", others.meta, f"backlog:{source}", count))
            ids = [entry[0].decode() for entry in entries]
            yield from run_again(flows, commands.take(keys, source, ids))


def _flat(fields: Any) -> list[bytes]:
    """Return the fields and values of an entry, alternating."""
    if isinstance(fields, dict):
        return [each for pair in fields.items() for each in pair]
    return list(fields)


def make_shard(flows: Flows, keys: ShardKeys, config: AckerConfig, salt: str) -> Flow[None]:
    """Create a shard with all settings of the namespace; a no-op if it exists with them."""
    yield from run_again(flows, commands.create(keys, config, salt))
    if settings := config.optional_on_wire():
        yield from run_again(flows, commands.configure(keys, settings))


def remove(flows: Flows, shard: int) -> Flow[None]:
    """Remove all keys of a shard that was closed for a drop; a no-op for an open shard."""
    call = commands.drop(ShardKeys(flows.namespace, shard), DRAIN_BLOCKS, last=True)
    while (yield from run_again(flows, call))[0]:
        pass


def share_lanes(flows: Flows, sources: Iterable[int], shards: Iterable[int]) -> Flow[None]:
    """Raise the fence of each durable lane on ``shards`` to its highest number on ``sources``.

    After a reshard, a retried batch has other parts than before. The raised fences refuse all of
    them, so no part is applied a second time.
    """
    found = yield from lanes_of(flows, sources)
    lanes = [(b"lane:" + name, f"{seq}:{used}") for name, (seq, used) in found.items()]
    targets = keys_of(flows, shards)
    for start in range(0, len(lanes), MAX_RAISED):
        changes = dict(lanes[start : start + MAX_RAISED])
        yield from together(
            [run_again(flows, commands.configure(keys, changes)) for keys in targets]
        )


def lanes_of(flows: Flows, shards: Iterable[int]) -> Flow[dict[bytes, tuple[int, int]]]:
    """Return per durable lane its highest number on any shard, and when it was last used (ms)."""
    found: dict[bytes, tuple[int, int]] = {}
    for keys in keys_of(flows, shards):
        cursor = 0
        while True:
            page = yield Ask(("HSCAN", keys.durable_fences, cursor, "COUNT", MAX_RAISED))
            cursor = int(page[0])
            for lane, fence in page[1].items():
                try:
                    seq, _, used = fence.split(b":")
                    seq, used = int(seq), int(used)
                except ValueError:
                    raise SchemaError(
                        f"the fence of {lane!r} in {keys.durable_fences} has been tampered with"
                    ) from None
                before = found.get(lane, (0, 0))
                found[lane] = max(before[0], seq), max(before[1], used)
            if not cursor:
                break
    return found


def replicated(flows: Flows) -> Flow[None]:
    """Wait up to ``REPLICA_MS`` until one replica has all writes; a no-op without replicas.

    The next step cannot be undone: after a failover to a replica without these writes, shard 0
    would refer to shards that are deleted. Running the same reshard again repairs that, too.
    """
    try:
        said = yield Ask(("INFO", "replication"))
        if isinstance(said, dict) and said.get("connected_slaves"):
            yield Ask(("WAIT", 1, REPLICA_MS))
    except AckerError:
        return


def turn(flows: Flows, shard: int) -> Flow[float]:
    """Tick a shard if a tick is due, and drain it; return seconds until there is more to do."""
    rotation = ShardRotation(ShardKeys(flows.namespace, shard), DRAIN_RECORDS, DRAIN_BLOCKS)
    for _ in range(TURN_CALLS):
        step = rotation.reply((yield from run_again(flows, rotation.call())), time.monotonic())
        if not step.more:
            return step.due
    return 0.0


def set_field(flows: Flows, shard: int, field: str, value: Reshard | int | str) -> Flow[None]:
    """Set one field of a shard's ``meta``; see ``lua/configure.lua``."""
    keys = ShardKeys(flows.namespace, shard)
    wire = value.to_wire() if isinstance(value, Reshard) else value
    yield from run_again(flows, commands.configure(keys, {field: wire}))


def switch_first(flows: Flows, reshard: Reshard) -> Flow[None]:
    """Set the number of shards on shard 0, and add what the removed shards have counted."""
    going = range(reshard.target, reshard.source)
    looks = [unless_gone(status_of(flows, shard), gone=True) for shard in going]
    counted: dict[str, int] = {}
    for state in (yield from together(looks)):
        for name, count in counts_of(state).items() if state else ():
            counted[name] = counted.get(name, 0) + count
    added = {f"add:{name}": str(count) for name, count in counted.items() if count < 10**18}
    changes: dict[str, str | int] = {"shards": reshard.target, **added}
    yield from run_again(flows, commands.configure(ShardKeys(flows.namespace, 0), changes))


def counts_of(state: ShardStatus) -> dict[str, int]:
    """Return the counters of a shard by their fields in ``meta``, without zeros."""
    edges = {edge: str(number) for number, edge in enumerate(state.config.edges)} | {"": "none"}
    found = {
        **state.counters,
        "slow": state.slow,
        "after_failure": state.after_failure,
        "latency_ms": state.latency.sum_ms,
        **{f"latency:{digits}": count for digits, count in enumerate(state.latency.counts)},
        **{f"odd:{edges[edge]}": count for edge, count in state.odd.items()},
        **{f"ended:{source}": count for source, count in state.ended.items()},
        **{f"good:{source}": count for source, count in state.good.items()},
    }
    return {name: count for name, count in found.items() if count}


def status_of(flows: Flows, shard: int) -> Flow[ShardStatus]:
    """Return the status of a shard."""
    keys = ShardKeys(flows.namespace, shard)
    return commands.parse_status((yield from run_again(flows, commands.status(keys))), keys)


def run_again(flows: Flows, call: Call) -> Flow[Any]:
    """Run a call with retries; all calls of a reshard are idempotent."""
    return (yield from run_until(call, time.monotonic() + flows.retry_for))


def keys_of(flows: Flows, shards: Iterable[int]) -> list[ShardKeys]:
    """Return the keys of the given shards."""
    return [ShardKeys(flows.namespace, shard) for shard in shards]
