"""A bad line to one server, and the shared cluster of these tests."""

import contextlib
from collections.abc import Callable, Iterator

import pytest

from acker_redis.embedded import EmbeddedRedis
from tests.cluster.servers import Cluster
from tests.conftest import MakeAcker, binary_of
from tests.hazard.line import bad_line
from tests.hazard.runs import CONFIG, Run

MakeRun = Callable[..., Run]


@pytest.fixture
def make_run(any_server: EmbeddedRedis, make_any_acker: MakeAcker) -> Iterator[MakeRun]:
    """Yield a function that makes a run over a bad line, from a seed and AckerConfig fields."""
    with contextlib.ExitStack() as stack:

        def make(seed: int, share: float = 1.0, **fields: object) -> Run:
            line = stack.enter_context(bad_line(any_server.url, seed))
            direct = make_any_acker(**{**CONFIG, **fields})
            return Run(direct, [line], seed, share)

        yield make


@pytest.fixture(scope="session")
def three_masters() -> Iterator[Cluster]:
    with Cluster(binary_of("default")) as running:
        yield running
