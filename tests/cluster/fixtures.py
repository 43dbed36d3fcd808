"""Clusters for the tests, one for each session. Import the fixtures into a conftest.py."""

from collections.abc import Callable, Iterator

import pytest
import redis

from tests.cluster.servers import Cluster
from tests.conftest import OLDEST_AND_NEWEST, binary_of


@pytest.fixture(scope="session", params=OLDEST_AND_NEWEST)
def session_cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """Yield three masters of the oldest supported server, then of the newest."""
    with Cluster(binary_of(request.param)) as running:
        yield running


@pytest.fixture
def cluster(session_cluster: Cluster) -> Iterator[Cluster]:
    """Yield three masters without keys, and without a migrating slot of a failed test."""
    session_cluster.repair()
    yield session_cluster
    session_cluster.flush()


@pytest.fixture(scope="session")
def three_masters() -> Iterator[Callable[[], "redis.RedisCluster"]]:
    """Yield a function that creates clients of three masters, of any installed server."""
    with Cluster(binary_of("default")) as running:
        yield running.client
