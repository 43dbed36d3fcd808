"""Clusters for the tests, one per session. Import the fixtures into a conftest.py."""

from collections.abc import Callable, Iterator

import pytest
import redis

from tests.cluster.servers import Cluster
from tests.conftest import OLDEST_AND_NEWEST, binary_of


@pytest.fixture(scope="session", params=OLDEST_AND_NEWEST)
def session_cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """Three masters of the oldest server that is supported, then of the newest."""
    with Cluster(binary_of(request.param)) as running:
        yield running


@pytest.fixture
def cluster(session_cluster: Cluster) -> Iterator[Cluster]:
    """Three masters that hold no keys. A test leaves no slot half moved, unless it fails."""
    session_cluster.repair()
    yield session_cluster
    session_cluster.flush()


@pytest.fixture(scope="session")
def three_masters() -> Iterator[Callable[[], "redis.RedisCluster"]]:
    """Makes clients of three masters, of whichever server there is."""
    with Cluster(binary_of("default")) as running:
        yield running.client
