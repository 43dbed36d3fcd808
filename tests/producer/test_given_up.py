"""Batches that cannot be applied are given up: their trees expire, and the producer continues."""

import math
import sys
import threading
import time
from typing import Any, cast

import pytest

from acker_redis.batching.batch import Batch
from acker_redis.batching.sent import Sent
from acker_redis.errors import (
    AckerError,
    BacklogError,
    BufferFullError,
    LaneError,
    NamespaceNotFoundError,
    RedisRefusedError,
    WrongShardError,
)
from acker_redis.flows.delivery import Delivery
from acker_redis.flows.namespace import Flows
from acker_redis.flows.steps import Flow
from acker_redis.protocol.commands import Call
from acker_redis.protocol.config import AckerConfig
from acker_redis.protocol.rows import Row, fail_row, touch_row
from acker_redis.sync.client import Acker
from acker_redis.sync.producer import Producer
from tests.conftest import MakeAcker
from tests.producer.conftest import MakeRig
from tests.producer.rig import AnyProducer, Rig, acks_of, tracks
from tests.support import tick, total, verdicts
from tests.transport.proxy import Proxy
from tests.waiting import LIMIT, wait_until


def reasons(acker: Acker) -> dict[int, str]:
    """Return the reason of each waiting verdict; fail if one comes twice."""
    found = verdicts(acker)
    assert len({v[2] for v in found}) == len(found)
    return {v[2]: v[1] for v in found}


def test_trees_of_a_refused_batch_expire(rig: Rig) -> None:
    producer = rig.producer(linger=0)
    first, second = tracks(2), tracks(3)
    producer.add([*first, *second])
    producer.flush()
    rig.calls.errors = [RedisRefusedError("no")]
    producer.add(acks_of(first))
    with pytest.raises(RedisRefusedError):
        producer.flush()
    producer.add(acks_of(second))
    producer.flush()
    tick(rig.direct, 3)
    expected = {row.anchor: "expired" for row in first}
    assert reasons(rig.direct) == expected | {row.anchor: "completed" for row in second}
    assert [rows for _, rows in rig.given_up] == [2]


@pytest.mark.parametrize(
    "error", [RedisRefusedError("no"), RuntimeError("a bug"), AttributeError(), KeyError("x")]
)
def test_no_error_ends_a_sender(rig: Rig, error: Exception) -> None:
    producer = rig.producer(linger=0)
    for _ in range(3):
        rig.calls.errors = [error]
        producer.add(tracks(1))
        with pytest.raises(AckerError):
            producer.flush()
        producer.add(tracks(1))
        producer.flush()
    assert total(rig.direct)["tracked"] == 3
    assert len(rig.given_up) == 3


def test_on_given_up_that_raises_does_not_end_a_sender(rig: Rig) -> None:
    told: list[int] = []

    def raises(error: AckerError, rows: list[Row]) -> None:
        told.append(len(rows))
        raise RuntimeError("not my day")

    producer = rig.producer(linger=0, on_given_up=raises)
    for _ in range(2):
        rig.calls.errors = [RedisRefusedError("no")]
        producer.add(tracks(2))
        with pytest.raises(RedisRefusedError):
            producer.flush()
    producer.add(tracks(1))
    producer.flush()
    assert told == [2, 2]
    assert total(rig.direct)["tracked"] == 1


def test_on_given_up_receives_the_rows(rig: Rig) -> None:
    told: list[Row] = []
    producer = rig.producer(linger=0, on_given_up=lambda error, rows: told.extend(rows))
    rows = [*tracks(2), fail_row(9, "no such address"), touch_row(2**62)]
    rig.calls.errors = [RedisRefusedError("no")]
    producer.add(rows)
    with pytest.raises(RedisRefusedError):
        producer.flush()
    assert sorted(told) == sorted(rows)


@pytest.mark.parametrize("end", ["flush", "close", "a flush that begins during the call"])
def test_flush_and_close_wait_for_on_given_up(rig: Rig, end: str) -> None:
    """The caller can handle all rows that were given up once a flush has returned."""
    begun, ended = threading.Event(), threading.Event()
    returned_first: list[bool] = []

    def waits(error: AckerError, rows: list[Row]) -> None:
        begun.set()
        returned_first.append(ended.wait(0.2))

    producer = rig.producer(linger=0 if "begins" in end else 60.0, on_given_up=waits)
    rig.calls.errors = [RedisRefusedError("no")]
    producer.add(tracks(2))
    if "begins" in end:
        wait_until(begun.is_set, "on_given_up")
    with pytest.raises(RedisRefusedError):
        (producer.close if end == "close" else producer.flush)()
    ended.set()
    assert returned_first == [False]


