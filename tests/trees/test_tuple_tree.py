"""Tuple trees of any shape are acked when all their messages were processed, and not before.

Random programs of sources and bolts run against the reference model. The expected state is kept in
sets of messages, without ids. The mutants at the end show that the tests detect a broken rule.
"""

import doctest
import os
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from operator import xor
from typing import Any

import numpy as np
import pytest
from hypothesis import Phase, event, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from acker_redis.batching.batch import Batch
from acker_redis.errors import ClosedError, InvalidBatchError
from acker_redis.protocol import id_maker
from acker_redis.protocol.id_maker import IdMaker
from acker_redis.protocol.ids import TUPLE_MAX, block_anchor
from acker_redis.protocol.rows import FAIL, TOUCH, TRACK, Row
from acker_redis.protocol.texts import check_text, words
from acker_redis.trees import processing as tuple_tree
from acker_redis.trees.message_id import MAX_TREES, MessageId
from acker_redis.trees.processing import Emitted, OpenTree, Processing, emit, emit_from
from proof.reference.acker import Reference
from tests.support import rows_of
from tests.tiers import FULL, examples, is_later

INDEX = st.integers(0, 1000)
INDICES = st.lists(INDEX, min_size=1, max_size=3)
KEYS = st.sampled_from([None, None, None, "k", "l"])
IDS = IdMaker(("mill", "shop"), "00" * 16)
EDGES = st.sampled_from(["", "mill", "shop"])


def begun(*inputs: str | MessageId) -> Processing:
    """Begin to process messages of a namespace with edges and a known salt."""
    return Processing(*inputs, ids=IDS)


def test_examples() -> None:
    assert doctest.testmod(tuple_tree).failed == 0


# Random programs.


@dataclass(eq=False)
class Message:
    """A message in flight, or the source's own message of an open tree."""

    message_id: MessageId


@dataclass(eq=False)
class Held:
    """Messages in a bolt that are not acked yet."""

    messages: list[Message]
    processing: Processing
    caused: list[Message] = field(default_factory=list)


@dataclass(eq=False)
class Tree:
    outstanding: set[Message] = field(default_factory=set)
    failed: bool = False
    verdicts: list[str] = field(default_factory=list)


reached: Counter[str] = Counter()


