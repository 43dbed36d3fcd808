"""State that must be reset in a forked child before any other code runs there."""

import os
import weakref
from typing import Protocol


class Begins(Protocol):
    """An object with state that a child must not share with its parent, such as a lock."""

    def begin(self) -> None:
        """Reset names, locks, threads and buffers, as a forked child must."""


_ALL: "weakref.WeakSet[Begins]" = weakref.WeakSet()


def begins_in_children(thing: Begins) -> None:
    """Call ``thing.begin()`` in each child that is forked from now on, while ``thing`` exists.

    Only a weak reference to ``thing`` is kept.
    """
    _ALL.add(thing)


def _begin_all() -> None:
    for thing in list(_ALL):
        thing.begin()


os.register_at_fork(after_in_child=_begin_all)
