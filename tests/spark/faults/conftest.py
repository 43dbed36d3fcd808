"""Cases in namespaces of their own, and what becomes of them when nothing happens."""

import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from acker_flights import session

from acker_redis.client import Acker
from acker_redis.config import AckerConfig
from acker_redis.embedded import EmbeddedRedis
from tests.conftest import missing
from tests.spark.faults.stage import Stage
from tests.spark.faults.work import STEPS, Case, Kind, reconcile, settled, expected

MakeCase = Callable[..., tuple[Case, Acker]]
Plain = Callable[[Stage, Kind, int], Counter[str]]


@pytest.fixture(scope="session", autouse=True)
def java() -> None:
    """These tests need Java."""
    if advice := session.missing_java():
        missing(advice)


@pytest.fixture
def make_case(any_server: EmbeddedRedis, tmp_path: Path) -> Iterator[MakeCase]:
    """Make cases, from the number of shards and fields of Case."""
    made: list[Acker] = []

    def make(shards: int, kind: Kind, **fields: object) -> tuple[Case, Acker]:
        client = Acker.from_url(any_server.url, f"f-{uuid.uuid4().hex[:12]}")
        client.create(AckerConfig(shards=shards, tick_ms=3_600_000))
        made.append(client)
        folder = tmp_path / client.namespace
        folder.mkdir()
        given = {"url": any_server.url, "namespace": client.namespace, "folder": folder}
        return Case(**{**given, "kind": kind, **fields}), client  # type: ignore[arg-type]

    yield make
    for client in made:
        client.close()


_PLAIN: dict[tuple[Kind, int], Counter[str]] = {}


@pytest.fixture
def plain(make_case: MakeCase) -> Plain:
    """Counters of the pipeline when nothing happens."""

    def run(stage: Stage, kind: Kind, shards: int) -> Counter[str]:
        if (kind, shards) not in _PLAIN:
            case, client = make_case(shards, kind)
            for step in STEPS.values():
                assert stage.run(step, case)["repeated"] == 0
            found, _PLAIN[kind, shards] = settled(client)
            assert found == expected()
        return _PLAIN[kind, shards]

    return run
