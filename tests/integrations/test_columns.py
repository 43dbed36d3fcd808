"""A batch in columns has the rows of its messages, each processed on its own."""

import sys
from functools import partial
from threading import Thread
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from acker_redis.batching.accumulator import Accumulator
from acker_redis.errors import InvalidBatchError
from acker_redis.integrations.core.batches import Messages, Works
from acker_redis.integrations.core.columns import Columns
from acker_redis.integrations.core.headers import text_of
from acker_redis.integrations.core.work import Work
from acker_redis.integrations.kafka_messages.in_process import InProcess, Read
from acker_redis.integrations.kafka_messages.partitions import runs
from acker_redis.protocol.id_maker import IdMaker
from acker_redis.protocol.ids import block_anchor
from acker_redis.protocol.rows import FAIL, Row
from tests.tiers import examples

IDS = IdMaker(("mill", "shop"), "00" * 16)
TEXTS = ["7:40", "8:41", "", "9:42,10:43", f"{block_anchor(3, 5)}:44"]
AT = st.integers(0, len(TEXTS) - 1)
COUNTS = st.lists(st.integers(0, 2), min_size=len(TEXTS), max_size=len(TEXTS))
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("emit"), COUNTS, st.sampled_from(["", "mill"])),
        st.tuples(st.just("emit one"), AT, st.sampled_from(["", "shop"])),
        st.tuples(st.just("fail"), AT, st.just("no such address")),
        st.tuples(st.just("skip"), AT, st.just("")),
    ),
    max_size=8,
)


@given(st.permutations(TEXTS), STEPS)
@settings(max_examples=examples())
def test_rows_of_columns_are_those_of_single_messages(texts: list[str], steps: Any) -> None:
    columns = Columns(list(texts), list(texts), IDS, Work)
    messages = Messages(columns)
    deltas = {
        anchor: tuple_id
        for text in texts
        for anchor, tuple_id in Work(None, text).processing.inputs[0].items()
    }
    failed, skipped = set[int](), set[int]()
    for step, given_to, word in steps:
        if step == "emit":
            children = [*messages.emit(given_to, edge=word).ids]
            assert len(children) == sum(given_to)
        elif step == "emit one":
            children = [messages.of(given_to).emit(edge=word)]
        elif step == "fail":
            messages.fail(given_to, word)
            failed.add(given_to)
        else:
            messages.skip(given_to)
            skipped.add(given_to)
        for child in children if step.startswith("emit") else ():
            for anchor, tuple_id in child.items():
                deltas[anchor] ^= tuple_id
    rows = [row for work in columns.works for row in work.rows()]
    rows += [Row(*pair) for pair in zip(*columns.rows(), strict=True)]
    expected = {}
    for at, text in enumerate(texts):
        flags = FAIL if at in failed else 0
        if at not in skipped or flags:
            for anchor in Work(None, text).processing.inputs[0]:
                expected[anchor] = deltas[anchor], flags
    assert {row.anchor: (row.delta, row.flags) for row in rows} == expected
    assert len(rows) == len(expected)


def test_key_of_a_batch_is_used_once_also_by_a_message_that_is_named_later() -> None:
    columns = Columns(["a", "b"], ["7:40", "8:41"], IDS, Work)
    child = Messages(columns).emit(key="priced").ids[0]
    with pytest.raises(InvalidBatchError, match="'priced' was already used"):
        columns.work(0).emit("priced")
    assert columns.work(0).rows() == [Row(7, 40 ^ child[7])]


def test_key_is_free_for_messages_that_have_no_child_of_it() -> None:
    """In columns as in Redis Streams, where each message has a work."""
    texts = ["7:40", "8:41", "9:42"]
    found = []
    for given_to in (
        Columns(texts, list(texts), IDS, Work),
        Works([(Work(None, text, IDS), text) for text in texts]),
    ):
        messages = Messages(given_to)
        ids = [*messages.emit([1, 0, 0], key="priced").ids]
        ids += [*messages.emit([0, 1, 0], key="priced").ids, messages.of(2).emit("priced")]
        for counts in ([1, 0, 0], [0, 1, 0], [0, 0, 1]):
            with pytest.raises(InvalidBatchError, match="'priced' was already used"):
                messages.emit(counts, key="priced")
        found.append(ids)
    assert found[0] == found[1]


