"""A pytest plugin: record the scripts and the seconds of each test, or run chosen tests in order.

``ACKER_TESTS`` names a file. If it is missing, the plugin writes it: JSON, test ->
``[seconds, [script, ..]]``. Otherwise it holds a JSON list of the tests to run.
"""

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from acker_redis.protocol import scripts

FILE = Path(os.environ["ACKER_TESTS"])
_load = scripts.load
_used: set[str] = set()
_found: dict[str, tuple[float, list[str]]] = {}
_records = not FILE.exists()


def _recorded(name: str) -> scripts.Script:
    _used.add(name)
    return _load(name)


if _records:
    scripts.load = _recorded  # type: ignore[assignment]


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[Any]:
    """Record the scripts that a test calls."""
    _used.clear()
    begun = time.monotonic()
    yield
    _found[item.nodeid] = (time.monotonic() - begun, sorted(_used))


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep the chosen tests, in their order."""
    if not _records:
        by_name = {item.nodeid: item for item in items}
        items[:] = [by_name[name] for name in json.loads(FILE.read_text())]


def pytest_sessionfinish() -> None:
    """Write what was recorded."""
    if _records:
        FILE.write_text(json.dumps(_found))
