"""The standard examples of tuple trees in slots of a block: chain, fan-out, diamond, join.

The trees of a block get their acks together: a slot may be complete long before its block ends.
"""

import random

import pytest

from acker_redis.protocol.ids import BLOCK_MAX, SLOTS, TUPLE_MAX, block_anchor
from tests.support import Target, block_row, block_verdicts, tick, total, track_block, verdicts

BLOCK = 0x2_4B5A_7988_1F2E
# Drawn at random, as ids must be: with counters, 1 ^ 2 ^ 3 is zero.
A, B, C, D, E, F = (random.Random(seed).getrandbits(63) for seed in range(6))
MANY = [random.Random(f"slot {slot}").getrandbits(63) for slot in range(SLOTS)]


def test_no_messages_is_complete_at_once(acker: Target) -> None:
    reply = track_block(acker, BLOCK, [0, 0, 0], "s1")
    assert (reply.tracked, reply.acked, reply.pending) == (3, 3, 0)
    (outcome,) = block_verdicts(acker)
    assert (outcome.verdict, outcome.reason, outcome.block) == ("ack", "completed", BLOCK)
    assert (outcome.label, outcome.slots, outcome.failed) == ("s1", 3, ())
    assert total(acker)["pending"] == 0


def test_one_slot(acker: Target) -> None:
    assert track_block(acker, BLOCK, [A], "s1").pending == 1
    assert verdicts(acker) == []
    assert block_row(acker, BLOCK, {0: A}).acked == 1
    assert verdicts(acker) == [("ack", "completed", block_anchor(BLOCK, 0), "s1", "")]
    assert total(acker)["pending"] == 0


@pytest.mark.parametrize("slots", [2, 63, 64, 65, SLOTS - 1, SLOTS])
def test_blocks_of_many_slots(acker: Target, slots: int) -> None:
    reply = track_block(acker, BLOCK, MANY[:slots], "many")
    assert (reply.tracked, reply.pending) == (slots, slots)
    dense = {slot: MANY[slot] ^ slot << 40 ^ 5 for slot in range(slots)}
    assert block_row(acker, BLOCK, dense).acked == 0
    but_the_last = {slot: slot << 40 ^ 5 for slot in range(slots - 1)}
    assert block_row(acker, BLOCK, but_the_last).acked == 0
    assert verdicts(acker) == []
    reply = block_row(acker, BLOCK, {slots - 1: slots - 1 << 40 ^ 5})
    assert (reply.acked, reply.pending) == (slots, 0)
    expected = [
        ("ack", "completed", block_anchor(BLOCK, slot), "many", "") for slot in range(slots)
    ]
    assert verdicts(acker) == expected
    total(acker)


def test_chain_in_one_slot(acker: Target) -> None:
    """source -A-> bolt -B-> bolt -C-> bolt"""
    track_block(acker, BLOCK, [A])
    for processed, caused in ((A, B), (B, C)):
        assert block_row(acker, BLOCK, {0: processed ^ caused}).acked == 0
    assert verdicts(acker) == []
    assert block_row(acker, BLOCK, {0: C}).acked == 1


def test_chains_side_by_side(acker: Target) -> None:
    """Each slot has a chain of a different length; the longest ends the block."""
    ids = [[random.Random(f"{s}/{k}").getrandbits(63) for k in range(s + 1)] for s in range(6)]
    track_block(acker, BLOCK, [chain[0] for chain in ids])
    for step in range(6):
        rows = {
            slot: chain[step] ^ (chain[step + 1] if step < slot else 0)
            for slot, chain in enumerate(ids)
            if step <= slot
        }
        assert block_row(acker, BLOCK, rows).acked == (6 if step == 5 else 0)


@pytest.mark.parametrize("order", [(0, 1, 2, 3), (3, 2, 1, 0), (2, 0, 3, 1)])
def test_fan_out(acker: Target, order: tuple[int, ...]) -> None:
    """source -A-> bolt -> B, C, D; each message is processed separately, in any order."""
    track_block(acker, BLOCK, [E, A, F])
    block_row(acker, BLOCK, {0: E, 2: F})
    rows = [A ^ B ^ C ^ D, B, C, D]
    for step, which in enumerate(order):
        assert block_row(acker, BLOCK, {1: rows[which]}).acked == (3 if step == 3 else 0)


def test_source_with_two_first_messages(acker: Target) -> None:
    track_block(acker, BLOCK, [A ^ B])
    assert block_row(acker, BLOCK, {0: A}).acked == 0
    assert block_row(acker, BLOCK, {0: B}).acked == 1


def test_diamond_of_seven_messages(acker: Target) -> None:
    """spout -1-> bolt1 -3-> bolt3 -5-> bolt4; spout -2-> bolt2 -4-> bolt3 -5'-> bolt4."""
    track_block(acker, BLOCK, [A ^ B, A ^ B])
    steps = [A ^ C, B ^ D, C ^ E, D ^ F, E, F]
    for delta in steps:
        assert block_row(acker, BLOCK, {1: delta}).acked == 0
    for step, delta in enumerate(steps):
        done = step == len(steps) - 1
        assert block_row(acker, BLOCK, {0: delta}).acked == (2 if done else 0)


def test_diamond_with_one_shared_id_acks_too_early(acker: Target) -> None:
    """Rule 2 requires distinct ids: with id 5 sent twice, the checksum is zero too early."""
    track_block(acker, BLOCK, [A ^ B])
    early = [block_row(acker, BLOCK, {0: d}).acked for d in (A ^ C, B ^ D, C ^ E, D ^ E)]
    assert early == [0, 0, 0, 1], "the two messages with id E are still outstanding"


