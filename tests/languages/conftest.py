"""Drivers of all clients, started once a session, and the servers that they connect to."""

from collections.abc import Callable, Iterator

import pytest

from acker_redis.embedded import EmbeddedRedis
from tests.cluster.servers import Cluster
from tests.conftest import binary_of, missing
from tests.languages.clients import CLIENTS, Client
from tests.languages.driver import Driver
from tests.open_redis import OpenRedis

SIDES = [(client, library) for client in CLIENTS.values() for library in client.libraries]
"""Each client, with each library that it works with."""
MakeDriver = Callable[[Client, str], Driver]


def name_of(side: tuple[Client, str]) -> str:
    """Return the name of a side in the tests."""
    client, library = side
    return f"{client.name}-{library}" if library else client.name


SLOW = "shell"
"""It starts a process for each of some thousand calls."""


@pytest.fixture(params=SIDES, ids=name_of)
def side(request: pytest.FixtureRequest) -> tuple[Client, str]:
    """Return each side; skip it if a requirement is missing."""
    found: tuple[Client, str] = request.param
    if lacks := found[0].lacks():
        missing(f"{lacks}, for the client in {found[0].language},")
    return found


@pytest.fixture(scope="session")
def drivers() -> Iterator[MakeDriver]:
    """Yield a function that returns a running driver: the same one until it is killed."""
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
    """Return the driver of each side; the test connects it."""
    return drivers(*side)


@pytest.fixture(scope="session")
def masters() -> Iterator[Cluster]:
    """Yield a cluster of three masters."""
    with Cluster(binary_of("default")) as running:
        yield running


@pytest.fixture(scope="session")
def alone() -> Iterator[EmbeddedRedis]:
    """Yield a separate server for the cases, which empty it repeatedly."""
    with OpenRedis() as running:
        yield running
