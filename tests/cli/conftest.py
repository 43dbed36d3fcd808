"""Fixture: a shell on the shared server of the session."""

import pytest

from acker_redis.embedded import EmbeddedRedis
from tests.cli.support import Shell


@pytest.fixture
def shell(any_server: EmbeddedRedis) -> Shell:
    """Run commands on this server."""
    return Shell(any_server)
