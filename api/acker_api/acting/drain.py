"""A forced tick of all shards, and some calls of the drain; rotators drain the rest."""

import time
from dataclasses import dataclass

from acker_redis.aio import AsyncAcker
from acker_redis.errors import NamespaceNotFoundError
from acker_redis.operate import (
    DRAIN_RECORDS,
    AsyncConnection,
    Round,
    ShardKeys,
    ShardRotation,
    commands,
)

MAX_CALLS = 32
"""Calls of the drain, of all shards together."""
RECORDS = DRAIN_RECORDS


@dataclass(frozen=True)
class Ticked:
    """The result of a forced tick."""

    shards: int
    ticked: int
    """Shards that ticked; the others still have to drain the tick before."""
    expired: int
    """Trees that were nacked."""
    acked: int
    """Trees of blocks that were complete; they are acked when their block ends."""
    orphaned: int
    """Records without a tree that were deleted."""
    left: int
    """Records and blocks that are left to drain."""


async def tick(acker: AsyncAcker) -> Ticked:
    """Force a tick, shard by shard.

    Each call is sent once, because a retry would be another tick.
    """
    shards, rounds, looked, left = (await acker.config()).shards, list[Round](), 0, 0
    for number in range(shards):
        keys = ShardKeys(acker.namespace, number)
        try:
            room = MAX_CALLS - sum(each.calls for each in rounds)
            whole, found = await _rotate(acker.connection, keys, room)
            rounds += found
            if not whole:
                ticked = any(each.ticked for each in found)
                look = await _look(acker.connection, keys, force=False)
                if not (look.left or ticked or look.rotated):
                    look = await _look(acker.connection, keys, force=True)
                looked += look.rotated
                left += look.left
        except NamespaceNotFoundError:
            if not number:
                raise
            break  # a reshard has just removed this shard
    return Ticked(
        shards,
        ticked=looked + sum(each.ticked for each in rounds),
        expired=sum(each.expired for each in rounds),
        acked=sum(each.acked for each in rounds),
        orphaned=sum(each.orphaned for each in rounds),
        left=left,
    )


async def _look(connection: AsyncConnection, keys: ShardKeys, force: bool) -> commands.Rotated:
    return commands.parse_rotate(await connection.run(commands.rotate(keys, force)))


async def _rotate(
    connection: AsyncConnection, keys: ShardKeys, room: int
) -> tuple[bool, list[Round]]:
    """Tick a shard, drain it in up to ``room`` calls; return whether it is drained, and rounds."""
    rotation, rounds, calls = ShardRotation(keys, RECORDS, force=True), list[Round](), 0
    while calls < room or not rotation.draining:
        calls += rotation.draining
        step = rotation.reply(await connection.run(rotation.call()), time.monotonic())
        if step.round:
            rounds.append(step.round)
        if not step.more:
            return True, rounds
    return False, [*rounds, rotation.stop(time.monotonic())]
