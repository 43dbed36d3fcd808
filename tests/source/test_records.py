"""The life of a record: acked once, replayed with new ids, or a dead letter."""

import pytest

from acker_redis import Acker, Backoff, OpenTree
from acker_redis.errors import InvalidBatchError
from acker_redis.trees.record import Record
from tests.conftest import MakeAcker
from tests.source.bolts import Bolts, CallbackLog
from tests.source.conftest import Clock, MakeSource
from tests.support import tick, total
from tests.waiting import LIMIT


def test_processed_record_is_acked_once(
    make_source: MakeSource, acker: Acker, bolts: Bolts, called: CallbackLog
) -> None:
    source = make_source(acker, bolts.send)
    source.emit("a", "a hat")
    source.step()
    assert (source.pending, called.take()) == (1, [])
    bolts.ack()
    for _ in range(3):
        source.step()
    assert (source.pending, called.take()) == (0, ["ack a"])
    assert (called.records[0].value, called.records[0].attempt) == ("a hat", 1)
    assert acker.status().backlog.get("t", 0) == 0, "and confirmed"


def test_record_is_tracked_before_it_is_sent(make_source: MakeSource, acker: Acker) -> None:
    pending = []
    source = make_source(acker, lambda record, ids: pending.append(acker.status().pending))
    source.emit("a")
    source.step()
    assert pending == [1]


def test_partially_processed_record_is_not_acked(
    make_source: MakeSource, acker: Acker, bolts: Bolts, called: CallbackLog
) -> None:
    source = make_source(acker, bolts.send)
    source.emit("a", messages=3)
    source.step()
    ((record, attempt, ids),) = bolts.sent
    assert len({str(each) for each in ids}) == 3
    bolts.sent = [(record, attempt, ids[:2])]
    bolts.ack()
    source.step()
    assert called.take() == []
    bolts.sent = [(record, attempt, ids[2:])]
    bolts.ack()
    source.step()
    assert called.take() == ["ack a"]


def test_failed_record_reports_the_reason_and_is_replayed_with_new_ids(
    make_source: MakeSource, acker: Acker, bolts: Bolts, called: CallbackLog
) -> None:
    source = make_source(acker, bolts.send)
    source.emit("a", "a hat")
    source.step()
    ((_, _, first),) = bolts.sent
    bolts.fail("no such address")
    source.step()
    assert called.take() == ["fail a failed no such address"]
    ((record, attempt, second),) = bolts.sent
    assert (record.value, attempt) == ("a hat", 2)
    assert not set(first[0]) & set(second[0]), "another attempt is another tree"
    bolts.ack()
    source.step()
    assert (source.pending, called.take()) == (0, ["ack a"])


def test_unprocessed_record_expires_and_is_replayed(
    make_source: MakeSource, acker: Acker, bolts: Bolts, called: CallbackLog
) -> None:
    source = make_source(acker, bolts.send)
    source.emit("a")
    source.step()
    bolts.sent.clear()
    tick(acker, 3)
    source.step()
    assert (called.take(), bolts.attempts) == (["fail a expired no ack"], [("a", 2)])


def test_source_hears_on_which_edge_a_message_is_missing(
    make_source: MakeSource, make_any_acker: MakeAcker, called: CallbackLog
) -> None:
    acker = make_any_acker(edges=("mill", "shop"))
    bolts = Bolts(acker)
    source = make_source(acker, bolts.send)
    source.emit("a", messages=2, edge="mill")
    source.emit("b", edge="shop")
    source.emit("c", edge="nowhere")
    source.step()
    ((record, attempt, ids), *others) = bolts.sent
    bolts.sent = [(record, attempt, ids[1:])]
    bolts.ack()
    bolts.sent.clear()
    tick(acker, 3)
    source.step()
    assert sorted(called.take()) == [
        "fail a expired no ack on edge mill",
        "fail b expired no ack on edge shop",
        "fail c expired no ack",
    ]
    assert len(others) == 2


def test_record_becomes_a_dead_letter_after_its_last_attempt(
    make_source: MakeSource, acker: Acker, bolts: Bolts, called: CallbackLog
) -> None:
    source = make_source(acker, bolts.send, attempts=3)
    source.emit("a")
    source.step()
    for number in (1, 2, 3):
        assert (source.pending, bolts.attempts) == (1, [("a", number)])
        bolts.fail("no")
        source.step()
    assert called.take() == ["fail a failed no"] * 3 + ["dead a failed no"]
    assert (source.pending, bolts.sent, total(acker)["pending"]) == (0, [], 0)
    assert acker.status().backlog["t"] == 0


def test_replay_waits_for_its_backoff(
    make_source: MakeSource, acker: Acker, bolts: Bolts, clock: Clock
) -> None:
    source = make_source(acker, bolts.send, backoff=Backoff(600, 3600))
    source.emit("a")
    source.step()
    for ceiling in (600, 1200, 2400):
        bolts.fail()
        source.step()
        clock.advance(ceiling / 2 - 10)
        source.step()
        assert bolts.sent == []
        clock.advance(ceiling / 2 + 10)
        source.step()
        assert len(bolts.sent) == 1


