"""The shards that a history runs on: the reference, or a shard on a real server."""

import copy
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from acker_redis.protocol.commands import COUNTERS
from acker_redis.protocol.config import AckerConfig
from acker_redis.protocol.ids import block_anchor
from acker_redis.protocol.outcome import BlockOutcome, Outcome, parse_entry
from proof.oracle import Told, Violation
from proof.reference.blocks import BlockReference
from proof.simulate.redis_shard import RedisShard

PAGE = 16
"""About so many trees or blocks are drained by one call, unless a history says how many."""


class Backend(Protocol):
    """A shard whose new verdicts can be read, and which can be rolled back to a snapshot."""

    exact: bool
    """Whether reading its counters after each call is cheap."""

    @property
    def shard(self) -> BlockReference | RedisShard:
        """The shard itself, for all other calls."""

    def drain(self, most: int | None, gone: Sequence[int] | None) -> list[int]:
        """Drain loose trees that expire, about ``most`` or all, and return their anchors.

        If another shard has chosen them already, they are ``gone``.
        """

    def drain_blocks(self, most: int | None, gone: Sequence[int] | None) -> list[int]:
        """Drain blocks that expire in the same way, and return their numbers."""

    def take(self, task: str) -> list[Outcome]:
        """Take the verdicts of a task and return them."""

    def peek(self) -> list[Told]:
        """Return the verdicts that were written since the last peek and still wait."""

    def snapshot(self) -> Callable[[], None]:
        """Take a snapshot; the returned function restores it, except the clock, each time."""

    def counters(self) -> dict[str, int]:
        """Return the counters of the shard, by name.

        Those of edges and tasks, and ``slow``, only if they are not zero.
        """

    def names(self) -> set[str]:
        """Return the registered tasks."""

    def tracked_records(self) -> int:
        """Return the number of trees without a verdict."""


class ReferenceBackend:
    """The reference acker, in plain Python."""

    exact = True

    def __init__(self, config: AckerConfig, kind: type[BlockReference] = BlockReference) -> None:
        self.shard = kind(config)
        self._peeked: Counter[tuple[str, bool]] = Counter()

    def drain(self, most: int | None, gone: Sequence[int] | None) -> list[int]:
        """Drain loose trees; the oldest ones if it may choose."""
        some = list(self.shard.expiring)[:most] if gone is None else list(gone)
        self.shard.expire(some)
        return some

    def drain_blocks(self, most: int | None, gone: Sequence[int] | None) -> list[int]:
        """Drain blocks; the oldest ones if it may choose."""
        some = list(self.shard.blocks_expiring)[:most] if gone is None else list(gone)
        self.shard.expire_blocks(some)
        return some

    def take(self, task: str) -> list[Outcome]:
        """Take the verdicts of a task."""
        self._peeked[task, False] = self._peeked[task, True] = 0
        blocks = self.shard.take_blocks(task)
        return [*self.shard.take(task), *(each for block in blocks for each in _singles(block))]

    def peek(self) -> list[Told]:
        """Return the verdicts that were written since the last peek."""
        told: list[Told] = []
        for task, waiting in self.shard.outcomes.items():
            if len(waiting) > (seen := self._peeked[task, False]):
                told.extend((task, outcome) for outcome in waiting[seen:])
                self._peeked[task, False] = len(waiting)
        for task, blocks in self.shard.block_outcomes.items():
            if len(blocks) > (seen := self._peeked[task, True]):
                told.extend((task, each) for block in blocks[seen:] for each in _singles(block))
                self._peeked[task, True] = len(blocks)
        return told

    def snapshot(self) -> Callable[[], None]:
        """Take a snapshot."""
        kept, peeked = copy.deepcopy(self.shard), self._peeked.copy()

        def restore() -> None:
            now_ms, self.shard = self.shard.now_ms, copy.deepcopy(kept)
            self.shard.now_ms, self._peeked = now_ms, peeked.copy()

        return restore

    def counters(self) -> dict[str, int]:
        """Return the counters of the shard, by name."""
        counters, odd = self.shard.counters, self.shard.odd
        found = {name: counters[name] for name in COUNTERS}
        found |= {f"odd:{'none' if edge < 0 else edge}": n for edge, n in odd.items()}
        more = {"slow": self.shard.slow}
        more |= {f"ended:{task}": n for task, n in self.shard.ended.items()}
        more |= {f"good:{task}": n for task, n in self.shard.good.items()}
        return found | {name: count for name, count in more.items() if count}

    def names(self) -> set[str]:
        """Return the registered tasks."""
        return set(self.shard.names)

    def tracked_records(self) -> int:
        """Return the number of trees without a verdict."""
        return self.shard.tracked_records


