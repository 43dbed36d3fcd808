"""A producer lane: a name of its own per process, and numbers that grow."""

import secrets
from typing import Generic, TypeVar

from acker_redis.forks import begins_in_children

L = TypeVar("L")


class Lane(Generic[L]):
    """One call in flight, numbers that grow, and a name that no other process has.

    Whoever sends under it holds ``lock``: a ``threading.Lock`` or an ``asyncio.Lock``, or nothing
    where there is only one sender. A forked child begins anew before anything else runs in it:
    if it went on with its parent's lane it would be fenced out or, worse, be taken for the parent;
    and its copy of the lock may be held by a thread that it has not.
    """

    def __init__(self, lock: type[L]) -> None:
        self._make_lock = lock
        self.begin()
        begins_in_children(self)

    def begin(self) -> None:
        """Take a new name and a lock that is free."""
        self.lock: L = self._make_lock()
        self.name = secrets.token_hex(16)
        self.seq = 0

    def draw(self, count: int) -> tuple[str, int]:
        """Name of the lane and the first of ``count`` numbers, to be called by the holder."""
        first = self.seq + 1
        self.seq += count
        return self.name, first
