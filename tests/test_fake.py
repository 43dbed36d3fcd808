"""The code around the scripts on fakeredis: quick, and where there is no redis-server."""

from collections.abc import Iterator

import pytest

from acker_redis.batch import Batch
from acker_redis.client import Acker
from acker_redis.config import AckerConfig
from acker_redis.embedded import EmbeddedRedis
from acker_redis.errors import InvalidBatchError, NamespaceNotFoundError
from acker_redis.server_binary import find_fake
from tests.conftest import missing
from tests.support import columns, send, tick, total


@pytest.fixture(scope="module")
def fake() -> Iterator[EmbeddedRedis]:
    binary = find_fake()
    if binary is None:
        missing("fakeredis with Lua")
    with EmbeddedRedis(binary=binary) as server:
        yield server


@pytest.fixture
def acker(fake: EmbeddedRedis, request: pytest.FixtureRequest) -> Iterator[Acker]:
    with Acker.from_url(fake.url, request.node.name[:60].replace("[", "-").strip("]")) as made:
        made.create(AckerConfig(tick_ms=3_600_000, high_water=50, shards=2))
        yield made


def test_a_whole_life(acker: Acker) -> None:
    track, work, end = Batch("t"), Batch(), Batch()
    for anchor in range(1, 31):
        track.track(anchor, f"s{anchor}", [anchor + 1000])
        if anchor % 3 == 0:
            work.fail(anchor, "third", tuple_id=anchor + 1000)
        elif anchor % 3 == 1:
            work.ack(anchor, anchor + 1000, [anchor + 2000])
            end.ack(anchor, anchor + 2000)
    assert acker.apply(track).tracked == 30
    assert acker.apply(work).failed == 10
    work.sent.replies.clear()  # type: ignore[union-attr] - as if the reply had been lost
    assert acker.apply(work).repeated
    assert acker.apply(end).acked == 10
    tick(acker, 3)
    outcomes = {o.source_id: (o.reason, o.why) for o in acker.outcomes("t")}
    expected = {0: ("failed", "third"), 1: ("completed", ""), 2: ("expired", "")}
    assert outcomes == {f"s{a}": expected[a % 3] for a in range(1, 31)}
    assert total(acker)["pending"] == 0


def test_overflow(acker: Acker) -> None:
    track = Batch("t")
    for anchor in range(1, 121):
        track.track(anchor, "s", [anchor])
    assert len(acker.apply(track).rejected) == 20


def test_errors(acker: Acker, fake: EmbeddedRedis) -> None:
    with pytest.raises(InvalidBatchError, match="twice"):
        send(acker, columns([(2, 1, 0), (2, 1, 0)]))
    with pytest.raises(NamespaceNotFoundError):
        Acker.from_url(fake.url, "nobody").status()