def _singles(outcome: BlockOutcome) -> list[Outcome]:
    """Return the verdicts on single trees; raise Violation if the ways to read them disagree."""
    singles, first = list(outcome.expand()), block_anchor(outcome.block, 0)
    acked = [first + slot for start, stop in outcome.acked() for slot in range(start, stop)]
    if acked != [each.anchor for each in singles if each.verdict == "ack"]:
        raise Violation("entry", f"{outcome} has other acked ranges than {singles}", first)
    if not outcome.count == len(singles) > 0:
        raise Violation("entry", f"{outcome} has {len(singles)} verdicts", first)
    return singles


class RedisBackend:
    """A shard on a real server, in a namespace that was created for this history alone."""

    exact = False

    def __init__(self, shard: RedisShard, tasks: Sequence[str]) -> None:
        self.shard = shard
        self._client: Any = shard.acker.connection.client
        self._tasks = tasks
        self._peeked = dict.fromkeys(tasks, b"-")
        self._edges = shard.config.edges

    def drain(self, most: int | None, gone: Sequence[int] | None) -> list[int]:
        """Drain loose trees. Redis chooses them."""
        return self._gone(self.shard.keys.expiring, self.shard.expire_some, most)

    def drain_blocks(self, most: int | None, gone: Sequence[int] | None) -> list[int]:
        """Drain blocks. Redis chooses them."""
        return self._gone(self.shard.keys.blocks_expiring, self.shard.expire_blocks, most)

    def _gone(self, key: str, call: Callable[[int], int], most: int | None) -> list[int]:
        before = self._client.hkeys(key)
        while call(most or PAGE) and not most:
            pass
        after = set(self._client.hkeys(key))
        return [int.from_bytes(name, "big") for name in before if name not in after]

    def take(self, task: str) -> list[Outcome]:
        """Take the verdicts of a task and return them."""
        return self.shard.take(task)

    def peek(self) -> list[Told]:
        """Return the verdicts that were written since the last peek and still wait."""
        pipe = self._client.pipeline(transaction=False)
        for task in self._tasks:
            pipe.xrange(self.shard.keys.outcomes(task), self._peeked[task])
        told: list[Told] = []
        for task, entries in zip(self._tasks, pipe.execute(), strict=True):
            for id_, fields in entries:
                self._peeked[task] = b"(" + id_
                told.extend((task, outcome) for outcome in parse_entry(0, id_, fields, self._edges))
        return told

    def snapshot(self) -> Callable[[], None]:
        """Take a snapshot."""
        dump, peeked, then = self.shard.dump(), self._peeked.copy(), self.shard.moved_ms

        def restore() -> None:
            now = self.shard.moved_ms
            self.shard.restore(dump)
            self.shard.advance(now - then)
            self.shard.moved_ms, self._peeked = now, peeked.copy()

        return restore

    def counters(self) -> dict[str, int]:
        """Return the counters of the shard, by name."""
        more = [f"odd:{edge}" for edge in (*range(len(self._edges)), "none")] + ["slow"]
        more += [f"{kind}:{task}" for kind in ("ended", "good") for task in self._tasks]
        values = self._client.hmget(self.shard.keys.meta, *COUNTERS, *more)
        found = dict(zip((*COUNTERS, *more), (int(value or 0) for value in values), strict=True))
        return {name: count for name, count in found.items() if count or name in COUNTERS}

    def names(self) -> set[str]:
        """Return the registered tasks."""
        fields = self._client.hkeys(self.shard.keys.meta)
        return {field[8:].decode() for field in fields if field.startswith(b"backlog:")}

    def tracked_records(self) -> int:
        """Return the number of trees without a verdict; raise Violation if a call left a key."""
        if left := self.shard.left_keys:
            raise Violation("keys", f"{sorted(left)} are of no pending block")
        return self.shard.tracked_records + self.shard.trees_in_blocks