def refuse_once(acker: Acker) -> None:
    """Let Redis refuse the next call."""
    run = acker.connection.run
    assert acker.config  # read before

    def refuses(call: Call) -> Any:
        acker.connection.run = run  # type: ignore[method-assign]
        raise RedisRefusedError("no")

    acker.connection.run = refuses  # type: ignore[method-assign]


def test_on_given_up_cannot_hang_a_sender(make_any_acker: MakeAcker) -> None:
    """It runs in a sender thread, so it must not wait for that thread."""
    acker, errors = make_any_acker(), list[AckerError]()

    def waits(error: AckerError, rows: list[Row]) -> None:
        producer.add(acks_of(rows))
        for wait in (producer.flush, producer.close):
            try:
                wait()
            except AckerError as refused:
                errors.append(refused)

    producer = Producer(acker, "t", linger=0, buffer=1, on_given_up=waits)
    refuse_once(acker)
    producer.add(tracks(1))
    wait_until(lambda: len(errors) == 2, "both refused")
    with pytest.raises(RedisRefusedError):
        producer.close()


def test_callback_that_exits_ends_no_sender(
    make_any_acker: MakeAcker, caplog: pytest.LogCaptureFixture
) -> None:
    """sys.exit() in a sender thread would end only that thread, and a flush would wait for ever."""
    acker = make_any_acker()
    with Producer(acker, "t", linger=0, on_given_up=lambda error, rows: sys.exit(1)) as producer:
        refuse_once(acker)
        producer.add(tracks(1))
        with pytest.raises(RedisRefusedError):
            producer.flush(LIMIT)
        assert "on_given_up raised an exception" in caplog.text
        producer.add(tracks(2))
        producer.flush(LIMIT)
    assert total(acker)["tracked"] == 2


def test_flush_that_ends_before_on_given_up_says_so(make_any_acker: MakeAcker) -> None:
    """The error of the batch is not lost: the flush that waits long enough raises it."""
    acker, begun, ended = make_any_acker(), threading.Event(), threading.Event()

    def waits(error: AckerError, rows: list[Row]) -> None:
        begun.set()
        ended.wait(LIMIT)

    with Producer(acker, "t", linger=0, on_given_up=waits) as producer:
        refuse_once(acker)
        producer.add(tracks(1))
        wait_until(begun.is_set, "on_given_up")
        with pytest.raises(BufferFullError, match="on_given_up has not returned within 0 s"):
            producer.flush(0)
        ended.set()
        with pytest.raises(RedisRefusedError):
            producer.flush(LIMIT)


