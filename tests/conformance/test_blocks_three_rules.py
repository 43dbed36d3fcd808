"""The three rules in slots of a block: when they are kept, no order of rows causes a false ack.

All rows of the trees arrive after the TRACK of their block, because a source waits for its reply
before it emits. Rows before the TRACK are tested in ``test_blocks_order.py``.
"""

import itertools
import random
from collections.abc import Sequence

import pytest

from tests.conformance.conftest import MakeTarget
from tests.support import Target, block_row, block_verdicts, tick, total, track_block, verdicts

A, B, C, D, E, F = (random.Random(f"rule {i}").getrandbits(63) for i in range(6))

# The tracked delta, and the rows of each processed message. A tree may be acked once all rows
# are applied. A broken tree has an extra row or a split one.
WHOLE = (A, [A ^ B, B])
SPLIT = (A, [B, A, B])
EDGES = (A ^ B, [A ^ C, B ^ D, C ^ D])
SHARED = (A ^ B, [A ^ C, B ^ C, 0])
AT_ONCE = (A ^ B, [A, B])
OWN_ID = (E, [E ^ A ^ B, A, B])
FAN_OUT = (A, [A ^ B ^ C ^ D, B, C, D])
DIAMOND = (A ^ B, [A ^ C, B ^ D, C ^ E, D ^ F, E ^ F])
Tree = tuple[int, Sequence[int]]


def acked_too_early(target: Target, tree: Tree) -> list[tuple[int, ...]]:
    """Return the orders of arrival that ack the tree while one of its rows is outstanding."""
    first, rows = tree
    found = []
    for block, order in enumerate(itertools.permutations(range(len(rows)))):
        track_block(target, block, [first])
        for step, which in enumerate(order, 1):
            block_row(target, block, {0: rows[which]})
            if step < len(order) and any(v[0] == "ack" for v in verdicts(target)):
                found.append(order)
        verdicts(target)
    return found


@pytest.mark.parametrize(
    "tree",
    [WHOLE, EDGES, AT_ONCE, OWN_ID, FAN_OUT, DIAMOND],
    ids=["a row is whole", "edge ids", "one track", "an own id", "fan-out", "diamond"],
)
def test_no_order_of_rows_acks_early_when_rules_are_kept(acker: Target, tree: Tree) -> None:
    assert acked_too_early(acker, tree) == []
    assert total(acker)["pending"] == 0, "and all trees are acked in the end"


@pytest.mark.parametrize("tree", [SPLIT, SHARED], ids=["a row is split", "one id for two edges"])
def test_some_order_of_rows_acks_early_when_a_rule_is_broken(acker: Target, tree: Tree) -> None:
    assert acked_too_early(acker, tree) != []


def test_every_order_of_two_trees_side_by_side_ends_in_one_verdict(acker: Target) -> None:
    steps = [(0, A ^ B), (0, B), (1, C ^ D ^ E), (1, D), (1, E)]
    for block, order in enumerate(itertools.permutations(steps)):
        track_block(acker, block, [A, C])
        acks = [block_row(acker, block, {slot: delta}).acked for slot, delta in order]
        assert acks == [0, 0, 0, 0, 2], f"acked before all rows arrived: {order}"


@pytest.mark.parametrize("tree", [WHOLE, EDGES, OWN_ID, FAN_OUT, DIAMOND])
def test_a_tree_that_misses_one_row_never_completes_its_block(acker: Target, tree: Tree) -> None:
    """When the block expires, its other trees are acked all the same."""
    first, rows = tree
    for missing in range(len(rows)):
        track_block(acker, missing, [first, first, first])
        for which, delta in enumerate(rows):
            deltas = {0: delta, 1: delta, 2: delta}
            if which == missing:
                del deltas[1]
            assert block_row(acker, missing, deltas).acked == 0
    assert verdicts(acker) == []
    tick(acker, 3)
    found = block_verdicts(acker)
    assert {o.block for o in found} == set(range(len(rows)))
    assert {(o.verdict, o.nacked) for o in found} == {("mixed", (1,))}
    counters = total(acker)
    assert (counters["acked"], counters["expired"]) == (2 * len(rows), len(rows))


