"""Column batches: folding two columns by numpy and in plain Python gives the same parts."""

import builtins
import struct
from collections import Counter
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from acker_redis.batching import column_batch, fold_numpy
from acker_redis.batching.column_batch import ColumnBatch
from acker_redis.batching.fold_numpy import NumpyFold
from acker_redis.batching.fold_plain import PlainFold
from acker_redis.batching.sent import Part
from acker_redis.errors import InvalidBatchError
from acker_redis.protocol.blocks import MAX_BLOCKS, MAX_CALL, MAX_NAMED, Blocks
from acker_redis.protocol.ids import SLOTS, block_anchor, shard_of
from acker_redis.protocol.rows import FAIL, MAX_ROWS, MAX_TEXTS, Columns

SLOT = st.sampled_from([0, 1, 2, 31, 32, 33, 2047, 4093, 4094])
BLOCK = st.sampled_from([0, 1, 2, 2**31, 2**32, 2**50 - 1])
ANCHORS = st.integers(1, 2**62 - 1) | st.integers(1, 4) | st.builds(block_anchor, BLOCK, SLOT)
DELTAS = st.integers(0, 2**63 - 1) | st.integers(0, 3)
ROWS = st.lists(st.tuples(ANCHORS, DELTAS), max_size=60)
FAILED = st.dictionaries(ANCHORS, st.sampled_from(["", "no", 'q"\\', "é" * 100]), max_size=5)


def batch(anchors: Any, deltas: Any, failed: Any, plain: bool) -> ColumnBatch:
    """Return a batch folded by numpy, or in plain Python."""
    kind = PlainFold if plain else NumpyFold
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(column_batch, "fold", kind)
        return ColumnBatch(anchors, deltas, failed)


