"""One shard on a real server, with the methods of the reference.

Tests and the simulator run one history on both and compare. The clock of Redis cannot be moved, so
``RedisShard.advance`` changes every stored time instead, with the same effect.
"""

from collections.abc import Iterable

from acker_redis.protocol import commands
from acker_redis.protocol.commands import Fence, ShardApplied
from acker_redis.protocol.keys import ShardKeys
from acker_redis.protocol.outcome import BlockOutcome, Outcome
from acker_redis.protocol.record import HEADER_FIRST, HEADER_SLOTS, RECORD_FIRST, RECORD_TASK
from acker_redis.protocol.rows import Columns
from acker_redis.protocol.slots import unpack_slots
from acker_redis.sync.client import Acker
from proof.reference.acker import TreeRow
from proof.reference.blocks import BlockKey, BlockRow
from proof.reference.rows import pack, pack_block

DRAIN_RECORDS = 500


class RedisShard:
    """One shard on a real server. The namespace must exist, and no rotator may run for it."""

    def __init__(self, acker: Acker, shard: int = 0) -> None:
        self.acker = acker
        self.config = acker.config
        self.keys = ShardKeys(acker.namespace, shard)
        self.moved_ms = 0
        """By how much the clock was moved in all."""
        self._run = acker.connection.run

    def apply(
        self, rows: Iterable[TreeRow], task: str = "", fence: Fence | None = None
    ) -> ShardApplied:
        """Apply a batch, all or nothing; raise AckerError if it is refused."""
        return self.send(pack(list(rows), task), fence)

    def send(self, columns: Columns, fence: Fence | None = None) -> ShardApplied:
        """Apply columns as they are, valid or not."""
        call = commands.apply(self.keys, columns, fence)
        return commands.parse_apply(self._run(call), columns)

    def apply_blocks(self, rows: Iterable[BlockRow], fence: Fence | None = None) -> ShardApplied:
        """Apply blocks, all or nothing; raise AckerError if they are refused."""
        parts = [pack_block(row) for row in rows]
        reply = self._run(commands.apply_blocks(self.keys, parts, fence))
        return commands.parse_apply_blocks(reply, parts)

    def rotate(self, force: bool = False) -> bool:
        """Tick if a tick is due or forced, and return whether it ticked."""
        return commands.parse_rotate(self._run(commands.rotate(self.keys, force))).rotated

    def expire(self) -> int:
        """Drain all records that expire; return the number left, 0."""
        while left := self.expire_some(DRAIN_RECORDS):
            pass
        return left

    def expire_some(self, records: int) -> int:
        """Drain some records by one call; return the number left."""
        return commands.parse_expire(self._run(commands.expire(self.keys, records))).left

    def take(self, task: str) -> list[Outcome]:
        """Take and return the verdicts that wait for a task, oldest first."""
        return list(self.acker.outcomes(task))

    def take_blocks(self, task: str) -> list[BlockOutcome]:
        """Take and return the verdicts on blocks that wait for a task; no others may wait."""
        outcomes, found = self.acker.outcomes(task), []
        while entries := outcomes.read():
            found += [entry.block for entry in entries if entry.block]
            outcomes.take(entries)
        return found

    def expire_blocks(self, blocks: int = 16) -> int:
        """Drain some blocks by one call; return the number left."""
        return int(self._run(commands.expire_blocks(self.keys, blocks))[2])

    def lose(self, block: int, key: BlockKey) -> None:
        """Delete a key of a block, if it exists."""
        name = {"block": self.keys.block, "failed": self.keys.failed, "present": self.keys.present}
        self.acker.connection.client.delete(name[key](block))

    def advance(self, ms: int) -> None:
        """Move the clock, back if ``ms`` is negative: every write becomes older by ``ms``."""
        self.moved_ms += ms
        client = self.acker.connection.client
        firsts = dict.fromkeys(self._places(), RECORD_FIRST)
        firsts |= dict.fromkeys(self.block_places(), HEADER_FIRST)
        durable = self.keys.durable_fences
        reads = client.pipeline(transaction=False)
        for place in (*firsts, durable):
            reads.hgetall(place)
        *found, lanes = reads.execute()
        writes = client.pipeline(transaction=False)
        writes.hincrby(self.keys.meta, "ticked_ms", -ms)
        for (place, first), records in zip(firsts.items(), found, strict=True):
            for name, record in records.items():
                moved = bytearray(record)
                moved[first] = (int.from_bytes(record[first], "big") - ms).to_bytes(6, "big")
                writes.hset(place, name, bytes(moved))
        for lane, fence in lanes.items():
            rest, _, used = fence.rpartition(b":")
            writes.hset(durable, lane, b"%b:%d" % (rest, int(used) - ms))
        writes.execute()

    def dump(self) -> dict[bytes, bytes | None]:
        """Return every key of the shard, serialized."""
        client = self.acker.connection.client
        keys = sorted(client.scan_iter(glob(self.keys.prefix) + "*", count=1000))
        return {key: client.dump(key) for key in keys}

    def restore(self, dump: dict[bytes, bytes | None]) -> None:
        """Restore the shard from a dump."""
        client = self.acker.connection.client
        for key in self.dump():
            client.unlink(key)
        for key, value in dump.items():
            client.restore(key, 0, value)

    @property
    def tracked_records(self) -> int:
        """Number of pending trees, including those that expire: records that have a task."""
        client = self.acker.connection.client
        return sum(
            record[RECORD_TASK] > 0 for place in self._places() for record in client.hvals(place)
        )

    @property
    def trees_in_blocks(self) -> int:
        """Number of pending trees of blocks without a verdict, including those that expire."""
        client = self.acker.connection.client
        trees = 0
        for place in self.block_places():
            for block, header in client.hgetall(place).items():
                number = int.from_bytes(block, "big")
                present = unpack_slots(client.get(self.keys.present(number)) or b"")
                trees += len(present) or int.from_bytes(header[HEADER_SLOTS], "big")
                trees -= len(unpack_slots(client.get(self.keys.failed(number)) or b""))
        return trees

    @property
    def left_keys(self) -> set[str]:
        """Keys of blocks that have ended, and keys that a script uses during a call; never any."""
        client, keys = self.acker.connection.client, self.keys
        names = [name for place in self.block_places() for name in client.hkeys(place)]
        numbers = [int.from_bytes(name, "big") for name in names]
        kept = {key(n) for n in numbers for key in (keys.block, keys.failed, keys.present)}
        found = (key.decode() for key in client.scan_iter(glob(keys.prefix) + "*", count=1000))
        kinds = tuple(
            f"{keys.prefix}:{kind}" for kind in ("block:", "failed:", "present:", "scratch")
        )
        return {key for key in found if key.startswith(kinds)} - kept

    def block_places(self) -> list[str]:
        """Return the keys of the buckets of blocks, and of the bucket that expires."""
        return [*map(self.keys.blocks, range(self.config.buckets)), self.keys.blocks_expiring]

    def _places(self) -> list[str]:
        buckets = [self.keys.pending(i) for i in range(self.config.buckets)]
        return [*buckets, self.keys.expiring]


def glob(text: str) -> str:
    """Return a pattern for SCAN that matches exactly this text."""
    return "".join(f"\\{c}" if c in "\\*?[]" else c for c in text)