@pytest.mark.parametrize("queued", [[], [(7, 5)], [(1, 1), (2, 2)]])
@pytest.mark.parametrize("shards", [1, 2])
def test_acks_as_columns_are_folded_as_rows_are(queued: list[tuple[int, int]], shards: int) -> None:
    anchors, deltas = [7, 8, 7, 9, block_anchor(3, 5)], [40, 41, 42, 43, 44]
    one, other = Accumulator("", shards, 0.0), Accumulator("", shards, 0.0)
    for each in (one, other):
        each.add([Row(*pair) for pair in queued], 0.0)
    one.add_acks(anchors, deltas, 0.0)
    one.add_acks(anchors[3:], deltas[3:], 0.0)
    for part in (slice(None), slice(3, None)):
        other.add([Row(*p) for p in zip(anchors[part], deltas[part], strict=True)], 0.0)
    assert one.size == other.size
    assert [each.rows() for each in one.batches()] == [each.rows() for each in other.batches()]


def test_acks_as_columns_make_one_row_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    queue, added = Accumulator("", 1, 0.0), list[Row]()
    add = queue.add
    monkeypatch.setattr(queue, "add", lambda rows, now: added.extend(rows) or add(rows, now))
    assert queue.add_acks([7, 8, 9], [40, 41, 42], 0.0), "a sleeping sender wakes up"
    assert not queue.add_acks([9, 10], [43, 44], 0.0)
    assert added == [Row(7, 40)]
    (batch,) = queue.batches()
    assert batch.rows() == [Row(7, 40), Row(8, 41), Row(9, 42 ^ 43), Row(10, 44)]


def test_acks_that_do_not_fit_go_into_the_next_batch() -> None:
    queue = Accumulator("", 1, 0.0)
    for start in (1, 501, 1001):
        queue.add_acks(list(range(start, start + 500)), [40] * 500, 0.0)
    assert ([len(each) for each in queue.batches()], queue.size) == ([1024, 476], 1500)


@pytest.mark.parametrize("numpy", [True, False])
def test_malformed_id_fails_its_message_only(monkeypatch: pytest.MonkeyPatch, numpy: bool) -> None:
    """Without numpy, too: each message has its own work."""
    if not numpy:
        monkeypatch.setitem(sys.modules, "acker_redis.trees.processing_batch", None)
    begun, place = InProcess(Read, None, IDS, None), ("orders", 0)
    begun.partitions.assign([place])
    for texts, columns in (([b"7:40", b"seven", b"8:41"], False), ([b"7:40", b"8:41"], numpy)):
        moved = begun.partitions.moved()
        first = moved[0].position if moved else 0
        located = []
        for offset in range(first, first + len(texts)):
            begun.partitions.arrived(place, offset)
            located.append((place, offset))
        with begun.batch([[("acker-tuple", text)] for text in texts], located, text_of) as batch:
            assert isinstance(batch.given, Columns) == columns
            assert len(batch.given.bodies) == 2
            rows = batch.returned()
            batch.complete()
        assert rows == (([7, 8], [40, 41]) if columns else ([], []))
        assert len(begun.finished) == (0 if columns else len(texts))
        for work in begun.finished:
            assert len(work.rows()) == (work.error is None)
            begun.complete(work)
        begun.finished.clear()
        assert begun.partitions.moved()[0].position == first + len(texts)
    assert len(begun) == 0


def test_offset_of_a_named_message_waits_for_its_child() -> None:
    begun, place = InProcess(Read, None, IDS, None), ("orders", 0)
    begun.partitions.assign([place])
    begun.partitions.arrived(place, 0, 3)
    messages = [[("acker-tuple", b"7:%d" % (40 + offset))] for offset in range(3)]
    with begun.batch(messages, [(place, offset) for offset in range(3)], text_of) as batch:
        named = batch.given.work(1)
        named.emit(reported=True)
        assert batch.returned() == ([7, 7], [40, 42])
        batch.complete()
    assert [each.position for each in begun.partitions.moved()] == [1]
    assert (list(begun.finished), len(begun)) == ([], 1)
    named.report()
    (work,) = begun.finished
    begun.complete(work)
    assert [each.position for each in begun.partitions.moved()] == [3]


