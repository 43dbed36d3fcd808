"""Cases, each in a separate namespace and folder."""

import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from acker_flights import session
from acker_redis.embedded import EmbeddedRedis
from acker_redis.protocol.config import AckerConfig
from acker_redis.sync.client import Acker
from tests.conftest import missing
from tests.spark.faults.stage import Stage
from tests.spark.faults.work import Case, Kind

MakeCase = Callable[..., tuple[Case, Acker]]


@pytest.fixture(scope="session", autouse=True)
def java() -> None:
    """Skip the tests without Java, or fail on CI."""
    if advice := session.missing_java():
        missing(advice)


@pytest.fixture(scope="session")
def stage(java: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    """Start a driver whose tasks may fail three times."""
    with Stage(tmp_path_factory.mktemp("stage"), "local[2,4]") as running:
        yield running


@pytest.fixture
def make_case(any_server: EmbeddedRedis, tmp_path: Path) -> Iterator[MakeCase]:
    """Return a function that makes a case from the number of shards and fields of Case."""
    made: list[Acker] = []

    def make(shards: int, kind: Kind, **fields: object) -> tuple[Case, Acker]:
        client = Acker.from_url(any_server.url, f"f-{uuid.uuid4().hex[:12]}", timeout=60)
        client.create(AckerConfig(shards=shards, tick_ms=3_600_000))
        made.append(client)
        folder = tmp_path / client.namespace
        folder.mkdir()
        given = {"url": any_server.url, "namespace": client.namespace, "folder": folder}
        return Case(**{**given, "kind": kind, **fields}), client  # type: ignore[arg-type]

    yield make
    for client in made:
        client.close()
