"""Compare Redis with the reference model on calls at their limits, from a seed.

64 blocks in one call, blocks of 4095 trees, 4096 named slots, dense and sparse columns in one
call, thousands of failures and of absent slots: small state machines never send them.
"""

import random
import uuid

import pytest

from acker_redis.embedded import EmbeddedRedis
from acker_redis.protocol.blocks import MAX_BLOCKS, MAX_NAMED
from acker_redis.protocol.commands import Fence
from acker_redis.protocol.ids import SLOTS
from acker_redis.protocol.slots import pack_slots
from acker_redis.sync.client import Acker
from proof.reference.blocks import BlockReference, BlockRow
from proof.simulate.redis_shard import RedisShard
from tests.properties.lifetimes import TICK_MS, config_of
from tests.support import ageless, block_outcomes, total

SIZES = [(1, 4095), (2, 4095), (24, 1000), (64, 60), (64, 254)]
"""Numbers of blocks that are tracked together, and of their trees; a call has at most 1 MiB."""


def begin(chance: random.Random, numbers: range, slots: int) -> list[BlockRow]:
    rows, named = [], 0
    for number in numbers:
        size = slots if chance.random() < 0.5 else chance.randrange(1, slots + 1)
        column = {s: chance.choice([0, chance.randrange(1, 2**63)]) for s in range(size)}
        absent = frozenset[int]()
        if chance.random() < 0.5:
            count = chance.choice([0, 1, size // 2, size - 1])
            absent = frozenset(chance.sample(range(size), min(count, MAX_NAMED - named)))
            named += len(absent)
        column |= dict.fromkeys(absent, 0)
        rows.append(BlockRow(number, column, task="t", label=f"b/{number}", absent=absent))
    return rows


def deltas(chance: random.Random, model: BlockReference) -> list[BlockRow]:
    """Return rows for pending blocks and for an unknown one: dense, sparse and empty columns."""
    blocks = [item for bucket in model.block_buckets for item in bucket.items()]
    some = chance.sample(blocks, min(len(blocks), chance.choice([1, 5, MAX_BLOCKS - 1])))
    rows, named, dense = [BlockRow(999_999, {0: 5, 7: 5}, {3: "of no tree"})], 3, 0
    for number, block in some:
        size = len(block.checksums)
        ends = chance.random() < 0.7
        failed = {}
        if chance.random() < 0.2:
            count = min(chance.choice([1, 100, SLOTS]), size, MAX_NAMED - named)
            failed = {slot: f'"{slot}' for slot in sorted(chance.sample(range(size), count))}
        named += len(failed)
        if chance.random() < 0.6 and dense + size < 100_000:
            slots = list(range(chance.choice([size, size, chance.randrange(size + 1)])))
            dense += len(slots)
        else:
            count = min(size, MAX_NAMED - named, chance.choice([1, 40, SLOTS]))
            slots = sorted(chance.sample(range(size), count))
            if slots == list(range(count)):
                slots = slots[1:]  # or it would go dense
            named += len(slots)
        row = {s: block.checksums[s] if ends else chance.randrange(2**63) for s in slots}
        rows.append(BlockRow(number, row, failed, chance.random() < 0.1))
    return rows


@pytest.mark.parametrize(
    "lifetime", [None, *(pytest.param(n, marks=pytest.mark.full) for n in (0, 8))]
)
@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(n, marks=pytest.mark.nightly) for n in (1, 2, 3))]
)
def test_redis_agrees_with_the_reference_on_large_blocks(
    server: EmbeddedRedis, seed: int, lifetime: int | None
) -> None:
    chance = random.Random(seed)
    config = config_of(
        chance.choice([2, 3, 5]),
        lifetime,
        high_water=chance.choice([12_000, 100_000]),
        edges=("a", "b"),
    )
    with Acker.from_url(server.url, f"large-{uuid.uuid4().hex[:8]}") as acker:
        acker.connection.client.flushall()  # each check would read the keys of other tests
        acker.create(config)
        redis, model = RedisShard(acker), BlockReference(config)
        number = 0
        for seq in range(1, 40):
            if chance.random() < 0.4:
                count, slots = chance.choice(SIZES)
                rows = begin(chance, range(number, number + count), slots)
                number += count
            else:
                rows = deltas(chance, model)
            fence = Fence("p", seq, f"{seq:x}")
            assert redis.apply_blocks(rows, fence) == model.apply_blocks(rows, fence)
            if chance.random() < 0.3:
                redis.advance(TICK_MS)
                model.advance(TICK_MS)
                assert redis.rotate() == model.rotate() is True
                while redis.expire_blocks():
                    pass
                model.expire_blocks()
            told = block_outcomes(acker)
            mine = model.take_blocks("t")
            assert sorted(map(ageless, told)) == sorted(map(ageless, mine))
            assert total(acker) == total(model)
        for name in ("acked", "failed", "expired"):
            assert model.counters[name] > 100, name
        client = acker.connection.client
        for bucket in model.block_buckets:
            for block, its in bucket.items():
                packed = client.get(redis.keys.block(block))
                assert packed == b"".join(c.to_bytes(8, "big") for c in its.checksums)
                present = client.get(redis.keys.present(block))
                assert present == (
                    pack_slots(its.trees, len(its.checksums)) if its.absent else None
                )
