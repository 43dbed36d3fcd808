"""Verdicts as rows, in batch reads and streams: each once, also after crashes."""

import logging
import pickle
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows
from pyspark.sql.streaming.query import StreamingQuery

from acker_redis.batching.batch import Batch
from acker_redis.embedded import EmbeddedRedis
from acker_redis.errors import (
    ConfigError,
    DataLossError,
    InvalidBatchError,
    NamespaceNotFoundError,
    RedisUnavailableError,
    SchemaError,
)
from acker_redis.protocol.config import AckerConfig
from acker_redis.protocol.ids import block_anchor
from acker_redis.protocol.keys import ShardKeys
from acker_redis.protocol.labels import source_id_of
from acker_redis.protocol.outcome import BlockOutcome, Entry, Outcome, odd_edges
from acker_redis.reference.blocks import BlockRow
from acker_redis.spark.fold.target import URL_VARIABLE, Target
from acker_redis.spark.streams import outcomes_stream
from acker_redis.spark.streams.outcome_offsets import VerdictOffset
from acker_redis.spark.streams.outcome_options import OutcomeOptions
from acker_redis.spark.streams.outcome_reads import Listed
from acker_redis.spark.streams.outcome_rows import (
    BATCH_ROWS,
    SCHEMA,
    OutcomeRow,
    record_batches,
    rows_of,
)
from acker_redis.spark.streams.outcomes_source import OutcomesReader, OutcomesSource, register
from acker_redis.spark.streams.outcomes_stream import OutcomesStreamReader
from acker_redis.sync.client import Acker
from acker_redis.transport.readers import waiting_readers
from acker_redis.transport.urls import RedisUrl
from tests.conftest import MakeAcker
from tests.support import (
    backlog,
    block_row,
    fail,
    fail_slot,
    send_blocks,
    tick,
    touch,
    touch_block,
    track,
    track_block,
)

TASK = "t"
Seen = list[list[str]]


@pytest.fixture
def acker(make_any_acker: MakeAcker) -> Acker:
    return make_any_acker(high_water=20)


def url_of(acker: Acker) -> str:
    found = acker.connection.client.connection_pool.connection_kwargs
    return f"redis://{found['host']}:{found['port']}"


def options(acker: Acker, **more: Any) -> dict[str, str]:
    plain = {"url": url_of(acker), "namespace": acker.namespace, "source": TASK}
    return plain | {name: str(value) for name, value in more.items()}


def reader(acker: Acker, **more: Any) -> OutcomesStreamReader:
    return OutcomesStreamReader(OutcomeOptions.parse(options(acker, **more)))


def stream_key(acker: Acker, shard: int = 0) -> str:
    return ShardKeys(acker.namespace, shard).outcomes(TASK)


def acked(acker: Acker, *names: str) -> None:
    """Track trees that are complete at once: each gives an entry of the stream."""
    for name in names:
        track(acker, 2 * int.from_bytes(name.encode(), "big"), 0, name)


def add(acker: Acker, id_: str, name: str) -> None:
    """Add an entry with a given id."""
    fields = {"verdict": "nack", "reason": "failed", "n": 1, "rows": f'[["7","{name}",5,"w"]]'}
    acker.connection.client.xadd(stream_key(acker), fields, id_)


def ids(acker: Acker, shard: int = 0) -> list[str]:
    return [id_.decode() for id_, _ in acker.connection.client.xrange(stream_key(acker, shard))]


def read_now(acker: Acker, **more: Any) -> list[dict[str, Any]]:
    """Return the rows of a batch read, without Spark."""
    source = OutcomesReader(OutcomeOptions.parse(options(acker, **more)))
    batches = (batch for part in source.partitions() for batch in source.read(part))
    return [found for batch in batches for found in batch.to_pylist()]


