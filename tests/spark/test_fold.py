"""Folding a micro-batch: whatever the order and the place, the same rows."""

import random
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from acker_redis.batch import FAIL, MAX_ROWS, MAX_TEXTS, TRACK
from acker_redis.errors import InvalidBatchError
from acker_redis.spark.fold import ROW_COLUMNS, Folded, fold, fold_in_spark

SCHEMA = pa.schema(
    [("anchor", pa.int64()), ("tuple", pa.int64()), ("delta", pa.int64()),
     ("source_id", pa.string()), ("why", pa.string())]
)  # fmt: skip
Row = tuple[Any, Any, Any, Any, Any]


def table(rows: list[Row]) -> pa.Table:
    columns = list(zip(*rows, strict=True)) if rows else [()] * 5
    return pa.table([list(c) for c in columns], schema=SCHEMA)


def same(a: Folded, b: Folded) -> bool:
    return (
        a.anchors.tolist() == b.anchors.tolist()
        and a.deltas.tolist() == b.deltas.tolist()
        and a.source_ids == b.source_ids
        and a.whys == b.whys
        and a.digest == b.digest
    )


MESSAGES = st.dictionaries(
    st.tuples(st.integers(1, 6), st.integers(1, 2**63 - 1)),
    st.tuples(st.integers(0, 2**63 - 1), st.none() | st.sampled_from(["", "a", "b"])),
    min_size=1,
    max_size=30,
)


@given(MESSAGES, st.randoms())
def test_against_a_dictionary(
    messages: dict[tuple[int, int], tuple[int, str | None]], shuffler: random.Random
) -> None:
    rows = [(a, t, d, None, why) for (a, t), (d, why) in messages.items()]
    deltas: dict[int, int] = {}
    whys: dict[int, bytes] = {}
    for (anchor, _), (delta, why) in sorted(messages.items()):
        deltas[anchor] = deltas.get(anchor, 0) ^ delta
        if why is not None:
            whys[anchor] = whys.get(anchor) or why.encode()
    folded = fold(table(rows))
    assert folded.anchors.tolist() == sorted(deltas)
    assert folded.deltas.tolist() == [deltas[a] for a in sorted(deltas)]
    assert {folded.anchors.tolist()[r]: w for r, w in folded.whys.items()} == whys
    shuffler.shuffle(rows)
    assert same(fold(table(rows)), folded)


def test_tracks_keep_their_source_ids() -> None:
    folded = fold(table([(9, 0, 1, "nine", None), (3, 0, 2, "three", None)]), tracks=True)
    assert folded.anchors.tolist() == [3, 9]
    assert folded.source_ids == (b"three", b"nine")


def test_nothing_folds_to_nothing() -> None:
    folded = fold(table([]))
    assert len(folded) == 0
    assert folded.columns("t", 4) == {}


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ([(None, 1, 1, None, None)], "column anchor has 1 nulls"),
        ([(1, None, 1, None, None)], "column tuple has 1 nulls"),
        ([(0, 1, 1, None, None)], r"1 to 2\^62-1"),
        ([(2**62, 1, 1, None, None)], r"1 to 2\^62-1"),
        ([(5, 7, 1, None, None), (5, 7, 2, None, None)], "a message is there twice: anchor 5"),
        ([(5, 0, 1, "s", None), (5, 0, 1, "s", None)], "make the source id unique"),
        ([(5, 0, 1, "s", None), (6, 0, 1, None, None)], "source_id has 1 nulls"),
        ([(5, 0, 1, "", None)], "1 to 255 bytes"),
        ([(5, 0, 1, "a\nb", None)], "control characters"),
        ([(5, 1, 1, None, "x" * 256)], "a why has 0 to 255 bytes"),
    ],
)
def test_bad_rows(rows: list[Row], words: str) -> None:
    with pytest.raises(InvalidBatchError, match=words):
        fold(table(rows), tracks=any(row[3] is not None for row in rows))


@pytest.mark.parametrize("shards", [1, 4])
def test_columns_are_chunked_per_shard(shards: int) -> None:
    rows: list[Row] = [(i, 1, i, None, f"why {i}" if i % 3 == 0 else None) for i in range(1, 10001)]
    parts = fold(table(rows)).columns("", shards)
    seen = {}
    for shard, chunks in parts.items():
        assert [len(c) for c in chunks[:-1]] == [1024] * (len(chunks) - 1)
        for chunk in chunks:
            whys = iter(chunk.texts)
            for row, flags in enumerate(chunk.flags):
                anchor = chunk.anchor(row)
                assert anchor % shards == shard
                seen[anchor] = next(whys).decode() if flags & FAIL else None
                assert not flags & TRACK
            assert not list(whys)
    assert seen == {r[0]: r[4] for r in rows}


@pytest.mark.parametrize("length", [20, 64, 65, 255])
def test_chunks_hold_no_more_texts_than_a_call_may_have(length: int) -> None:
    rows: list[Row] = [(i, 1, i, f"{i:0{length}d}", None) for i in range(1, 3001)]
    (chunks,) = fold(table(rows), tracks=True).columns("t", 1).values()
    assert b"".join(c.anchors for c in chunks) == b"".join(i.to_bytes(8) for i in range(1, 3001))
    sizes = [sum(map(len, chunk.texts)) for chunk in chunks]
    assert max(sizes) <= MAX_TEXTS
    full = min(MAX_ROWS, MAX_TEXTS // length)
    assert [len(c) for c in chunks[:-1]] == [full] * (len(chunks) - 1)


def test_digest_tells_contents_apart() -> None:
    base = [(1, 5, 7, None, None), (2, 6, 8, None, "w")]
    others: list[list[Row]] = [
        [(1, 5, 6, None, None), base[1]],
        [base[0], (3, 6, 8, None, "w")],
        [base[0], (2, 6, 8, None, "v")],
        [base[0], (2, 6, 8, None, None)],
        [base[0]],
    ]
    digests = {fold(table(rows)).digest for rows in [base, *others]}
    assert len(digests) == 6
    assert all(len(d) == 32 for d in digests)


def test_folding_in_spark_is_the_same(spark: SparkSession) -> None:
    chance = random.Random(3)
    rows: list[Row] = []
    for anchor in range(1, 300):
        for _ in range(chance.randint(1, 5)):
            why = chance.choice([None, None, "", "first", "second"])
            rows.append((anchor, chance.getrandbits(63), chance.getrandbits(63), None, why))
    df = spark.createDataFrame(
        rows, "anchor LONG, tuple LONG, delta LONG, source_id STRING, why STRING"
    )
    in_spark = fold(fold_in_spark(df.repartition(4)).select(*ROW_COLUMNS).toArrow())
    assert same(in_spark, fold(table(rows)))


def test_folding_in_spark_refuses_a_message_twice(spark: SparkSession) -> None:
    rows = [(5, 7, 1, None, None), (5, 7, 1, None, None), (6, 8, 1, None, None)]
    df = spark.createDataFrame(
        rows, "anchor LONG, tuple LONG, delta LONG, source_id STRING, why STRING"
    )
    with pytest.raises(InvalidBatchError, match="comes once per batch"):
        fold(fold_in_spark(df).toArrow())