def said(parts: list[Part], shards: int) -> tuple[dict[int, int], dict[int, str]]:
    """Return the content of parts: anchor -> non-zero delta, anchor -> why. Check their limits."""
    deltas: Counter[int] = Counter()
    failed: dict[int, str] = {}
    done: set[tuple[int, int]] = set()
    failed_before: set[tuple[int, int]] = set()
    for part in parts:
        if isinstance(part.rows, Columns):
            rows, whys = part.rows, iter(part.rows.texts)
            assert len(rows) <= MAX_ROWS
            assert sum(map(len, rows.texts)) <= MAX_TEXTS
            column = struct.unpack(f">{len(rows)}Q", rows.deltas)
            for row, delta in enumerate(column):
                anchor = rows.anchor(row)
                assert shard_of(anchor, shards) == part.shard
                assert anchor not in deltas, "an anchor is in one row"
                deltas[anchor] ^= delta
                if rows.flags[row] & FAIL:
                    failed[anchor] = next(whys).decode()
        else:
            limits(part.rows)
            for block in part.rows.parts:
                assert block.block % shards == part.shard
                slots, column = block.slots, block.deltas
                named = (
                    struct.unpack(f">{len(slots) // 2}H", slots)
                    if slots
                    else range(len(column) // 8)
                )
                assert list(named) == sorted(set(named))
                values = struct.unpack(f">{len(column) // 8}Q", column)
                for slot, delta in zip(named, values, strict=True):
                    deltas[block_anchor(block.block, slot)] ^= delta
                failed |= {block_anchor(block.block, s): w for s, w in failures(block.failed)}
                whys = {slot for slot, _ in failures(block.failed)}
                seen = {slot for number, slot in done if number == block.block}
                assert not seen & whys, "the delta of a failed tree was in an earlier part"
                said_of = {s for s, delta in zip(named, values, strict=True) if delta}
                done |= {(block.block, slot) for slot in said_of}
                failed_in = {slot for number, slot in failed_before if number == block.block}
                assert not failed_in & said_of
                failed_before |= {(block.block, slot) for slot in whys}
    return {a: d for a, d in deltas.items() if d}, failed


def failures(column: bytes) -> Any:
    at = 0
    while at < len(column):
        slot, length = struct.unpack_from(">HB", column, at)
        yield slot, column[at + 3 : at + 3 + length].decode()
        at += 3 + length


def limits(call: Blocks) -> None:
    """Check that a call is within the limits of apply_blocks."""
    numbers = [part.block for part in call.parts]
    assert len(set(numbers)) == len(numbers) <= MAX_BLOCKS
    assert sum(map(len, (a for part in call.parts for a in part.arguments()))) <= MAX_CALL
    whys = [why for part in call.parts for _, why in failures(part.failed)]
    named = sum(len(part.slots) // 2 for part in call.parts) + len(whys)
    assert named <= MAX_NAMED
    assert sum(len(why.encode()) for why in whys) <= MAX_TEXTS


def truth(rows: list[tuple[int, int]]) -> dict[int, int]:
    """Return the folded rows: anchor -> non-zero delta."""
    found: Counter[int] = Counter()
    for anchor, delta in rows:
        found[anchor] ^= delta
    return {anchor: delta for anchor, delta in found.items() if delta}


@given(ROWS, FAILED, st.sampled_from([1, 2, 8]))
def test_parts_equal_the_rows_with_and_without_numpy(
    rows: list[tuple[int, int]], failed: dict[int, str], shards: int
) -> None:
    anchors, deltas = [a for a, _ in rows], [d for _, d in rows]
    plain = batch(anchors, deltas, failed, plain=True).parts(shards)
    assert said(plain, shards) == (truth(rows), failed)
    assert batch(anchors, deltas, failed, plain=False).parts(shards) == plain
    assert plain == batch(anchors[::-1], deltas[::-1], failed, plain=True).parts(shards)


@pytest.mark.parametrize("blocks", [1, 7, 300])
@pytest.mark.parametrize("rows", [20_000, pytest.param(100_000, marks=pytest.mark.full)])
def test_many_rows_are_scattered_and_few_are_sorted(rows: int, blocks: int) -> None:
    """Both algorithms give the same result; the numbers of rows and blocks choose one."""
    chance = np.random.default_rng(rows + blocks)
    numbers = chance.integers(0, 2**50, blocks)[chance.integers(0, blocks, rows)]
    anchors = 1 << 62 | numbers << 12 | chance.integers(0, SLOTS, rows)
    loose = chance.integers(1, 2**62, rows // 10)
    anchors = chance.permutation(np.concatenate([anchors, loose, loose[:10]]))
    deltas = chance.integers(0, 2**63 - 1, len(anchors))
    failed = {int(anchor): "no" for anchor in anchors[:3000]}
    found = batch(anchors, deltas, failed, plain=False)
    assert (found._folded._table is not None) == (blocks * 4096 <= 2 * rows)  # type: ignore[union-attr]
    parts = found.parts(4)
    assert parts == batch(anchors.tolist(), deltas.tolist(), failed, plain=True).parts(4)
    expected = truth(list(zip(anchors.tolist(), deltas.tolist(), strict=True)))
    assert said(parts, 4) == (expected, failed)


def test_hash_collision_of_blocks_falls_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a collision the next multiplier is tried; if all collide, the rows are sorted."""
    anchors = np.array([block_anchor(b, s) for b in range(4) for s in range(SLOTS)] * 2)
    deltas = np.arange(len(anchors)) + 1
    expected = batch(anchors, deltas, None, plain=False)
    assert expected._folded._table  # type: ignore[union-attr]
    monkeypatch.setattr(fold_numpy, "_MULTIPLIERS", (0, fold_numpy._MULTIPLIERS[0]))
    assert batch(anchors, deltas, None, plain=False).parts() == expected.parts()
    monkeypatch.setattr(fold_numpy, "_MULTIPLIERS", (0, 0))
    fallen_back = batch(anchors, deltas, None, plain=False)
    assert fallen_back._folded._table is None  # type: ignore[union-attr]
    assert fallen_back.parts() == expected.parts()


A = [block_anchor(5, 9), 7, block_anchor(5, 0)]
D = [2**63 - 1, 2, 3]


@pytest.mark.parametrize(
    "kind",
    [
        np.array,
        lambda x: np.array(x, dtype=np.uint64),
        pa.array,
        lambda x: pa.chunked_array([x[:1], x[1:]]),
        pd.Series,
        tuple,
        iter,
    ],
    ids=["int64", "uint64", "arrow", "chunked", "pandas", "tuple", "iterator"],
)
def test_columns_of_any_kind(kind: Any) -> None:
    expected = batch(A, D, None, plain=True).parts()
    assert ColumnBatch(kind(A), kind(D)).parts() == expected


@pytest.mark.parametrize("plain", [True, False])
@pytest.mark.parametrize(
    ("anchors", "deltas", "words"),
    [
        ([1, 2], [1], "2 anchors, but 1 deltas"),
        ([0], [1], "anchor"),
        ([-1], [1], "0 to 2|anchor"),
        ([2**63], [1], "0 to 2|anchor"),
        ([2**64], [1], "anchor|integers"),
        ([2**62 | 4095], [1], "slots"),
        ([1], [-1], "0 to 2"),
        ([1], [2**63], "0 to 2"),
        ([1.0], [1], "integers|whole"),
        ([1], [True], "integers|whole"),
        (["1"], [1], "integers|whole"),
        ([None], [1], "integers|whole"),
        ([[1]], [1], "integers|whole"),
    ],
)
def test_invalid_columns_are_refused(plain: bool, anchors: Any, deltas: Any, words: str) -> None:
    with pytest.raises(InvalidBatchError, match=words):
        batch(anchors, deltas, None, plain)


def test_columns_with_nulls_are_refused() -> None:
    with pytest.raises(InvalidBatchError, match="without nulls"):
        ColumnBatch(pa.array([1, None]), pa.array([1, 2]))


def test_invalid_failures_are_refused() -> None:
    for failed in ({0: "x"}, {7: "a\nb"}, {7: "x" * 256}, {2**62 | 4095: ""}):
        with pytest.raises(InvalidBatchError):
            ColumnBatch([], [], failed)


def test_empty_batch_has_no_parts() -> None:
    assert ColumnBatch([], []).parts(8) == []


def test_without_numpy_plain_python_folds(monkeypatch: pytest.MonkeyPatch) -> None:
    load = builtins.__import__

    def refuses(name: str, *args: Any) -> Any:
        if name in ("numpy", "acker_redis.batching.fold_numpy"):
            raise ModuleNotFoundError(name)
        return load(name, *args)

    monkeypatch.setattr(builtins, "__import__", refuses)
    assert isinstance(ColumnBatch(A, D)._folded, PlainFold)


@pytest.mark.parametrize("plain", [True, False])
def test_failure_and_its_delta_are_in_one_call(plain: bool) -> None:
    """Between two calls the block may end, and a new block may begin under its number."""
    anchors = [block_anchor(1, slot) for slot in range(SLOTS)]
    for failed in (
        dict.fromkeys(anchors, "x" * 255),
        dict.fromkeys(anchors, ""),
        dict.fromkeys(anchors[::3], "x" * 100),
        dict.fromkeys(anchors[:1100], "x"),
    ):
        for some in (anchors, anchors[::2], anchors[:50], anchors[1000:]):
            parts = batch(some, [1] * len(some), failed, plain).parts()
            assert said(parts, 1) == (dict.fromkeys(some, 1), failed)
            assert len(parts) > 1


@pytest.mark.parametrize(
    "column",
    [
        np.ma.array([1, 2], mask=[False, True]),
        np.array([1, 2], dtype=np.uint8),
        np.array([1, 2], dtype=np.int32),
        bytearray(16),
        memoryview(bytes(16)),
        bytes(16),
    ],
    ids=["masked", "uint8", "int32", "bytearray", "memoryview", "bytes"],
)
def test_columns_of_other_types_are_refused(column: Any) -> None:
    with pytest.raises(InvalidBatchError):
        ColumnBatch(column, column)
    with pytest.raises(InvalidBatchError, match=r"column|numbers|deltas"):
        ColumnBatch([1] * len(column), column)
