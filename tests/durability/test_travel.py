"""Redis comes back with an older state: no history of that acks falsely."""

import random
from collections import Counter
from dataclasses import asdict

import pytest

from acker_redis.reference.blocks import BlockReference
from acker_redis.simulate.backends import ReferenceBackend
from acker_redis.simulate.redis_backend import RedisBackend
from acker_redis.simulate.redis_shard import RedisShard
from tests.conftest import MakeAcker
from tests.durability.travel import BREAKS, CONFIG, TASK, FalseAck, History
from tests.tiers import budget

HISTORIES = budget().travels
STEPS = 80
LEAST = {
    "acks": 100,
    "acks after a travel": 100,
    "trees told of twice": 20,
    "repeats that were refused": 100,
    "travels": 300,
}


def test_no_travel_acks_falsely() -> None:
    """In the reference, which is quick."""
    seen: Counter[str] = Counter()
    first = random.randrange(10**9)
    print(f"seeds from {first} on")
    for seed in range(first, first + HISTORIES):
        history = History([ReferenceBackend(CONFIG)], seed)
        history.play(STEPS)
        seen += history.seen
    print(dict(seen))
    assert all(seen[name] >= least * HISTORIES / 400 for name, least in LEAST.items()), seen


def test_redis_travels_as_the_reference_does(make_acker: MakeAcker) -> None:
    """By DUMP and RESTORE of all keys; each reply and verdict is that of the reference."""
    first = random.randrange(10**9)
    print(f"seeds from {first} on")
    for seed in range(first, first + 25):
        acker = make_acker(**asdict(CONFIG))
        redis = RedisBackend(RedisShard(acker), [TASK])
        History([ReferenceBackend(CONFIG), redis], seed).play(STEPS)


@pytest.mark.parametrize("breaks", BREAKS)
def test_a_broken_rule_is_found(breaks: str) -> None:
    """That the histories can find a false ack."""
    for seed in range(2000):
        try:
            History([ReferenceBackend(CONFIG, BlockReference)], seed, breaks).play(STEPS)
        except FalseAck:
            return
    raise AssertionError("not found")
