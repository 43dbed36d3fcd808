"""State that must be reset in a forked child before any other code runs there."""

import os
import weakref
from typing import Protocol


class Resettable(Protocol):
    """An object with state that a child must not share with its parent, such as a lock."""

    def reset_after_fork(self) -> None:
        """Reset names, locks, threads and buffers, as a forked child must."""


_ALL: "weakref.WeakSet[Resettable]" = weakref.WeakSet()


def reset_in_children(thing: Resettable) -> None:
    """Call ``reset_after_fork`` in each child that is forked from now on, while ``thing`` exists.

    Only a weak reference to ``thing`` is kept.
    """
    _ALL.add(thing)


def _begin_all() -> None:
    for thing in list(_ALL):
        thing.reset_after_fork()


os.register_at_fork(after_in_child=_begin_all)
