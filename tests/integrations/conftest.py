"""Fixtures: a Kafka cluster and a RabbitMQ broker for all tests of a process, and new names."""

import uuid
from collections.abc import Iterator

import pytest

from acker_redis import Acker, AckerConfig
from acker_redis.embedded import EmbeddedRedis
from tests.conftest import missing
from tests.integrations import kafka, rabbitmq
from tests.integrations.rabbitmq_shop import Shop


@pytest.fixture(scope="session")
def servers() -> Iterator[str]:
    with kafka.cluster() as running:
        yield running


@pytest.fixture(scope="session")
def rabbit(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a RabbitMQ broker."""
    if lacks := rabbitmq.lacks():
        missing(lacks)
    with rabbitmq.broker(tmp_path_factory.mktemp("rabbit")) as running:
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


@pytest.fixture
def shop(rabbit: str, orders: Acker) -> Iterator[Shop]:
    shop = Shop(rabbit, orders)
    yield shop
    if shop.connection.is_open:
        shop.connection.close()
