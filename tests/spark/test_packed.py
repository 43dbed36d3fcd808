"""Packed terms do not depend on the order, the partitions and the batches of the terms."""

import random
from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from acker_redis.errors import InvalidBatchError
from acker_redis.protocol.blocks import unpack_column
from acker_redis.protocol.ids import SLOTS, block_anchor
from acker_redis.protocol.texts import check_text
from acker_redis.spark.fold import scatter
from acker_redis.spark.fold import terms as packing
from acker_redis.spark.fold.merged import Merged, numbers
from acker_redis.spark.fold.scatter import Scatter
from acker_redis.spark.fold.terms import (
    LOOSE,
    Kind,
    Packed,
    Packer,
    bad,
    pack_texts,
    shards_of,
    unpack_texts,
)
from tests.spark.conftest import Term, add, packed

SLOT = st.sampled_from([0, 1, 2, 31, 2047, 4093, 4094])
BLOCK = st.sampled_from([0, 1, 2, 3, 2**31, 2**49 + 7, 2**50 - 1])
ANCHORS = st.integers(1, 2**62 - 1) | st.integers(1, 9) | st.builds(block_anchor, BLOCK, SLOT)
IDS = st.integers(1, 2**63 - 1) | st.integers(1, 3)


def terms_of(kind: Kind) -> st.SearchStrategy[Term]:
    """Return a strategy of valid single terms; Content checks whether they fit together."""
    # A TRACK term with a source id is of a loose tree, one without is in a block.
    texts = {Kind.FAIL: st.sampled_from(["", "no", "é" * 9])}.get(kind, st.just(""))
    deltas = st.just(0) if kind in (Kind.FAIL, Kind.TOUCH) else IDS
    anchors = st.builds(block_anchor, BLOCK, SLOT) if kind is Kind.TRACK else ANCHORS
    return st.tuples(st.just(kind), anchors, deltas, texts)


TERMS = st.lists(st.one_of(*[terms_of(kind) for kind in Kind if kind is not Kind.ERROR]))


def folds(kind: Kind) -> bool:
    return kind in (Kind.INPUT, Kind.TRACK)


def said_by(rows: list[Packed], shards: int) -> tuple[dict[Any, int], Counter[Term]]:
    """Return the meaning of packed rows: folded deltas by (kind, anchor), and all other terms."""
    folded: dict[Any, int] = {}
    others: Counter[Term] = Counter()
    for row in rows:
        if row.block != LOOSE:
            assert row.block % shards == row.shard
            anchors = [block_anchor(row.block, s) for s in unpack_column(row.anchors, row.deltas)]
            deltas = list(unpack_column(row.anchors, row.deltas).values())
        else:
            anchors = numbers(row.anchors).tolist()
            deltas = numbers(row.deltas).tolist() or [0] * len(anchors)
            assert {int(s) for s in shards_of(numbers(row.anchors), shards)} <= {row.shard}
        texts = [text.decode() for text in unpack_texts(row.ends, row.texts).to_pylist()]
        for at, (anchor, delta) in enumerate(zip(anchors, deltas, strict=True)):
            if folds(row.kind):
                folded[row.kind, anchor] = folded.get((row.kind, anchor), 0) ^ delta
            else:
                others[row.kind, anchor, delta, texts[at] if texts else ""] += 1
        if not folds(row.kind):
            assert row.terms == len(anchors)
    return {place: delta for place, delta in folded.items() if delta}, others


