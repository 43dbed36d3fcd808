"""Drivers of all clients, started once a session, and what they connect to."""

from collections.abc import Callable, Iterator

import pytest

from acker_redis.embedded import EmbeddedRedis
from tests.cluster.servers import Cluster
from tests.conftest import binary_of, missing
from tests.languages.clients import CLIENTS, Client
from tests.languages.driver import Driver

SIDES = [(client, library) for client in CLIENTS.values() for library in client.libraries]
"""Each client, with each library that it works with."""
MakeDriver = Callable[[Client, str], Driver]


def name_of(side: tuple[Client, str]) -> str:
    """A side's name in the tests."""
    client, library = side
    return f"{client.name}-{library}" if library else client.name


@pytest.fixture(params=SIDES, ids=name_of)
def side(request: pytest.FixtureRequest) -> tuple[Client, str]:
    """Each side; it is skipped if what it needs is missing."""
    found: tuple[Client, str] = request.param
    if lacks := found[0].lacks():
        missing(f"{lacks}, for the client in {found[0].language},")
    return found


@pytest.fixture(scope="session")
def drivers() -> Iterator[MakeDriver]:
    """A driver that runs, the same one again unless it was killed."""
    running: dict[tuple[str, str], Driver] = {}

    def get(client: Client, library: str) -> Driver:
        driver = running.get((client.name, library))
        if driver is None or not driver.alive:
            driver = running[client.name, library] = Driver(client, library)
        return driver

    yield get
    for driver in running.values():
        if driver.alive:
            driver.close()


@pytest.fixture
def driver(side: tuple[Client, str], drivers: MakeDriver) -> Driver:
    """The driver of each side; whoever asks it connects it."""
    return drivers(*side)


@pytest.fixture(scope="session")
def masters() -> Iterator[Cluster]:
    """A cluster of three."""
    with Cluster(binary_of("default")) as running:
        yield running


@pytest.fixture(scope="session")
def alone() -> Iterator[EmbeddedRedis]:
    """A server of their own: the vectors empty it again and again."""
    with EmbeddedRedis() as running:
        yield running
