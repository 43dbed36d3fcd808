"""Content of a shard: the same calls for all partitions, and only whole rows."""

import random
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from acker_redis.batching.batch import Batch
from acker_redis.batching.sent import Part
from acker_redis.errors import InvalidBatchError
from acker_redis.protocol.blocks import MAX_BLOCKS, MAX_CALL, MAX_FAILED, MAX_NAMED, Blocks
from acker_redis.protocol.commands import Fence
from acker_redis.protocol.config import AckerConfig
from acker_redis.protocol.ids import SLOTS, block_anchor, shard_of, split_anchor
from acker_redis.protocol.rows import FAIL, MAX_ROWS, MAX_TEXTS, TOUCH, TRACK, Columns
from acker_redis.spark.fold import terms as packing
from acker_redis.spark.fold.content import Content, Sealed
from acker_redis.spark.fold.terms import Kind, bad
from proof.reference.acker import TreeRow
from proof.reference.blocks import BlockReference, BlockRow
from tests.conftest import MakeAcker
from tests.spark.conftest import Said, Term, failures, packed, parts_of, said, seal, sealed
from tests.support import tick, total, verdicts
from tests.tiers import examples

LABELS = {number: f"label {number}" for number in range(10)}
SOURCE: dict[str, Any] = {"source": "t", "labels": LABELS}
ANCHORS = st.integers(1, 2**62 - 1) | st.integers(1, 9) | st.builds(
    block_anchor, st.integers(0, 9), st.integers(0, 4094) | st.integers(0, 3)
)  # fmt: skip
IDS = st.integers(1, 2**63 - 1)
WHYS = st.sampled_from(["", "no", "never", 'q"\\', "é" * 100])
SIZES = st.sampled_from([(1, 1, 1), (2, 5, 3), (1 << 17, 1 << 22, 1 << 20)])


@st.composite
def bolts(draw: st.DrawFn) -> list[Term]:
    """Draw the terms of a bolt's batch: every child has an input, and ids are distinct."""
    terms: list[Term] = []
    for anchor in draw(st.lists(ANCHORS, unique=True, max_size=12)):
        ids = draw(st.lists(IDS, unique=True, min_size=1, max_size=6))
        inputs = ids[: draw(st.integers(1, len(ids)))]
        if len(inputs) > 1 and xor(inputs) == 0:
            inputs = ids[:1]
        terms += [(Kind.INPUT, anchor, each, "") for each in inputs]
        terms += [(Kind.CHILD, anchor, each, "") for each in ids[len(inputs) :]]
    named = [anchor for _, anchor, _, _ in terms] or [7]
    some = st.lists(st.sampled_from(named) | ANCHORS, max_size=6)
    terms += [(Kind.FAIL, anchor, 0, draw(WHYS)) for anchor in draw(some)]
    terms += [(Kind.TOUCH, anchor, 0, "") for anchor in draw(some)]
    return terms


@st.composite
def sources(draw: st.DrawFn) -> list[Term]:
    """Draw the terms of a source's batch: loose trees with source ids, and trees in blocks."""
    anchors = draw(st.lists(ANCHORS, unique=True, max_size=25))
    return [
        (Kind.TRACK, anchor, draw(IDS), "" if split_anchor(anchor) else f"s{anchor}")
        for anchor in anchors
    ]


def xor(ids: list[int]) -> int:
    found = 0
    for each in ids:
        found ^= each
    return found


def truth(terms: list[Term]) -> Said:
    """Return the meaning of terms, computed with a dictionary."""
    found = Said()
    for kind, anchor, delta, text in terms:
        place = split_anchor(anchor)
        if kind in (Kind.INPUT, Kind.CHILD):
            found.deltas[anchor] = found.deltas.get(anchor, 0) ^ delta
        elif kind is Kind.FAIL:
            said_before = found.failed.get(anchor)
            found.failed[anchor] = min(filter(None, (said_before, text)), default="")
        elif kind is Kind.TOUCH:
            found.touched.add(place[0] if place else anchor)
        elif place:
            found.blocks.setdefault(place[0], (LABELS[place[0]], {}))[1][place[1]] = delta
        else:
            found.tracked[anchor] = delta, text
    found.deltas = {anchor: delta for anchor, delta in found.deltas.items() if delta}
    return found


