"""Fixtures: producers of both kinds, on one real server."""

from collections.abc import Callable, Iterator

import pytest

from acker_redis.embedded import EmbeddedRedis
from tests.conftest import MakeAcker
from tests.producer.rig import Rig
from tests.transport.proxy import Proxy, proxied

MakeRig = Callable[..., Rig]


@pytest.fixture(params=["sync", "asyncio"])
def kind(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture
def make_rig(kind: str, any_server: EmbeddedRedis, make_any_acker: MakeAcker) -> Iterator[MakeRig]:
    """Make rigs, each in a separate namespace, from fields of AckerConfig."""
    made: list[Rig] = []

    def make(url: str | None = None, **fields: object) -> Rig:
        made.append(Rig(kind, make_any_acker(**fields), url or any_server.url))
        return made[-1]

    yield make
    for rig in made:
        rig.close()


@pytest.fixture
def rig(make_rig: MakeRig) -> Rig:
    """A rig with one shard."""
    return make_rig()


@pytest.fixture
def proxy(any_server: EmbeddedRedis) -> Iterator[Proxy]:
    with proxied(any_server.url) as running:
        yield running
