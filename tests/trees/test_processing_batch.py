"""A batch of messages in columns is the same as one Processing for each message."""

import os
from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from acker_redis.errors import ClosedError, ConfigError, InvalidBatchError
from acker_redis.protocol.arrays import Ints
from acker_redis.protocol.id_maker import PLAIN, UNKNOWN, IdMaker
from acker_redis.protocol.ids import ANCHOR_MAX, TUPLE_MAX, block_anchor
from acker_redis.trees import process, processing_batch
from acker_redis.trees.message_id import MAX_MESSAGE, MessageId
from acker_redis.trees.processing import Processing
from acker_redis.trees.processing_batch import ProcessingBatch

NAMED = IdMaker(edges=("mill", "shop"), salt="00" * 16)
ANCHORS = st.one_of(
    st.integers(1, 5),
    st.integers(1, ANCHOR_MAX),
    st.just(ANCHOR_MAX),
    st.builds(block_anchor, st.integers(0, 2**50 - 1), st.integers(0, 4094)),
)
TUPLES = st.one_of(st.integers(1, TUPLE_MAX), st.sampled_from([1, TUPLE_MAX - 1, TUPLE_MAX]))
IDS = st.dictionaries(ANCHORS, TUPLES, max_size=3).map(MessageId)
SINGLE = st.builds(lambda anchor, id_: MessageId({anchor: id_}), ANCHORS, TUPLES)
FORMS = st.sampled_from([str, lambda id_: str(id_).encode(), lambda id_: id_])


def rows(batch: ProcessingBatch) -> tuple[Counter[tuple[int, int]], dict[int, str]]:
    """Return the rows of a settled batch before they are folded, and the failed trees."""
    anchors, deltas, failed = batch.acked()
    return Counter(zip(anchors.tolist(), deltas.tolist(), strict=True)), failed


@given(st.data(), st.lists(st.one_of(SINGLE, IDS), max_size=8), st.sampled_from([PLAIN, NAMED]))
def test_rows_are_those_of_one_processing_for_each_message(
    data: st.DataObject, ids: list[MessageId], maker: IdMaker
) -> None:
    batch = ProcessingBatch([data.draw(FORMS)(each) for each in ids], ids=maker)
    one_by_one = [Processing(each, ids=maker) for each in ids]
    wanted = Counter[tuple[int, int]]()
    children: list[dict[int, int]] = [{} for _ in ids]
    for edge in data.draw(st.lists(st.sampled_from(["", "mill", "shop"]), max_size=3)):
        counts = data.draw(st.lists(st.integers(0, 3), min_size=len(ids), max_size=len(ids)))
        emitted = batch.emit(counts, edge=edge)
        assert emitted.parents.tolist() == [at for at, n in enumerate(counts) for _ in range(n)]
        for parent, child in zip(emitted.parents.tolist(), emitted.ids, strict=True):
            assert set(child) == set(ids[parent])
            assert len(set(child.values())) <= 1
            for tuple_id in child.values():
                named = maker.edges_of(tuple_id)
                assert named == ((edge,) if edge and maker is NAMED else ())
            for anchor in child:
                children[parent][anchor] = children[parent].get(anchor, 0) ^ child[anchor]
    whys: dict[int, str] = {}
    for at, why in data.draw(
        st.dictionaries(st.integers(0, len(ids) - 1), st.sampled_from(["a", "b"]))
        if ids
        else st.just({})
    ).items():
        batch.fail(at, why)
    for at, (message, done) in enumerate(zip(ids, one_by_one, strict=True)):
        failed = at in batch._failed
        for row in done.failed(batch._failed[at]) if failed else done.acked():
            wanted[row.anchor, row.delta ^ children[at].get(row.anchor, 0)] += 1
            if failed:
                whys.setdefault(row.anchor, row.text)
        assert len(message) == len(children[at]) or not children[at]
    assert rows(batch) == (wanted, whys)


@given(st.lists(st.one_of(SINGLE, IDS), min_size=1, max_size=5), st.sampled_from([NAMED]))
def test_derived_ids_are_those_of_processing(ids: list[MessageId], maker: IdMaker) -> None:
    batch = ProcessingBatch(ids, ids=maker)
    wanted = [Processing(each, ids=maker).emit(key="page 3", edge="mill") for each in ids]
    assert batch.emit(key="page 3", edge="mill").ids == wanted
    assert ProcessingBatch(ids, ids=maker).emit(key="page 3", edge="mill").ids == wanted


TEXTS = st.one_of(
    st.text("0123456789:, \n-+", max_size=8),
    SINGLE.map(str),
    st.from_regex(r"[0-9]{1,21}:[0-9]{1,21}", fullmatch=True),
)


