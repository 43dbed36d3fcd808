"""Lost replies, cut calls, late calls: no tree is acked falsely, and none is lost."""

import asyncio
import random

import pytest
import redis

from acker_redis.aio.client import AsyncAcker
from acker_redis.aio.producer import AsyncProducer
from acker_redis.protocol import commands
from acker_redis.protocol.commands import Call, Fence
from acker_redis.protocol.keys import ShardKeys
from acker_redis.protocol.rows import Columns
from acker_redis.sync.client import Acker
from acker_redis.sync.producer import Producer
from tests.hazard.conftest import MakeRun
from tests.hazard.runs import TIMEOUT, Run, apply_all, in_threads, rows

PATIENT = 600.0


def through(run: Run, retry_for: float = PATIENT) -> Acker:
    url, name = run.lines[0].url, run.direct.namespace
    return Acker.from_url(url, name, timeout=TIMEOUT, retry_for=retry_for)


def by_ackers(run: Run) -> None:
    """Run some threads, each with a separate acker."""

    def work() -> None:
        with through(run) as acker:
            apply_all(run, acker)

    with run.reading():
        in_threads(8, work)


@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.nightly)])
def test_batches_over_a_bad_line_get_correct_verdicts(make_run: MakeRun, seed: int) -> None:
    run = make_run(seed, shards=2)
    by_ackers(run)
    run.check()


@pytest.mark.full
@pytest.mark.parametrize("seed", [3])
def test_threads_with_a_shared_acker_over_a_bad_line(make_run: MakeRun, seed: int) -> None:
    run = make_run(seed, 1 / 8, shards=4)
    with run.reading(), through(run) as acker:
        in_threads(4, lambda: apply_all(run, acker))
    run.check()


@pytest.mark.parametrize("seed", [4, pytest.param(5, marks=pytest.mark.nightly)])
def test_batches_that_are_given_up_never_ack_falsely(make_run: MakeRun, seed: int) -> None:
    """It is unknown whether they were applied, and they may reach Redis after later batches."""
    run = make_run(seed, 1 / 2)

    def work() -> None:
        with through(run, retry_for=0) as acker:
            apply_all(run, acker, most=min(60, rows()), patience=random.Random(seed).randint(1, 2))

    with run.reading():
        in_threads(8, work)
    run.check()
    assert run.forest.kinds()["in doubt"] > 0


@pytest.mark.full
@pytest.mark.parametrize("seed", [6, pytest.param(7, marks=pytest.mark.nightly)])
def test_producer_with_several_threads_over_a_bad_line(make_run: MakeRun, seed: int) -> None:
    run = make_run(seed, shards=4)
    given_up: list[object] = []
    with (
        run.reading(),
        through(run) as acker,
        Producer(
            acker, "t", buffer=2000, on_given_up=lambda *its: given_up.append(its)
        ) as producer,
    ):
        in_threads(4, lambda: add_all(run, producer))
        producer.flush()
    assert given_up == []
    run.check()


def add_all(run: Run, producer: Producer) -> None:
    while drawn := run.forest.draw(50):
        producer.add([each.row for each in drawn])


@pytest.mark.full
@pytest.mark.parametrize("seed", [8, pytest.param(9, marks=pytest.mark.nightly)])
def test_asyncio_producer_with_many_tasks_over_a_bad_line(make_run: MakeRun, seed: int) -> None:
    run = make_run(seed, shards=4)
    given_up: list[object] = []

    async def work() -> None:
        url, name = run.lines[0].url, run.direct.namespace
        async with (
            AsyncAcker.from_url(url, name, timeout=TIMEOUT, retry_for=PATIENT) as acker,
            AsyncProducer(
                acker, "t", buffer=2000, on_given_up=lambda *its: given_up.append(its)
            ) as producer,
        ):
            await asyncio.gather(*(add_all_async(run, producer) for _ in range(100)))
            await producer.flush()

    with run.reading():
        asyncio.run(work())
    assert given_up == []
    run.check()


async def add_all_async(run: Run, producer: AsyncProducer) -> None:
    while drawn := run.forest.draw(50):
        await producer.add([each.row for each in drawn])
        await asyncio.sleep(0)


@pytest.mark.full
@pytest.mark.parametrize("seed", [10])
def test_retries_by_the_client_library_break_no_guarantee(make_run: MakeRun, seed: int) -> None:
    """redis.Redis() makes up to ten attempts, without the acker knowing."""
    run = make_run(seed)

    def work() -> None:
        client = redis.Redis(port=run.lines[0].port, socket_timeout=TIMEOUT)
        with Acker(client, run.direct.namespace) as acker:
            apply_all(run, acker)

    with run.reading():
        in_threads(4, work)
    run.check()


@pytest.mark.parametrize("seed", [11])
def test_hazards_without_fences_are_detected(
    make_run: MakeRun, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The check can fail: without fences a retried batch is applied twice."""
    fenced = commands.apply

    def unfenced(keys: ShardKeys, columns: Columns, fence: Fence | None) -> Call:
        return fenced(keys, columns, None)

    monkeypatch.setattr(commands, "apply", unfenced)
    run = make_run(seed, 1 / 2)
    by_ackers(run)
    wrong = run.reckon()
    assert wrong["complete, and not acked"] > 0
    assert wrong["failed otherwise"] > 0, "a tree that is tracked twice is a conflict"
