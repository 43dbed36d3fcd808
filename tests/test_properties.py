"""Random tuple trees, rows in any order, ticks at any time: never a false ack.

The oracle does not know XOR: it remembers which messages of a tree exist and which of them
were processed.
"""

import random
import uuid

import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from acker_redis.client import Acker
from acker_redis.commands import Fence
from acker_redis.config import AckerConfig
from acker_redis.embedded import EmbeddedRedis
from tests.support import FAIL, TRACK, columns, send, tick, total, verdicts


@pytest.fixture(scope="module")
def url(any_server: EmbeddedRedis) -> str:
    return any_server.url


class Tree:
    """A random tree: rows to send, and what the set-based oracle knows."""

    def __init__(self, anchor: int, chance: random.Random, shape: list[int]) -> None:
        self.anchor = anchor
        self.rows: list[tuple[int | None, set[int], int]] = []
        ids = [chance.getrandbits(63) | 1]
        firsts = set(ids)
        waiting = list(ids)
        for children in shape:
            if not waiting:
                break
            parent = waiting.pop(chance.randrange(len(waiting)))
            caused = {chance.getrandbits(63) | 1 for _ in range(children)}
            waiting.extend(caused)
            self.rows.append((parent, caused, 0))
        self.rows.extend((message, set(), 0) for message in waiting)
        self.rows.insert(0, (None, firsts, TRACK))
        self.tracked = self.failed = False
        self.known: set[int] = set()
        self.processed: set[int] = set()

    def hear(self, message: int | None, caused: set[int], flags: int) -> None:
        """Note that a row was applied."""
        self.known |= caused
        if message is None:
            self.tracked = True
        else:
            self.processed.add(message)
        self.failed |= bool(flags & FAIL)

    @property
    def complete(self) -> bool:
        """Whether it is tracked and all that exists was processed."""
        return self.tracked and self.known == self.processed


def delta(message: int | None, caused: set[int]) -> int:
    value = message or 0
    for each in caused:
        value ^= each
    return value


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    shapes=st.lists(st.lists(st.integers(0, 3), max_size=8), min_size=1, max_size=4),
    seed=st.integers(0, 2**32),
    refresh=st.sampled_from(["never", "update"]),
    tick_rate=st.sampled_from([0.0, 0.1, 0.4]),
    fail_rate=st.sampled_from([0.0, 0.1]),
    lose_rate=st.sampled_from([0.0, 0.1]),
)
def test_never_a_false_ack(
    url: str,
    shapes: list[list[int]],
    seed: int,
    refresh: str,
    tick_rate: float,
    fail_rate: float,
    lose_rate: float,
) -> None:
    chance = random.Random(seed)
    with Acker.from_url(url, f"p-{uuid.uuid4().hex[:12]}") as acker:
        acker.create(AckerConfig(tick_ms=3_600_000, refresh=refresh))  # type: ignore[arg-type]
        trees = {i: Tree(i, chance, shape) for i, shape in enumerate(shapes, 1)}
        rows = [(tree, *row) for tree in trees.values() for row in tree.rows]
        chance.shuffle(rows)
        ended: dict[int, str] = {}
        for seq, (tree, message, caused, flags) in enumerate(rows, 1):
            if chance.random() < tick_rate:
                tick(acker)
            if chance.random() < lose_rate:
                event("lost row")
                continue
            if message is not None and chance.random() < fail_rate:
                flags |= FAIL
            texts = ["s"] * (flags & TRACK) + ["why"] * bool(flags & FAIL)
            part = columns(
                [(tree.anchor, delta(message, caused), flags)], "t" if flags & TRACK else "", texts
            )
            for _ in range(1 + (chance.random() < 0.2)):
                send(acker, part, Fence("p", seq))
            tree.hear(message, caused, flags)
            for verdict, reason, anchor, _, _ in verdicts(acker):
                assert anchor not in ended, "one verdict a tree"
                ended[anchor] = reason
                if verdict == "ack":
                    assert trees[anchor].complete, "acked while a message is outstanding"
                    assert not trees[anchor].failed, "acked though it failed"
        tick(acker, 3)
        for _, reason, anchor, _, _ in verdicts(acker):
            assert anchor not in ended
            ended[anchor] = reason
        for anchor, tree in trees.items():
            event(f"ended {ended.get(anchor)}")
            assert (anchor in ended) == tree.tracked
            if tree.complete and tick_rate == 0 and lose_rate == 0:
                assert ended[anchor] == ("failed" if tree.failed else "completed")
        counters = total(acker)
        assert counters["pending"] == counters["expiring"] == 0
        assert counters["tracked"] == sum(counters[n] for n in ("acked", "failed", "expired"))