class Programs(RuleBasedStateMachine):
    """Sources and bolts; their rows reach the reference in random order, randomly folded."""

    def __init__(self) -> None:
        super().__init__()
        self.model = Reference()
        self.trees: dict[int, Tree] = {}
        self.opened: list[tuple[OpenTree, Message]] = []
        self.waiting: list[Message] = []
        self.held: list[Held] = []
        self.rows: list[Row] = []

    # Sources.

    @rule(edges=st.integers(0, 3), edge=EDGES)
    def begin(self, edges: int, edge: str) -> None:
        tree = emit(f"s{len(self.trees)}", edges, edge=edge, ids=IDS)
        assert len(tree.ids) == edges
        self.trees[tree.anchor] = Tree()
        for message_id in tree.ids:
            self._sent(message_id, {tree.anchor}, edge)
        self.rows.append(tree.row)

    @rule()
    def open_tree(self) -> None:
        tree = OpenTree(f"s{len(self.trees)}", ids=IDS)
        own = Message(MessageId())
        self.trees[tree.anchor] = Tree({own})
        self.opened.append((tree, own))
        self.rows.append(tree.opening)

    @precondition(lambda self: self.opened)
    @rule(which=INDEX, times=st.integers(1, 2), edge=EDGES)
    def find_first(self, which: int, times: int, edge: str) -> None:
        tree, _ = self.opened[which % len(self.opened)]
        for _ in range(times):
            self._sent(tree.emit(edge=edge), {tree.anchor}, edge)

    @precondition(lambda self: self.opened)
    @rule(which=INDEX, fails=st.sampled_from([False, False, False, True]))
    def close_tree(self, which: int, fails: bool) -> None:
        tree, own = self.opened.pop(which % len(self.opened))
        rows = tree.fail("source failed") if fails else tree.close()
        assert [row.anchor for row in rows] == [tree.anchor]
        self.trees[tree.anchor].outstanding.discard(own)
        self.trees[tree.anchor].failed |= fails
        self.rows += rows
        self.note("a tree that was opened and closed")

    # Bolts.

    @precondition(lambda self: self.waiting)
    @rule(which=INDICES, unanchored=st.booleans())
    def take(self, which: list[int], unanchored: bool) -> None:
        """A bolt receives messages together: one, or several for a join."""
        some = [self.waiting[i % len(self.waiting)] for i in which]
        messages = list(dict.fromkeys(some))
        for message in messages:
            self.waiting.remove(message)
        ids = [message.message_id for message in messages] + [MessageId()] * unanchored
        forms = [str(one) if i % 2 else one for i, one in enumerate(ids)]
        self.held.append(Held(messages, begun(*forms)))
        trees = [set(message.message_id) for message in messages]
        shared = any(a & b for i, a in enumerate(trees) for b in trees[:i])
        if len(trees) > 1:
            self.note("a join in one tree" if shared else "a join of trees")

    @precondition(lambda self: self.held)
    @rule(which=INDEX, some=st.none() | st.lists(INDEX, max_size=2), key=KEYS, edge=EDGES)
    def emit(self, which: int, some: list[int] | None, key: str | None, edge: str) -> None:
        """Emit a child of all inputs of a Processing, or of some."""
        held = self.held[which % len(self.held)]
        chosen = held.messages
        if some is not None:
            chosen = list(dict.fromkeys(held.messages[i % len(held.messages)] for i in some))
            if 0 < len(chosen) < len(held.messages):
                self.note("a child of some of the inputs")
        subset = None if some is None else [message.message_id for message in chosen]
        try:
            child = held.processing.emit(subset, key=key, edge=edge)
        except InvalidBatchError as error:
            if "was already used" in str(error):
                return
            raise
        self._sent(child, {anchor for message in chosen for anchor in message.message_id}, edge)

    @precondition(lambda self: len(self.held) > 1)
    @rule(which=INDICES, key=KEYS, edge=EDGES)
    def window(self, which: list[int], key: str | None, edge: str) -> None:
        """Emit a child of several Processings."""
        held = list(dict.fromkeys(self.held[i % len(self.held)] for i in which))
        try:
            child = emit_from(*(one.processing for one in held), key=key, edge=edge)
        except InvalidBatchError as error:
            if "was already used" in str(error):
                return
            raise
        self._sent(child, {a for one in held for m in one.messages for a in m.message_id}, edge)
        if len(held) > 1:
            self.note("a window")

    @precondition(lambda self: self.held)
    @rule(which=INDEX, how=st.sampled_from(["ack"] * 8 + ["fail", "late", "touch", "again"]))
    def end(self, which: int, how: str) -> None:
        """Ack or fail a Processing, sometimes at the second attempt."""
        held = self.held[which % len(self.held)]
        anchors = {anchor for message in held.messages for anchor in message.message_id}
        one = held.processing
        if how == "touch":
            self.rows += self._one_each(one.touched(), anchors, TOUCH)
            return
        if how == "again":
            one.acked()
            one.reopen()
            return
        self.held.remove(held)
        if how == "fail":
            self.rows += self._one_each(one.failed("why"), anchors, FAIL)
        else:
            self.rows += self._one_each(one.acked(), anchors, 0)
        if how == "late":
            late = self._one_each(one.failed(), anchors, FAIL)
            assert all(row.delta == 0 for row in late)
            self.rows += late
        for anchor in anchors:
            self.trees[anchor].outstanding -= set(held.messages)
            self.trees[anchor].failed |= how != "ack"
        assert not one.open
        with pytest.raises(ClosedError):
            one.emit()

    # Rows to the reference, and outcomes back.

    @precondition(lambda self: self.rows)
    @rule(which=st.lists(INDEX, min_size=1, max_size=6))
    def deliver(self, which: list[int]) -> None:
        some = [self.rows.pop(i % len(self.rows)) for i in which if self.rows]
        _apply(self.model, some)

    @invariant()
    def never_a_false_ack(self) -> None:
        for outcome in self.model.take("t"):
            tree = self.trees[outcome.anchor]
            if outcome.verdict == "touch":
                continue
            tree.verdicts.append(outcome.reason)
            if outcome.verdict == "ack":
                assert not tree.outstanding, "acked while a message is outstanding"
            else:
                assert tree.failed
            self.note(outcome.reason)

    def teardown(self) -> None:
        if sys.exc_info()[0]:
            return
        _apply(self.model, self.rows)
        self.never_a_false_ack()
        for tree in self.trees.values():
            ends = not tree.outstanding or tree.failed
            assert len(tree.verdicts) == ends, "acked exactly when all messages were processed"
        acks = sum(tree.verdicts == ["completed"] for tree in self.trees.values())
        if acks > 2:
            self.note("three acks")

    def _sent(self, message_id: MessageId, anchors: set[int], edge: str) -> None:
        assert set(message_id) == anchors
        assert {IDS.edges_of(id_) for id_ in message_id.values()} <= {(edge,) if edge else ()}
        message = Message(message_id)
        self.waiting.append(message)
        for anchor in anchors:
            self.trees[anchor].outstanding.add(message)
        if len(anchors) > 1:
            self.note("a message of several trees")

    def _one_each(self, rows: list[Row], anchors: set[int], flags: int) -> list[Row]:
        assert sorted(row.anchor for row in rows) == sorted(anchors)
        assert all(row.flags == flags for row in rows)
        # Anchors are random, but a replayed history must not depend on their order.
        age = {anchor: i for i, anchor in enumerate(self.trees)}
        return sorted(rows, key=lambda row: age[row.anchor])

    def note(self, what: str) -> None:
        event(what)
        reached[what] += 1


