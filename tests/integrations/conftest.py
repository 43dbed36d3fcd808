"""Fixtures: a Kafka cluster for all tests of a process, and names of new topics."""

import uuid
from collections.abc import Iterator

import pytest

from acker_redis import Acker, AckerConfig
from acker_redis.embedded import EmbeddedRedis
from tests.integrations import kafka


@pytest.fixture(scope="session")
def servers() -> Iterator[str]:
    with kafka.cluster() as running:
        yield running


@pytest.fixture
def topic() -> str:
    """The name of a topic that does not exist; also of a group."""
    return f"orders-{uuid.uuid4().hex[:8]}"


@pytest.fixture
def orders(any_server: EmbeddedRedis) -> Iterator[Acker]:
    """An acker with the edges ``orders`` and ``priced``."""
    with Acker.from_url(any_server.url, f"kafka-{uuid.uuid4().hex[:8]}", timeout=60) as acker:
        acker.create(AckerConfig(edges=("orders", "priced")))
        yield acker
