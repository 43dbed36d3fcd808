"""A shell on the one server of the session."""

import pytest

from acker_redis.embedded import EmbeddedRedis
from tests.cli.support import Shell


@pytest.fixture
def shell(any_server: EmbeddedRedis) -> Shell:
    """Commands run on this server."""
    return Shell(any_server)