def _apply(model: Reference, rows: Iterable[Row]) -> None:
    """Apply rows as a producer does: folded into a batch, in wire columns."""
    batch = Batch("t")
    for row in rows:
        assert batch.add(row)
    for part in batch.columns().values():
        model.apply(rows_of(part), part.task)


INTERESTING = (
    "a tree that was opened and closed",
    "a join in one tree",
    "a join of trees",
    "a child of some of the inputs",
    "a message of several trees",
    "a window",
    "completed",
    "failed",
    "three acks",
)


def _play(histories: int, kind: type[RuleBasedStateMachine] = Programs) -> None:
    run_state_machine_as_test(
        kind,
        settings=settings(
            max_examples=histories,
            stateful_step_count=60,
            database=None,
            phases=[Phase.generate],
        ),
    )


def test_trees_are_acked_only_after_all_messages_were_processed() -> None:
    reached.clear()
    least = 1 if is_later(FULL) else 5
    for _ in range(50):
        _play(examples(2))
        if all(reached[name] >= least for name in INTERESTING):
            break
    assert all(reached[name] >= least for name in INTERESTING), reached


# Programs that end: every tree is acked, exactly with its last row.


@given(st.data())
def test_fully_processed_trees_are_acked(data: st.DataObject) -> None:
    trees = [
        emit(f"s{i}", data.draw(st.integers(0, 3)), edge=data.draw(EDGES), ids=IDS)
        for i in range(data.draw(INDEX) % 4)
    ]
    rows = [tree.row for tree in trees]
    waiting = [message_id for tree in trees for message_id in tree.ids]
    for children in data.draw(st.lists(st.integers(0, 3), max_size=8)) + [0] * 30:
        if not waiting:
            break
        count = data.draw(st.integers(1, min(3, len(waiting))))
        inputs = [waiting.pop(data.draw(INDEX) % len(waiting)) for _ in range(count)]
        together = data.draw(st.booleans())
        held = [begun(*inputs)] if together else [begun(one) for one in inputs]
        waiting += [emit_from(*held, edge=data.draw(EDGES)) for _ in range(children)]
        for one in data.draw(st.permutations(held)):
            rows += one.acked()
    model, left = Reference(), Counter(row.anchor for row in rows)
    for row in data.draw(st.permutations(rows)):
        _apply(model, [row])
        left[row.anchor] -= 1
        outcomes = [(outcome.verdict, outcome.anchor) for outcome in model.take("t")]
        assert outcomes == [("ack", row.anchor)] * (left[row.anchor] == 0)
    assert model.pending == 0


