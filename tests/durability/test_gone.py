"""Nothing was on disk: the namespace is lost, until the operator creates it again."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from acker_redis.batching.batch import Batch
from acker_redis.embedded.binary import find_server
from acker_redis.errors import NamespaceNotFoundError
from acker_redis.protocol.config import AckerConfig
from acker_redis.rotator.rotator import Rotator
from acker_redis.sync.client import Acker
from tests.durability.records import Replayed
from tests.durability.servers import NEITHER, Kept
from tests.source.conftest import Clock
from tests.source.conftest import clock as clock
from tests.support import backlog, total, track
from tests.waiting import LIMIT, wait_until

CONFIG = AckerConfig(tick_ms=3_600_000, publish=False)


@pytest.fixture
def server(directory: Path) -> Iterator[Kept]:
    binary = find_server()
    assert binary
    with Kept(binary, directory, *NEITHER) as running:
        yield running


def loses_all(server: Kept) -> None:
    server.kill()
    server.start()


def test_source_continues_after_the_namespace_is_created_again(server: Kept, clock: Clock) -> None:
    """The error tells the producer to create it; the batch in doubt is for trees that are lost."""
    with (
        Acker.from_url(server.url, "n", retry_for=LIMIT) as acker,
        Acker.from_url(server.url, "n", retry_for=LIMIT) as producer,
    ):
        acker.create(CONFIG)
        source = Replayed(server.url, "n", clock, seed=7)

        def lose() -> None:
            loses_all(server)
            batch = Batch()
            batch.ack(7, 40)
            with pytest.raises(NamespaceNotFoundError, match="create it .acker-redis create"):
                producer.apply(batch)
            source_waits(source)
            acker.create(CONFIG)
            assert producer.apply(batch).acked == 0

        source.run(60, {20: lose, 40: lose})
        source.close()
        counters = total(acker)
    assert counters["conflict"] == 0
    assert any(attempt > 1 for attempt in source.attempts.values())


def source_waits(source: Replayed) -> None:
    """Check that the source is refused, and keeps its records."""
    acked = len(source.acked)
    for _ in range(3):
        source.step(0)
    assert len(source.acked) == acked


def test_rotator_continues_after_the_namespace_is_created_again(server: Kept) -> None:
    with (
        Acker.from_url(server.url, "n", retry_for=LIMIT) as acker,
        Rotator(Acker.from_url(server.url, "n")),
    ):
        for _ in range(2):
            acker.create(AckerConfig(tick_ms=50, publish=False))
            track(acker, 7, 10)
            wait_until(lambda: backlog(acker) == 1, "a tree that expires", pause=0.02)
            loses_all(server)
