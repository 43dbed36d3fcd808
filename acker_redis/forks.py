"""What begins anew in a forked child, before anything else runs there."""

import os
import weakref
from typing import Protocol


class Begins(Protocol):
    """Something that a child may not share with its parent: names, locks, threads, buffers."""

    def begin(self) -> None:
        """Begin anew, as in a forked child."""


_ALL: "weakref.WeakSet[Begins]" = weakref.WeakSet()


def begins_in_children(thing: Begins) -> None:
    """Call its ``begin()`` in each child that is forked from now on, for as long as it lives."""
    _ALL.add(thing)


def _begin_all() -> None:
    for thing in list(_ALL):
        thing.begin()


os.register_at_fork(after_in_child=_begin_all)