def check_limits(parts: list[Part], shards: int) -> None:
    """Check that the parts are within the scripts' limits, and belong to their shard."""
    for part in parts:
        if isinstance(part.rows, Columns):
            anchors = [part.rows.anchor(row) for row in range(len(part.rows))]
            assert 1 <= len(set(anchors)) == len(anchors) <= MAX_ROWS
            assert sum(map(len, part.rows.texts)) <= MAX_TEXTS
            assert {shard_of(anchor, shards) for anchor in anchors} == {part.shard}
            continue
        call = part.rows
        numbers = [each.block for each in call.parts]
        assert 1 <= len(set(numbers)) == len(numbers) <= MAX_BLOCKS
        assert {number % shards for number in numbers} == {part.shard}
        assert sum(len(a) for each in call.parts for a in each.arguments()) <= MAX_CALL
        assert sum(each.costs()[0] for each in call.parts) <= MAX_NAMED
        assert sum(each.costs()[1] for each in call.parts) <= MAX_TEXTS
        assert all(len(list(failures(each.failed))) <= MAX_FAILED for each in call.parts)


@given(
    bolts() | sources(),
    st.sampled_from([1, 2, 4]),
    st.lists(st.tuples(st.integers(0, 2**32), st.integers(1, 4), SIZES), min_size=2, max_size=3),
)
def test_content_does_not_depend_on_partitions(
    terms: list[Term], shards: int, cuts: list[tuple[int, int, tuple[int, int, int]]]
) -> None:
    found: list[dict[int, Sealed]] = []
    for seed, partitions, sizes in cuts:
        with pytest.MonkeyPatch.context() as patch:
            for name, size in zip(("_SOME", "_FULL", "_PIECE"), sizes, strict=True):
                patch.setattr(packing, name, size)
            rows = packed(terms, shards, random.Random(seed), partitions)
        found.append(seal(rows, shards, **SOURCE))
    assert all(each == found[0] for each in found), "digest, parts and counts"
    parts = parts_of(found[0])
    check_limits(parts, shards)
    assert said(parts, "t") == truth(terms)
    messages = sum(kind in (Kind.INPUT, Kind.TRACK) for kind, *_ in terms)
    assert sum(each.messages for each in found[0].values()) == messages


@pytest.mark.parametrize("shards", [1, 2])
def test_many_rows_of_few_blocks(monkeypatch: pytest.MonkeyPatch, shards: int) -> None:
    """Enough rows for the table, with children and failures that are merged into the same rows."""
    chance = random.Random(5)
    anchors = [block_anchor(number, slot) for number in (1, 2) for slot in range(SLOTS)]
    some = chance.sample(anchors, 5000)
    terms: list[Term] = [(Kind.INPUT, a, chance.getrandbits(62) + 1, "") for a in some * 2]
    terms += [(Kind.CHILD, a, chance.getrandbits(62) + 1, "") for a in some[:100]]
    terms += [(Kind.FAIL, a, 0, f"why {a}") for a in some[50:1500]]
    expected = truth(terms)
    digests = set()
    for size, partitions in ((1500, 2), (1 << 17, 3), (100, 1)):
        monkeypatch.setattr(packing, "_SOME", size)
        found = seal(packed(terms, shards, chance, partitions), shards)
        check_limits(parts_of(found), shards)
        assert said(parts_of(found)) == expected
        digests.add(tuple(each.digest for each in found.values()))
    assert len(digests) == 1


