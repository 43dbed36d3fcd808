"""Servers that sentinels watch."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from acker_redis.embedded.binary import ServerBinary
from tests.conftest import OLDEST_AND_NEWEST, binary_of
from tests.sentinel.servers import Watched


@pytest.fixture(scope="package", params=OLDEST_AND_NEWEST)
def binary(request: pytest.FixtureRequest) -> ServerBinary:
    """The oldest server that is supported, and the newest."""
    return binary_of(request.param)


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