def brief(rows: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    columns = ("verdict", "reason", "why", "anchor", "source_id", "trees", "label")
    return [tuple(found[name] for name in columns) for found in rows]


# Entries to rows


def test_loose_verdicts_of_every_kind(acker: Acker) -> None:
    track(acker, 2, 0, "done")
    track(acker, 4, 1, "bad")
    fail(acker, 4, "it is bad")
    track(acker, 6, 1, "slow")
    touch(acker, 6)
    track(acker, 8, 1, "twice")
    track(acker, 8, 1, "twice")
    tick(acker, 3)
    rows = read_now(acker)
    assert brief(rows) == [
        ("ack", "completed", "", 2, "done", 1, None),
        ("nack", "failed", "it is bad", 4, "bad", 1, None),
        ("touch", "reset", "", 6, "slow", 1, None),
        ("nack", "conflict", "", 8, "twice", 1, None),
        ("nack", "expired", "", 6, "slow", 1, None),
    ]
    assert [(r["residual"], r["edges"], r["cause"]) for r in rows] == [
        *[(None, [], "")] * 4,
        (1, [], "idle"),
    ]
    assert [r["idle_ms"] is None for r in rows] == [True, True, True, True, False]
    assert {(r["namespace"], r["source"]) for r in rows} == {(acker.namespace, TASK)}
    assert [int(r["at"].timestamp() * 1000) for r in rows] == [int(i[:-2]) for i in ids(acker)]
    assert all(r["age_ms"] >= 0 for r in rows)


def test_rows_say_where_a_message_of_an_expired_tree_is_missing(make_any_acker: MakeAcker) -> None:
    """Loose and in a block; the row of an edge, of two, of none, and of lost checksums."""
    acker = make_any_acker(edges=EDGES)
    mill, shop = (acker.ids.code(edge) for edge in EDGES)
    for anchor, delta in ((2, mill | 5), (4, shop | mill | 6), (6, 7)):
        track(acker, anchor, delta, str(anchor))
    track_block(acker, 5, [mill | 8, 0, shop | 9], label="b")
    tick(acker, 3)
    found = {
        (r["source_id"], r["residual"], tuple(r["edges"]), r["cause"]): r["idle_ms"]
        for expand in (True, False)
        for r in read_now(acker, expand=expand)
        if r["reason"] == "expired"
    }
    assert found.keys() == {
        ("2", mill | 5, ("mill",), "idle"),
        ("4", shop | mill | 6, ("mill", "shop"), "idle"),
        ("6", 7, (), "idle"),
        ("b#0", mill | 8, ("mill",), "idle"),
        ("b#2", shop | 9, ("shop",), "idle"),
    }
    assert all(ms >= 0 for ms in found.values())


def test_block_without_checksums_has_unknown_residuals(acker: Acker) -> None:
    track_block(acker, 5, [1, 2], label="b")
    keys = ShardKeys(acker.namespace, 0)
    assert acker.connection.client.delete(keys.block(5))
    tick(acker, 3)
    rows = read_now(acker)
    assert [(r["reason"], r["residual"], r["edges"]) for r in rows] == [("expired", None, [])] * 2


def test_residual_above_the_range_of_ids_does_not_stop_the_stream(acker: Acker) -> None:
    """A client may set bit 63 of a delta in a block by mistake."""
    track_block(acker, 5, [5], label="b")
    acker.connection.client.setrange(ShardKeys(acker.namespace, 0).block(5), 0, b"\x80")
    tick(acker, 3)
    [row] = read_now(acker)
    assert row["residual"] == 5 - 2**63


def test_a_users_own_label_reads_the_same_in_spark(acker: Acker) -> None:
    labels = ("page 5", "page@05", "@", "page@5~0")
    for label in labels:
        acker.track_block(TASK, label, [0, 0])
    found = [(r["source_id"], r["trees"]) for r in read_now(acker)]
    assert found == [(f"{label}#0", 2) for label in labels]
    with pytest.raises(InvalidBatchError, match="looks like one of Spark's labels"):
        acker.track_block(TASK, "page@5", [0, 0])


def test_verdicts_of_blocks_of_every_kind(acker: Acker) -> None:
    track_block(acker, 5, [1, 2, 4, 8], label="orders/3@1000")
    touch_block(acker, 5)
    fail_slot(acker, 5, 1, "torn", delta=2)
    block_row(acker, 5, {0: 1, 2: 4, 3: 8})
    track_block(acker, 6, [1, 2, 4, 0], label="page 6")
    block_row(acker, 6, {0: 1})
    tick(acker, 3)
    track_block(acker, 7, [1] * 41, label="orders/4@0")
    first, second = ("orders/3@1000", 5), ("page 6", 6)

    def line(block: tuple[str, int], verdict: str, reason: str, why: str, slot: int, n: int) -> Any:
        label, number = block
        anchor = block_anchor(number, slot)
        return verdict, reason, why, anchor, source_id_of(label, anchor), n, label

    rejected = [line(("orders/4@0", 7), "nack", "overflow", "", s, 1) for s in range(41)]
    assert brief(read_now(acker)) == [
        line(first, "touch", "reset", "", 0, 4),
        line(first, "nack", "failed", "torn", 1, 1),
        line(first, "ack", "completed", "", 0, 1),
        line(first, "ack", "completed", "", 2, 2),
        line(second, "nack", "expired", "", 1, 1),
        line(second, "nack", "expired", "", 2, 1),
        line(second, "ack", "completed", "", 0, 1),
        line(second, "ack", "completed", "", 3, 1),
        *rejected,
    ]
    assert brief(read_now(acker))[3][4] == "orders/3/1002"
    assert brief(read_now(acker, expand="TRUE")) == [
        *(line(first, "touch", "reset", "", s, 1) for s in range(4)),
        line(first, "nack", "failed", "torn", 1, 1),
        *(line(first, "ack", "completed", "", s, 1) for s in (0, 2, 3)),
        line(second, "ack", "completed", "", 0, 1),
        line(second, "nack", "expired", "", 1, 1),
        line(second, "nack", "expired", "", 2, 1),
        line(second, "ack", "completed", "", 3, 1),
        *rejected,
    ]


def test_absent_slots_have_no_rows(acker: Acker) -> None:
    """And no range contains one."""
    absent = frozenset([1, 4])
    column = {0: 1, 1: 0, 2: 2, 3: 4, 4: 0, 5: 8}
    for number, label in ((5, "p@10"), (6, "p@20"), (7, "p@30")):
        send_blocks(acker, BlockRow(number, column, task=TASK, label=label, absent=absent))
    touch_block(acker, 5)
    block_row(acker, 5, {0: 1, 2: 2, 3: 4, 5: 8})
    fail_slot(acker, 6, 2, "torn", delta=2)
    block_row(acker, 6, {0: 1, 3: 4, 5: 8})
    block_row(acker, 7, {0: 1, 2: 2, 5: 8})
    tick(acker, 3)
    ranges = {
        ("touch", "reset"): [("p/10", 1), ("p/12", 2), ("p/15", 1)],
        ("ack", "completed"): [
            ("p/10", 1), ("p/12", 2), ("p/15", 1), ("p/20", 1), ("p/23", 1), ("p/25", 1),
            ("p/30", 1), ("p/32", 1), ("p/35", 1),
        ],
        ("nack", "failed"): [("p/22", 1)],
        ("nack", "expired"): [("p/33", 1)],
    }  # fmt: skip
    found: dict[tuple[str, str], list[tuple[str, int]]] = {}
    for r in read_now(acker):
        found.setdefault((r["verdict"], r["reason"]), []).append((r["source_id"], r["trees"]))
    assert {kind: sorted(rows) for kind, rows in found.items()} == ranges
    trees = [(*kind, int(name[2:]) + n) for kind, rows in ranges.items() for name, count in rows
             for n in range(count)]  # fmt: skip
    singles = [(r["verdict"], r["reason"], int(r["source_id"][2:]))
               for r in read_now(acker, expand=True)]  # fmt: skip
    assert sorted(singles) == sorted(trees)


def test_rejected_block_with_gaps_nacks_its_trees_only(acker: Acker) -> None:
    absent = frozenset(range(1, 40))
    column = dict.fromkeys(range(41), 0) | {0: 1, 40: 1}
    send_blocks(acker, BlockRow(5, column, task=TASK, label="p@7", absent=absent))
    rows = [(r["verdict"], r["reason"], r["source_id"]) for r in read_now(acker)]
    assert rows == [("nack", "overflow", "p/7"), ("nack", "overflow", "p/47")]


texts = st.text(max_size=5)
slots = st.integers(0, 40)
residuals = st.sampled_from([0, 5, 1 << 55 | 5, 1 << 56 | 5, 3 << 55 | 5, 1 << 63 | 5])
EDGES = ("mill", "shop")


@st.composite
def blocks(draw: st.DrawFn) -> BlockOutcome:
    kind = draw(st.sampled_from(["failed", "completed", "mixed", "overflow", "reset"]))
    label = draw(st.one_of(texts, st.just("p@7"), st.just("p@7~2")))
    plain: dict[str, Any] = {"block": draw(st.integers(0, 2**50 - 1)), "label": label}
    plain |= {"age_ms": draw(st.integers(0, 9)), "slots": 0}
    if kind == "failed":
        rows = draw(st.dictionaries(slots, texts, min_size=1))
        return BlockOutcome("nack", "failed", rows=tuple(rows.items()), **plain)
    plain["slots"] = draw(st.integers(1, 41))
    each = st.sets(st.integers(0, plain["slots"] - 1))
    held = draw(each) or set(range(plain["slots"]))
    plain["absent"] = tuple(sorted(set(range(plain["slots"])) - held))
    some = draw(each) & held
    others = draw(each) & held - some
    if kind == "completed":
        return BlockOutcome("ack", kind, failed=tuple(some), **plain)
    if kind == "mixed":
        nacked = tuple(others)
        left = [draw(residuals) for _ in nacked]
        plain |= {"residuals": tuple(left), "edges": EDGES, "cause": "idle", "idle_ms": 4}
        return BlockOutcome("mixed", "expired", failed=tuple(some), nacked=nacked, **plain)
    return BlockOutcome("nack" if kind == "overflow" else "touch", kind, **plain)


loose = st.builds(
    Outcome, st.sampled_from(["ack", "nack", "touch"]), texts, slots, texts, slots, texts
) | st.builds(
    lambda residual, cause: Outcome(
        "nack", "expired", 7, "s", 9, "", cause, residual, 3, odd_edges(EDGES, residual)
    ),
    residuals,
    st.sampled_from(["idle", "deadline"]),
)
entries = st.one_of(
    st.builds(Entry, slots, st.just("1-0"), slots, st.lists(loose, max_size=4).map(tuple)),
    st.builds(Entry, slots, st.just("1-0"), slots, st.just(()), blocks()),
)


def singles(found: OutcomeRow) -> Iterator[tuple[Any, ...]]:
    """Yield the values of each tree of a row."""
    for tree in range(found.trees):
        anchor = found.anchor + tree
        end = (found.residual or 0) % 2**64, found.edges, found.idle_ms or 0, found.cause
        yield found.verdict, found.reason, found.why, anchor, found.age_ms, found.label or "", end


def tree_of(outcome: Outcome, entry: Entry) -> tuple[Any, ...]:
    o, label = outcome, entry.block.label if entry.block else ""
    end = o.residual, o.edges, o.idle_ms, o.cause
    return o.verdict, o.reason, o.why, o.anchor, o.age_ms, label, end


@given(entries)
def test_rows_hold_each_outcome_of_an_entry_once(entry: Entry) -> None:
    expected = [tree_of(outcome, entry) for outcome in entry]
    expanded, ranges = list(rows_of(entry, True)), list(rows_of(entry, False))
    if entry.block and not entry.block.rows:
        assert len(expected) == entry.block.count
    assert [one for found in expanded for one in singles(found)] == expected
    assert all(found.trees == 1 for found in expanded)
    assert sorted(one for found in ranges for one in singles(found)) == sorted(expected)
    assert all(found.trees == 1 for found in ranges if found.verdict == "nack")
    names = {found.anchor: found.source_id for found in expanded}
    if entry.block:
        assert all(names[found.anchor] == found.source_id for found in ranges)
        label = entry.block.label
        assert all(name == source_id_of(label, a) for a, name in names.items())
    else:
        assert [found.source_id for found in expanded] == [o.source_id for o in entry]


@given(st.lists(entries, max_size=5), st.booleans())
def test_a_batch_has_the_rows_of_its_entries(some: list[Entry], expand: bool) -> None:
    batches = list(record_batches(iter(some), "n", TASK, expand))
    rows = [found for entry in some for found in rows_of(entry, expand)]
    assert brief([r for batch in batches for r in batch.to_pylist()]) == [
        (r.verdict, r.reason, r.why, r.anchor, r.source_id, r.trees, r.label) for r in rows
    ]


def test_record_batches_are_bounded_and_entries_are_read_lazily() -> None:
    asked = 0

    def many() -> Iterator[Entry]:
        nonlocal asked
        for _ in range(12):
            asked += 1
            block = BlockOutcome("ack", "completed", 1, "b", 0, 4095)
            yield Entry(0, "1-0", 0, (), block)

    batches = record_batches(many(), "n", TASK, expand=True)
    sizes, had = [], []
    for batch in batches:
        sizes.append(batch.num_rows)
        had.append(asked)
    assert sizes == [3 * 4095] * 4
    assert had == [3, 6, 9, 12]
    assert max(sizes) < BATCH_ROWS + 4095


# The stream reader, called step by step like Spark does


def everything(found: OutcomesStreamReader, start: Any, end: Any) -> list[str]:
    return [
        r["source_id"]
        for part in found.partitions(start, end)
        for batch in found.read(pickle.loads(pickle.dumps(part)))
        for r in batch.to_pylist()
    ]


def test_offset_lists_the_oldest_entries_up_to_the_limit(acker: Acker) -> None:
    acked(acker, "a", "b", "c")
    it = reader(acker)
    nothing = it.initialOffset()
    assert it.getDefaultReadLimit() == ReadMaxRows(256)
    assert reader(acker, maxentriespertrigger=3).getDefaultReadLimit() == ReadMaxRows(3)
    one = it.latestOffset(nothing, ReadMaxRows(2))
    assert one["ids"] == {"0": " ".join(ids(acker)[:2])}
    two = it.latestOffset(one, ReadMaxRows(2))
    assert two["ids"] == {"0": ids(acker)[2]}
    assert it.latestOffset(two, ReadMaxRows(2))["ids"] == one["ids"], "they were not committed"
    it.commit(one)
    assert it.latestOffset(two, ReadMaxRows(2)) is two
    assert it.latestOffset(nothing, ReadAllAvailable())["ids"] == two["ids"]
    both = one | {"ids": {"0": f"{one['ids']['0']} {two['ids']['0']}"}}
    assert everything(it, one, both) == ["c"]


def test_new_entries_are_found_across_pages(acker: Acker) -> None:
    """More entries than a page, before and after the known entries."""
    for number in range(1, 101):
        add(acker, f"{number}-0", f"n{number}")
    assert [r["source_id"] for r in read_now(acker)] == [f"n{n}" for n in range(1, 101)]
    it = reader(acker)
    known = it.initialOffset() | {"ids": {"0": " ".join(f"{n}-0" for n in range(41, 61))}}
    found = it.latestOffset(known, ReadAllAvailable())
    names = [*range(1, 41), *range(61, 101)]
    assert found["ids"]["0"].split() == [f"{n}-0" for n in names]
    assert it.latestOffset(known, ReadMaxRows(50))["ids"]["0"].split() == [
        f"{n}-0" for n in names[:50]
    ]
    assert everything(it, known, found) == [f"n{n}" for n in names]


def test_commit_deletes_exactly_the_listed_entries(acker: Acker) -> None:
    acked(acker, "a", "b", "c")
    it, waiting = reader(acker), ids(acker)
    it.commit(it.initialOffset() | {"ids": {"0": waiting[1]}})
    assert ids(acker) == [waiting[0], waiting[2]]
    assert backlog(acker) == 2
    it.commit(it.initialOffset() | {"ids": {"0": waiting[1], "7": "1-0"}})
    assert backlog(acker) == 2


@pytest.mark.parametrize("new", ["1-0", "15-5", "25-0"])
def test_smaller_ids_after_a_failover_are_found(acker: Acker, new: str) -> None:
    """Before, between or after the ids of the last batch."""
    for number in (10, 12, 20):
        add(acker, f"{number}-0", f"n{number}")
    it = reader(acker)
    last = it.latestOffset(it.initialOffset(), ReadMaxRows(5))
    acker.connection.client.delete(stream_key(acker))
    for id_ in sorted(["10-0", "12-0", new], key=lambda id_: int(id_[:-2])):
        add(acker, id_, f"at {id_}")
    found = it.latestOffset(last, ReadMaxRows(5))
    assert found["ids"] == {"0": new}
    assert everything(it, last, found) == [f"at {new}"]


def test_entries_between_known_ids_are_found_by_a_thorough_poll(
    acker: Acker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(OutcomesStreamReader, "THOROUGH", 3)
    for number in (10, 20):
        add(acker, f"{number}-0", f"n{number}")
    it = reader(acker)
    last = it.latestOffset(it.initialOffset(), ReadMaxRows(5))
    assert it.latestOffset(last, ReadMaxRows(5)) is last
    acker.connection.client.delete(stream_key(acker))
    for id_ in ("10-0", "15-0"):
        add(acker, id_, "n")
    assert [it.latestOffset(last, ReadMaxRows(5))["ids"] for _ in range(3)] == [
        last["ids"],
        last["ids"],
        {"0": "15-0"},
    ]


def test_first_empty_poll_after_a_batch_is_thorough(acker: Acker) -> None:
    it, start = reader(acker), reader(acker).initialOffset()
    for first, last, new in (("10-0", "20-0", "15-0"), ("30-0", "40-0", "35-0")):
        assert it.latestOffset(start, ReadMaxRows(5)) is start
        add(acker, first, "n")
        add(acker, last, "n")
        start = it.latestOffset(start, ReadMaxRows(5))
        acker.connection.client.delete(stream_key(acker))
        add(acker, first, "n")
        add(acker, new, "n")
        assert it.latestOffset(start, ReadMaxRows(5))["ids"] == {"0": new}
        acker.connection.client.delete(stream_key(acker))


def test_reader_retries_while_redis_does_not_answer(
    acker: Acker, monkeypatch: pytest.MonkeyPatch
) -> None:
    acked(acker, "a", "b")
    it = reader(acker)
    connection = it._options.target.client().connection
    asked: list[str] = []

    def hesitant(name: str) -> None:
        answer = getattr(connection, name)

        def call(*args: Any) -> Any:
            asked.append(name)
            if asked.count(name) % 2:
                raise RedisUnavailableError("no answer")
            return answer(*args)

        monkeypatch.setattr(connection, name, call)

    hesitant("commands")
    hesitant("run")
    nothing = it.initialOffset()
    end = it.latestOffset(nothing, ReadMaxRows(1))
    assert everything(it, nothing, end) == ["a"]
    it.commit(end)
    assert backlog(acker) == 1
    assert (asked.count("commands"), asked.count("run")) == (4, 4)


def test_available_now_reads_only_waiting_verdicts(acker: Acker) -> None:
    acked(acker, "a", "b", "c")
    waiting, it = ids(acker), reader(acker)
    it.prepareForTriggerAvailableNow()
    acked(acker, "d")
    found, start = [], it.initialOffset()
    while (end := it.latestOffset(start, ReadMaxRows(2))) != start:
        it.commit(start)
        found.append(end["ids"]["0"].split())
        start = end
    assert found == [waiting[:2], waiting[2:]]
    it.prepareForTriggerAvailableNow()
    assert it.latestOffset(start, ReadMaxRows(2))["ids"] == {"0": ids(acker)[-1]}


def test_available_now_of_a_task_without_verdicts(acker: Acker) -> None:
    it = reader(acker)
    it.prepareForTriggerAvailableNow()
    acked(acker, "late")
    nothing = it.initialOffset()
    assert it.latestOffset(nothing, ReadMaxRows(2)) is nothing


@pytest.fixture
def four_shards(make_any_acker: MakeAcker) -> Acker:
    return make_any_acker(shards=4)


def in_shards(acker: Acker, *anchors: int) -> None:
    for anchor in anchors:
        batch = Batch(TASK)
        batch.track(anchor, f"s{anchor}", [])
        acker.apply(batch)


def test_one_partition_per_shard_with_entries(four_shards: Acker) -> None:
    in_shards(four_shards, 1, 3, 5, 9)
    it = reader(four_shards)
    nothing = it.initialOffset()
    end = it.latestOffset(nothing, ReadMaxRows(2))
    parts = [p.value for p in it.partitions(nothing, end)]
    assert all(isinstance(p, Listed) for p in parts)
    assert [(p.shard, len(p.ids)) for p in parts] == [(1, 2), (3, 1)]
    assert sorted(everything(it, nothing, end)) == ["s1", "s3", "s5"]
    assert it.latestOffset(end, ReadMaxRows(2))["ids"] == {"1": ids(four_shards, 1)[2]}


def test_missing_entries_are_an_error_that_says_what_to_do(acker: Acker) -> None:
    acked(acker, "a", "b", "c")
    it = reader(acker)
    nothing = it.initialOffset()
    end = it.latestOffset(nothing, ReadMaxRows(9))
    acker.connection.client.xdel(stream_key(acker), *ids(acker)[:2])
    with pytest.raises(DataLossError) as raised:
        everything(it, nothing, end)
    words = str(raised.value)
    assert "2 of 3 entries of shard 0" in words
    for word in ("another reader", "checkpoint was restored", "Redis lost", "failOnDataLoss=false"):
        assert word in words


def test_missing_entries_can_be_skipped(acker: Acker, caplog: pytest.LogCaptureFixture) -> None:
    acked(acker, "a", "b", "c")
    it = reader(acker, failondataloss="False")
    nothing = it.initialOffset()
    end = it.latestOffset(nothing, ReadMaxRows(9))
    acker.connection.client.xdel(stream_key(acker), ids(acker)[1])
    with caplog.at_level(logging.WARNING):
        assert everything(it, nothing, end) == ["a", "c"]
    assert "1 of 3 entries of shard 0" in caplog.text


def test_namespace_created_again_with_fewer_shards_is_read(four_shards: Acker) -> None:
    """Planned entries are lost, which is an error; later entries are read from the new shards."""
    in_shards(four_shards, 1, 3)
    it = reader(four_shards)
    nothing = it.initialOffset()
    end = it.latestOffset(nothing, ReadMaxRows(9))
    four_shards.connection.client.flushall()
    four_shards.create(AckerConfig(shards=1))
    with pytest.raises(DataLossError, match="shard 1"):
        everything(it, nothing, end)
    acked(four_shards, "new")
    it = reader(four_shards)
    new = it.latestOffset(end, ReadMaxRows(9))
    assert everything(it, end, new) == ["new"]
    it.commit(end)
    assert backlog(four_shards) == 1


def test_namespace_created_again_with_more_shards_is_read_completely(
    acker: Acker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(OutcomesStreamReader, "THOROUGH", 2)
    it = reader(acker)
    nothing = it.initialOffset()
    assert it.latestOffset(nothing, ReadMaxRows(9)) is nothing
    acker.connection.client.flushall()
    acker.create(AckerConfig(shards=2))
    in_shards(acker, 3)
    assert it.latestOffset(nothing, ReadMaxRows(9)) is nothing
    assert it.latestOffset(nothing, ReadMaxRows(9))["ids"] == {"1": ids(acker, 1)[0]}


def test_lost_namespace_is_an_error_for_a_running_query(
    acker: Acker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(OutcomesStreamReader, "THOROUGH", 2)
    it = reader(acker)
    nothing = it.initialOffset()
    it.latestOffset(nothing, ReadMaxRows(9))
    acker.connection.client.flushall()
    with pytest.raises(NamespaceNotFoundError, match=acker.namespace):
        for _ in range(2):
            it.latestOffset(nothing, ReadMaxRows(9))


def test_the_checkpoint_of_another_source_is_refused(acker: Acker) -> None:
    """Entries of two tasks may have the same ids, so a commit could delete the wrong entries."""
    acked(acker, "a")
    it = reader(acker)
    other = VerdictOffset(acker.namespace, "other", {0: (ids(acker)[0],)}).to_dict()
    for call in (
        lambda: it.commit(other),
        lambda: it.latestOffset(other, ReadMaxRows(1)),
        lambda: it.partitions(other, it.initialOffset()),
    ):
        with pytest.raises(ConfigError, match="source other .* checkpointLocation"):
            call()
    for broken in ({}, {"ids": {"0": "x"}}, {"ids": {"x": "1-0"}}, {"ids": {"0": 5}}):
        with pytest.raises(ConfigError, match="checkpointLocation"):
            it.commit(broken)
    assert backlog(acker) == 1


def test_planning_on_restart_deletes_no_unfinished_batch(acker: Acker) -> None:
    """On a restart, Spark first plans from the last logged offset to the same offset."""
    acked(acker, "a", "b")
    it = reader(acker)
    nothing = it.initialOffset()
    one = it.latestOffset(nothing, ReadMaxRows(1))
    two = it.latestOffset(one, ReadMaxRows(1))
    again = reader(acker)
    assert again.partitions(two, two) == []
    assert backlog(acker) == 2
    assert everything(again, one, two) == ["b"]
    assert backlog(acker) == 1, "Spark plans the second batch only after the first is finished"
    assert everything(again, one, two) == ["b"]


def test_planning_without_a_commit_is_refused(acker: Acker) -> None:
    """As with asynchronous progress tracking: the same verdicts would be read repeatedly."""
    acked(acker, "a", "b", "c")
    it = reader(acker)
    offsets = [it.initialOffset()]
    for _ in range(3):
        offsets.append(it.latestOffset(offsets[-1], ReadMaxRows(1)))
        it.commit(offsets[-2])
        it.partitions(*offsets[-2:])
        it.partitions(*offsets[-2:])
    acked(acker, "d", "e")
    offsets.append(it.latestOffset(offsets[-1], ReadMaxRows(1)))
    with pytest.raises(ConfigError, match="asynchronous progress tracking"):
        it.partitions(*offsets[-2:])
    assert backlog(acker) == 3


def test_idle_polls_are_few_and_never_stale(acker: Acker, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only pauses advance the fake clock, so it shows the rate of the polls."""
    now = [1000.0]
    clock = SimpleNamespace(
        monotonic=lambda: now[0], sleep=lambda s: now.__setitem__(0, now[0] + s)
    )
    acked(acker, "a", "b")
    client = acker.connection.client
    it = reader(acker)
    start = it.latestOffset(it.initialOffset(), ReadMaxRows(9))
    monkeypatch.setattr(outcomes_stream, "time", clock)
    client.config_resetstat()
    for _ in range(95):
        assert it.latestOffset(start, ReadMaxRows(9)) is start
    asked = client.info("commandstats")
    assert asked["cmdstat_xrange"]["calls"] == 2 * 95 + 2, "two per poll, and two thorough polls"
    assert asked["cmdstat_evalsha"]["calls"] == 1, "the number of shards is read again"
    assert now[0] == pytest.approx(1000 + 94 * it.IDLE_SECONDS)
    add(acker, f"{2**42}-0", "new")
    assert it.latestOffset(start, ReadMaxRows(9))["ids"] == {"0": f"{2**42}-0"}
    moved = now[0]
    it.latestOffset(start, ReadMaxRows(9))
    assert now[0] == moved, "a poll that finds entries does not wait"


# Options


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"namespace": ""}, "option namespace is missing"),
        ({"namespace": "a b"}, "option namespace"),
        ({"source": ""}, "option source is missing"),
        ({"source": "a b"}, "option source"),
        ({"expand": "yes"}, "option expand must be true or false"),
        ({"failOnDataLoss": "1"}, "option failOnDataLoss must be true or false"),
        (
            {"maxEntriesPerTrigger": "0"},
            "option maxEntriesPerTrigger must be a number from 1 to 10000",
        ),
        ({"maxEntriesPerTrigger": "10001"}, "option maxEntriesPerTrigger"),
        ({"maxEntriesPerTrigger": "1e3"}, "option maxEntriesPerTrigger"),
        ({"task": "t"}, "option task: .* is the option source"),
        ({"limit": "5"}, "option limit: acker-outcomes has no such option"),
        ({"url": "http://x"}, "option url: "),
        ({"username": "me"}, "option password is missing"),
    ],
)
def test_wrong_options_are_named(given: dict[str, str], words: str) -> None:
    right = {"url": "redis://localhost", "namespace": "n", "source": TASK}
    with pytest.raises(ConfigError, match=words):
        OutcomesSource(right | given).schema()


def test_valid_options_are_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(URL_VARIABLE, "redis://elsewhere/3")
    found = OutcomeOptions.parse({"NAMESPACE": "n", "Source": TASK, "path": "x", "__internal": "y"})
    assert found == OutcomeOptions(Target("n", "redis://elsewhere/3"), TASK)
    monkeypatch.delenv(URL_VARIABLE)
    with pytest.raises(ConfigError, match="option url is missing.*ACKER_REDIS_URL"):
        OutcomeOptions.parse({"namespace": "n", "source": TASK})


SECRET = "s3c%r/e:t@#?"


@pytest.mark.parametrize(
    "url",
    ["redis://h:7/2", "rediss+sentinel://a,b:5/main/1", "unix:///x?db=2", "redis+cluster://h"],
)
def test_login_options_are_added_to_the_url(url: str) -> None:
    plain = {"url": url, "namespace": "n", "source": TASK}
    for login in ({"password": SECRET}, {"password": SECRET, "username": "m:e"}):
        found = RedisUrl.parse(OutcomeOptions.parse(plain | login).target.url)
        assert (found.username, found.password) == (login.get("username"), SECRET)
        without = RedisUrl.parse(url)
        assert (found.hosts, found.path, found.db) == (without.hosts, without.path, without.db)


@pytest.mark.parametrize("url", ["redis://u:pw12@h", "redis://:@h", "redis://h?password=pw12"])
def test_password_in_two_places_is_refused(url: str) -> None:
    plain = {"url": url, "namespace": "n", "source": TASK, "password": SECRET}
    with pytest.raises(ConfigError, match="in one place") as raised:
        OutcomeOptions.parse(plain)
    assert "pw12" not in str(raised.value)
    assert SECRET not in str(raised.value)


# With Spark


@pytest.fixture
def spark_(spark: SparkSession) -> Iterator[SparkSession]:
    register(spark)
    yield spark
    for query in spark.streams.active:
        query.stop()


def table(spark: SparkSession, acker: Acker, **more: Any) -> DataFrame:
    return spark.read.format("acker-outcomes").options(**options(acker, **more)).load()


class Query:
    """A streaming query, and the source ids in each of its batches."""

    def __init__(self, spark: SparkSession, acker: Acker, path: Path, **more: Any) -> None:
        self.seen: Seen = []
        self.batches: list[int] = []
        self.then: Callable[[int], None] = lambda batch_id: None
        self._path = path
        self._stream = spark.readStream.format("acker-outcomes").options(**options(acker, **more))

    def start(self, **trigger: Any) -> StreamingQuery:
        writer = self._stream.load().writeStream.foreachBatch(self._write)
        writer = writer.option("checkpointLocation", str(self._path))
        return (writer.trigger(**trigger) if trigger else writer).start()

    def _write(self, df: DataFrame, batch_id: int) -> None:
        self.seen.append(sorted(r.source_id for r in df.select("source_id").collect()))
        self.batches.append(batch_id)
        self.then(batch_id)


def test_batch_read_shows_waiting_verdicts_and_deletes_nothing(
    spark_: SparkSession, four_shards: Acker
) -> None:
    nothing = table(spark_, four_shards)
    assert nothing.collect() == []
    in_shards(four_shards, 1, 3, 5, 9)
    track_block(four_shards, 4, [0] * 5, label="p@10")
    zone = str(spark_.conf.get("spark.sql.session.timeZone"))
    spark_.conf.set("spark.sql.session.timeZone", "America/New_York")
    try:
        df = table(spark_, four_shards).withColumn("ms", F.unix_millis("at"))
        rows = df.withColumn("part", F.spark_partition_id()).orderBy("source_id").collect()
    finally:
        spark_.conf.set("spark.sql.session.timeZone", zone)
    assert [(r.source_id, r.trees, r.label) for r in rows] == [
        ("p/10", 5, "p@10"),
        *((f"s{i}", 1, None) for i in (1, 3, 5, 9)),
    ]
    stamps = {int(id_[:-2]) for shard in range(4) for id_ in ids(four_shards, shard)}
    assert {r.ms for r in rows} == stamps
    assert df.rdd.getNumPartitions() == 3
    assert len({r.part for r in rows}) == 3
    assert df.drop("ms").schema.simpleString() == "struct<{}>".format(
        ",".join(f"{n}:{k.lower()}" for n, k in (c.split() for c in SCHEMA.split(", ")))
    )
    assert backlog(four_shards) == 9
    expanded = table(spark_, four_shards, Expand=True)
    assert expanded.count() == 9


def test_a_stream_over_several_batches_and_restarts(
    spark_: SparkSession, acker: Acker, tmp_path: Path
) -> None:
    acked(acker, "a", "b", "c")
    query = Query(spark_, acker, tmp_path, maxEntriesPerTrigger=2)
    running = query.start()
    running.processAllAvailable()
    assert query.seen == [["a", "b"], ["c"]]
    assert backlog(acker) == 1, "the last batch is taken when the next one is planned"
    acked(acker, "d")
    running.processAllAvailable()
    assert query.seen[2:] == [["d"]]
    running.stop()
    assert backlog(acker) == 1
    acked(acker, "e", "f", "g")
    running = query.start()
    running.processAllAvailable()
    assert query.seen[3:] == [["e", "f"], ["g"]]
    # A failover: the new stream has smaller ids than all entries before.
    acker.connection.client.delete(stream_key(acker))
    add(acker, "1-0", "after")
    running.processAllAvailable()
    running.stop()
    assert query.seen[5:] == [["after"]]
    assert query.batches == [0, 1, 2, 3, 4, 5]


@pytest.mark.full
@pytest.mark.parametrize("join", [True, False])
def test_two_readers_of_a_task_in_one_application_are_refused(
    spark_: SparkSession, acker: Acker, tmp_path: Path, join: bool
) -> None:
    """A self-join or two queries: each would delete entries that the other has only planned."""
    acked(acker, "a", "b", "c")
    loader = spark_.readStream.format("acker-outcomes").options(**options(acker))
    if join:
        one, two = loader.load().alias("one"), loader.load().alias("two")
        df = one.join(two, F.expr("one.source_id = two.source_id"))
    else:
        first = Query(spark_, acker, tmp_path / "first")
        running = first.start()
        running.processAllAvailable()
        df = loader.load()
    writer = df.writeStream.format("noop").option("checkpointLocation", str(tmp_path / "query"))
    query = writer.start()
    with pytest.raises(StreamingQueryException, match="two readers of source t of namespace"):
        query.awaitTermination(300)
    if not join:
        acked(acker, "d")
        running.processAllAvailable()
        running.stop()
        assert first.seen == [["a", "b", "c"], ["d"]]
        return
    assert backlog(acker) == 3
    again = Query(spark_, acker, tmp_path / "again")
    again.start().processAllAvailable()
    assert again.seen == [["a", "b", "c"]]


def test_a_stream_that_is_read_once_and_used_twice_has_one_reader(
    spark_: SparkSession, acker: Acker, tmp_path: Path
) -> None:
    acked(acker, "a", "b")
    seen: list[int] = []

    def join(df: DataFrame, _: int) -> None:
        kept = df.localCheckpoint()
        seen.append(kept.alias("x").join(kept.alias("y"), "source_id").count())

    stream = spark_.readStream.format("acker-outcomes").options(**options(acker)).load()
    writer = stream.writeStream.foreachBatch(join)
    query = writer.option("checkpointLocation", str(tmp_path)).start()
    query.processAllAvailable()
    query.stop()
    assert seen == [2]


def test_crash_between_sink_and_commit_repeats_the_batch(
    spark_: SparkSession, acker: Acker, tmp_path: Path
) -> None:
    def die(batch_id: int) -> None:
        if batch_id == 1:
            raise OSError("the disk is full")

    acked(acker, "a", "b", "c")
    query = Query(spark_, acker, tmp_path, maxEntriesPerTrigger=1)
    query.then = die
    running = query.start()
    with pytest.raises(Exception, match="the disk is full"):
        running.processAllAvailable()
    acked(acker, "d")
    query.then = lambda batch_id: None
    running = query.start()
    running.processAllAvailable()
    running.stop()
    assert query.seen == [["a"], ["b"], ["b"], ["c"], ["d"]]
    assert query.batches == [0, 1, 1, 2, 3]
    assert backlog(acker) == 1


def test_crash_before_the_commit_repeats_no_finished_batch(
    spark_: SparkSession, acker: Acker, tmp_path: Path
) -> None:
    """The log has the next batch, and the entries of the last one are not deleted yet."""
    meta = ShardKeys(acker.namespace, 0).meta
    client = acker.connection.client

    def refuse(batch_id: int) -> None:
        client.hset(meta, "schema", 99)

    acked(acker, "a", "b", "c")
    query = Query(spark_, acker, tmp_path, maxEntriesPerTrigger=1)
    query.then = refuse
    running = query.start()
    with pytest.raises(Exception, match=SchemaError.__name__):
        running.processAllAvailable()
    assert query.seen == [["a"]]
    client.hset(meta, "schema", 2)
    query.then = lambda batch_id: None
    running = query.start()
    running.processAllAvailable()
    running.stop()
    assert query.seen == [["a"], ["b"], ["c"]]
    assert backlog(acker) == 1


def test_the_doctor_knows_the_reader_of_an_idle_query(
    spark_: SparkSession, acker: Acker, tmp_path: Path
) -> None:
    """The verdicts of its last micro-batch wait for the next one; that is no stalled backlog."""
    acked(acker, "a")
    query = Query(spark_, acker, tmp_path)
    running = query.start()
    running.processAllAvailable()
    assert backlog(acker) == 1
    clients = acker.connection.client.client_list()
    assert (acker.namespace, TASK) in waiting_readers(clients)
    running.stop()


def test_available_now_query_ends_after_the_waiting_verdicts(
    spark_: SparkSession, acker: Acker, tmp_path: Path
) -> None:
    acked(acker, "a", "b", "c")
    query = Query(spark_, acker, tmp_path, maxEntriesPerTrigger=2)
    query.then = lambda batch_id: acked(acker, f"late{batch_id}")
    query.start(availableNow=True).awaitTermination()
    assert query.seen == [["a", "b"], ["c"]]
    query.then = lambda batch_id: None
    query.start(availableNow=True).awaitTermination()
    assert query.seen[2:] == [["late0", "late1"]]
    query.start(availableNow=True).awaitTermination()
    assert len(query.seen) == 3
    assert backlog(acker) == 2


def test_data_loss_ends_the_query_unless_it_is_allowed(
    spark_: SparkSession, acker: Acker, tmp_path: Path
) -> None:
    def die(batch_id: int) -> None:
        raise OSError("the disk is full")

    acked(acker, "a", "b")
    query = Query(spark_, acker, tmp_path)
    query.then = die
    with pytest.raises(Exception, match="the disk is full"):
        query.start().processAllAvailable()
    acker.connection.client.xdel(stream_key(acker), ids(acker)[0])
    acked(acker, "c")
    with pytest.raises(Exception, match="1 of 2 entries of shard 0 .*failOnDataLoss=false"):
        query.start().processAllAvailable()
    patient = Query(spark_, acker, tmp_path, failOnDataLoss=False)
    running = patient.start()
    running.processAllAvailable()
    running.stop()
    assert patient.seen == [["b"], ["c"]]


@pytest.fixture
def login(any_server: EmbeddedRedis, acker: Acker) -> Iterator[dict[str, str]]:
    """Create a Redis user with a password."""
    client = acker.connection.client
    client.execute_command("ACL", "SETUSER", "reader", "on", f">{SECRET}", "~*", "+@all")
    yield {"username": "reader", "password": SECRET}
    client.execute_command("ACL", "DELUSER", "reader")


def test_no_password_is_shown(
    spark_: SparkSession,
    acker: Acker,
    login: dict[str, str],
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:
    acked(acker, "a")
    df = table(spark_, acker, **login)
    assert [r.source_id for r in df.collect()] == ["a"]
    shown = [repr(df), str(df.schema)]
    df.explain(True)
    df.explain("formatted")
    query = Query(spark_, acker, tmp_path, **login)
    running = query.start()
    running.processAllAvailable()
    running.explain(True)
    shown += [str(running.lastProgress), str(running.status)]
    running.stop()
    assert query.seen == [["a"]]
    for source in (OutcomesReader, OutcomesStreamReader):
        made = source(OutcomeOptions.parse(options(acker, **login)))
        shown += [repr(made), repr(made._options), str(made._options.target)]
    for wrong, words in (
        ({"username": "unknown"}, "WRONGPASS|invalid username"),
        ({"namespace": "unknown"}, "NamespaceNotFoundError"),
        ({"expand": "?"}, "option expand"),
    ):
        with pytest.raises(Exception, match=words) as raised:
            table(spark_, acker, **(login | wrong)).collect()
        shown.append(str(raised.value))
    shown += [path.read_text() for path in tmp_path.glob("*/[0-9]*")]
    out, err = capfd.readouterr()
    shown += [out, err]
    text = "\n".join(shown)
    assert "Scan" in out, "the plans were printed"
    for secret in (SECRET, "s3c", "%23%3F"):
        assert secret not in text


def test_spark_says_which_option_is_wrong(spark_: SparkSession, acker: Acker) -> None:
    with pytest.raises(Exception, match="option task.* is the option source"):
        table(spark_, acker, task="t")
    with pytest.raises(Exception, match="leave out .schema()"):
        spark_.read.schema("verdict STRING").format("acker-outcomes").options(
            **options(acker)
        ).load().collect()
