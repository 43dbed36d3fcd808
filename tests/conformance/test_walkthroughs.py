"""The standard examples of tuple trees, step by step: chain, fan-out, diamond, join.

Sources: FsShelter's page on its acker (chain and fan-out), Storm's "Guaranteeing message
processing", and the diamond ``spout -> bolt1, bolt2 -> bolt3 -> bolt4`` of articles on it.
"""

import random

import pytest

from tests.support import Target, row, total, track, verdicts

ANCHOR = 0x1F2E3D4C5B6A7988
# Drawn at random, as ids must be: with counters, 1 ^ 2 ^ 3 is zero.
A, B, C, D, E, F = (random.Random(seed).getrandbits(63) for seed in range(6))


def test_no_messages_is_complete_at_once(acker: Target) -> None:
    assert track(acker, ANCHOR, 0, "s1").acked == 1
    assert verdicts(acker) == [("ack", "completed", ANCHOR, "s1", "")]
    assert total(acker)["pending"] == 0


def test_one_message(acker: Target) -> None:
    assert track(acker, ANCHOR, A, "s1").pending == 1
    assert verdicts(acker) == []
    assert row(acker, ANCHOR, A).acked == 1
    assert verdicts(acker) == [("ack", "completed", ANCHOR, "s1", "")]


def test_chain(acker: Target) -> None:
    """source -A-> bolt -B-> bolt -C-> bolt"""
    track(acker, ANCHOR, A)
    for processed, caused in ((A, B), (B, C)):
        assert row(acker, ANCHOR, processed ^ caused).acked == 0
    assert verdicts(acker) == []
    assert row(acker, ANCHOR, C).acked == 1
    assert verdicts(acker) == [("ack", "completed", ANCHOR, "s", "")]


@pytest.mark.parametrize("order", [(0, 1, 2, 3), (3, 2, 1, 0), (2, 0, 3, 1)])
def test_fan_out(acker: Target, order: tuple[int, ...]) -> None:
    """source -A-> bolt -> B, C, D; each message is processed separately, in any order."""
    track(acker, ANCHOR, A)
    rows = [A ^ B ^ C ^ D, B, C, D]
    for step, which in enumerate(order):
        assert row(acker, ANCHOR, rows[which]).acked == (step == 3)
    assert total(acker)["acked"] == 1


def test_source_with_two_first_messages(acker: Target) -> None:
    track(acker, ANCHOR, A ^ B)
    assert row(acker, ANCHOR, A).acked == 0
    assert row(acker, ANCHOR, B).acked == 1


def test_diamond_of_seven_messages(acker: Target) -> None:
    """spout -1-> bolt1 -3-> bolt3 -5-> bolt4; spout -2-> bolt2 -4-> bolt3 -5'-> bolt4."""
    track(acker, ANCHOR, A ^ B)
    steps = [A ^ C, B ^ D, C ^ E, D ^ F, E, F]
    for step, delta in enumerate(steps):
        assert row(acker, ANCHOR, delta).acked == (step == len(steps) - 1)


def test_diamond_with_one_shared_id_acks_too_early(acker: Target) -> None:
    """Rule 2 requires distinct ids: with id 5 sent twice, the checksum is zero too early."""
    track(acker, ANCHOR, A ^ B)
    early = [row(acker, ANCHOR, delta).acked for delta in (A ^ C, B ^ D, C ^ E, D ^ E)]
    assert early == [0, 0, 0, 1], "the two messages with id E are still outstanding"


def test_join_of_two_inputs_of_one_tree(acker: Target) -> None:
    """A message caused by A and B has an edge id for each input; its id is their XOR."""
    track(acker, ANCHOR, A ^ B)
    edge_a, edge_b = C, D
    assert row(acker, ANCHOR, A ^ edge_a).acked == 0
    assert row(acker, ANCHOR, B ^ edge_b).acked == 0, "the joined message is outstanding"
    assert row(acker, ANCHOR, edge_a ^ edge_b).acked == 1


def test_message_in_two_trees(acker: Target) -> None:
    """A join of two sources' messages: it has a row in each tree."""
    other = ANCHOR ^ 1
    track(acker, ANCHOR, A, "left")
    track(acker, other, B, "right")
    row(acker, ANCHOR, A ^ C)
    row(acker, other, B ^ D)
    assert verdicts(acker) == []
    row(acker, ANCHOR, C)
    row(acker, other, D)
    assert {v[3] for v in verdicts(acker)} == {"left", "right"}


@pytest.mark.parametrize(
    "ids",
    [
        (1, 2, 3),
        (0x0000000080000000, 0x0000000100000000, 0x4000000000000000),
        (0x7FFFFFFF00000000, 0x00000000FFFFFFFF, 0x7FFFFFFFFFFFFFFF ^ 0xF0),
        (0x8000000000000000 >> 1, (1 << 53) + 1, 1 << 53),
    ],
)
def test_both_halves_of_64_bits(acker: Target, ids: tuple[int, int, int]) -> None:
    """Ids with a zero half, with the 32nd or 63rd bit set, or not exact in a double."""
    a, b, c = ids
    track(acker, ANCHOR, a)
    assert row(acker, ANCHOR, a ^ b ^ c).acked == 0
    assert row(acker, ANCHOR, b).acked == 0
    assert row(acker, ANCHOR, c).acked == 1


def test_counters_for_ids_ack_too_early(acker: Target) -> None:
    """Counters are not valid ids: source -1-> bolt -> 2, 3 is acked before 1 is done."""
    track(acker, ANCHOR, 1)
    assert row(acker, ANCHOR, 2).acked == 0
    assert row(acker, ANCHOR, 3).acked == 1


def test_one_bit_off_is_not_zero(acker: Target) -> None:
    for bit in range(63):
        track(acker, bit + 1, A)
        assert row(acker, bit + 1, A ^ (1 << bit)).acked == 0
    assert total(acker)["pending"] == 63
