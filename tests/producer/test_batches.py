"""When a batch is sent, and which rows it holds."""

from collections.abc import Iterator

import pytest

from acker_redis.batching.batch import MAX_ROWS
from acker_redis.errors import ConfigError, InvalidBatchError
from acker_redis.protocol.rows import Row, ack_row, fail_row, touch_row, track_row
from tests.conftest import MakeAcker
from tests.producer.conftest import MakeRig
from tests.producer.rig import InThread, Rig, acks_of, prefix, tracks
from tests.support import total, verdicts
from tests.waiting import wait_until

LONG = 60.0
"""A linger longer than any test."""


def test_added_rows_are_applied(rig: Rig) -> None:
    producer = rig.producer()
    producer.track(7, "order-1", [40])
    producer.ack(7, 40, [41])
    producer.ack(7, 41)
    producer.track(8, "order-2", [50])
    producer.fail(8, "no such address")
    producer.flush()
    found = {(v[0], v[1], v[3], v[4]) for v in verdicts(rig.direct)}
    assert found == {
        ("ack", "completed", "order-1", ""),
        ("nack", "failed", "order-2", "no such address"),
    }


def test_rows_are_folded_per_anchor(rig: Rig) -> None:
    producer = rig.producer(linger=LONG)
    producer.track(7, "s", [1, 2, 3])
    for message in (1, 2, 3):
        producer.ack(7, message)
    producer.add([track_row(8, "s", [9]), touch_row(8), fail_row(8, "why", 9)])
    assert producer.waiting == 2
    producer.flush()
    assert rig.calls.rows == [2]
    assert producer.waiting == 0
    assert {v[:2] for v in verdicts(rig.direct)} == {("ack", "completed"), ("nack", "failed")}


def test_second_track_of_an_anchor_opens_a_second_batch_and_is_a_conflict(rig: Rig) -> None:
    """Folded into one batch, the two TRACKs would cancel out."""
    producer = rig.producer(linger=LONG)
    producer.add([track_row(7, "first", [1]), track_row(7, "second", [2])])
    producer.flush()
    assert rig.calls.rows == [1, 1]
    assert total(rig.direct)["conflict"] == 2


def test_rows_linger_for_others(rig: Rig) -> None:
    producer = rig.producer(linger=0.2)
    for row in tracks(50):
        producer.add([row])
    rig.calls.wait_for(1)
    wait_until(lambda: producer.waiting == 0, "answers")
    # Not exactly one: a machine that stalls this long is no error.
    assert len(rig.calls.made) < 50
    assert sum(rig.calls.rows) == 50


def test_full_batch_does_not_linger(rig: Rig) -> None:
    producer = rig.producer(linger=LONG)
    producer.add(tracks(MAX_ROWS))
    rig.calls.wait_for(1)
    wait_until(lambda: producer.waiting == 0, "answers")
    assert rig.calls.rows == [MAX_ROWS]


def test_rows_beyond_one_batch_linger_in_the_next(rig: Rig) -> None:
    producer = rig.producer(linger=LONG)
    producer.add(tracks(2 * MAX_ROWS + 5))
    wait_until(lambda: producer.waiting == 5, "answers")
    assert rig.calls.rows == [MAX_ROWS, MAX_ROWS]


def test_long_texts_fill_a_batch(rig: Rig) -> None:
    producer = rig.producer(linger=LONG)
    producer.add([row._replace(text="x" * 255) for row in tracks(400)])
    wait_until(lambda: len(rig.calls.made) == 1 and not rig.calls.in_flight, "one batch")
    producer.flush()
    assert sum(rig.calls.rows) == 400
    assert total(rig.direct)["tracked"] == 400


def test_without_linger_rows_wait_only_for_the_call_in_flight(rig: Rig) -> None:
    rig.calls.hold()
    producer = rig.producer(linger=0)
    producer.add(tracks(1))
    rig.calls.wait_for(1)
    for row in tracks(20):
        producer.add([row])
    assert rig.calls.rows == [1]
    rig.calls.let_all_go()
    producer.flush()
    assert rig.calls.rows == [1, 20]


