"""Entries of verdicts as rows."""

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acker_redis.errors import (
    InvalidBatchError,
)
from acker_redis.protocol.ids import block_anchor
from acker_redis.protocol.keys import ShardKeys
from acker_redis.protocol.labels import source_id_of
from acker_redis.protocol.outcome import BlockOutcome, Entry, Outcome, odd_edges
from acker_redis.spark.streams.outcome_rows import (
    BATCH_ROWS,
    OutcomeRow,
    record_batches,
    rows_of,
)
from acker_redis.sync.client import Acker
from proof.reference.blocks import BlockRow
from tests.conftest import MakeAcker
from tests.spark.waiting_verdicts import TASK, brief, ids, read_now
from tests.support import (
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


@pytest.fixture
def acker(make_any_acker: MakeAcker) -> Acker:
    return make_any_acker(high_water=20)


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
