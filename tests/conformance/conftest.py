"""What the conformance tests run against: every implementation there is.

``reference`` is the acker in plain Python; ``default`` is the server that a user gets. In later
tiers there are also the other servers, ``cluster`` (three masters), ``fake`` (fakeredis with
Lua, which passes all of it) and ``functions`` (Valkey 9.1, with the scripts that only read called
as functions). What fakeredis lacks (maxmemory, encodings, rights, how a scan walks,
the time that a call takes) is tested in ``tests/servers``.
"""

import itertools
from collections.abc import Callable, Iterator

import pytest
import redis

from acker_redis.embedded import EmbeddedRedis
from acker_redis.protocol import functions
from acker_redis.protocol.config import AckerConfig
from acker_redis.reference.blocks import BlockReference
from acker_redis.sync.client import Acker
from acker_redis.sync.connection import Connection
from tests.cluster.fixtures import three_masters
from tests.conftest import binary_of, missing
from tests.fake.running import installed, running
from tests.support import Target
from tests.tiers import FULL, is_later, servers

__all__ = ["three_masters"]

MakeTarget = Callable[..., Target]
_names = itertools.count(1)


IMPLEMENTATIONS = [
    "reference",
    *servers(),
    *(() if is_later(FULL) else ("cluster", "fake", "functions")),
]


@pytest.fixture(scope="session", params=IMPLEMENTATIONS)
def connect(request: pytest.FixtureRequest) -> Iterator[Callable[[], object] | None]:
    """Makes a client of the implementation; None for the reference, which needs none."""
    kind = request.param
    if kind == "reference":
        yield None
    elif kind == "cluster":
        yield request.getfixturevalue("three_masters")
    elif kind == "fake":
        if not installed():
            missing("fakeredis with Lua")
        with running() as fake:
            yield lambda: redis.Redis.from_url(fake.url)
    elif kind == "functions":
        with EmbeddedRedis(binary=binary_of("wheel")) as server:
            with redis.Redis.from_url(server.url) as client:
                functions.load(Connection(client))
            yield lambda: functions.use_functions(redis.Redis.from_url(server.url))
    else:
        with EmbeddedRedis(binary=binary_of(kind)) as server:
            yield lambda: redis.Redis.from_url(server.url)


@pytest.fixture
def make_acker(connect: Callable[[], object] | None) -> Iterator[MakeTarget]:
    """Make ackers, each in a namespace of its own, from fields of AckerConfig."""
    made: list[Acker] = []

    def make(**fields: object) -> Target:
        # No tick of the clock comes in between: a test forces the ticks it wants.
        config = AckerConfig(**{"tick_ms": 3_600_000, **fields})  # type: ignore[arg-type]
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
    """An acker with the default configuration."""
    return make_acker()
