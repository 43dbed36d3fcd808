"""Forks: each row of parent and child counts once, and no child waits for a lock of the parent."""

import multiprocessing
import os
import threading
from collections.abc import Callable, Iterator
from multiprocessing.process import BaseProcess

import pytest

from acker_redis.batching.batch import Batch
from acker_redis.embedded import EmbeddedRedis
from acker_redis.protocol.rows import Row
from acker_redis.sync.client import Acker
from acker_redis.sync.producer import Producer
from tests.conftest import MakeAcker
from tests.producer.rig import InThread, acks_of, tracks
from tests.support import tick, total, verdicts
from tests.waiting import LIMIT

LONG = 60.0
fork = multiprocessing.get_context("fork")


@pytest.fixture
def direct(make_any_acker: MakeAcker) -> Acker:
    return make_any_acker(shards=2)


@pytest.fixture
def acker(direct: Acker, any_server: EmbeddedRedis) -> Iterator[Acker]:
    with Acker.from_url(any_server.url, direct.namespace) as acker:
        yield acker


@pytest.fixture
def producer(acker: Acker) -> Iterator[Producer]:
    """A producer whose rows wait until it is closed."""
    with Producer(acker, "t", linger=LONG) as producer:
        yield producer


def ended(child: BaseProcess) -> bool:
    """Return whether a child has ended by itself, with exit code 0."""
    child.join(LIMIT)
    if child.is_alive():
        child.kill()
    return child.exitcode == 0


def in_a_fork(work: Callable[[], object]) -> None:
    child = fork.Process(target=work)
    child.start()
    assert ended(child)


@pytest.mark.parametrize("closes", [True, False])
def test_fork_sends_waiting_rows_once(direct: Acker, producer: Producer, closes: bool) -> None:
    """A child of multiprocessing that ends without close() also sends its own rows."""
    producer.add(tracks(50))

    def work() -> None:
        assert producer.waiting == 0
        producer.add(tracks(30))
        if closes:
            producer.close()

    in_a_fork(work)
    assert producer.waiting == 50
    assert total(direct)["tracked"] == 30
    producer.close()
    counted = total(direct)
    assert counted["tracked"] == counted["pending"] == 80


def test_os_fork_child_that_closes_sends_its_rows(direct: Acker, producer: Producer) -> None:
    producer.add(tracks(5))
    child = os.fork()
    if child == 0:
        status = 1
        try:
            producer.add(tracks(3))
            producer.close()
            status = 0
        finally:
            os._exit(status)
    assert os.waitpid(child, 0)[1] == 0
    producer.close()
    assert total(direct)["tracked"] == 8


def test_fork_while_other_threads_hold_the_producers_locks(
    direct: Acker, producer: Producer
) -> None:
    producer.add(tracks(5))
    with producer._lock, direct._lane.lock:
        in_a_fork(lambda: producer.add(tracks(7)))
    producer.close()
    assert total(direct)["tracked"] == 12


def test_fork_while_other_threads_hold_locks_of_redis_py(
    direct: Acker, acker: Acker, producer: Producer
) -> None:
    """Its pool takes one of them to reset itself in the child."""
    producer.add(tracks(5))
    pool = acker.connection.client.connection_pool
    locked, enough = threading.Event(), threading.Event()

    def hold() -> None:
        with pool._lock, pool._event_dispatcher._lock:
            locked.set()
            enough.wait()

    holder = InThread(hold)
    locked.wait()
    try:
        in_a_fork(lambda: producer.add(tracks(7)))
    finally:
        enough.set()
    holder.join()
    producer.close()
    assert total(direct)["tracked"] == 12


def test_fork_of_a_fork(direct: Acker, producer: Producer) -> None:
    producer.add(tracks(1))

    def child() -> None:
        producer.add(tracks(2))
        in_a_fork(lambda: producer.add(tracks(4)))

    in_a_fork(child)
    producer.close()
    assert total(direct)["tracked"] == 7


@pytest.mark.parametrize("linger", [0.0, 0.001])
def test_fork_under_load_counts_each_row_once(direct: Acker, acker: Acker, linger: float) -> None:
    producer = Producer(acker, "t", linger=linger)
    enough = threading.Event()
    added: list[Row] = []

    def add() -> None:
        # With a limit: verdicts that are never taken fill the backlog.
        while not enough.is_set() and len(added) < 200_000:
            rows = tracks(20)
            producer.add(rows)
            producer.add(acks_of(rows))
            added.extend(rows)

    def work() -> None:
        rows = tracks(20)
        producer.add(rows)
        producer.add(acks_of(rows))

    threads = [InThread(add) for _ in range(2)]
    try:
        for _ in range(8):
            children = [fork.Process(target=work) for _ in range(3)]
            for child in children:
                child.start()
            for child in children:
                assert ended(child)
    finally:
        enough.set()
    for thread in threads:
        thread.join()
    producer.close()
    counted = total(direct)
    assert counted["acked"] == counted["tracked"] == len(added) + 8 * 3 * 20
    assert counted["repeated"] == counted["conflict"] == counted["pending"] == 0


def test_threads_of_a_forked_child_share_one_lane(direct: Acker, acker: Acker) -> None:
    """Regression: two threads once began two lanes, and one was fenced out."""
    producer = Producer(acker, "t", linger=0)

    def work() -> None:
        start = threading.Barrier(4)

        def apply() -> None:
            start.wait()
            for _ in range(5):
                batch = Batch("t")
                for row in tracks(4):
                    batch.add(row)
                acker.apply(batch)

        def add() -> None:
            start.wait()
            for _ in range(5):
                producer.add(tracks(4))
            producer.flush()

        threads = [InThread(does) for does in (apply, apply, add, add)]
        for thread in threads:
            thread.join()
        producer.close()

    producer.add(tracks(1))
    producer.flush()
    for _ in range(10):
        in_a_fork(work)
    producer.close()
    counted = total(direct)
    assert counted["tracked"] == 1 + 10 * 4 * 5 * 4
    assert counted["repeated"] == 0
    lanes = sum(shard.fences for shard in direct.status().shards)
    # Per process and shard, one fence of the acker and one of the producer.
    assert lanes <= 2 * 2 * 11


def _own_producer(url: str, namespace: str, count: int) -> None:
    producer = Producer(Acker.from_url(url, namespace), "t", linger=LONG)
    producer.add(tracks(count))


@pytest.mark.parametrize("method", ["fork", "forkserver", "spawn"])
def test_child_that_ends_without_close_loses_no_row(
    direct: Acker, any_server: EmbeddedRedis, method: str
) -> None:
    context = multiprocessing.get_context(method)
    arguments = (any_server.url, direct.namespace, 9)
    child = context.Process(target=_own_producer, args=arguments)  # type: ignore[attr-defined]
    child.start()
    assert ended(child)
    assert total(direct)["tracked"] == 9


def test_rows_of_a_killed_child_are_lost_and_their_trees_expire(
    direct: Acker, producer: Producer
) -> None:
    rows = tracks(10)
    producer.add(rows)
    producer.flush()

    def work() -> None:
        producer.add(acks_of(rows[:5]))
        os._exit(0)

    in_a_fork(work)
    producer.add(acks_of(rows[5:]))
    producer.close()
    tick(direct, 3)
    found = {v[2]: v[1] for v in verdicts(direct)}
    expired, acked = [row.anchor for row in rows[:5]], [row.anchor for row in rows[5:]]
    assert found == dict.fromkeys(expired, "expired") | dict.fromkeys(acked, "completed")
