"""A shard on a real server, for one history."""

from collections.abc import Callable, Sequence
from typing import Any

from acker_redis.errors import BacklogError, ChangedBatchError, SchemaError
from acker_redis.protocol.commands import COUNTERS, Fence
from acker_redis.protocol.outcome import Outcome, parse_entry
from proof.oracle import BlockKey, Reply, Told
from proof.reference.acker import TreeRow
from proof.reference.blocks import BlockRow
from proof.simulate.redis_shard import RedisShard


class RedisBackend:
    """A shard on a real server, in a namespace that was created for this history alone."""

    exact = False

    def __init__(self, shard: RedisShard, tasks: Sequence[str]) -> None:
        self._shard = shard
        self._client: Any = shard.acker.connection.client
        self._tasks = tasks
        self._peeked = dict.fromkeys(tasks, b"-")
        self._advanced = 0
        self._edges = shard.config.edges

    def apply(self, rows: Sequence[TreeRow], task: str, fence: Fence) -> Reply:
        """Apply a batch."""
        try:
            return self._shard.apply(rows, task, fence)
        except (ChangedBatchError, BacklogError) as error:
            return error

    def apply_blocks(self, rows: Sequence[BlockRow], fence: Fence) -> Reply:
        """Apply a batch of blocks."""
        try:
            return self._shard.apply_blocks(rows, fence)
        except (ChangedBatchError, BacklogError, SchemaError) as error:
            return error

    def rotate(self) -> bool:
        """Tick if a tick is due, and return whether it ticked."""
        return self._shard.rotate()

    def expire(self) -> None:
        """Drain the loose trees that expire."""
        self._shard.expire()

    def expire_blocks(self) -> None:
        """Drain the blocks that expire."""
        while self._shard.expire_blocks():
            pass

    def lose(self, block: int, key: BlockKey) -> None:
        """Delete a key of a block."""
        self._shard.lose(block, key)

    def take(self, task: str) -> list[Outcome]:
        """Take the verdicts of a task and return them."""
        return self._shard.take(task)

    def peek(self) -> list[Told]:
        """Return the verdicts that were written since the last peek and still wait."""
        pipe = self._client.pipeline(transaction=False)
        for task in self._tasks:
            pipe.xrange(self._shard.keys.outcomes(task), self._peeked[task])
        told: list[Told] = []
        for task, entries in zip(self._tasks, pipe.execute(), strict=True):
            for id_, fields in entries:
                self._peeked[task] = b"(" + id_
                told.extend((task, outcome) for outcome in parse_entry(0, id_, fields, self._edges))
        return told

    def advance(self, ms: int) -> None:
        """Move the clock."""
        self._shard.advance(ms)
        self._advanced += ms

    def snapshot(self) -> Callable[[], None]:
        """Take a snapshot."""
        dump, peeked, then = self._shard.dump(), self._peeked.copy(), self._advanced

        def restore() -> None:
            self._shard.restore(dump)
            self._shard.advance(self._advanced - then)
            self._peeked = peeked

        return restore

    def counters(self) -> dict[str, int]:
        """Return the counters of the shard, by name."""
        more = [f"odd:{edge}" for edge in (*range(len(self._edges)), "none")] + ["slow"]
        more += [f"{kind}:{task}" for kind in ("ended", "good") for task in self._tasks]
        values = self._client.hmget(self._shard.keys.meta, *COUNTERS, *more)
        found = dict(zip((*COUNTERS, *more), (int(value or 0) for value in values), strict=True))
        return {name: count for name, count in found.items() if count or name in COUNTERS}

    def names(self) -> set[str]:
        """Return the registered tasks."""
        fields = self._client.hkeys(self._shard.keys.meta)
        return {field[8:].decode() for field in fields if field.startswith(b"backlog:")}

    def tracked_records(self) -> int:
        """Return the number of trees without a verdict."""
        return self._shard.tracked_records + self._shard.trees_in_blocks
