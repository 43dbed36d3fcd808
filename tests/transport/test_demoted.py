"""After a failover without cut connections, every client leaves the demoted master."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import pytest
import redis
import redis.asyncio as aio

from acker_redis import Acker, AckerConfig, Batch, Producer, Rotator, Source
from acker_redis.aio import AsyncAcker
from acker_redis.errors import RedisUnavailableError
from acker_redis.sync.connection import Connection
from tests.conftest import binary_of
from tests.source.bolts import Bolts, CallbackLog
from tests.source.conftest import kind as kind
from tests.source.twin import Loop, Twin
from tests.support import total
from tests.tiers import servers
from tests.transport.address import TwoServers
from tests.waiting import LIMIT, wait_until

CONFIG = AckerConfig(tick_ms=3_600_000, shards=4)
RECORDS = 30


@pytest.fixture(params=servers())
def two(request: pytest.FixtureRequest) -> Iterator[TwoServers]:
    with TwoServers(binary_of(request.param)) as running:
        with Acker.from_url(running.url, "n") as acker:
            acker.create(CONFIG)
        running.catch_up()
        yield running


def tracks(anchors: range) -> Batch:
    batch = Batch("t")
    for anchor in anchors:
        batch.track(anchor, f"s{anchor}", [anchor])
    return batch


def of_spark(url: str) -> Acker:
    from acker_redis.spark.fold.target import Target  # needs PySpark

    return Target.find("n", url, retry_for=LIMIT).client()


SYNC: dict[str, Callable[[str], Acker]] = {
    "url": lambda url: Acker.from_url(url, "n", retry_for=LIMIT),
    "own": lambda url: Acker(redis.Redis.from_url(url), "n", retry_for=LIMIT),
    "single": lambda url: Acker(
        redis.Redis.from_url(url, single_connection_client=True), "n", retry_for=LIMIT
    ),
    "spark": of_spark,
}
ASYNC: dict[str, Callable[[str], AsyncAcker]] = {
    "url": lambda url: AsyncAcker.from_url(url, "n", retry_for=LIMIT),
    "own": lambda url: AsyncAcker(aio.Redis.from_url(url), "n", retry_for=LIMIT),
    "single": lambda url: AsyncAcker(
        aio.Redis.from_url(url, single_connection_client=True), "n", retry_for=LIMIT
    ),
}


@pytest.mark.parametrize("made", SYNC)
def test_a_client_leaves_the_demoted_master(two: TwoServers, made: str) -> None:
    """The client drops all its connections, of which it has one per shard."""
    with closing(SYNC[made](two.url)) as acker:
        acker.apply(tracks(range(1, 101)))
        two.catch_up()
        before = two.connected(two.old)
        assert before
        two.fail_over()
        applied = acker.apply(tracks(range(101, 201)))
        assert (applied.tracked, total(acker)["tracked"]) == (100, 200)
        wait_until(lambda: not two.connected(two.old), "the demoted master has no clients")


@pytest.mark.parametrize("made", ASYNC)
def test_an_asyncio_client_leaves_the_demoted_master(two: TwoServers, made: str) -> None:
    async def run() -> None:
        acker = ASYNC[made](two.url)
        await acker.apply(tracks(range(1, 101)))
        two.catch_up()
        two.fail_over()
        assert (await acker.apply(tracks(range(101, 201)))).tracked == 100
        wait_until(lambda: not two.connected(two.old), "the demoted master has no clients")
        await acker.close()

    asyncio.run(run())


def test_without_a_retry_the_next_call_reaches_the_new_master(two: TwoServers) -> None:
    with Acker.from_url(two.url, "n", retry_for=0) as acker:
        acker.apply(tracks(range(1, 101)))
        two.catch_up()
        two.fail_over()
        batch = tracks(range(101, 201))
        with pytest.raises(RedisUnavailableError, match="read only replica"):
            acker.apply(batch)
        assert acker.apply(batch).tracked == 100
        assert total(acker)["tracked"] == 200


def test_a_source_loses_no_record(two: TwoServers, kind: str) -> None:
    """Each record is acked once, by the verdict of its first attempt."""
    loop, called = Loop(), CallbackLog()
    with closing(Acker.from_url(two.url, "n", retry_for=LIMIT)) as theirs:
        bolts = Bolts(theirs)
        source: Any
        mine: Any
        if kind == "sync":
            mine = Acker.from_url(two.url, "n", retry_for=LIMIT)
            source = Source(mine, "t", bolts.send, **called.callbacks)
        else:
            mine = AsyncAcker.from_url(two.url, "n", retry_for=LIMIT)
            source = Twin(loop, mine, "t", bolts.send, **called.callbacks)
        for number in range(RECORDS):
            source.emit(f"record-{number}", messages=2)
            source.step()
            if number == RECORDS // 2:
                two.fail_over()
        bolts.ack()

        def is_done() -> bool:
            source.step()
            return not source.pending

        wait_until(is_done, "the source has all verdicts")
        source.stop()
        if kind == "sync":
            mine.close()
        else:
            loop.call(mine.close())
    loop.close()
    assert sorted(called.words) == sorted(f"ack record-{number}" for number in range(RECORDS))
    assert set(called.attempts) == {1}


def test_a_producer_loses_no_row(two: TwoServers) -> None:
    """Rows in the producer's buffer go to the new master, under the fence of their lane."""
    with Acker.from_url(two.url, "n", retry_for=LIMIT) as acker, Producer(acker, "t") as producer:
        for anchor in range(1, 201):
            producer.track(anchor, f"s{anchor}", [anchor])
            if anchor == 100:
                producer.flush()
                two.catch_up()
                two.fail_over()
        producer.flush(LIMIT)
        assert total(acker)["tracked"] == 200


def test_ticks_reach_the_new_master(two: TwoServers) -> None:
    """No other client writes there, so the rotator itself must leave the old master."""
    with Acker.from_url(two.url, "n") as acker:
        acker.configure(tick_ms=50)
    with Rotator.from_url(two.url, "n"), Acker.from_url(two.new.url, "n") as direct:

        def ticked() -> int:
            return min(shard.ticked_ms for shard in direct.status().shards)

        begun = ticked()
        wait_until(lambda: ticked() > begun, "ticks are replicated")
        two.fail_over()
        moved = ticked()
        wait_until(lambda: ticked() > moved, "the new master ticks")
        wait_until(lambda: not two.connected(two.old), "the demoted master has no clients")


def test_pool_without_selective_disconnect_drops_all_connections(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The blocking pool of redis-py 6: before the fix, READONLY became a TypeError, not a retry."""
    dropped: list[bool] = []
    with redis.Redis() as client:
        pool = client.connection_pool
        monkeypatch.setattr(pool, "disconnect", lambda: dropped.append(True))
        error = Connection(client)._failed(redis.exceptions.ReadOnlyError("READONLY no writes"))
        monkeypatch.undo()
    assert isinstance(error, RedisUnavailableError)
    assert dropped