def test_batch_whose_handler_is_interrupted_is_not_in_process() -> None:
    begun = InProcess(Read, None, IDS, None)
    begun.partitions.assign([("orders", 0)])
    begun.partitions.arrived(("orders", 0), 0)
    messages, located = [[("acker-tuple", b"7:40")]], [(("orders", 0), 0)]
    with pytest.raises(KeyboardInterrupt), begun.batch(messages, located, text_of) as batch:
        assert len(begun) == 1
        batch.given.work(0)
        raise KeyboardInterrupt
    assert (len(begun), begun.partitions.moved()) == (0, [])


def test_message_that_a_thread_names_while_the_handler_returns_has_its_row_before_its_offset(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    begun, place = InProcess(Read, None, IDS, None), ("orders", 0)
    begun.partitions.assign([place])
    begun.partitions.arrived(place, 0)
    rows: list[Any] = []

    def end() -> None:
        rows.append(batch.returned())
        batch.complete()

    def begin(*given: Any) -> Any:
        ends.start()
        ends.join(0.1)  # the handler has returned: it waits for this, or is through
        return begin_as_usual(*given)

    begin_as_usual = begun._begin
    monkeypatch.setattr(begun, "_begin", begin)
    with begun.batch([[("acker-tuple", b"7:40")]], [(place, 0)], text_of) as batch:
        ends = Thread(target=end)
        named = batch.given.work(0)
        ends.join()
        assert batch.given.work(0) is named
    assert (rows, list(begun.finished)) == ([([], [])], [named])
    assert begun.partitions.moved() == []


STEPS_OF_OFFSETS = st.lists(st.tuples(st.integers(0, 2), st.integers(-2, 1)), max_size=30)


@given(STEPS_OF_OFFSETS, st.sets(st.integers(0, 29)), st.integers(0, 30))
@settings(max_examples=examples())
def test_offsets_of_a_batch_are_those_of_single_messages(
    steps: list[tuple[int, int]], named: set[int], half: int
) -> None:
    """With gaps, with a partition that is not assigned, and where Kafka goes back."""
    one, other = (InProcess(Read, None, IDS, None) for _ in range(2))
    last, located = [-1, -1, -1], []
    for number, step in steps:
        last[number] = max(last[number] + 1 + step, 0)
        located.append((("orders", number), last[number]))
    works: list[Any] = []
    for each in (one, other):
        each.partitions.assign([("orders", 0), ("orders", 1)])
    for run in runs(located):
        one.partitions.arrived(*run)
    for place, offset in located:
        other.partitions.arrived(place, offset)
    for part in (slice(None, half), slice(half, None)):
        messages = [[("acker-tuple", b"7:%d" % (40 + at))] for at, _ in enumerate(located)][part]
        kept = [at for at, (place, _) in enumerate(located[part]) if place[1] < 2]
        with one.batch(messages, located[part], text_of) as batch:
            assert [*batch.given.bodies] == [messages[at] for at in kept]
            begun = [batch.given.work(at) for at in sorted(named) if at < len(kept)]
            batch.returned()
            batch.complete()
        for at, (message, each) in enumerate(zip(messages, located[part], strict=True)):
            work = other.begin(message, *each, partial(text_of, message))
            assert (work is None) == (at not in kept)
            if work is not None and kept.index(at) in named:
                works.append(work)
            elif work is not None:
                other.complete(work)
        assert [each.message[2:] for each in begun] == [each.message[2:] for each in works]
        assert _positions(one) == _positions(other)
        for mine, its in zip(begun, works, strict=True):
            one.complete(mine)
            other.complete(its)
        works.clear()
        assert _positions(one) == _positions(other)


def _positions(begun: InProcess) -> list[Any]:
    return [(each.place, each.position) for each in begun.partitions.moved()]