# Mutants of the tuple tree that the histories must detect.


def _one_edge_for_all(inputs: Sequence[MessageId], key: str | None, maker: IdMaker) -> Any:
    """FsShelter's rule: one id for the child, regardless of its inputs."""
    (edge,) = IDS.draw(1)
    return [edge] * len(inputs), {anchor: edge for message_id in inputs for anchor in message_id}


def _forgets_an_edge(self: Processing, edges: Mapping[int, int]) -> None:
    self._check_open()
    for anchor, edge in edges.items():
        own = [message_id.get(anchor, 0) for message_id in self.inputs]
        self._deltas[anchor] = reduce(xor, own, edge)


def _code_in_every_row(inputs: Sequence[MessageId]) -> list[tuple[int, ...]]:
    """Of a join of two inputs the code cancels in the checksum, but the child has it."""
    return [tuple(message_id) for message_id in inputs]


def _last_input_only(deltas: dict[int, int], *others: Mapping[int, int]) -> dict[int, int]:
    """Of inputs that share an anchor, the row has the last only."""
    for other in others:
        deltas |= other
    return deltas


def _derived_from_the_key_alone(
    inputs: Sequence[MessageId], key: str, attempt: int, maker: IdMaker
) -> list[int]:
    return [hash((key, attempt, place)) & maker.low for place in range(len(inputs))]


def _opened_at_zero(source_id: str, edges: int = 1, **more: Any) -> Emitted:
    """The TRACK row does not announce the first messages."""
    tree = tuple_tree.emit(source_id, edges, **more)
    return tree._replace(row=tree.row._replace(delta=0))


MUTANTS: list[tuple[Any, str, Callable[..., Any]]] = [
    (tuple_tree, "_child", _one_edge_for_all),
    (Processing, "_give", _forgets_an_edge),
    (tuple_tree, "_carriers", _code_in_every_row),
    (tuple_tree, "_xor", _last_input_only),
    (tuple_tree, "_derived", _derived_from_the_key_alone),
    (sys.modules[__name__], "emit", _opened_at_zero),
]


@pytest.mark.nightly
@pytest.mark.parametrize(("where", "name", "mutant"), MUTANTS, ids=[m[2].__name__ for m in MUTANTS])
def test_the_histories_find_a_mutant(
    monkeypatch: pytest.MonkeyPatch, where: Any, name: str, mutant: Callable[..., Any]
) -> None:
    monkeypatch.setattr(where, name, mutant)
    # Two messages with the same id may also be detected where they are joined.
    with pytest.raises((AssertionError, InvalidBatchError), match="acked|given twice"):
        for _ in range(60):
            _play(200)


# Sources.


def test_track_row_names_the_record() -> None:
    tree = emit("order/1", messages=["a", "b", "c"])
    assert len(tree.ids) == 3
    assert tree.row == (tree.anchor, tree.row.delta, TRACK, "order/1")
    assert emit("s", messages=[]).row.delta == emit("s", 0).row.delta == 0
    assert emit("s").anchor != emit("s").anchor


@pytest.mark.parametrize("source_id", ["", "a" * 256, "a\nb", "\ud800", None])
def test_invalid_source_id_is_refused(source_id: Any) -> None:
    with pytest.raises(InvalidBatchError):
        emit(source_id)
    with pytest.raises(InvalidBatchError):
        OpenTree(source_id)


@pytest.mark.parametrize("messages", [-1, "paid", b"paid"])
def test_negative_number_of_messages_and_a_single_one_are_refused(messages: Any) -> None:
    """A text has a length, too: four messages, of which one would be sent."""
    with pytest.raises(InvalidBatchError):
        emit("s", messages)


def test_number_of_messages_may_be_of_numpy() -> None:
    assert len(emit("s", np.int64(2)).ids) == 2


def _draws(monkeypatch: pytest.MonkeyPatch, *ids: list[int]) -> list[list[int]]:
    left = list(ids)
    monkeypatch.setattr(tuple_tree, "draw_ids", lambda count: left.pop(0)[:count])
    monkeypatch.setattr(id_maker, "draw", lambda count, _mask: left.pop(0)[:count])
    return left