ANCHOR = block_anchor(5, 9)
BASE: list[Term] = [
    (Kind.INPUT, 7, 40, ""), (Kind.CHILD, 7, 41, ""), (Kind.FAIL, 7, 0, "no"),
    (Kind.TOUCH, 8, 0, ""), (Kind.INPUT, ANCHOR, 42, ""), (Kind.FAIL, ANCHOR, 0, "no"),
    (Kind.TOUCH, ANCHOR, 0, ""),
]  # fmt: skip


@pytest.mark.parametrize("place", range(len(BASE)))
@pytest.mark.parametrize("change", ["removed", "anchor", "other", "more"])
def test_any_other_content_has_another_digest(place: int, change: str) -> None:
    kind, anchor, delta, text = BASE[place]
    others = BASE[:place] + BASE[place + 1 :]
    if change == "anchor":
        # A child needs an input, so its input changes with it.
        both = {(k, a + 1 if a == anchor else a, d, t) for k, a, d, t in BASE}
        others = sorted(both)
    elif change == "other":
        others = [*others, (kind, anchor, delta ^ 64, text and "never")]
        if kind is Kind.TOUCH:
            others = [*others, (kind, 9, 0, "")]
    elif change == "more":
        others = [*BASE, (kind, anchor + 4096, delta, text)]
        if kind is Kind.CHILD:
            others = [*BASE, (kind, anchor, 99, "")]
    elif kind is Kind.INPUT and place == 0:
        others = [term for term in BASE if term[0] is not Kind.CHILD and term != BASE[0]]
    (before,), (after,) = sealed(BASE).values(), sealed(others).values()
    assert before.digest != after.digest
    assert len(before.digest) == 32


def test_other_tracks_have_another_digest() -> None:
    loose: list[Term] = [(Kind.TRACK, 7, 40, "s"), (Kind.TRACK, 8, 41, "r")]
    blocks: list[Term] = [(Kind.TRACK, block_anchor(1, slot), 40 + slot, "") for slot in (0, 2)]
    found = [
        sealed(loose, **SOURCE),
        sealed([loose[0], (Kind.TRACK, 8, 41, "t")], **SOURCE),
        sealed([loose[0], (Kind.TRACK, 8, 42, "r")], **SOURCE),
        sealed([(Kind.TRACK, 7, 40, "r"), (Kind.TRACK, 8, 41, "s")], **SOURCE),
        sealed(loose, source="u"),
        sealed(loose[:1], **SOURCE),
        sealed(blocks, **SOURCE),
        sealed(blocks, source="t", labels={1: "another"}),
        sealed(blocks, source="u", labels=LABELS),
        sealed(blocks[:1], **SOURCE),
        sealed([blocks[0], (Kind.TRACK, block_anchor(1, 1), 42, "")], **SOURCE),
        sealed(loose, fail_all="w", **SOURCE),
        sealed(loose, fail_all="v", **SOURCE),
    ]
    assert len({each[0].digest for each in found}) == len(found)


# On a server


