"""Servers that sentinels monitor."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from acker_redis.embedded.binary import ServerBinary
from tests.conftest import OLDEST_AND_NEWEST, binary_of
from tests.sentinel.servers import Watched


@pytest.fixture(scope="package", params=OLDEST_AND_NEWEST)
def binary(request: pytest.FixtureRequest) -> ServerBinary:
    """Return the oldest supported server, and the newest."""
    return binary_of(request.param)


@pytest.fixture
def watched(binary: ServerBinary, tmp_path: Path) -> Iterator[Watched]:
    """Yield a master, a replica and three sentinels for one test, which may fail over."""
    with Watched(binary, tmp_path) as running:
        yield running


@pytest.fixture(scope="package")
def at_rest(binary: ServerBinary, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    """Yield the same servers for several tests, which must not fail over."""
    with Watched(binary, tmp_path_factory.mktemp("sentinels")) as running:
        yield running
