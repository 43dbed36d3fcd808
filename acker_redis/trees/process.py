"""Which process this is. To compare it costs a tenth of asking the system for the pid."""

import os

forks = 0
"""Number of forks between the first process of the program and this one: a forked child differs.

A fork in C that calls none of Python's hooks, such as ``ctypes`` can make, is not noticed.
"""


def _count() -> None:
    global forks
    forks += 1


os.register_at_fork(after_in_child=_count)
