"""What a message costs, as far as it can be counted: calls, locks, and memory that stays."""

import gc
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from acker_redis import Acker, Bolt, Producer, Source
from acker_redis.batching.accumulator import Accumulator
from acker_redis.integrations.core.headers import text_of
from acker_redis.integrations.kafka_messages.in_process import InProcess, Read
from acker_redis.integrations.kafka_messages.partitions import runs
from acker_redis.protocol.id_maker import PLAIN
from acker_redis.protocol.rows import Row
from acker_redis.trees.frontier import Frontier
from acker_redis.trees.processing import Processing
from acker_redis.trees.processing_batch import ProcessingBatch
from tests.conftest import MakeAcker

MESSAGES = 1000
TEXTS = [f"{7 + n}:{2**60 + n}" for n in range(MESSAGES)]


class Counting:
    """A lock that counts how often it is taken."""

    def __init__(self, lock: Any) -> None:
        self._lock = lock
        self.taken = 0

    def __enter__(self) -> None:
        self.taken += 1
        self._lock.__enter__()

    def __exit__(self, *error: Any) -> None:
        self._lock.__exit__(*error)


@contextmanager
def calls(acker: Acker, monkeypatch: pytest.MonkeyPatch) -> Iterator[Counter[str]]:
    """Count the calls of scripts."""
    made: Counter[str] = Counter()
    run = acker.connection.run

    def counted(call: Any) -> Any:
        made[call.script] += 1
        return run(call)

    with monkeypatch.context() as patch:
        patch.setattr(acker.connection, "run", counted)
        yield made


def blocks(make: Callable[[], Any]) -> float:
    """Return the blocks of memory that stay allocated for each of 1000 messages."""
    make()  # objects that are made once
    gc.collect()
    gc.disable()
    try:
        before = sys.getallocatedblocks()
        kept = make()
        return (sys.getallocatedblocks() - before) / MESSAGES
    finally:
        gc.enable()
        del kept


def test_thousand_messages_take_one_call_and_one_lock_each(
    make_acker: MakeAcker, monkeypatch: pytest.MonkeyPatch
) -> None:
    acker = make_acker()
    with Producer(acker, linger=60) as producer:
        bolt = Bolt(producer)
        bolt.process("1:1").ack()
        producer.flush()
        lock: Any = Counting(producer._lock)
        monkeypatch.setattr(producer, "_lock", lock)
        with calls(acker, monkeypatch) as made:
            for text in TEXTS:
                with bolt.process(text):
                    pass
            assert lock.taken == MESSAGES
            producer.flush()
        assert made == {"apply": 1}
        monkeypatch.undo()


def test_thousand_acks_as_columns_take_one_lock(
    make_acker: MakeAcker, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Producer(make_acker(), linger=60) as producer:
        producer.ack(1, 1)
        lock: Any = Counting(producer._lock)
        monkeypatch.setattr(producer, "_lock", lock)
        settled = ProcessingBatch(TEXTS).acked()
        producer.add_acks(settled.anchors.tolist(), settled.deltas.tolist())
        assert (lock.taken, producer.waiting) == (1, MESSAGES + 1)
        monkeypatch.undo()


def test_source_tracks_thousand_records_in_one_call(
    make_acker: MakeAcker, monkeypatch: pytest.MonkeyPatch
) -> None:
    acker = make_acker()
    source = Source(acker, "shop", lambda *_: None)
    source.step()
    for number in range(MESSAGES):
        source.emit(str(number))
    with calls(acker, monkeypatch) as made:
        source.step()
    assert made == {"apply": 1}


def test_row_that_waits_is_two_numbers() -> None:
    rows = [[Row(7 + 2**60 + n, 2**61 + n)] for n in range(MESSAGES)]

    def made() -> Accumulator:
        queue = Accumulator("", 1, 0.0)
        for row in rows:
            queue.add(row, 0.0)
        return queue

    assert blocks(made) < 0.1, "the numbers are those of the rows"


def test_message_in_process_is_one_object_with_its_row_and_its_lock() -> None:
    """The object, its lock, its dict of deltas (two blocks), and the two numbers of its id."""
    assert blocks(lambda: [Processing(text) for text in TEXTS]) < 8


def test_record_that_is_open_has_few_objects(make_acker: MakeAcker) -> None:
    """A record, its source id, its anchor, their places in dicts, and what remembers the anchor."""
    source = Source(make_acker(), "shop", lambda *_: None, max_pending=10**6)
    names = iter(range(10**6))

    def emitted() -> None:
        for _ in range(MESSAGES):
            source.emit(str(next(names)))
        source.step()

    assert blocks(emitted) < 7


def test_batch_of_kafka_in_process_has_no_object_for_a_message(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its offsets are ranges, its ids are columns, and each is completed once."""
    begun = InProcess(Read, None, PLAIN, None)
    begun.partitions.assign([("orders", 0), ("orders", 1)])
    located = [(("orders", number), offset) for number in (0, 1) for offset in range(MESSAGES // 2)]
    messages = [[("trace", b"x"), ("acker-tuple", text.encode())] for text in TEXTS]
    for run in runs(located):
        begun.partitions.arrived(*run)

    def batch() -> Any:
        for each in (("orders", 0), ("orders", 1)):
            begun.partitions.seek(each)
            begun.partitions.arrived(each, 0, MESSAGES // 2)
        return begun.batch(messages, located, text_of)

    assert blocks(batch) < 0.1
    completed: list[Any] = []
    monkeypatch.setattr(Frontier, "complete", lambda _, *offsets: completed.append(offsets))
    with batch() as given:
        assert len(given.returned()[0]) == MESSAGES
        given.complete()
    assert completed == [(0, MESSAGES // 2)] * 2
