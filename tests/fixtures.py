"""Servers and ackers for all tests: the fixtures that ``conftest.py`` registers."""

import uuid
from collections.abc import Iterator

import pytest

from acker_redis.embedded import EmbeddedRedis
from acker_redis.sync.client import Acker
from tests.conftest import MakeAcker, binary_of
from tests.open_redis import OpenRedis
from tests.support import config_of
from tests.tiers import servers


@pytest.fixture(scope="session", params=servers())
def server(request: pytest.FixtureRequest) -> Iterator[EmbeddedRedis]:
    """A real server: the default one; in later tiers each server that the scripts support."""
    with OpenRedis(binary=binary_of(request.param)) as running:
        yield running


@pytest.fixture(scope="session")
def any_server() -> Iterator[EmbeddedRedis]:
    """One real server, for tests of the Python code around the scripts."""
    with OpenRedis(binary=binary_of("default")) as running:
        yield running


@pytest.fixture
def make_acker(server: EmbeddedRedis) -> Iterator[MakeAcker]:
    """Make ackers, each in a separate namespace, from fields of AckerConfig."""
    yield from _makers(server)


@pytest.fixture
def make_any_acker(any_server: EmbeddedRedis) -> Iterator[MakeAcker]:
    """Make ackers as ``make_acker`` does, on one server only."""
    yield from _makers(any_server)


@pytest.fixture
def acker(make_acker: MakeAcker) -> Acker:
    """An acker with the default configuration."""
    return make_acker()


def _makers(server: EmbeddedRedis) -> Iterator[MakeAcker]:
    made: list[Acker] = []

    def make(**fields: object) -> Acker:
        config = config_of(fields)
        made.append(Acker.from_url(server.url, f"test-{uuid.uuid4().hex[:12]}"))
        if len(made) == 1:
            # Keys of earlier tests would slow down every scan.
            made[0].connection.client.flushall()
        made[-1].create(config)
        return made[-1]

    yield make
    for acker in made:
        acker.connection.client.flushall()
        acker.close()