@given(st.lists(TEXTS, max_size=4), st.booleans())
def test_texts_are_parsed_as_one_by_one(texts: list[str], as_bytes: bool) -> None:
    given = [text.encode() if as_bytes else text for text in texts]
    try:
        wanted = [MessageId.parse(text) for text in texts]
    except InvalidBatchError:
        with pytest.raises(InvalidBatchError, match="^message [0-9] of the batch: "):
            ProcessingBatch(given)
        return
    batch = ProcessingBatch(given)
    assert [batch._inputs.message(at) for at in range(len(batch))] == wanted


@pytest.mark.parametrize(
    "texts",
    [
        ["7:9223372036854775808"], ["9223372036854775808:7"], ["7:99999999999999999999999"],
        ["0:7"], ["7:0"], ["-7:7"], ["7:"], [":7", "7:7"], ["7:7\n8:8"], ["7:7", "8:8\n"],
        ["7 :7"], ["7:7:7"], [f"{2**62 + 4095}:7"], ["7:1,7:2"], ["\u0667:1"],
        [b"7:1", "7\udc80:1"], ["1:" + "0" * 20 + "5"], ["0" * MAX_MESSAGE + "1:5"],
        ["7:1", "08:1"],
    ],
)  # fmt: skip
def test_fast_path_leaves_other_texts_to_the_parser(texts: list[Any]) -> None:
    assert processing_batch._fast(texts) is None


def test_highest_ids_are_read() -> None:
    texts = [f"{ANCHOR_MAX}:{TUPLE_MAX}", f"{block_anchor(2**50 - 1, 4094)}:{TUPLE_MAX - 1}"]
    assert [str(each) for each in ProcessingBatch(texts).emit(0).ids] == []
    assert [str(ProcessingBatch(texts)._inputs.message(at)) for at in (0, 1)] == texts


def test_counts_that_do_not_fit_are_refused_and_nothing_is_emitted() -> None:
    batch = ProcessingBatch(["7:40", "8:41"], ids=NAMED)
    huge = np.array([0, 2**63 + 1], dtype=np.uint64)
    for counts in ([1], [1, -1], [[1, 1]], -1, [0.5, 1], "two", [1, 2, 3], huge):
        with pytest.raises(InvalidBatchError, match="counts are"):
            batch.emit(counts)  # type: ignore[arg-type]
    with pytest.raises(InvalidBatchError, match="has one child"):
        batch.emit(2, key="a")
    batch.emit([1, 0], key="a")
    with pytest.raises(InvalidBatchError, match="already used"):
        batch.emit(key="a")
    for position in (-1, 2, 0.5, True, np.array([True, False])):
        with pytest.raises(InvalidBatchError, match="messages 0 to 1"):
            batch.fail(position)  # type: ignore[arg-type]
    expected = Processing("7:40", ids=NAMED).emit(key="a")[7]
    assert rows(batch) == (Counter({(7, 40 ^ expected): 1, (8, 41): 1}), {})


def test_key_needs_the_salt_and_a_namespace_that_was_not_read_gives_no_code() -> None:
    for maker in (PLAIN, UNKNOWN):
        with pytest.raises(ConfigError, match="salt"):
            ProcessingBatch(["7:40"], ids=maker).emit(key="a")
    # Without a tree no id is derived.
    assert ProcessingBatch([""]).emit(key="a").texts == [""]
    (child,) = ProcessingBatch(["7:40"], ids=UNKNOWN).emit(edge="mill").ids
    assert child[7] < 2**55


def test_settled_batch_takes_nothing_more_and_returns_the_same_rows() -> None:
    batch = ProcessingBatch(["7:40"])
    settled = batch.acked()
    assert batch.acked() is settled  # a retry must not be another batch
    for call in (batch.emit, lambda: batch.fail(0), lambda: batch.failed("late")):
        with pytest.raises(ClosedError, match="settled before"):
            call()


def test_failing_all_keeps_the_reasons_of_single_messages() -> None:
    batch = ProcessingBatch(["7:40", "8:41"])
    batch.fail(1, "no such address")
    batch.fail(1, "later")
    batch.failed(ValueError("bad"))
    assert batch._failed == {0: "ValueError: bad", 1: "no such address"}


def test_message_that_is_twice_in_a_batch_cancels_itself() -> None:
    """As two acks of one id do: its tree expires, and is never complete without a reason."""
    batch = ProcessingBatch(["7:40", "7:40"])
    assert rows(batch)[0] == Counter({(7, 40): 2})


def test_drawn_ids_are_never_zero(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = [bytes(8) + b"\x01" * 8, b"\x02" * 16]
    monkeypatch.setattr(os, "urandom", lambda size: answers.pop(0))
    found: Ints = processing_batch.drawn(2, TUPLE_MAX)
    assert found.tolist() == [0x0202020202020202] * 2
    assert found.dtype == np.int64


def test_forked_child_may_not_settle(monkeypatch: pytest.MonkeyPatch) -> None:
    batch = ProcessingBatch(["7:40"])
    monkeypatch.setattr(process, "forks", process.forks + 1)
    for call in (batch.emit, batch.acked, lambda: batch.fail(0)):
        with pytest.raises(ClosedError, match="before the fork"):
            call()
