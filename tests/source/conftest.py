"""Fixtures: threaded and asyncio sources, bolts, and a clock that tests can advance."""

import time
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from acker_redis import Acker, Backoff, Source
from acker_redis.aio import AsyncAcker
from acker_redis.embedded import EmbeddedRedis
from acker_redis.flows import emits, pace, report, source_state
from acker_redis.flows import source as source_flows
from tests.conftest import MakeAcker
from tests.source.bolts import Bolts, CallbackLog
from tests.source.twin import Loop, Twin
from tests.transport.proxy import Proxy, proxied

AnySource = Any
"""A Source, or a Twin with the same methods."""
MakeSource = Callable[..., AnySource]


class Clock:
    """The clock of the sources; it stands still until the test advances it."""

    def __init__(self) -> None:
        self.now = time.monotonic()

    def monotonic(self) -> float:
        return self.now

    def advance(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    for module in (source_flows, source_state, pace, emits, report):
        monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=clock.monotonic))
    return clock


@pytest.fixture(params=["sync", "asyncio"])
def kind(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture
def acker(make_any_acker: MakeAcker) -> Acker:
    return make_any_acker()


@pytest.fixture
def bolts(acker: Acker) -> Bolts:
    return Bolts(acker)


@pytest.fixture
def called() -> CallbackLog:
    return CallbackLog()


@pytest.fixture
def proxy(any_server: EmbeddedRedis) -> Iterator[Proxy]:
    with proxied(any_server.url) as running:
        yield running


@pytest.fixture
def make_source(kind: str, any_server: EmbeddedRedis, called: CallbackLog) -> Iterator[MakeSource]:
    """Make sources of one kind, each with a separate acker; callbacks go to ``called``."""
    loop = Loop() if kind == "asyncio" else None
    made: list[AnySource] = []

    def make(
        acker: Acker, send: Any = None, *, url: str = "", retry_for: float = 10.0, **options: Any
    ) -> AnySource:
        options = {"backoff": Backoff(0, 0), **called.callbacks, **options}
        url = url or any_server.url
        source: AnySource
        if loop is None:
            own = Acker.from_url(url, acker.namespace, retry_for=retry_for)
            source = Source(own, "t", send, **options)
        else:
            twin = AsyncAcker.from_url(url, acker.namespace, retry_for=retry_for)
            source = Twin(loop, twin, "t", send, **options)
        made.append(source)
        return source

    yield make
    for source in made:
        source.stop()
        if isinstance(source, Twin) and loop:
            loop.call(source.acker.close())
        else:
            source.acker.close()
    if loop:
        loop.close()
