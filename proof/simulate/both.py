"""A history that runs on two shards at once."""

from collections.abc import Callable, Sequence
from typing import TypeVar

from acker_redis.errors import AckerError
from acker_redis.protocol.commands import Fence
from acker_redis.protocol.ids import block_anchor
from acker_redis.protocol.outcome import Outcome
from proof.oracle import BlockKey, Reply, Told, Violation
from proof.oracle.books import content
from proof.reference.acker import TreeRow
from proof.reference.blocks import BlockRow
from proof.simulate.backends import Backend

T = TypeVar("T")


class BothBackends:
    """Two shards that get every call; raises Violation if they do not do the same."""

    exact = False

    def __init__(self, first: Backend, second: Backend) -> None:
        self._first, self._second = first, second

    def apply(self, rows: Sequence[TreeRow], task: str, fence: Fence) -> Reply:
        """Apply a batch."""
        one = self._first.apply(rows, task, fence)
        other = self._second.apply(rows, task, fence)
        return self._reply("apply", one, other, rows[0].anchor)

    def apply_blocks(self, rows: Sequence[BlockRow], fence: Fence) -> Reply:
        """Apply a batch of blocks."""
        one = self._first.apply_blocks(rows, fence)
        other = self._second.apply_blocks(rows, fence)
        return self._reply("apply_blocks", one, other, block_anchor(rows[0].block, 0))

    def rotate(self) -> bool:
        """Tick if a tick is due, and return whether it ticked."""
        return self._same("rotate", self._first.rotate(), self._second.rotate())

    def expire(self) -> None:
        """Drain the loose trees that expire."""
        self._first.expire()
        self._second.expire()

    def expire_blocks(self) -> None:
        """Drain the blocks that expire."""
        self._first.expire_blocks()
        self._second.expire_blocks()

    def lose(self, block: int, key: BlockKey) -> None:
        """Delete a key of a block."""
        self._first.lose(block, key)
        self._second.lose(block, key)

    def take(self, task: str) -> list[Outcome]:
        """Take the verdicts of a task and return them."""
        one, other = self._first.take(task), self._second.take(task)
        self._same("take", _ageless(one), _ageless(other))
        return one

    def peek(self) -> list[Told]:
        """Return the verdicts that were written since the last peek and still wait."""
        one, other = self._first.peek(), self._second.peek()
        tasks = sorted({task for task, _ in (*one, *other)})
        for task in tasks:
            found = [_ageless([o for t, o in told if t == task]) for told in (one, other)]
            self._same(f"verdicts of {task}", *found)
        return one

    def advance(self, ms: int) -> None:
        """Move the clock."""
        self._first.advance(ms)
        self._second.advance(ms)

    def snapshot(self) -> Callable[[], None]:
        """Take a snapshot of both."""
        restores = self._first.snapshot(), self._second.snapshot()

        def restore() -> None:
            for each in restores:
                each()

        return restore

    def counters(self) -> dict[str, int]:
        """Return the counters of the shard, by name."""
        one, other = self._first.counters(), self._second.counters()
        self._same("counters", _unhurried(one), _unhurried(other))
        return one

    def names(self) -> set[str]:
        """Return the registered tasks."""
        return self._same("names of tasks", self._first.names(), self._second.names())

    def tracked_records(self) -> int:
        """Return the number of trees without a verdict."""
        one, other = self._first.tracked_records(), self._second.tracked_records()
        return self._same("tracked records", one, other)

    def _reply(self, what: str, one: Reply, other: Reply, anchor: int) -> Reply:
        errors = isinstance(one, AckerError) and type(one) is type(other)
        if one != other and not errors:
            raise Violation("backends differ", f"{what}: {one!r}, {other!r}", anchor)
        return one

    def _same(self, what: str, one: T, other: T) -> T:
        if one != other:
            raise Violation("backends differ", f"{what}: {one!r}, {other!r}")
        return one


def _unhurried(counters: dict[str, int]) -> dict[str, int]:
    """Return the counters that do not depend on the speed of a server."""
    return {
        name: count
        for name, count in counters.items()
        if name != "slow" and not name.startswith("good:")
    }


def _ageless(outcomes: Sequence[Outcome]) -> list[tuple[object, ...]]:
    return sorted(map(content, outcomes))
