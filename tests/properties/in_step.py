"""One shard on the reference model and on Redis: the same calls, with equal replies."""

import uuid
from collections.abc import Callable
from dataclasses import dataclass

import pytest

from acker_redis.errors import BacklogError, ChangedBatchError
from acker_redis.protocol.commands import Fence, ShardApplied
from acker_redis.protocol.config import AckerConfig
from acker_redis.sync.client import Acker
from acker_redis.sync.outcomes import BlockOutcome, Outcome
from proof.reference.acker import TreeRow
from proof.reference.blocks import BlockReference, BlockRow
from proof.simulate.redis_shard import RedisShard
from tests.properties.topology import TRACK, FactRow
from tests.support import ageless, total

TASK = "t"


@dataclass
class Part:
    """One call of a batch, the rows before folding, and the tick at which it was created."""

    fence: Fence
    loose: list[TreeRow]
    blocks: list[BlockRow]
    raws: list[FactRow]
    tick: int
    applied: bool = False


class InStep:
    """One shard on the reference model and, with a URL, on Redis."""

    def __init__(
        self, reference: type[BlockReference], config: AckerConfig, url: str | None
    ) -> None:
        self.model = reference(config, now_ms=1_700_000_000_000)
        self.redis: RedisShard | None = None
        if url:
            acker = Acker.from_url(url, f"h-{uuid.uuid4().hex[:12]}")
            acker.create(config)
            self.redis = RedisShard(acker)

    def apply(self, part: Part) -> ShardApplied:
        """Return the reply of both. Raise BacklogError or ChangedBatchError if both refuse."""
        try:
            reply = _apply(self.model, part)
        except (BacklogError, ChangedBatchError) as error:
            if self.redis:
                with pytest.raises(type(error)):
                    _apply(self.redis, part)
            raise
        if self.redis:
            assert _apply(self.redis, part) == reply
        return reply

    def rotate(self) -> bool:
        """Force a tick, and return whether it happened: it does unless something expires."""
        ticked = self.model.rotate(force=True)
        if self.redis:
            assert self.redis.rotate(force=True) == ticked
        return ticked

    def advance(self, ms: int) -> None:
        """Move the clock."""
        self.model.advance(ms)
        if self.redis:
            self.redis.advance(ms)

    @property
    def expires(self) -> bool:
        return bool(self.model.expiring or self.model.blocks_expiring)

    def drain(self, records: int) -> list[int]:
        """Expire some loose trees by one call, and return their anchors. Redis chooses which."""
        some = list(self.model.expiring)[:records]
        if self.redis:
            some = self._gone(self.redis.keys.expiring, self.redis.expire_some, records)
        self.model.expire(some)
        return some

    def drain_blocks(self, blocks: int) -> list[int]:
        """Expire some blocks by one call, and return their numbers."""
        some = list(self.model.blocks_expiring)[:blocks]
        if self.redis:
            some = self._gone(self.redis.keys.blocks_expiring, self.redis.expire_blocks, blocks)
        self.model.expire_blocks(some)
        return some

    def take(self) -> list[Outcome | BlockOutcome]:
        """Take and return all verdicts that wait."""
        mine: list[Outcome | BlockOutcome] = [*self.model.take(TASK), *self.model.take_blocks(TASK)]
        if self.redis:
            waiting, found = self.redis.acker.outcomes(TASK), []
            while entries := waiting.read(1000):
                found += [o for e in entries for o in ([e.block] if e.block else e.outcomes)]
                waiting.take(entries)
            assert sorted(map(ageless, found)) == sorted(map(ageless, mine))
        return mine

    def check(self) -> None:
        """Compare the counters, the pending trees and the backlog."""
        books = total(self.model)
        if self.redis:
            assert total(self.redis.acker) == books
            assert self.redis.acker.status().backlog.get(TASK, 0) == self.model.backlog(TASK)

    def close(self) -> None:
        if self.redis:
            self.redis.acker.connection.client.flushall()
            self.redis.acker.close()

    def _gone(self, key: str, call: Callable[[int], int], count: int) -> list[int]:
        assert self.redis
        client = self.redis.acker.connection.client
        before = client.hkeys(key)
        left = call(count)
        after = set(client.hkeys(key))
        assert left == len(after)
        return [int.from_bytes(name, "big") for name in before if name not in after]


def _apply(shard: BlockReference | RedisShard, part: Part) -> ShardApplied:
    if part.blocks:
        return shard.apply_blocks(part.blocks, part.fence)
    tracks = any(row.flags & TRACK for row in part.loose)
    return shard.apply(part.loose, TASK if tracks else "", part.fence)
