"""The command line, run in this process as its entry point runs it."""

import contextlib
import io
import sys
from dataclasses import dataclass
from unittest import mock

from acker_redis import cli
from acker_redis.embedded import EmbeddedRedis


@dataclass(frozen=True)
class Ran:
    """What a command printed, and its exit code."""

    code: int
    out: str
    err: str


class Shell:
    """Runs commands on one server."""

    def __init__(self, server: EmbeddedRedis) -> None:
        self.url = server.url

    def __call__(self, *args: str, stdin: str | bytes = b"") -> Ran:
        """Run a command; the URL is added."""
        return run(*args, "--url", self.url, stdin=stdin)


def run(*args: str, stdin: str | bytes = b"") -> Ran:
    """Run a command; whatever it raises beyond an exit is the test's failure."""
    given = stdin.encode() if isinstance(stdin, str) else stdin
    out, err, code = io.StringIO(), io.StringIO(), 0
    with (
        mock.patch.object(sys, "argv", ["acker-redis", *args]),
        mock.patch.object(sys, "stdin", io.TextIOWrapper(io.BytesIO(given))),
        mock.patch.dict("os.environ", {"COLUMNS": "200", "TERM": "dumb"}),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        try:
            cli.main()
        except SystemExit as end:
            code = int(end.code or 0)
    return Ran(code, out.getvalue(), err.getvalue())
