"""Compare Redis with the reference model on batches and buckets of thousands, from a seed.

Small state machines never fill a bucket beyond the size of a listpack. Here the records of one
batch are in small and large buckets, in all of them, in some, or in none.
"""

import random
import uuid

import pytest

from acker_redis.batching.batch import FAIL, MAX_ROWS, TOUCH, TRACK
from acker_redis.embedded import EmbeddedRedis
from acker_redis.protocol.commands import Fence
from acker_redis.sync.client import Acker
from proof.reference.acker import Reference, TreeRow
from proof.simulate.redis_shard import RedisShard
from tests.properties.lifetimes import TICK_MS, config_of
from tests.support import ageless

FLAGS = [0] * 12 + [FAIL, TOUCH, TRACK | FAIL]


def batch(chance: random.Random, deltas: dict[int, int], tracks: bool) -> list[TreeRow]:
    """Return rows of known and new anchors. ``deltas`` holds the delta that ends each tree."""
    count = chance.choice([1, 5, 100, 511, 513, MAX_ROWS])
    known = chance.sample(sorted(deltas), min(len(deltas), chance.randrange(count + 1)))
    new = [chance.randrange(1, 2**62) for _ in range(count - len(known))]
    rows = []
    for anchor in chance.sample(known + new, count):
        flags = TRACK if tracks and (anchor not in deltas or chance.random() < 0.02) else 0
        flags |= chance.choice(FLAGS) & (~TRACK if not tracks else 7)
        ends = anchor in deltas and chance.random() < 0.5
        delta = deltas[anchor] if ends else chance.randrange(2**63)
        deltas[anchor] = deltas.get(anchor, 0) ^ delta
        rows.append(TreeRow(anchor, delta, flags, "s" if flags & TRACK else "", ""))
    return rows


@pytest.mark.parametrize(
    "lifetime", [0, *(pytest.param(n, marks=pytest.mark.full) for n in (None, 8))]
)
@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(n, marks=pytest.mark.nightly) for n in (1, 2, 3))]
)
def test_redis_agrees_with_the_reference_on_large_batches(
    server: EmbeddedRedis, seed: int, lifetime: int | None
) -> None:
    chance = random.Random(seed)
    config = config_of(
        chance.choice([2, 3, 5]),
        lifetime,
        high_water=chance.choice([3000, 100_000]),
        edges=("a", "b"),
    )
    with Acker.from_url(server.url, f"large-{uuid.uuid4().hex[:8]}") as acker:
        acker.create(config)
        redis, model = RedisShard(acker), Reference(config)
        deltas: dict[int, int] = {}
        for seq in range(1, 40):
            rows = batch(chance, deltas, chance.random() < 0.5)
            task = "t" if any(row.flags & TRACK for row in rows) else ""
            fence = Fence("p", seq, f"{seq:x}")
            assert redis.apply(rows, task, fence) == model.apply(rows, task, fence)
            if chance.random() < 0.3:
                redis.advance(TICK_MS)
                model.advance(TICK_MS)
                assert redis.rotate() == model.rotate() is True
                assert redis.expire() == model.expire() == 0
            status = acker.status().shards[0]
            assert status.pending == tuple(map(len, model.buckets))
            assert sorted(map(ageless, redis.take("t"))) == sorted(map(ageless, model.take("t")))
        assert model.counters["acked"] > 100
