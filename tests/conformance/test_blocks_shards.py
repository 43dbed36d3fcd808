"""Blocks and loose trees over several independent shards; and sparse columns."""

import random
from collections import Counter

import pytest

from acker_redis.errors import BacklogError
from acker_redis.protocol.commands import Fence
from acker_redis.protocol.ids import SLOTS
from proof.reference.acker import TreeRow
from proof.reference.blocks import BlockReference, BlockRow
from proof.simulate.redis_shard import RedisShard
from tests.conformance.conftest import MakeTarget
from tests.support import (
    TRACK,
    Target,
    block_row,
    block_verdicts,
    tick,
    total,
    track_block,
    tracked_block,
    verdicts,
)

SHARDS = 4
A, B, C = (random.Random(f"shard {i}").getrandbits(63) for i in range(3))


class Namespace:
    """All shards of a namespace: one reference model each, or one acker for all."""

    def __init__(self, make_acker: MakeTarget, **fields: object) -> None:
        first = make_acker(shards=SHARDS, **fields)
        self.targets: list[Target] = [first]
        self.shards: list[BlockReference | RedisShard] = []
        if isinstance(first, BlockReference):
            self.targets += [make_acker(shards=SHARDS, **fields) for _ in range(SHARDS - 1)]
        for number in range(SHARDS):
            target = self.targets[number % len(self.targets)]
            if isinstance(target, BlockReference):
                self.shards.append(target)
            else:
                self.shards.append(RedisShard(target, number))

    def tick(self, times: int) -> None:
        for target in self.targets:
            tick(target, times)

    def verdicts(self, task: str = "t") -> Counter[tuple[str, str, str]]:
        """Count the verdicts by verdict, reason and source id."""
        found = [v for target in self.targets for v in verdicts(target, task)]
        return Counter((verdict, reason, source) for verdict, reason, _, source, _ in found)

    def total(self) -> Counter[str]:
        return sum((Counter(total(target)) for target in self.targets), Counter())


def test_blocks_and_loose_trees_of_one_task_over_all_shards(make_acker: MakeTarget) -> None:
    space = Namespace(make_acker)
    for number in range(4, 20):
        shard = space.shards[number % SHARDS]
        shard.apply([TreeRow(number, A, TRACK, f"s{number}")], "t")
        assert shard.apply_blocks([tracked_block(number, [A, B], f"b{number}")]).tracked == 2
    assert space.total()["pending"] == 48
    for number in range(4, 20, 3):
        shard = space.shards[number % SHARDS]
        assert shard.apply([TreeRow(number, A)]).acked == 1
        assert shard.apply_blocks([BlockRow(number, {0: A, 1: B})]).acked == 2
    for number in (5, 6):
        shard = space.shards[number % SHARDS]
        assert shard.apply_blocks([BlockRow(number, {0: A}, {1: "no"})]).failed == 1
    done = set(range(4, 20, 3))
    expected: Counter[tuple[str, str, str]] = Counter()
    for number in done:
        expected[("ack", "completed", f"s{number}")] = 1
        expected[("ack", "completed", f"b{number}")] = 2
    for number in (5, 6):
        expected[("nack", "failed", f"b{number}")] = 1
    assert space.verdicts() == expected
    space.tick(3)
    expected = Counter()
    for number in set(range(4, 20)) - done:
        expected[("nack", "expired", f"s{number}")] = 1
        expected[("nack", "expired", f"b{number}")] = 2
    for number in (5, 6):
        expected[("ack", "completed", f"b{number}")] = 1
        del expected[("nack", "expired", f"b{number}")]
    assert space.verdicts() == expected
    counters = space.total()
    assert (counters["tracked"], counters["pending"], counters["expiring"]) == (48, 0, 0)


def test_each_shard_has_its_own_fence_of_a_lane(make_acker: MakeTarget) -> None:
    space = Namespace(make_acker)
    for number, shard in enumerate(space.shards):
        part = tracked_block(number, [A])
        assert shard.apply_blocks([part], Fence("p", 1)).highest is None
        assert shard.apply_blocks([part], Fence("p", 1)).highest == 1
    assert space.total()["repeated"] == SHARDS


def test_each_shard_has_its_share_of_the_mark_and_of_the_backlog(make_acker: MakeTarget) -> None:
    space = Namespace(make_acker, high_water=8, outcomes_limit=8)
    for number, shard in enumerate(space.shards):
        assert shard.apply_blocks([tracked_block(number, [A] * 4)]).rejected == ()
        assert shard.apply_blocks([tracked_block(number + 4, [A])]).rejected == (number + 4,)
        assert shard.apply_blocks([BlockRow(number, dict.fromkeys(range(4), A))]).acked == 4
        with pytest.raises(BacklogError):
            shard.apply_blocks([tracked_block(number, [A])])
    assert space.verdicts().total() == 20


def test_shards_tick_and_drain_independently(make_acker: MakeTarget) -> None:
    space = Namespace(make_acker)
    for number, shard in enumerate(space.shards):
        shard.apply_blocks([tracked_block(number, [A], f"b{number}")])
    first = space.shards[0]
    for _ in range(3):
        assert first.rotate(force=True)
    assert not first.rotate(force=True)
    while first.expire_blocks():
        pass
    assert set(space.verdicts()) == {("nack", "expired", "b0")}
    for number, shard in enumerate(space.shards):
        assert shard.apply_blocks([BlockRow(number, {0: A})]).acked == (number > 0)


# The packing of a column has no effect on the result.

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