def test_at_most_one_call_is_in_flight_per_shard(make_rig: MakeRig) -> None:
    rig = make_rig(shards=4)
    producer = rig.producer(linger=0)
    threads = [InThread(lambda: _add_one_by_one(rig, producer, 300)) for _ in range(4)]
    for thread in threads:
        thread.join()
    producer.flush()
    assert total(rig.direct)["tracked"] == 1200
    assert total(rig.direct)["repeated"] == 0
    shards = {prefix(rig.direct, shard) for shard in range(4)}
    assert set(rig.calls.made) == shards
    assert all(rig.calls.at_once[shard] == 1 for shard in shards)


def _add_one_by_one(rig: Rig, producer: object, count: int) -> None:
    for row in tracks(count):
        producer.add([row])  # type: ignore[attr-defined]


@pytest.mark.parametrize("linger", [0, 0.01])
def test_shards_are_sent_concurrently(make_rig: MakeRig, linger: float) -> None:
    """Also when one add has rows of all shards: a slow shard delays no other."""
    rig = make_rig(shards=4)
    producer = rig.producer(linger=linger)
    # From the second round on the senders are asleep when rows are added.
    for number in range(5):
        rig.calls.hold()
        producer.add([row for shard in range(4) for row in tracks(5, 4, shard)])
        rig.calls.wait_for(4 * number + 4)
        assert rig.calls.at_once["all"] == 4
        rig.calls.let_all_go()
        producer.flush()
    assert total(rig.direct)["tracked"] == 100


def test_more_shards_than_senders_are_all_served(make_rig: MakeRig) -> None:
    rig = make_rig(shards=64)
    producer = rig.producer(linger=0.001)
    rows = tracks(2000)
    for start in range(0, 2000, 100):
        producer.add(rows[start : start + 100])
    producer.flush()
    producer.add(acks_of(rows))
    producer.flush()
    assert total(rig.direct)["acked"] == 2000
    assert rig.calls.at_once["all"] <= 4


def test_invalid_row_adds_none_of_its_list(rig: Rig) -> None:
    producer = rig.producer(linger=LONG)
    bad = [
        Row(0, 1),
        Row(7, -1),
        Row(7, 1 << 63),
        Row(7, 1, 8),
        Row(7, 1, 1 | 2, "track and fail"),
        Row(7, 1, 1.0, "a flag is a whole number"),  # type: ignore[arg-type]
        Row(7, 1, 1, ""),
        Row(7, 1, 2, "a\nb"),
        Row(1 << 62, 1, 1, "a block's"),
    ]
    for row in bad:
        with pytest.raises(InvalidBatchError):
            producer.add([*tracks(2), row, *tracks(2)])
        assert producer.waiting == 0
    producer.add(tracks(1))
    producer.flush()
    assert total(rig.direct)["tracked"] == 1


def test_iterable_that_raises_adds_no_row(rig: Rig) -> None:
    def rows() -> Iterator[Row]:
        yield from tracks(3)
        raise OSError("no more")

    producer = rig.producer(linger=LONG)
    with pytest.raises(OSError, match="no more"):
        producer.add(rows())  # type: ignore[arg-type]
    assert producer.waiting == 0


def test_producer_without_a_source_cannot_track(rig: Rig) -> None:
    producer = rig.producer("")
    with pytest.raises(InvalidBatchError, match="needs a source"):
        producer.add([ack_row(7, 1), *tracks(1)])
    assert producer.waiting == 0
    producer.add([ack_row(7, 1)])
    producer.flush()


def test_empty_add_sends_no_call(rig: Rig) -> None:
    producer = rig.producer()
    producer.add([])
    producer.flush()
    producer.close()
    assert rig.calls.made == []


@pytest.mark.parametrize(
    "settings",
    [{"linger": -1}, {"linger": 61}, {"buffer": 0}, {"buffer": 1.5}, {"max_block": -1}],
)
def test_invalid_producer_settings_are_refused(rig: Rig, settings: dict[str, float]) -> None:
    with pytest.raises(ConfigError):
        rig.producer(**settings)  # type: ignore[arg-type]


def test_two_producers_deliver_verdicts_to_their_own_sources(
    make_rig: MakeRig, make_any_acker: MakeAcker
) -> None:
    """Two producers of one namespace: each source gets its own verdicts."""
    rig = make_rig()
    one, other = rig.producer("one"), rig.producer("other")
    one.track(1, "of one", [])
    other.track(2, "of another", [])
    one.flush()
    other.flush()
    assert [v[3] for v in verdicts(rig.direct, "one")] == ["of one"]
    assert [v[3] for v in verdicts(rig.direct, "other")] == ["of another"]
