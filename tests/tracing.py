"""No coverage in forked children.

coverage.py takes a lock when a thread first enters a file. A child that was forked while a thread
of its parent held it would wait for ever; and what the child measures is never read.
"""

import os
import sys
import threading


def stop() -> None:
    """Trace nothing from now on, in this thread and in later ones."""
    sys.settrace(None)
    threading.settrace(None)  # type: ignore[arg-type]


# The package registers functions of its own, which are traced: this one must run before them.
os.register_at_fork(after_in_child=stop)