def test_rows_given_up_are_logged_without_on_given_up(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    producer = rig.producer(linger=0, on_given_up=None)
    rig.calls.errors = [RedisRefusedError("no right")]
    producer.add(tracks(4))
    with pytest.raises(RedisRefusedError):
        producer.flush()
    assert "4 rows were given up, their trees expire: no right" in caplog.text


def test_batch_is_retried_as_long_as_its_fence_holds(make_rig: MakeRig, proxy: Proxy) -> None:
    """Retries last longer than those of one call, and lost replies do not count rows twice."""
    rig = make_rig(proxy.url)
    producer = rig.producer(linger=0, retry_for=0)
    rows = tracks(2)
    producer.add(rows)
    producer.flush()
    proxy.swallow, proxy.cut = 3, 2
    producer.add(acks_of(rows))
    producer.flush()
    assert proxy.swallow == proxy.cut == 0
    assert rig.given_up == []
    assert total(rig.direct)["acked"] == 2


def test_batch_is_given_up_after_the_horizon_of_its_fence(make_rig: MakeRig, proxy: Proxy) -> None:
    """Also while Redis does not answer; the sender continues with later rows."""
    rig = make_rig(proxy.url, buckets=2, tick_ms=200)
    producer = rig.producer(linger=0, retry_for=0)
    rows = tracks(4)
    producer.add(rows)
    producer.flush()
    proxy.cut = 10**9
    producer.add(acks_of(rows[:2]))
    rig.calls.wait_for(2)
    producer.add(acks_of(rows[2:]))
    wait_until(lambda: rig.given_up, "a batch that is given up", pause=0.02)
    proxy.cut = 0
    producer.add(tracks(3))
    with pytest.raises(AckerError):
        producer.flush()
    assert rig.given_up[0][1] == 2
    tick(rig.direct, 2)
    found = reasons(rig.direct)
    assert [found[row.anchor] for row in rows[:2]] == ["expired"] * 2
    assert total(rig.direct)["tracked"] == 7
    producer.flush()


def test_full_backlog_is_retried_until_verdicts_are_taken(make_rig: MakeRig) -> None:
    rig = make_rig(outcomes_limit=2)
    producer = rig.producer(linger=0)
    for anchor in (1, 2):
        producer.track(anchor, "complete at once", [])
    producer.flush()
    before = len(rig.calls.made)
    producer.track(3, "s", [])
    rig.calls.wait_for(before + 2)
    assert rig.given_up == []
    waiting = [each.anchor for entry in rig.direct.outcomes("t").read() for each in entry]
    assert sorted(waiting) == [1, 2]
    # Once there is room, the third tree is tracked, and its verdict may be taken here as well.
    taken = [each.anchor for each in rig.direct.outcomes("t")]
    producer.flush()
    taken += [each.anchor for each in rig.direct.outcomes("t")]
    assert sorted(taken) == [1, 2, 3]


def test_full_backlog_is_retried_for_the_time_of_the_fence(make_rig: MakeRig) -> None:
    rig = make_rig(outcomes_limit=1, buckets=2, tick_ms=200)
    producer = rig.producer(linger=0)
    producer.track(1, "complete at once", [])
    producer.flush()
    producer.track(2, "s", [])
    with pytest.raises(BacklogError):
        producer.flush()
    reasons(rig.direct)
    producer.track(3, "s", [])
    producer.flush()
    assert set(reasons(rig.direct)) == {3}


@pytest.mark.parametrize("late", [LaneError("long ago to be sent again"), WrongShardError("moved")])
def test_batch_given_up_after_its_horizon_reports_the_cause_of_the_delay(
    late: AckerError,
) -> None:
    """Any error other than the passed horizon says more than the cause of the delay."""
    refused = BacklogError("task t has 1 verdicts waiting to be taken")

    class Slow:
        """A client that stalls between two attempts."""

        def apply(self, batch: Batch, lane: Any) -> Flow[Any]:
            if batch.sent is None:
                batch.sent = Sent("ns", "p", 0, times={0: time.monotonic()})
                raise refused
            batch.sent.fence_ms = 0
            raise late
            yield

    delivery = Delivery(cast(Flows, Slow()), Batch("t"), cast(Any, None))
    for again in (True, False):
        with pytest.raises(StopIteration) as end:
            next(delivery.attempt(math.inf))
        assert (end.value.value is not None) == again
    assert delivery.error is (refused if isinstance(late, LaneError) else late)


def _given_up(rig: Rig, producer: AnyProducer, errors: tuple[type[AckerError], ...]) -> bool:
    producer.add(tracks(50))
    try:
        producer.flush()
    except errors:
        return True
    return False


@pytest.mark.parametrize(("before", "after"), [(1, 4), (4, 1), (2, 8), (8, 2)])
def test_producer_follows_a_namespace_created_again_with_other_shards(
    make_rig: MakeRig, before: int, after: int
) -> None:
    rig = make_rig(shards=before)
    producer = rig.producer(linger=0)
    producer.add(tracks(100))
    producer.flush()
    rig.direct.connection.client.flushall()
    rig.direct.create(AckerConfig(shards=after, tick_ms=3_600_000))
    errors = (WrongShardError, NamespaceNotFoundError)
    wait_until(lambda: not _given_up(rig, producer, errors), "a producer that knows the new shards")
    counted = total(rig.direct)["tracked"]
    rows = tracks(500)
    producer.add(rows)
    producer.flush()
    producer.add(acks_of(rows))
    producer.flush()
    assert total(rig.direct)["tracked"] == counted + 500
    assert total(rig.direct)["acked"] == 500
    its: Any = getattr(producer, "producer", producer)
    assert its._accumulator.shards == after


def test_producer_recovers_from_a_dropped_namespace(rig: Rig) -> None:
    producer = rig.producer(linger=0)
    producer.add(tracks(1))
    producer.flush()
    rig.direct.connection.client.flushall()
    for _ in range(2):
        producer.add(tracks(1))
        with pytest.raises(NamespaceNotFoundError):
            producer.flush()
    rig.direct.create(AckerConfig(tick_ms=3_600_000))
    producer.add(tracks(1))
    producer.flush()
    assert total(rig.direct)["tracked"] == 1
