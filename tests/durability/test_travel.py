"""Redis returns to an older state, at random: no history acks falsely.

An old snapshot, a promoted replica and a truncated log have this effect. A shard returns to any of
its last states, also to those of a past that an earlier return has discarded. Clients do not go
back: their lanes continue, and they send batches in doubt again, or batches of long ago.
"""

import random
from collections.abc import Iterator

from acker_redis.embedded import EmbeddedRedis
from proof.oracle import FALSE_ACK
from proof.run import play, summary
from proof.simulate import Played
from tests.properties.play import share
from tests.simulate.test_simulate import clean
from tests.tiers import budget

TREES = 80
LEAST = {
    "acks after a failover": 10,
    "failovers": 3,
    "old batches sent again": 3,
    "repeated": 0.5,
    "second verdicts": 3,
}
"""States, and how often each history must reach them on average."""


def histories(count: int, url: str = "", breaks: str = "") -> Iterator[Played]:
    first = random.randrange(10**9)
    print(f"seeds from {first} on")
    for seed in range(first, first + count):
        yield play(seed, TREES, ("failover",), breaks, url, both=bool(url))


def test_restored_state_never_acks_falsely() -> None:
    """Run the histories on the reference, which is fast."""
    table = dict(summary(map(clean, histories(budget().travels))))
    print(table)
    assert all(table[name] >= least * budget().travels for name, least in LEAST.items()), table


def test_redis_agrees_with_the_reference_after_restores(server: EmbeddedRedis) -> None:
    """Restore by DUMP and RESTORE of all keys; replies and verdicts equal the reference."""
    for played in histories(share(server, 12), server.url):
        clean(played)


def test_broken_rule_is_detected_as_a_false_ack() -> None:
    """A failure and its delta in two batches are harmless until a failover loses one of them."""
    assert any(played.kind == FALSE_ACK for played in histories(300, breaks="parted"))
    assert not any(play(seed, TREES, (), "parted").violation for seed in range(20))
