"""A producer lane: a unique name per process, and increasing numbers."""

import secrets
from typing import Generic, TypeVar

from acker_redis.flows.forks import reset_in_children

L = TypeVar("L")


class Lane(Generic[L]):
    """A lane: one call in flight, increasing numbers, and a name that no other process has.

    The caller holds ``lock`` while it sends under the lane. The lock is a ``threading.Lock`` or an
    ``asyncio.Lock``; a lane with a single sender needs none.

    A forked child takes a new name before other code runs in it. With the parent's name, a shard
    would refuse the child's batches or, worse, take them for the parent's. The child also takes a
    new lock: its copy of the parent's lock may be held by a thread that the child does not have.
    """

    def __init__(self, lock: type[L]) -> None:
        self._make_lock = lock
        self.reset_after_fork()
        reset_in_children(self)

    def reset_after_fork(self) -> None:
        """Take a new name and a free lock; number from 1 again."""
        self.lock: L = self._make_lock()
        self.name = secrets.token_hex(16)
        self.seq = 0

    def draw(self, count: int) -> tuple[str, int]:
        """Return the lane's name and the first of ``count`` new numbers.

        The caller holds the lock.
        """
        first = self.seq + 1
        self.seq += count
        return self.name, first