def test_join_of_two_inputs_of_one_tree(acker: Target) -> None:
    """A message caused by A and B has an edge id for each input; its id is their XOR."""
    track_block(acker, BLOCK, [A ^ B])
    edge_a, edge_b = C, D
    assert block_row(acker, BLOCK, {0: A ^ edge_a}).acked == 0
    assert block_row(acker, BLOCK, {0: B ^ edge_b}).acked == 0, "the joined one is outstanding"
    assert block_row(acker, BLOCK, {0: edge_a ^ edge_b}).acked == 1


def test_message_in_two_slots(acker: Target) -> None:
    """A join of two of the source's messages: one row for each tree, in one call."""
    track_block(acker, BLOCK, [A, B])
    block_row(acker, BLOCK, {0: A ^ C, 1: B ^ D})
    assert verdicts(acker) == []
    assert block_row(acker, BLOCK, {0: C, 1: D}).acked == 2


def test_message_in_two_blocks(acker: Target) -> None:
    """Each block ends with its own row: a row of one block leaves the other open."""
    track_block(acker, 1, [A], "left")
    track_block(acker, 2, [B], "right")
    block_row(acker, 1, {0: A ^ C})
    block_row(acker, 2, {0: B ^ D})
    assert block_row(acker, 1, {0: C}).acked == 1
    assert [v[3] for v in verdicts(acker)] == ["left"]
    assert block_row(acker, 2, {0: D}).acked == 1


def test_ids_of_another_slot_complete_nothing(acker: Target) -> None:
    """Slots are independent: an extra id in one and a missing id in another leave both open."""
    track_block(acker, BLOCK, [A, B])
    block_row(acker, BLOCK, {0: B, 1: A})
    tick(acker, 3)
    (outcome,) = block_verdicts(acker)
    assert outcome.nacked == (0, 1)


@pytest.mark.parametrize(
    "ids",
    [
        (1, 2, 3),
        (0x0000000080000000, 0x0000000100000000, 0x4000000000000000),
        (0x7FFFFFFF00000000, 0x00000000FFFFFFFF, 0x7FFFFFFFFFFFFFFF ^ 0xF0),
        (0x8000000000000000 >> 1, (1 << 53) + 1, 1 << 53),
        (TUPLE_MAX, TUPLE_MAX - 1, TUPLE_MAX - 2),
    ],
)
def test_both_halves_of_64_bits(acker: Target, ids: tuple[int, int, int]) -> None:
    """Ids with a zero half, with the 32nd or 63rd bit set, or not exact in a double."""
    a, b, c = ids
    track_block(acker, BLOCK, [a, TUPLE_MAX])
    assert block_row(acker, BLOCK, {0: a ^ b ^ c}).acked == 0
    assert block_row(acker, BLOCK, {0: b}).acked == 0
    assert block_row(acker, BLOCK, {0: c}).acked == 0
    assert block_row(acker, BLOCK, {1: TUPLE_MAX}).acked == 2


def test_counters_for_ids_ack_too_early(acker: Target) -> None:
    """Counters are not valid ids: source -1-> bolt -> 2, 3 is acked before 1 is done."""
    track_block(acker, BLOCK, [1])
    assert block_row(acker, BLOCK, {0: 2}).acked == 0
    assert block_row(acker, BLOCK, {0: 3}).acked == 1


def test_one_bit_off_is_not_zero(acker: Target) -> None:
    for bit in range(63):
        track_block(acker, bit, [A])
        assert block_row(acker, bit, {0: A ^ (1 << bit)}).acked == 0
    assert total(acker)["pending"] == 63
    # A single bit in any slot keeps the block open.
    track_block(acker, BLOCK, [1 << slot for slot in range(63)])
    for slot in range(63):
        assert verdicts(acker) == []
        acked = block_row(acker, BLOCK, {slot: 1 << slot}).acked
        assert acked == (63 if slot == 62 else 0)


@pytest.mark.parametrize("block", [0, 1, 2**32 - 1, 2**32, 2**49, BLOCK_MAX])
def test_numbers_of_blocks(acker: Target, block: int) -> None:
    """From the lowest to the highest number. Numbers that share a half are distinct blocks."""
    other = block ^ 2**33
    track_block(acker, block, [A, 0, B], "this")
    track_block(acker, other, [A, 0, B], "other")
    block_row(acker, block, {0: A})
    assert block_row(acker, other, {2: B}).acked == 0
    assert block_row(acker, block, {2: B}).acked == 3
    assert verdicts(acker) == [
        ("ack", "completed", block_anchor(block, slot), "this", "") for slot in range(3)
    ]
    tick(acker, 3)
    (outcome,) = block_verdicts(acker)
    assert (outcome.block, outcome.label, outcome.nacked) == (other, "other", (0,))
    total(acker)


def test_highest_slot_of_the_highest_block(acker: Target) -> None:
    track_block(acker, BLOCK_MAX, [0] * (SLOTS - 1) + [TUPLE_MAX])
    assert block_row(acker, BLOCK_MAX, {SLOTS - 1: TUPLE_MAX ^ 1}).acked == 0
    assert block_row(acker, BLOCK_MAX, {SLOTS - 1: 1}).acked == SLOTS
    assert verdicts(acker)[-1][2] == block_anchor(BLOCK_MAX, SLOTS - 1) == 2**63 - 2
