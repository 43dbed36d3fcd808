"""Cancelled tasks: no batch is applied partially, and no reply reaches another call."""

import asyncio
import contextlib
import random
from collections.abc import Awaitable, Callable

import pytest

from acker_redis.aio.client import AsyncAcker
from acker_redis.aio.producer import AsyncProducer
from acker_redis.batching.batch import Batch
from acker_redis.embedded import EmbeddedRedis
from acker_redis.errors import AckerError
from acker_redis.protocol.ids import new_anchor
from acker_redis.protocol.rows import Row, track_row
from acker_redis.sync.client import Acker
from tests.conftest import MakeAcker
from tests.support import total, verdicts

SHARDS = 4


@pytest.fixture
def direct(make_any_acker: MakeAcker) -> Acker:
    return make_any_acker(shards=SHARDS)


def complete(count: int) -> list[Row]:
    """Return rows of trees that are acked at once; their verdicts show which rows were applied."""
    return [track_row(anchor, f"s{anchor}", []) for anchor in (new_anchor() for _ in range(count))]


def acked(direct: Acker) -> set[int]:
    found = [v[2] for v in verdicts(direct)]
    assert len(set(found)) == len(found)
    return set(found)


async def cancelled_at_random(chance: random.Random, work: Awaitable[object]) -> bool:
    """Cancel after some steps of the loop, or some time, or never.

    Return whether it was in time.
    """
    task = asyncio.ensure_future(work)
    steps = chance.choice((1, 2, 3, 5, 8, 13, 30, None))
    if steps is None:
        await task
        return False
    for _ in range(steps):
        await asyncio.sleep(chance.choice((0, 0, 0.0002)))
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task
        return False
    return True


def run(
    server: EmbeddedRedis, direct: Acker, work: Callable[[AsyncAcker], Awaitable[None]]
) -> None:
    async def main() -> None:
        async with AsyncAcker.from_url(server.url, direct.namespace) as acker:
            await work(acker)
            await asyncio.gather(*(_still_works(acker) for _ in range(20)))

    asyncio.run(main())


async def _still_works(acker: AsyncAcker) -> None:
    """Check that each call reads its own reply, and no unread reply shifts the others."""
    batch, anchor = Batch("u"), new_anchor()
    batch.track(anchor, f"u{anchor}", [40])
    assert (await acker.apply(batch)).tracked == 1
    tree = await acker.show(anchor)
    assert tree is not None
    assert tree.anchor == anchor
    assert (await acker.status()).namespace == acker.namespace
    assert await (await acker.outcomes("absent")).read() == []


@pytest.mark.parametrize("seed", [1, 2])
def test_cancelled_batch_of_several_shards_is_applied_completely(
    any_server: EmbeddedRedis, direct: Acker, seed: int
) -> None:
    """Also for a task that is cancelled while it waits for the lane."""
    chance, begun, batches = random.Random(seed), set[int](), list[set[int]]()
    cancelled = 0

    async def one(acker: AsyncAcker) -> None:
        nonlocal cancelled
        rows, batch = complete(12), Batch("t")
        for row in rows:
            assert batch.add(row)
        batches.append({row.anchor for row in rows})
        number = len(batches)

        async def apply() -> None:
            begun.add(number - 1)
            await acker.apply(batch)

        cancelled += await cancelled_at_random(chance, apply())

    async def work(acker: AsyncAcker) -> None:
        for _ in range(100):
            await asyncio.gather(*(one(acker) for _ in range(3)))

    run(any_server, direct, work)
    found = acked(direct)
    assert 0 < cancelled < 300
    assert all(batches[number] <= found for number in begun)
    assert all(not batches[n] & found for n in range(len(batches)) if n not in begun)
    assert total(direct)["repeated"] == 0


@pytest.mark.parametrize("seed", [1, 2])
def test_cancelled_reads_leave_no_unread_reply(
    any_server: EmbeddedRedis, direct: Acker, seed: int
) -> None:
    chance = random.Random(seed)
    cancelled = 0

    async def work(acker: AsyncAcker) -> None:
        nonlocal cancelled
        outcomes = await acker.outcomes("t")
        for _ in range(100):
            reads = [acker.status(), acker.show(chance.randint(1, 99)), outcomes.read()]
            ends = await asyncio.gather(*(cancelled_at_random(chance, read) for read in reads))
            cancelled += sum(ends)
            await _still_works(acker)

    run(any_server, direct, work)
    assert cancelled > 0


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("buffer", [10, 100_000])
def test_rows_added_by_a_cancelled_task_are_sent_completely(
    any_server: EmbeddedRedis, direct: Acker, seed: int, buffer: int
) -> None:
    chance = random.Random(seed)
    added, not_added = set[int](), set[int]()

    async def add(producer: AsyncProducer) -> None:
        rows = complete(12)
        anchors = {row.anchor for row in rows}
        state = list[str]()

        async def adds() -> None:
            await producer.add(rows)
            state.append("added")
            await producer.flush()

        await cancelled_at_random(chance, adds())
        (added if state else not_added).update(anchors)

    async def work(acker: AsyncAcker) -> None:
        async with AsyncProducer(acker, "t", linger=0, buffer=buffer) as producer:
            for _ in range(40):
                await asyncio.gather(*(add(producer) for _ in range(6)))
            await producer.flush()

    run(any_server, direct, work)
    assert acked(direct) == added
    assert added
    assert not_added or buffer > 10, "no task was cancelled while it waited for room"


def test_cancelled_first_add_adds_nothing(any_server: EmbeddedRedis, direct: Acker) -> None:
    async def work(acker: AsyncAcker) -> None:
        async with AsyncProducer(acker, "t") as producer:
            task = asyncio.ensure_future(producer.add(complete(3)))
            await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert producer.waiting == 0
            await producer.add(complete(2))

    run(any_server, direct, work)
    assert len(acked(direct)) == 2


def test_close_does_not_wait_for_senders_that_the_end_of_the_loop_has_cancelled(
    any_server: EmbeddedRedis, direct: Acker
) -> None:
    async def work(acker: AsyncAcker) -> None:
        producer = AsyncProducer(acker, "t", linger=60)
        await producer.add(complete(1))
        closes = asyncio.create_task(producer.close())
        for sender in producer._senders:
            sender.cancel()
        with pytest.raises(AckerError, match="1 rows are lost: the senders were cancelled"):
            await closes

    run(any_server, direct, work)
