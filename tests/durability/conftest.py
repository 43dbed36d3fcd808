"""Binaries of the servers, and directories whose paths are short enough for a socket."""

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from acker_redis.embedded.binary import ServerBinary
from tests.conftest import OLDEST_AND_NEWEST, binary_of


@pytest.fixture(scope="package", params=OLDEST_AND_NEWEST)
def binary(request: pytest.FixtureRequest) -> ServerBinary:
    """Return the oldest supported server, and the newest."""
    return binary_of(request.param)


@pytest.fixture
def directory() -> Iterator[Path]:
    """Yield a new directory for the test."""
    path = Path(tempfile.mkdtemp(prefix="acker-kept-"))
    yield path
    shutil.rmtree(path)