def test_first_messages_have_distinct_ids_that_do_not_cancel(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    left = _draws(monkeypatch, [1, 6, 6, 7], [6, 5, 5, 6], [6, 1, 2, 3], [14, 1, 2, 4])
    tree = emit("s", 3)
    assert [dict(one) for one in tree.ids] == [{7: i} for i in (1, 2, 4)]
    assert tree.row.delta == 7
    assert not left


def test_edges_that_cancel_are_drawn_again(monkeypatch: pytest.MonkeyPatch) -> None:
    left = _draws(monkeypatch, [5, 5], [5, 6])
    join = begun("7:40", "7:41")
    assert join.emit() == MessageId({7: 3})
    assert join.acked() == [Row(7, 40 ^ 41 ^ 3)]
    assert not left


def test_an_id_that_is_zero_is_drawn_again(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = [bytes(8), (1 << 63).to_bytes(8, sys.byteorder), b"\xff" * 8]
    monkeypatch.setattr(os, "urandom", lambda size: drawn.pop(0))
    assert id_maker.draw(1) == [TUPLE_MAX]
    assert not drawn


def test_ids_use_all_their_bits() -> None:
    for maker, bits in ((IdMaker(), 63), (IDS, 55)):
        ids = maker.draw(4096)
        assert len(set(ids)) == 4096
        assert max(ids) < 2**bits
        for bit in range(bits):
            assert 1600 < sum(i >> bit & 1 for i in ids) < 2500
        assert maker.draw(0) == []


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_fork_draws_other_ids() -> None:
    id_maker.draw(1)
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(write, str(id_maker.draw(1)[0]).encode())
        os._exit(0)
    mine = id_maker.draw(1)[0]
    os.waitpid(child, 0)
    assert int(os.read(read, 100)) != mine
    os.close(read)
    os.close(write)


def test_an_open_tree_is_not_complete_before_it_is_closed() -> None:
    tree, model = OpenTree("s"), Reference()
    _apply(model, [tree.opening])
    for _ in range(3):
        (row,) = Processing(tree.emit()).acked()
        _apply(model, [row])
    assert not model.take("t")
    _apply(model, tree.close())
    assert [(o.verdict, o.source_id) for o in model.take("t")] == [("ack", "s")]
    for late in (tree.emit, tree.close, tree.touched):
        with pytest.raises(ClosedError):
            late()
    assert tree.fail("after all") == [Row(tree.anchor, 0, FAIL, "after all")]


# Bolts.


def test_one_row_for_each_anchor_of_all_inputs() -> None:
    join = begun("7:40,8:1", "7:41", "")
    child = join.emit(["7:41", ""])
    assert sorted(child) == [7]
    assert join.acked() == [Row(7, 40 ^ 41 ^ child[7]), Row(8, 1)]


def test_row_and_call_of_a_batch_are_equal_on_the_wire() -> None:
    """A row that is added to a batch gives the same bytes as the call of the batch."""
    one = begun("7:40")
    child = one.emit()
    called, added = Batch(), Batch()
    called.fail(7, "why", 40, child.values())
    for row in one.failed("why"):
        added.add(row)
    assert added.columns() == called.columns()


def test_a_failed_message_of_a_block_counts_as_processed() -> None:
    anchor = block_anchor(5, 3)
    one = begun(MessageId({anchor: 40}))
    child = one.emit()
    assert one.failed() == [Row(anchor, 40 ^ child[anchor], FAIL)]


def test_unanchored_message_sends_no_rows() -> None:
    for inputs in ([], [""], [MessageId(), ""]):
        one = begun(*inputs)
        assert one.emit() == one.emit([]) == emit_from(one) == MessageId()
        assert one.touched() == one.acked() == one.failed() == []
    assert emit_from() == MessageId()


@pytest.mark.parametrize(
    "inputs", [["7:40", "7:40"], ["7:40", MessageId({7: 40})], ["7:40,8:1", "9:1,7:40"]]
)
def test_a_message_given_twice_is_refused(inputs: list[str | MessageId]) -> None:
    with pytest.raises(InvalidBatchError, match="a message of tree 7 is given twice"):
        begun(*inputs)
    with pytest.raises(InvalidBatchError, match="a message of tree 7 is given twice"):
        emit_from(*map(Processing, inputs))
    one = begun("7:40")
    with pytest.raises(InvalidBatchError, match="a message of tree 7 is given twice"):
        emit_from(one, one)
    with pytest.raises(InvalidBatchError, match="a message of tree 7 is given twice"):
        one.emit(["7:40", "7:40"])
    assert one.acked() == [Row(7, 40)]


def test_input_of_a_window_may_carry_the_code_in_one_of_its_trees_only() -> None:
    window = [begun("7:40,8:50"), begun("7:41,8:49")]
    child = emit_from(*window, edge="mill")
    deltas = {7: 40 ^ 41, 8: 50 ^ 49}
    for row in [row for one in window for row in one.acked()]:
        deltas[row.anchor] ^= row.delta
    # The first input has the least id in tree 7, the second one in tree 8.
    assert deltas == dict(child)
    assert [IDS.edges_of(tuple_id) for tuple_id in child.values()] == [("mill",), ("mill",)]


def test_a_child_is_anchored_to_inputs_only() -> None:
    one = begun("7:40", "8:41")
    for other in ("7:41", "7:40,8:41", "", MessageId({9: 1})):
        with pytest.raises(InvalidBatchError, match="not one of the inputs"):
            one.emit(other)
    with pytest.raises(InvalidBatchError):
        one.emit("7")
    assert one.acked() == [Row(7, 40), Row(8, 41)]


STATES: dict[str, Callable[[Processing], object]] = {
    "acked": lambda one: one.acked(),
    "failed": lambda one: one.failed(),
    "acked, then failed": lambda one: (one.acked(), one.failed()),
}


@pytest.mark.parametrize("state", STATES)
def test_closed_message_cannot_emit(state: str) -> None:
    for text in ("7:40", ""):
        one, other = begun(text), begun("8:41")
        STATES[state](one)
        assert not one.open
        assert one.has_failed == (state != "acked")
        calls: list[Callable[[], object]] = [
            one.emit,
            lambda one=one: one.emit([]),  # type: ignore[misc]
            lambda one=one: one.emit(key="k"),  # type: ignore[misc]
            one.acked,
            one.touched,
            lambda one=one, other=other: emit_from(other, one),  # type: ignore[misc]
            lambda one=one, other=other: emit_from(one, other, key="k"),  # type: ignore[misc]
        ]
        for call in calls:
            with pytest.raises(ClosedError, match=f"was {state} before"):
                call()
        if state != "acked":
            with pytest.raises(ClosedError, match="was failed before"):
                one.failed()
        other.emit(key="k")  # the failed calls did not use up the key
        other.reopen()
        assert other.open


def test_reopen_restores_the_state_before_refused_rows() -> None:
    one = begun("7:40")
    first = one.acked()
    one.reopen()
    child = one.emit()
    assert one.failed("w") == [Row(7, first[0].delta ^ child[7], FAIL, "w")]
    one.reopen()
    whole = one.acked()
    assert whole == [Row(7, 40 ^ child[7])]
    assert one.failed() == [Row(7, 0, FAIL)]
    one.reopen()
    assert not one.open
    assert not one.has_failed
    assert one.failed() == [Row(7, 0, FAIL)]
    one.reopen()
    one.reopen()
    assert one.acked() == whole


def test_failed_emit_of_a_window_changes_nothing() -> None:
    first, second, last = begun("7:40"), begun("8:41"), begun("9:42")
    give = Processing._give

    def closes_late(self: Processing, *told: Any) -> None:
        """Let another thread ack after the check for open messages."""
        if self is last:
            self.acked()
            first.acked()
        give(self, *told)

    Processing._give = closes_late  # type: ignore[method-assign]
    try:
        with pytest.raises(ClosedError):
            emit_from(first, second, last, key="k")
    finally:
        Processing._give = give  # type: ignore[method-assign]
    assert second.acked() == [Row(8, 41)]
    second.reopen()
    second.emit(key="k")


def test_too_many_trees_for_one_message() -> None:
    many = [begun(MessageId({i + 1: 1})) for i in range(MAX_TREES + 1)]
    assert MessageId.parse(str(emit_from(*many[1:], key="k"))).keys() == set(range(2, 1640))
    with pytest.raises(InvalidBatchError, match="at most 1638"):
        emit_from(*many, key="l")
    assert many[0].acked() == [Row(1, 1)]
    with pytest.raises(InvalidBatchError, match="at most 1638"):
        begun(*(one.inputs[0] for one in many)).emit()


# Derived ids.


def test_the_same_message_and_key_give_the_same_id() -> None:
    def run() -> tuple[list[MessageId], list[Row]]:
        one = begun("7:40,8:41")
        return [one.emit(key=key) for key in ("a", "b", "", "é", "\ud800")], one.acked()

    ids, rows = run()
    assert run() == (ids, rows)
    assert len(set(ids)) == 5
    assert begun("8:41,7:40").emit(key="a") == ids[0]
    assert begun("7:40,8:42").emit(key="a") != ids[0]
    assert emit_from(begun("7:40,8:41"), key="a") == ids[0]


def test_derived_ids_depend_on_the_set_of_inputs_not_their_order() -> None:
    def joined(*inputs: str) -> MessageId:
        return begun(*inputs).emit(key="k")

    assert joined("7:40", "7:41") == joined("7:41", "7:40")
    one, again = begun("7:40"), begun("7:40")
    emit_from(one, begun("7:41"), key="k")
    emit_from(again, begun("7:42"), key="k")
    assert one.acked() != again.acked()
    assert joined("7:40", "8:41")[7] != joined("7:40", "8:42")[7]
    assert joined("7:40", "7:41", "9:9")[7] != joined("7:40", "7:41")[7]


def test_derived_ids_are_stable_across_versions() -> None:
    """A message may be redelivered to the next version of a program."""
    assert str(begun("7:40").emit(key="mill")) == "7:17204069357073303"


def test_key_can_be_used_once() -> None:
    one, other = begun("7:40", "8:41"), begun("9:42")
    one.emit(key="k")
    agains: list[Callable[[], object]] = [
        lambda: one.emit(key="k"),
        lambda: one.emit("7:40", key="k"),
        lambda: one.emit([], key="k"),
        lambda: emit_from(other, one, key="k"),
    ]
    for again in agains:
        with pytest.raises(InvalidBatchError, match="'k' was already used"):
            again()
    other.emit(key="k")


def test_a_derived_id_of_zero_is_derived_again(monkeypatch: pytest.MonkeyPatch) -> None:
    derived = tuple_tree._derived
    attempts = []

    def zero_at_first(
        inputs: Sequence[MessageId], key: str, attempt: int, maker: IdMaker
    ) -> list[int]:
        attempts.append(attempt)
        return derived(inputs, key, attempt, maker) if attempt else [0] * len(inputs)

    monkeypatch.setattr(tuple_tree, "_derived", zero_at_first)
    assert begun("7:40").emit(key="k")[7] == derived([MessageId({7: 40})], "k", 1, IDS)[0]
    assert attempts == [0, 1]


# Threads.


def test_threads_lose_no_edge() -> None:
    one, other = begun("7:40"), begun("8:41")
    found: list[MessageId] = []

    def work() -> None:
        for _ in range(500):
            found.extend((one.emit(), emit_from(one, other), emit_from(other, one)))

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    for anchor, own, done in ((7, 40, one), (8, 41, other)):
        expected = own
        for message_id in found:
            expected ^= message_id.get(anchor, 0)
        assert done.acked() == [Row(anchor, expected)]


def test_ack_waits_for_a_concurrent_emit() -> None:
    """A concurrent ack waits for the lock, and its row contains the edge."""
    one, rows = begun("7:40"), list[Row]()
    acks = threading.Thread(target=lambda: rows.extend(one.acked()))

    class Slow(dict[int, int]):
        def __getitem__(self, anchor: int) -> int:
            acks.start()
            acks.join(0.05)  # without the lock, the ack would have ended by then
            return super().__getitem__(anchor)

    one._deltas = Slow({7: 40})
    child = one.emit()
    acks.join()
    assert rows == [Row(7, 40 ^ child[7])]


# Texts of failures.


class Broken(Exception):
    def __str__(self) -> str:
        raise RuntimeError


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (ValueError("no such address"), "ValueError: no such address"),
        (ValueError(), "ValueError"),
        (KeyError("a"), "KeyError: 'a'"),
        (ValueError("a\nb\x00\x7fc"), "ValueError: a b  c"),
        (ValueError("\ud800"), "ValueError: ?"),
        (ValueError("x" * 10**6), "ValueError: " + "x" * 243),
        (ValueError("é" * 300), "ValueError: " + "é" * 121),
        (Broken(), "Broken"),
        (
            BaseExceptionGroup("a", [ExceptionGroup("b", [ValueError("c")]), KeyboardInterrupt()]),
            "ValueError: c; KeyboardInterrupt",
        ),
        (
            ExceptionGroup("a", [ValueError(n) for n in range(5)]),
            "ValueError: 0; ValueError: 1; ValueError: 2; and 2 more",
        ),
    ],
)
def test_words(error: BaseException, expected: str) -> None:
    assert words(error) == expected
    (row,) = begun("7:40").failed(error)
    assert row.text == expected


