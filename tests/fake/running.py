"""Start the fake server in a separate process.

The fake loads Lua into its process, and a second Lua in one process would crash it.
"""

import importlib.util
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent


@dataclass(frozen=True)
class FakeRedis:
    """The fake server while it runs."""

    port: int

    @property
    def url(self) -> str:
        """The server's URL, "redis://127.0.0.1:<port>/0"."""
        return f"redis://127.0.0.1:{self.port}/0"


def installed() -> bool:
    """Return whether fakeredis and its Lua are installed."""
    return all(importlib.util.find_spec(name) for name in ("fakeredis", "lupa"))


@contextmanager
def running() -> Iterator[FakeRedis]:
    """Run the fake server; it ends with the block, and with this process if that is killed."""
    with subprocess.Popen(
        [sys.executable, "-m", "tests.fake.server"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=ROOT,
    ) as server:
        assert server.stdin
        assert server.stdout
        line = server.stdout.readline()
        assert line, "the fake server did not start"
        try:
            yield FakeRedis(int(line))
        finally:
            # Closing the pipe is not enough: a child forked in between may hold it too.
            server.terminate()
