"""A forced tick of all shards, and some calls of the drain; the rest is left to the rotators."""

from dataclasses import dataclass

from acker_redis.aio import AsyncAcker
from acker_redis.errors import NamespaceNotFoundError
from acker_redis.protocol import commands
from acker_redis.protocol.keys import ShardKeys

MOST_CALLS = 32
"""Calls of the drain, of all shards together."""
RECORDS, BLOCKS = 1000, 64
"""What such a call drains at most; as a rotator does."""


@dataclass(frozen=True)
class Ticked:
    """What came of it."""

    shards: int
    ticked: int
    """Shards that ticked; the others have something to drain from the tick before."""
    expired: int
    """Trees that were nacked."""
    acked: int
    """Trees of blocks that were complete, and are told as their block ends."""
    orphaned: int
    """Records without a tree that are gone."""
    left: int
    """Records and blocks that are left to drain."""


async def tick(acker: AsyncAcker) -> Ticked:
    """Force a tick, shard by shard."""
    run, room = acker.connection.run, MOST_CALLS
    shards = (await acker.config()).shards
    ticked = expired = acked = orphaned = left = 0

    async def drain(keys: ShardKeys) -> None:
        """Drain while there is room."""
        nonlocal room, expired, acked, orphaned
        records, blocks = 1, 1
        while room and (records or blocks):
            room -= 1
            if records:
                drained = commands.parse_expire(await run(commands.expire(keys, RECORDS)))
                expired, orphaned = expired + drained.nacked, orphaned + drained.orphaned
                records = drained.left
            else:
                reply = await run(commands.expire_blocks(keys, BLOCKS))
                acked, expired, blocks = acked + reply[0], expired + reply[1], reply[2]

    for number in range(shards):
        keys = ShardKeys(acker.namespace, number)
        try:
            # Each is sent once: a tick that is sent again would be another.
            rotated = commands.parse_rotate(await run(commands.rotate(keys, force=True)))
            if rotated.left and not rotated.rotated:
                await drain(keys)
                rotated = commands.parse_rotate(await run(commands.rotate(keys, force=True)))
            ticked += rotated.rotated
            if rotated.left:
                await drain(keys)
                look = commands.parse_rotate(await run(commands.rotate(keys, force=False)))
                left += look.left
        except NamespaceNotFoundError:
            if not number:
                raise
            break  # it has moved to fewer shards just now
    return Ticked(shards, ticked, expired, acked, orphaned, left)