def test_rejected_record_is_not_sent_and_counts_no_attempt(
    make_source: MakeSource, make_any_acker: MakeAcker, called: CallbackLog, clock: Clock
) -> None:
    acker = make_any_acker(high_water=1)
    bolts = Bolts(acker)
    source = make_source(acker, bolts.send, attempts=2)
    for name in "abcd":
        source.emit(name)
    source.step()
    assert len(bolts.sent) == 2, "twice the high-water mark fits, no more"
    for _ in range(8):
        clock.advance(60)
        source.step()
    assert len(bolts.sent) == 2
    overflows = called.take()
    assert set(overflows) == {"fail c overflow", "fail d overflow"}
    done: list[str] = []
    for _ in range(200):
        done += bolts.ack()
        clock.advance(60)
        source.step()
        if not source.pending:
            break
    assert sorted(done) == ["a", "b", "c", "d"]
    assert sorted(w for w in called.take() if "overflow" not in w) == [f"ack {n}" for n in "abcd"]
    assert {record.attempt for record in called.records} == {1}


def test_send_that_raises_is_a_failed_attempt(
    make_source: MakeSource, acker: Acker, bolts: Bolts, called: CallbackLog
) -> None:
    refuses = ["no queue"]

    def send(record: Record, ids: object) -> None:
        if refuses:
            raise OSError(refuses.pop())
        bolts.send(record, ids)

    source = make_source(acker, send)
    source.emit("a")
    source.emit("b")
    source.step()
    assert bolts.attempts == [("b", 1)], "the other record is sent"
    source.step()
    assert called.take() == ["fail a failed OSError: no queue"]
    assert bolts.attempts == [("b", 1), ("a", 2)]


@pytest.mark.parametrize("edges", [0, 1, 7, None])
def test_send_that_always_raises_ends_in_a_dead_letter(
    make_source: MakeSource, acker: Acker, called: CallbackLog, edges: int | None
) -> None:
    def send(record: Record, given: object) -> None:
        raise OSError("no queue")

    source = make_source(acker, send, attempts=2)
    source.emit("a", messages=edges)
    assert source.join(LIMIT)
    words = "failed OSError: no queue"
    assert called.take() == [f"fail a {words}", f"fail a {words}", f"dead a {words}"]


def test_record_without_messages_is_sent_and_acked(
    make_source: MakeSource, acker: Acker, bolts: Bolts, called: CallbackLog
) -> None:
    source = make_source(acker, bolts.send)
    source.emit("a", messages=0)
    source.step()
    assert [ids for _, _, ids in bolts.sent] == [()]
    source.step()
    assert (source.pending, called.take()) == (0, ["ack a"])


def test_open_tree_is_acked_once_closed_and_processed(
    make_source: MakeSource, acker: Acker, called: CallbackLog
) -> None:
    trees: list[OpenTree] = []
    bolts = Bolts(acker)

    def send(record: Record, tree: OpenTree) -> None:
        trees.append(tree)
        if len(trees) == 1:
            bolts.send(record, tree)
            bolts.ack()  # processed while the tree is open

    source = make_source(acker, send)
    source.emit("a", messages=None)
    source.emit("empty", messages=None)
    source.step()
    source.step()
    assert sorted(called.take()) == ["ack a", "ack empty"]


def test_open_tree_fails_if_send_raises_even_if_all_messages_were_acked(
    make_source: MakeSource, acker: Acker, called: CallbackLog
) -> None:
    bolts = Bolts(acker)

    def send(record: Record, tree: OpenTree) -> None:
        bolts.send(record, tree)
        bolts.ack()
        if record.attempt == 1:
            raise OSError("the file ends too early")

    source = make_source(acker, send)
    source.emit("a", messages=None)
    assert source.join(LIMIT)
    assert called.take() == ["fail a failed OSError: the file ends too early", "ack a"]


@pytest.mark.parametrize("bad", [("", None, 1), ("a\nb", None, 1), ("a", None, -1), ("a", 0, 1.5)])
def test_invalid_record_is_refused_at_once(
    make_source: MakeSource, acker: Acker, bolts: Bolts, bad: tuple[object, ...]
) -> None:
    source = make_source(acker, bolts.send)
    with pytest.raises(InvalidBatchError):
        source.emit(*bad)
    assert source.pending == 0


def test_records_with_one_source_id_get_separate_verdicts(
    make_source: MakeSource, acker: Acker, bolts: Bolts, called: CallbackLog
) -> None:
    source = make_source(acker, bolts.send)
    for value in range(3):
        source.emit("a", value)
    source.step()
    bolts.ack()
    source.step()
    assert called.take() == ["ack a"] * 3
    assert sorted(record.value for record in called.records) == [0, 1, 2]


@pytest.mark.parametrize("shards", [1, 4])
def test_more_records_than_one_batch_over_several_shards(
    make_source: MakeSource, make_any_acker: MakeAcker, called: CallbackLog, shards: int
) -> None:
    acker = make_any_acker(shards=shards)
    bolts = Bolts(acker)
    source = make_source(acker, bolts.send, max_pending=3000, on_fail=None, adaptive=False)
    for number in range(1500):
        source.emit(f"record-{number}", messages=number % 2)
    for _ in range(2):
        source.step()
    assert len(bolts.sent) == 1500
    bolts.ack()
    assert source.join(LIMIT)
    assert sorted(called.take()) == sorted(f"ack record-{number}" for number in range(1500))
