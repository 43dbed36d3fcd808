"""Redis returns to an older state, at random: no history acks falsely."""

import random
from collections import Counter
from dataclasses import asdict

import pytest

from proof.reference.blocks import BlockReference
from proof.simulate.backends import RedisBackend, ReferenceBackend
from proof.simulate.redis_shard import RedisShard
from tests.conftest import MakeAcker
from tests.durability.travel import BREAKS, CONFIG, TASK, FalseAck, History
from tests.tiers import budget

HISTORIES = budget().travels
STEPS = 80
LEAST = {
    "acks": 100,
    "acks after a restore": 100,
    "trees reported twice": 20,
    "repeats not applied": 100,
    "restores": 300,
}


def test_restored_state_never_acks_falsely() -> None:
    """Run the histories on the reference, which is fast."""
    seen: Counter[str] = Counter()
    first = random.randrange(10**9)
    print(f"seeds from {first} on")
    for seed in range(first, first + HISTORIES):
        history = History([ReferenceBackend(CONFIG)], seed)
        history.play(STEPS)
        seen += history.seen
    print(dict(seen))
    assert all(seen[name] >= least * HISTORIES / 400 for name, least in LEAST.items()), seen


def test_redis_agrees_with_the_reference_after_restores(make_acker: MakeAcker) -> None:
    """Restore by DUMP and RESTORE of all keys; replies and verdicts equal the reference."""
    first = random.randrange(10**9)
    print(f"seeds from {first} on")
    for seed in range(first, first + 25):
        acker = make_acker(**asdict(CONFIG))
        redis = RedisBackend(RedisShard(acker), [TASK])
        History([ReferenceBackend(CONFIG), redis], seed).play(STEPS)


@pytest.mark.parametrize("breaks", BREAKS)
def test_broken_rule_is_detected_as_a_false_ack(breaks: str) -> None:
    """The histories can find a false ack."""
    for seed in range(2000):
        try:
            History([ReferenceBackend(CONFIG, BlockReference)], seed, breaks).play(STEPS)
        except FalseAck:
            return
    raise AssertionError("not found")
