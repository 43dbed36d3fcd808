"""Stop coverage in forked children.

coverage.py takes a lock when a thread first enters a file. A child that was forked while a thread
of its parent held this lock would wait forever. The coverage of a child is never read.
"""

import os
import sys
import threading


def stop() -> None:
    """Stop tracing in this thread and in later ones."""
    sys.settrace(None)
    threading.settrace(None)  # type: ignore[arg-type]


# The package also registers functions, which are traced: this one must run before them.
os.register_at_fork(after_in_child=stop)