@given(st.text(alphabet=st.characters()))
def test_any_failure_text_can_be_sent(text: str) -> None:
    (row,) = begun("7:40").failed(text)
    check_text("why", row.text, 0)
    check_text("why", words(ValueError(text)), 0)
    if len(text.encode(errors="replace")) <= 255:
        assert len(row.text) == len(text)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.parametrize(
    "say",
    [
        Processing.emit,
        lambda one: one.emit(key="mill"),
        lambda one: emit_from(one),
        Processing.acked,
        Processing.touched,
    ],
    ids=["emit", "key", "emit_from", "acked", "touched"],
)
@pytest.mark.parametrize("make", [lambda: begun("7:40"), lambda: OpenTree("s", ids=IDS)])
def test_forked_child_cannot_process_a_message_of_its_parent(
    make: Callable[[], Processing], say: Callable[[Processing], object]
) -> None:
    """The parent's rows would not contain the child's edges, and its ack would be false."""
    one = make()
    one.emit()
    child = os.fork()
    if not child:
        try:
            say(one)
        except ClosedError as error:
            one.failed("in the fork")
            os._exit("before the fork" not in str(error))
        os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    say(one)


EARLY = """
import os, sys, threading
hook = []
os.register_at_fork(after_in_child=lambda: [each() for each in hook])
from acker_redis.errors import ClosedError
from acker_redis.sync.bolt import Bolt
from acker_redis.trees import forgotten
from acker_redis.trees.processing_batch import ProcessingBatch

def refused(call):
    try:
        call()
    except ClosedError as error:
        assert "before the fork" in str(error)
        done.append(call)

def hold(held=threading.local()):
    held.t = bolt.process("8:41")
    ready.set(), ended.wait()
    held.t.ack()

bolt, ready, ended, done = Bolt(sink=None), threading.Event(), threading.Event(), []
bolt._sink = type("Rows", (list,), {"add": lambda self, rows, wait=True: self.extend(rows)})()
t, batch = bolt.process("7:40"), ProcessingBatch(["7:40"])
thread = threading.Thread(target=hold)
thread.start(), ready.wait()
hook += [lambda call=call: refused(call) for call in (t.emit, t.ack, batch.emit, batch.acked)]
child = os.fork()
if not child:
    os._exit(len(forgotten._reported) + 2 * (len(done) < 4))
status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
ended.set(), thread.join()
t.ack()
sys.exit(status or len(bolt._sink) != 2)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_hooks_that_a_forked_child_calls_before_ours_cannot_process_either() -> None:
    """What only a thread of the parent held is deleted before all hooks, and is not reported."""
    ran = subprocess.run([sys.executable, "-c", EARLY], capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stderr) == (0, "")
