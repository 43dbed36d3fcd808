"""flush(): rows added before are sent soon and get replies, and errors are raised once."""

from typing import Any

import pytest

from acker_redis.batching.batch import MAX_ROWS
from acker_redis.errors import BufferFullError, RedisRefusedError
from tests.producer.conftest import MakeRig
from tests.producer.rig import AnyProducer, InThread, Rig, acks_of, tracks
from tests.support import total
from tests.waiting import wait_until

LONG = 60.0


def test_flush_waits_for_rows_added_before(rig: Rig) -> None:
    producer = rig.producer(linger=LONG)
    rig.calls.hold()
    producer.add(tracks(3))
    flush = InThread(producer.flush)
    rig.calls.wait_for(1)
    assert not flush.ended
    assert producer.waiting == 3
    rig.calls.let_all_go()
    flush.join()
    assert producer.waiting == 0
    assert total(rig.direct)["tracked"] == 3


def test_flushed_rows_do_not_linger(rig: Rig) -> None:
    """Nor does the second batch of the queue, after a full one or one in flight."""
    producer = rig.producer(linger=LONG)
    rig.calls.hold()
    producer.add(tracks(MAX_ROWS))
    rig.calls.wait_for(1)
    producer.add(tracks(2 * MAX_ROWS + 10))
    flush = InThread(producer.flush)
    rig.calls.let_all_go()
    flush.join()
    assert rig.calls.rows == [MAX_ROWS, MAX_ROWS, MAX_ROWS, 10]


def test_rows_added_after_a_flush_linger_again(rig: Rig) -> None:
    producer = rig.producer(linger=LONG)
    for _ in range(2):
        producer.add(tracks(1))
        producer.flush()
    producer.add(tracks(1))
    assert producer.waiting == 1
    assert rig.calls.rows == [1, 1]


def test_flush_does_not_wait_for_rows_added_later(rig: Rig) -> None:
    """Although a later batch may have the memory address of an earlier one."""
    producer = rig.producer(linger=0)
    later = tracks(20 * MAX_ROWS)
    rig.calls.hold()
    producer.add(tracks(1))
    rig.calls.wait_for(1)
    producer.add(tracks(MAX_ROWS))
    flush = InThread(producer.flush)
    # Rows count as earlier or later only relative to a flush that has begun to wait.
    wait_until(lambda: _is_flushing(rig, producer), "a flush")
    rig.calls.let_go()
    rig.calls.wait_for(2)
    producer.add(later)
    rig.calls.let_go()
    rig.calls.wait_for(3)
    flush.join()
    assert producer.waiting == 20 * MAX_ROWS
    rig.calls.let_all_go()
    producer.flush()


def _is_flushing(rig: Rig, producer: AnyProducer) -> bool:
    its: Any = getattr(producer, "producer", producer)
    waiters = its._answered if rig.kind == "asyncio" else its._room
    return bool(waiters._waiters)


def test_flush_times_out_and_the_rows_are_still_sent(rig: Rig) -> None:
    producer = rig.producer()
    rig.calls.hold()
    producer.add(tracks(3))
    with pytest.raises(BufferFullError, match="3 rows got no reply within"):
        producer.flush(0.05)
    rig.calls.let_all_go()
    producer.flush()
    assert total(rig.direct)["tracked"] == 3


def test_flush_raises_the_first_error_once(rig: Rig) -> None:
    producer = rig.producer(linger=0)
    rig.calls.errors = [RedisRefusedError("first"), RedisRefusedError("second")]
    rig.calls.hold()
    producer.add(tracks(1))
    rig.calls.wait_for(1)
    producer.add(tracks(2))
    rig.calls.let_all_go()
    with pytest.raises(RedisRefusedError, match="first"):
        producer.flush()
    producer.flush()
    assert [(str(error), rows) for error, rows in rig.given_up] == [("first", 1), ("second", 2)]


def test_concurrent_flushes(make_rig: MakeRig) -> None:
    rig = make_rig(shards=4)
    producer = rig.producer(linger=LONG)

    def work() -> None:
        for _ in range(10):
            rows = tracks(30)
            producer.add(rows)
            producer.flush()
            producer.add(acks_of(rows))
            producer.flush()

    threads = [InThread(work) for _ in range(4)]
    for thread in threads:
        thread.join()
    assert total(rig.direct)["acked"] == 1200
