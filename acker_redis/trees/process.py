"""Which process this is. To compare it costs a tenth of asking the system for the pid."""

import os

forks = 0
"""Number of forks between the first process of the program and this one: a forked child differs.

A fork in C that calls none of Python's hooks, such as ``ctypes`` can make, is not noticed.
"""
forking: list[None] = []
"""Has elements while a fork runs. In a child other code may run before its ``forks`` has changed:
hooks of other libraries, and ``__del__`` of what only other threads of the parent held.
"""
_pid = os.getpid()


def is_other(begun_in: int) -> bool:
    """Return whether this process is a forked child of the one whose ``forks`` are given."""
    return begun_in != forks or (bool(forking) and os.getpid() != _pid)


def _begun() -> None:
    global forks, _pid
    forks += 1
    _pid = os.getpid()
    forking.clear()


os.register_at_fork(
    before=lambda: forking.append(None), after_in_parent=forking.pop, after_in_child=_begun
)