def test_duplicate_row_never_completes_its_block(acker: Target) -> None:
    """x XOR x = 0: without a fence, a row that is applied twice has no effect."""
    track_block(acker, 7, [A, A])
    block_row(acker, 7, {0: A ^ B, 1: A ^ B})
    block_row(acker, 7, {0: A ^ B})
    assert block_row(acker, 7, {0: B, 1: B}).acked == 0
    tick(acker, 3)
    assert [o.nacked for o in block_verdicts(acker)] == [(0,)]


def test_rows_of_one_tree_folded_into_one_row_stay_whole(acker: Target) -> None:
    """Folding XORs whole rows, so no way of folding acks a tree too early."""
    rows = [A ^ B ^ C, B ^ D, C, D]
    for block, cut in enumerate(itertools.product([0, 1], repeat=4)):
        parts = [0, 0]
        for delta, part in zip(rows, cut, strict=True):
            parts[part] ^= delta
        track_block(acker, block, [A])
        complete = 0 not in cut or 1 not in cut
        acked = [block_row(acker, block, {0: delta}).acked for delta in parts if delta]
        assert acked[-1] == 1
        assert sum(acked) == 1
        assert complete or acked[0] == 0


def test_any_folding_of_the_rows_of_a_block_has_the_same_result(make_acker: MakeTarget) -> None:
    """One call for each row or one for all, dense or sparse: the same checksums."""
    slots, chance = 40, random.Random(3)
    trees = []
    for _ in range(slots):
        ids = [chance.getrandbits(63) for _ in range(4)]
        trees.append((ids[0], [ids[0] ^ ids[1] ^ ids[2] ^ ids[3], *ids[1:]]))
    rows = [(slot, delta) for slot, (_, deltas) in enumerate(trees) for delta in deltas]
    acker = make_acker()
    for block, size in enumerate((1, 7, 40, len(rows))):
        chance.shuffle(rows)
        track_block(acker, block, [first for first, _ in trees])
        for start in range(0, len(rows), size):
            folded: dict[int, int] = {}
            for slot, delta in rows[start : start + size]:
                folded[slot] = folded.get(slot, 0) ^ delta
            acked = block_row(acker, block, folded).acked
            assert acked == (slots if start + size >= len(rows) else 0)


def test_hole_is_acked_with_its_block(acker: Target) -> None:
    """A slot without a message is acked with its block, and delays nothing."""
    track_block(acker, 7, [A, 0, 0, B])
    assert verdicts(acker) == []
    assert block_row(acker, 7, {0: A}).acked == 0
    assert block_row(acker, 7, {3: B}).acked == 4
    track_block(acker, 8, [0, A, 0])
    tick(acker, 3)
    (ack, mixed) = block_verdicts(acker)
    assert list(ack.acked()) == [(0, 4)]
    assert (mixed.nacked, list(mixed.acked())) == ((1,), [(0, 1), (2, 3)])


def test_row_for_a_hole_opens_its_slot(acker: Target) -> None:
    """A message that no row registered: the block expires rather than being acked falsely."""
    track_block(acker, 7, [A, 0])
    block_row(acker, 7, {1: B})
    assert block_row(acker, 7, {0: A}).acked == 0
    assert block_row(acker, 7, {1: B}).acked == 2


def test_block_ends_only_when_all_slots_are_zero_at_once(acker: Target) -> None:
    """The script checks all slots of a block for zero at once."""
    track_block(acker, 7, [A, B])
    block_row(acker, 7, {0: A})
    block_row(acker, 7, {0: C})
    assert block_row(acker, 7, {1: B}).acked == 0
    assert block_row(acker, 7, {0: C}).acked == 2
