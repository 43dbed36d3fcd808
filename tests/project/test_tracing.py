"""A forked child of a test is not traced, so it cannot wait for a lock of coverage.py."""

import subprocess
import sys

PROGRAM = """
import os, sys, threading
import tests
from acker_redis.flows import forks

seen = []

class Thing:
    def reset_after_fork(self):
        seen.append(sys.gettrace())

thing = Thing()
forks.reset_in_children(thing)
sys.settrace(lambda *_: None)
threading.settrace(lambda *_: None)
child = os.fork()
if child == 0:
    thread = threading.Thread(target=lambda: seen.append(sys.gettrace()))
    thread.start()
    thread.join()
    os._exit(0 if seen == [None, None] and sys.gettrace() is None else 1)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) or sys.gettrace() is None)
"""


def test_a_forked_child_is_not_traced() -> None:
    """Also not in the functions that the package registers for children."""
    subprocess.run([sys.executable, "-c", PROGRAM], check=True)