@given(bolts(), sources(), st.sampled_from([1, 2]), st.randoms(use_true_random=False))
@settings(max_examples=examples(0.4), suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_redis_agrees_with_the_reference(
    make_any_acker: MakeAcker,
    bolt: list[Term],
    source: list[Term],
    shards: int,
    chance: random.Random,
) -> None:
    """A source's batch, then a bolt's batch that shares many of its anchors."""
    source += [(Kind.TRACK, a, d, "" if split_anchor(a) else "s") for a, d in {
        anchor: delta for kind, anchor, delta, _ in bolt if kind is Kind.INPUT
    }.items() if a not in {anchor for _, anchor, _, _ in source}]  # fmt: skip
    # Redis applies the calls, the reference applies row by row.
    acker = make_any_acker(shards=shards)
    models = [BlockReference(AckerConfig(tick_ms=3_600_000)) for _ in range(shards)]
    lane = 0
    for terms in (source, bolt):
        found = seal(packed(terms, shards, chance, 2), shards, **SOURCE)
        for part in parts_of(found):
            lane += 1
            acker.apply_part(part, Fence("@lane", lane))
        for shard, model in enumerate(models):
            refer(model, [term for term in terms if shard_of(term[1], shards) == shard])
    for model in models:
        tick(model, 3)
    tick(acker, 3)
    expected = [verdict for model in models for verdict in verdicts(model)]
    assert sorted(verdicts(acker)) == sorted(expected)
    counted = [total(model) for model in models]
    assert total(acker) == {name: sum(each[name] for each in counted) for name in counted[0]}


def refer(model: BlockReference, terms: list[Term]) -> None:
    """Apply the meaning of terms to the reference."""
    found = truth(terms)
    for number, (label, deltas) in sorted(found.blocks.items()):
        column = {slot: deltas.get(slot, 0) for slot in range(max(deltas) + 1)}
        absent = frozenset(column.keys() - deltas.keys())
        model.apply_blocks([BlockRow(number, column, task="t", label=label, absent=absent)])
    rows = [TreeRow(a, delta, TRACK, name) for a, (delta, name) in found.tracked.items()]
    model.apply(rows, "t")
    # A block gets all its rows in one call: otherwise it could end before its last failure.
    blocks: dict[int, tuple[dict[int, int], dict[int, str]]] = {}
    for anchor in dict.fromkeys((*found.deltas, *found.failed)):
        place, why, delta = split_anchor(anchor), found.failed.get(anchor), found.deltas.get(anchor)
        if place is None:
            flags = 0 if why is None else FAIL
            model.apply([TreeRow(anchor, delta or 0, flags, why=why or "")])
            continue
        deltas, failed = blocks.setdefault(place[0], ({}, {}))
        if delta:
            deltas[place[1]] = delta
        if why is not None:
            failed[place[1]] = why
    model.apply_blocks([BlockRow(number, *its) for number, its in sorted(blocks.items())])
    for each in found.touched:
        if each in LABELS and any(
            kind is Kind.TOUCH and split_anchor(a) and a >> 12 & 0xFFF == each
            for kind, a, _, _ in terms
        ):
            model.apply_blocks([BlockRow(each, touch=True)])
        if any(kind is Kind.TOUCH and a == each for kind, a, _, _ in terms):
            model.apply([TreeRow(each, 0, TOUCH)])


def test_a_batch_of_the_client_has_the_same_rows(make_any_acker: MakeAcker) -> None:
    batch, acker = Batch("t"), make_any_acker()
    batch.track(7, "seven", [40])
    batch.track(8, "eight", [41])
    acker.apply(batch)
    batch = Batch()
    batch.ack(7, 40, [50, 51])
    batch.fail(8, "no", 41, [52])
    terms: list[Term] = [
        (Kind.CHILD, 7, 50, ""), (Kind.CHILD, 7, 51, ""), (Kind.INPUT, 7, 40, ""),
        (Kind.INPUT, 8, 41, ""), (Kind.FAIL, 8, 0, "no"), (Kind.CHILD, 8, 52, ""),
    ]  # fmt: skip
    assert parts_of(sealed(terms)) == batch.parts()


# Refused content


Cut = Callable[[list[Term]], dict[int, Sealed]]


def dealt(*terms: Term) -> dict[int, Sealed]:
    """Seal terms, each in a separate partition."""
    return seal([row for term in terms for row in packed([term], 1)], 1, **SOURCE)


CUTS: list[Cut] = [lambda terms: sealed(terms, **SOURCE), lambda terms: dealt(*terms)]


@pytest.mark.parametrize("anchor", [7, ANCHOR])
@pytest.mark.parametrize("cut", CUTS, ids=["one", "each"])
def test_children_with_equal_ids_are_refused(anchor: int, cut: Any) -> None:
    """They would cancel, and their tree would be complete without them."""
    terms: list[Term] = [(Kind.INPUT, anchor, 40, ""), (Kind.CHILD, anchor, 41, "")]
    with pytest.raises(InvalidBatchError, match="2 messages of this batch share an id"):
        cut([*terms, (Kind.CHILD, anchor, 41, "")])
    with pytest.raises(InvalidBatchError, match="3 messages of this batch share an id"):
        cut([*terms, (Kind.CHILD, anchor, 41, ""), (Kind.CHILD, anchor, 41, "")])
    others: list[Term] = [(Kind.INPUT, anchor + 1, 40, ""), (Kind.CHILD, anchor + 1, 41, "")]
    with pytest.raises(InvalidBatchError, match="2 messages of this batch share an id"):
        cut([*terms, (Kind.CHILD, anchor, 41, ""), *others])
    found = said(parts_of(cut([*terms, *others])))
    assert found.deltas == {anchor: 40 ^ 41, anchor + 1: 40 ^ 41}, "harmless in two trees"


@pytest.mark.parametrize(
    "terms",
    [
        [(Kind.CHILD, 7, 41, "")],
        [(Kind.CHILD, 7, 41, ""), (Kind.INPUT, 8, 40, "")],
        [(Kind.CHILD, ANCHOR, 41, ""), (Kind.INPUT, ANCHOR + 1, 40, "")],
        [(Kind.CHILD, ANCHOR, 41, ""), (Kind.INPUT, ANCHOR + 4096, 40, "")],
        [(Kind.CHILD, ANCHOR, 41, ""), (Kind.INPUT, 9, 40, "")],
        [(Kind.CHILD, 7, 41, ""), (Kind.INPUT, 7, 40, ""), (Kind.INPUT, 7, 40, "")],
        [(Kind.CHILD, ANCHOR, 41, ""), *[(Kind.INPUT, ANCHOR, 40, "")] * 2],
        [(Kind.CHILD, 7, 41, ""), (Kind.INPUT, 7, 0, "")],
        [(Kind.CHILD, 7, 41, ""), (Kind.FAIL, 7, 0, "no")],
        [(Kind.CHILD, 7, 41, ""), (Kind.TOUCH, 7, 0, "")],
    ],
)
def test_child_without_an_input_is_refused(terms: list[Term]) -> None:
    for cut in CUTS:
        with pytest.raises(InvalidBatchError, match="1 trees get children or acks, but no input"):
            cut(terms)


def test_error_names_the_child_without_an_input() -> None:
    inputs: list[Term] = [(Kind.INPUT, a, 40, "") for a in range(1, 2000)]
    children: list[Term] = [(Kind.CHILD, a, a, "") for a in range(1, 2003)]
    blocks: list[Term] = [(Kind.CHILD, block_anchor(n, 4094), 9, "") for n in range(3)]
    with pytest.raises(InvalidBatchError, match=r"6 trees get children or acks.*\(anchor 2000\)"):
        sealed([*inputs, *children, *blocks])


def test_duplicate_source_ids_are_refused() -> None:
    """Equal source ids have equal anchors."""
    terms: list[Term] = [(Kind.TRACK, 7, 40, "a"), (Kind.TRACK, 8, 40, "b")]
    for cut in CUTS:
        with pytest.raises(InvalidBatchError, match="1 source ids occur more .*'b'"):
            cut([*terms, terms[1]])
        with pytest.raises(InvalidBatchError, match="3 source ids occur more"):
            cut([*terms, *terms, terms[1]])


@pytest.mark.parametrize("times", [2, 3, 4])
@pytest.mark.parametrize("delta", [40, 41])
def test_duplicate_numbers_are_refused(times: int, delta: int) -> None:
    """Also for three records, whose deltas do not cancel."""
    terms: list[Term] = [(Kind.TRACK, block_anchor(1, slot), 40, "") for slot in range(5)]
    again = [(Kind.TRACK, block_anchor(1, 3), delta, "")] * (times - 1)
    for cut in CUTS:
        with pytest.raises(InvalidBatchError, match="have the number of another record"):
            cut([*terms, *again])


@pytest.mark.parametrize("slot", [0, 1, 2])
def test_record_whose_messages_cancel_is_refused(slot: int) -> None:
    """Its slot would look absent, and the record would get no verdict."""
    terms: list[Term] = [(Kind.TRACK, block_anchor(1, s), 40 * (s != slot), "") for s in range(3)]
    for cut in CUTS:
        with pytest.raises(InvalidBatchError, match="1 records of this batch"):
            cut(terms)


@pytest.mark.parametrize(
    ("text", "words"),
    [("x" * 256, "1 to 255 bytes, this one 256"), ("a\nb", "control"), ("é" * 128, "256")],
)
def test_batch_with_invalid_source_ids_is_refused(text: str, words: str) -> None:
    with pytest.raises(InvalidBatchError, match=words):
        sealed([(Kind.TRACK, 7, 40, text)], **SOURCE)
    content = Content(0, 1, "t", {1: text})
    for row in packed([(Kind.TRACK, block_anchor(1, 0), 40, "")], 1):
        content.add(row)
    with pytest.raises(InvalidBatchError, match=words):
        content.seal()


def test_empty_source_id_is_refused() -> None:
    content = Content(0, 1, "t")
    for row in packed([(Kind.TRACK, 7, 40, ""), (Kind.TRACK, 8, 40, "a")], 1):
        content.add(row)
    with pytest.raises(InvalidBatchError, match="1 to 255 bytes"):
        content.seal()


def test_error_of_a_partition_is_raised() -> None:
    content = Content(0, 1)
    with pytest.raises(InvalidBatchError, match="it is bad"):
        content.add(next(bad(InvalidBatchError("it is bad"), 1)))


# Calls are as large as the limits allow


@pytest.mark.parametrize(
    ("length", "rows"),
    [(10, [1024, 1024, 952]), (65, [1008] * 2 + [984]), (255, [257] * 11 + [173])],
)
def test_source_ids_fill_calls(length: int, rows: list[int]) -> None:
    terms: list[Term] = [(Kind.TRACK, a, a, f"{a:0{length}d}") for a in range(1, 3001)]
    parts = parts_of(sealed(terms, **SOURCE))
    check_limits(parts, 1)
    assert [len(part.rows) for part in parts] == rows
    assert said(parts, "t") == truth(terms)


@pytest.mark.full
def test_blocks_fill_calls() -> None:
    """Up to 64 blocks and 1 MiB per call; a full block takes some 32 KiB."""
    labels = dict.fromkeys(range(200), "b")
    few: list[Term] = [(Kind.TRACK, block_anchor(number, 0), 1, "") for number in range(200)]
    parts = parts_of(sealed(few, source="t", labels=labels))
    assert [len(part.rows) for part in parts] == [64, 64, 64, 8]
    full: list[Term] = [
        (Kind.TRACK, block_anchor(number, slot), 1 + slot, "")
        for number in range(40)
        for slot in range(SLOTS)
    ]
    parts = parts_of(sealed(full, source="t", labels=labels))
    check_limits(parts, 1)
    assert [len(part.rows) for part in parts] == [31, 9]
    parts = parts_of(sealed(few, source="t", labels=dict.fromkeys(range(200), "é" * 127)))
    assert [len(part.rows) for part in parts] == [64, 64, 64, 8]


def test_absent_slots_fill_calls() -> None:
    """Up to 4096 absent slots per call: a full window with two records takes one call."""
    labels = dict.fromkeys(range(200), "b")
    gaps: list[Term] = [
        (Kind.TRACK, block_anchor(number, slot), 1 + slot, "")
        for number in range(20)
        for slot in range(0, 1489, 8)
    ]
    parts = parts_of(sealed(gaps, source="t", labels=labels))
    check_limits(parts, 1)
    assert [len(part.rows) for part in parts] == [3, 3, 3, 3, 3, 3, 2]
    ends: list[Term] = [
        (Kind.TRACK, block_anchor(number, slot), 1, "") for number in range(3) for slot in (0, 4094)
    ]
    parts = parts_of(sealed(ends, source="t", labels=labels))
    check_limits(parts, 1)
    assert [len(part.rows) for part in parts] == [1, 1, 1]
    assert said(parts, "t").blocks == dict.fromkeys(range(3), ("b", {0: 1, 4094: 1}))


def test_named_slots_fill_calls() -> None:
    """Up to 4096 slots of sparse columns and failures together."""
    terms: list[Term] = [
        (Kind.INPUT, block_anchor(number, 11 * slot), 1, "")
        for number in range(20)
        for slot in range(372)
    ]
    parts = parts_of(sealed(terms))
    check_limits(parts, 1)
    assert [len(part.rows) for part in parts] == [11, 9]
    failing: list[Term] = [(Kind.FAIL, block_anchor(5, slot), 0, "") for slot in range(SLOTS)]
    parts = parts_of(sealed([*terms, *failing]))
    check_limits(parts, 1)
    assert said(parts) == truth([*terms, *failing])


def test_more_failures_than_a_part_may_carry() -> None:
    """Each failure is in the same part as its delta, and reasons count as texts of the call."""
    failing: list[Term] = [(Kind.FAIL, block_anchor(5, s), 0, "x" * 200) for s in range(1500)]
    acks: list[Term] = [(Kind.INPUT, block_anchor(5, s), 3, "") for s in range(2000)]
    loose: list[Term] = [(Kind.FAIL, 7 + s, 0, "x" * 255) for s in range(600)]
    terms = [*failing, *acks, *loose]
    parts = parts_of(sealed(terms))
    check_limits(parts, 1)
    assert said(parts) == truth(terms)
    for part in parts:
        for each in part.rows.parts if isinstance(part.rows, Blocks) else ():
            named = said([Part(0, Blocks((each,)))])
            assert named.failed.keys() <= named.deltas.keys() or not named.failed


def test_touches_fill_calls() -> None:
    terms: list[Term] = [(Kind.TOUCH, a, 0, "") for a in range(1, 1501)] * 2
    terms += [(Kind.TOUCH, block_anchor(n, s), 0, "") for n in range(70) for s in (1, 2)]
    parts = parts_of(sealed(terms))
    check_limits(parts, 1)
    assert [len(part.rows) for part in parts] == [1024, 476, 64, 6]
    assert said(parts) == truth(terms)


def test_alphabetically_first_reason_is_kept() -> None:
    terms: list[Term] = [(Kind.FAIL, 7, 0, why) for why in ("", "b", "", "a", "c", "")]
    assert said(parts_of(sealed(terms))).failed == {7: "a"}
    assert dealt(*terms) == dealt(*terms[::-1])


def test_trees_are_counted_as_they_are_sent() -> None:
    loose: list[Term] = [(Kind.INPUT, a, 40, "") for a in (7, 7, 7, 8)]
    sparse: list[Term] = [(Kind.INPUT, ANCHOR, 40, "")]
    dense: list[Term] = [(Kind.INPUT, block_anchor(6, s), 40, "") for s in range(10, 30)]
    (found,) = sealed([*loose, *sparse, *dense]).values()
    assert (found.messages, found.trees) == (25, 2 + 1 + 30)
    tracks: list[Term] = [(Kind.TRACK, block_anchor(6, s), 40, "") for s in range(10, 30, 2)]
    (found,) = sealed([*loose, *tracks], **SOURCE).values()
    assert (found.messages, found.trees) == (4 + 10, 2 + 10)


# A batch whose trees all fail


def test_loose_trees_of_a_source_all_fail(make_any_acker: MakeAcker) -> None:
    acker = make_any_acker(high_water=10_000)
    terms: list[Term] = [(Kind.TRACK, a, a, f"{a:0100d}") for a in range(1, 1501)]
    parts = parts_of(sealed(terms, fail_all="w" * 100, **SOURCE))
    check_limits(parts, 1)
    for seq, part in enumerate(parts, 1):
        acker.apply_part(part, Fence("@lane", seq))
    found = verdicts(acker)
    assert {(v[0], v[1], v[3], v[4]) for v in found} == {
        ("nack", "failed", f"{a:0100d}", "w" * 100) for a in range(1, 1501)
    }
    assert len(found) == 1500
    assert total(acker)["pending"] == 0


@pytest.mark.parametrize(("shards", "step"), [(1, 1), (4, 1), (1, 2), (4, 7)])
def test_blocks_of_a_source_all_fail(make_any_acker: MakeAcker, shards: int, step: int) -> None:
    """Also while the same block is pending with other content: the failures use new numbers."""
    acker = make_any_acker(shards=shards, high_water=100_000)
    numbers = [10**12, 10**12 + 1, 10**12 + 6]
    labels = dict(zip(numbers, "abc", strict=True))
    slots = range(0, SLOTS, step)
    before: list[Term] = [(Kind.TRACK, block_anchor(n, s), 9, "") for n in numbers for s in (0, 5)]
    after: list[Term] = [
        (Kind.TRACK, block_anchor(n, s), 10 + s, "") for n in numbers for s in slots
    ]
    seq, changed = 0, "batch 999999998 came back with other content"
    for terms, why in ((before, None), (after, changed), (after, changed)):
        found = sealed(terms, shards, source="t", labels=labels, fail_all=why)
        check_limits(parts_of(found), shards)
        for part in parts_of(found):
            seq += 1
            acker.apply_part(part, Fence("@lane", seq))
        if why:
            blocks = said(parts_of(found), "t").blocks
            assert not blocks.keys() & set(numbers)
            assert sorted(label for label, _ in blocks.values()) == ["a", "b", "c"]
            assert all(column.keys() == set(slots) for _, column in blocks.values())
    assert sorted((v[0], v[1], v[3], v[4]) for v in verdicts(acker)) == sorted(
        ("nack", "failed", label, changed) for label in "abc" for _ in slots
    )
    assert total(acker)["orphaned"] == 0
    tick(acker, 3)
    assert sorted((v[0], v[1], v[3]) for v in verdicts(acker)) == sorted(
        ("nack", "expired", label) for label in "abc" for s in (0, 5)
    )
    assert total(acker)["pending"] == 0


@pytest.mark.parametrize("shards", [1, 2])
def test_trees_of_a_bolt_all_fail(make_any_acker: MakeAcker, shards: int) -> None:
    """The trees of all inputs and failures fail; the batch acks and emits nothing."""
    acker = make_any_acker(shards=shards)
    anchors = [7, 8, 9, 10, ANCHOR, ANCHOR + 1, ANCHOR + 4096]
    labels = {5: "five", 6: "six"}
    tracks: list[Term] = [
        (Kind.TRACK, a, 40, "" if split_anchor(a) else f"s{a}") for a in (*anchors, 11)
    ]
    terms: list[Term] = [(Kind.INPUT, a, 40, "") for a in anchors[:-1]]
    terms += [(Kind.INPUT, 8, 40, ""), (Kind.CHILD, 7, 41, ""), (Kind.TOUCH, 9, 0, "")]
    terms += [(Kind.FAIL, ANCHOR + 4096, 0, "no"), (Kind.FAIL, 10, 0, "no")]
    found = sealed(terms, shards, fail_all="changed")
    assert said(parts_of(found)).deltas == {}
    assert said(parts_of(found)).failed == dict.fromkeys(anchors, "changed")
    assert found == sealed(terms[::-1], shards, fail_all="changed")
    parts = [*parts_of(sealed(tracks, shards, source="t", labels=labels)), *parts_of(found)]
    for seq, part in enumerate(parts, 1):
        acker.apply_part(part, Fence("@lane", seq))
    nacked = {(v[0], v[1], v[2]) for v in verdicts(acker)}
    assert nacked == {("nack", "failed", anchor) for anchor in anchors}
