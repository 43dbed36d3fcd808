"""Sparse and dense columns of blocks of any size: the packing has no effect on the result."""

import random

import pytest

from acker_redis.protocol.ids import SLOTS
from tests.support import Target, block_row, block_verdicts, tick, total, track_block

A, C = (random.Random(f"shard {i}").getrandbits(63) for i in (0, 2))

COLUMNS = {
    "near": range(0, 60, 2),
    "gap of 31": range(0, SLOTS, 32),
    "gap of 32": range(0, SLOTS, 33),
    "gap of 33": range(0, SLOTS, 34),
    "the ends": [0, SLOTS - 1],
    "the last": [SLOTS - 1],
    "all but the first": range(1, SLOTS),
    "runs": [*range(5, 1200), *range(1300, 1340), *range(1372, 1375), 4000],
    "random": sorted(random.Random(8).sample(range(SLOTS), 700)),
}


@pytest.mark.parametrize("named", COLUMNS.values(), ids=COLUMNS.keys())
def test_sparse_and_dense_columns_mean_the_same(acker: Target, named: range | list[int]) -> None:
    ids = [random.Random(f"column {slot}").getrandbits(63) for slot in range(SLOTS)]
    track_block(acker, 7, ids)
    sparse = {slot: ids[slot] ^ A for slot in named}
    assert block_row(acker, 7, sparse).acked == 0
    dense = {slot: A if slot in sparse else ids[slot] for slot in range(SLOTS)}
    reply = block_row(acker, 7, dense)
    assert (reply.acked, reply.pending) == (SLOTS, 0)


@pytest.mark.parametrize("named", COLUMNS.values(), ids=COLUMNS.keys())
def test_sparse_column_changes_only_its_slots(acker: Target, named: range | list[int]) -> None:
    track_block(acker, 7, [C] * SLOTS)
    block_row(acker, 7, dict.fromkeys(named, C))
    tick(acker, 3)
    (mixed,) = block_verdicts(acker)
    assert set(mixed.nacked) == set(range(SLOTS)) - set(named)


@pytest.mark.parametrize("slots", [1, 5, 40, 1200])
@pytest.mark.parametrize("named", COLUMNS.values(), ids=COLUMNS.keys())
def test_slots_of_a_sparse_column_beyond_its_block_are_dropped(
    acker: Target, named: range | list[int], slots: int
) -> None:
    track_block(acker, 7, [C] * slots)
    block_row(acker, 7, dict.fromkeys(named, C))
    beyond = sum(slot >= slots for slot in named)
    assert total(acker)["orphaned"] == beyond
    rest = {slot: C for slot in range(slots) if slot not in named}
    if rest:
        block_row(acker, 7, rest)
    (ack,) = block_verdicts(acker)
    assert (ack.verdict, ack.slots) == ("ack", slots)