@given(
    TERMS,
    st.sampled_from([1, 2, 8]),
    st.randoms(use_true_random=False),
    st.integers(1, 4),
    st.sampled_from([(1, 1, 1), (2, 5, 3), (7, 20, 1000), (1 << 17, 1 << 22, 1 << 20)]),
)
def test_packed_rows_are_equivalent_to_their_terms(
    terms: list[Term],
    shards: int,
    chance: random.Random,
    partitions: int,
    sizes: tuple[int, int, int],
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        for name, size in zip(("_SOME", "_FULL", "_PIECE"), sizes, strict=True):
            patch.setattr(packing, name, size)
        rows = packed(terms, shards, chance, partitions)
    folded: Counter[Any] = Counter()
    others: Counter[Term] = Counter()
    for term in terms:
        if folds(term[0]):
            folded[term[:2]] ^= term[2]
        else:
            others[term] += 1
    expected = {place: delta for place, delta in folded.items() if delta}
    assert said_by(rows, shards) == (expected, others)
    count: Counter[Any] = Counter()
    for row in rows:
        count[row.kind, row.shard] += row.terms
    by_shard = Counter((t[0], int(shards_of(np.array([t[1]]), shards)[0])) for t in terms)
    assert count == by_shard
    assert all(len(row.anchors) // 8 <= sizes[2] for row in rows if not folds(row.kind))


def of_blocks(rows: int, blocks: int, chance: np.random.Generator) -> tuple[Any, Any]:
    named = chance.integers(0, 2**50, blocks)[chance.integers(0, blocks, rows)]
    anchors = 1 << 62 | named << 12 | chance.integers(0, SLOTS, rows)
    return anchors, chance.integers(1, 2**63 - 1, rows)


@pytest.mark.parametrize("blocks", [1, 3, 4, 5, 40])
@pytest.mark.parametrize("loose", [0, 500])
@pytest.mark.parametrize("full", [6000, 1 << 22])
def test_scattered_and_sorted_folds_are_equal(
    monkeypatch: pytest.MonkeyPatch, blocks: int, loose: int, full: int
) -> None:
    """The table is used only if there are enough rows per block."""
    chance = np.random.default_rng(blocks)
    anchors, deltas = of_blocks(8000, blocks, chance)
    anchors = np.concatenate([anchors, chance.integers(1, 2**62, loose)])
    deltas = np.concatenate([deltas, chance.integers(1, 2**62, loose)])
    order = chance.permutation(len(anchors))
    anchors, deltas = anchors[order], deltas[order]
    expected = Merged()
    expected.add(anchors, deltas)
    taken = []
    plain = Scatter.add

    def watched(self: Scatter, ones: Any, others: Any) -> bool:
        taken.append(plain(self, ones, others))
        return taken[-1]

    monkeypatch.setattr(packing, "_SOME", 1500)
    monkeypatch.setattr(packing, "_FULL", full)
    monkeypatch.setattr(scatter, "_MOST", 4)
    monkeypatch.setattr(Scatter, "add", watched)
    packer, merged, terms = Packer(4), Merged(), 0
    rows: list[Packed] = []
    for at in range(0, len(anchors), 700):
        rows += packer.add(Kind.INPUT, anchors[at : at + 700], deltas[at : at + 700])
    for row in [*rows, *packer.finish()]:
        terms += row.terms
        if row.block == LOOSE:
            merged.add_loose(row.anchors, row.deltas)
        else:
            merged.add_block(row.block, row.anchors, row.deltas)
    assert list(merged.loose(4)) == list(expected.loose(4))
    assert list(merged.blocks()) == list(expected.blocks())
    assert terms == 8000 + loose
    assert any(taken) == (blocks <= 4)


def test_hash_collision_of_blocks_falls_back(monkeypatch: pytest.MonkeyPatch) -> None:
    anchors, deltas = of_blocks(5000, 3, np.random.default_rng(1))
    plain = Scatter()
    assert plain.add(anchors, deltas)
    expected = list(plain.blocks())
    assert len(expected) == 3
    monkeypatch.setattr(scatter, "_MULTIPLIERS", (0, scatter._MULTIPLIERS[0]))
    second = Scatter()
    # The first multiplier works for the first block alone, whose hash must be found again.
    first = anchors >> 12 == anchors[0] >> 12
    assert second.add(anchors[first], deltas[first])
    assert second.add(anchors[~first], deltas[~first])
    assert list(second.blocks()) == expected
    monkeypatch.setattr(scatter, "_MULTIPLIERS", (0, 0))
    third = Scatter()
    assert third.add(anchors[first], deltas[first])
    assert not third.add(anchors[~first], deltas[~first])
    assert [block for block, _, _ in third.blocks()] == [int(anchors[0]) >> 12 & 2**50 - 1]


def test_cancelled_terms_are_counted() -> None:
    """The number of terms is reported although their deltas cancel."""
    for anchor in (7, block_anchor(5, 3)):
        rows = packed([(Kind.INPUT, anchor, 9, ""), (Kind.INPUT, anchor, 9, "")], 1)
        assert [row.terms for row in rows] == [2]
        assert said_by(rows, 1) == ({}, Counter())


@pytest.mark.parametrize(
    "anchor", [0, -1, -(2**63), 2**62 | 4095, 2**63 - 1, block_anchor(5, 0) | 4095]
)
@pytest.mark.parametrize("kind", [Kind.INPUT, Kind.CHILD, Kind.FAIL, Kind.TOUCH, Kind.TRACK])
def test_packer_refuses_invalid_anchors(anchor: int, kind: Kind) -> None:
    with pytest.raises(InvalidBatchError, match="an anchor must be a number from 1 to"):
        add(Packer(1), kind, [(kind, 5, 1, ""), (kind, anchor, 1, "")])


@pytest.mark.parametrize("anchor", [1, 2**62 - 1, 2**62, 2**62 | 4094, 2**63 - 2])
def test_lowest_and_highest_anchor_are_packed(anchor: int) -> None:
    rows = packed([(Kind.INPUT, anchor, 3, "")], 1)
    assert said_by(rows, 1) == ({(Kind.INPUT, anchor): 3}, Counter())


@pytest.mark.parametrize(
    ("kind", "delta"),
    [(Kind.INPUT, -1), (Kind.CHILD, -1), (Kind.CHILD, 0), (Kind.TRACK, -1), (Kind.TRACK, -(2**63))],
)
def test_packer_refuses_invalid_message_ids(kind: Kind, delta: int) -> None:
    with pytest.raises(InvalidBatchError, match="an id of a message must be a number"):
        add(Packer(1), kind, [(kind, 5, 1, ""), (kind, 6, delta, "")])


def test_null_source_id_is_refused() -> None:
    texts = pa.array(["a", None, None])
    with pytest.raises(InvalidBatchError, match="2 rows have no source id"):
        list(Packer(1).add(Kind.TRACK, np.array([1, 2, 3]), np.array([1, 2, 3]), texts))


@given(st.lists(st.none() | st.text(max_size=300), min_size=1, max_size=4))
def test_any_reason_becomes_valid(whys: list[str | None]) -> None:
    """Reasons are for people: a failure is never refused because of its text."""
    texts = pa.array(
        [why if why is None else why.encode("utf-8", "ignore").decode() for why in whys]
    )
    packer = Packer(1)
    anchors = np.arange(1, len(whys) + 1)
    (row,) = [*packer.add(Kind.FAIL, anchors, None, texts.cast(pa.string())), *packer.finish()]
    found = [text.decode() for text in unpack_texts(row.ends, row.texts).to_pylist()]
    for before, after in zip(texts.to_pylist(), found, strict=True):
        check_text("why", after, 0)
        if before is None:
            assert after == ""
        elif before.isprintable() and len(before.encode()) <= 255:
            assert after == before


def test_long_reason_is_cut_between_characters() -> None:
    (row,) = packed([(Kind.FAIL, 7, 0, "x" + "é" * 300)], 1)
    assert row.texts.decode() == "x" + "é" * 127


@given(st.lists(st.text()), st.integers(0, 3), st.integers(0, 3))
def test_packed_texts_round_trip(texts: list[str], before: int, after: int) -> None:
    """Also for a slice of a column, as Arrow may give it."""
    texts = [text.encode("utf-8", "ignore").decode() for text in texts]
    column = pa.array(["é"] * before + texts + ["y"] * after, pa.string())
    ends, data = pack_texts(column.slice(before, len(texts)))
    assert [t.decode() for t in unpack_texts(ends, data).to_pylist()] == texts


def test_no_texts_are_no_bytes() -> None:
    assert pack_texts(None) == (b"", b"")
    assert unpack_texts(b"", b"").to_pylist() == []


def test_error_goes_to_each_shard() -> None:
    rows = list(bad(InvalidBatchError("it is bad"), 4))
    assert [(row.shard, row.kind, row.texts) for row in rows] == [
        (shard, Kind.ERROR, b"it is bad") for shard in range(4)
    ]


def test_no_terms_give_no_rows() -> None:
    assert packed([], 8) == []
