"""Random batches over random trees never ack falsely; without Spark."""

import hashlib
import itertools
import random

import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from acker_redis.errors import (
    InvalidBatchError,
    RedisUnavailableError,
)
from acker_redis.spark.fold.apply import Job, in_driver
from acker_redis.spark.fold.lanes import lane_of
from acker_redis.spark.fold.target import Target
from acker_redis.spark.fold.terms import Kind
from acker_redis.sync.client import Acker as Client
from tests.conftest import MakeAcker
from tests.spark.conftest import Term, packed, url_of
from tests.spark.test_lanes import Dying
from tests.spark.world import Pair, World
from tests.support import tick, total
from tests.tiers import examples


def derived(parent: int, *way: object) -> int:
    """Return the id of a child, derived like those of :class:`Ids`."""
    text = ",".join(map(str, (parent, *way))).encode()
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "big") >> 1 or 1


class Plans:
    """Random batches of bolts, correct and wrong, over the trees of a world."""

    def __init__(self, client: Client, seed: int) -> None:
        self.world, self.chance = World(client, seed), random.Random(seed)
        chance = self.chance
        self.client = Dying(client.connection.client, client.namespace)
        self.target = Target(client.namespace, url_of(client), timeout=60)
        self.shards = client.config.shards
        self.batch_ids = itertools.count()
        self.again: set[int] = set()
        """Trees of messages that were delivered again after processing; they may be complete."""
        counts = [chance.randint(1, 3) for _ in range(chance.randint(1, 4))]
        trees = [*self.world.track(*counts), *self.world.track(*counts[::-1], block="b")]
        self.messages: list[tuple[Pair, ...]] = [(pair,) for each in trees for pair in each]
        """All messages that were written; some belong to several trees."""

    def waiting(self) -> list[tuple[Pair, ...]]:
        return [m for m in self.messages if not set(m) <= self.world.processed]

    def rarely(self, of: int = 8) -> bool:
        return self.chance.randrange(of) == 0

    def step(self) -> None:
        """Run one batch until it is applied or refused; some drivers die before the end."""
        chance, batch_id = self.chance, next(self.batch_ids)
        pool = self.messages if self.rarely() else self.waiting()
        rows = chance.sample(pool, min(len(pool), chance.randint(1, 5)))
        if self.rarely() and rows:
            rows.append(rows[0])
        self.again |= {a for row in rows for a, i in row if (a, i) in self.world.processed}
        plan = self.plan(rows, batch_id)
        for attempt in range(5):
            self.client.calls_left = chance.choice([-1, -1, 0, 1]) if attempt < 4 else -1
            terms, children = plan
            job = Job(
                self.target, self.shards, lane_of("a", "q"), batch_id, "fail_trees"
            )  # fmt: skip
            # From here on the inputs may be acked: their children are decided.
            before = set(self.world.processed)
            self.world.processed |= {(a, i) for kind, a, i, _ in terms if kind is Kind.INPUT}
            try:
                with pytest.MonkeyPatch.context() as patch:
                    patch.setattr(Target, "client", lambda target: self.client)
                    done = in_driver(job, packed(terms, self.shards, chance, 2))
            except InvalidBatchError as error:
                event(str(error)[:40].lstrip("0123456789 "))
                self.world.processed = before
                break
            except RedisUnavailableError:
                self.world.check()
                if self.rarely(3):
                    plan = self.plan(rows, batch_id)
                continue
            self.world.check()
            event(f"applied, changed={done.changed}")
            if done.changed:
                break  # its messages are not written
            anchors = {anchor for child in children for anchor, _ in child} - self.again
            assert not {self.world.names[anchor] for anchor in anchors} & self.world.acked
            self.messages += children
            self.world.written |= {pair for child in children for pair in child}
            break
        self.world.check()

    def plan(
        self, rows: list[tuple[Pair, ...]], batch_id: int
    ) -> tuple[list[Term], list[tuple[Pair, ...]]]:
        """Return terms, and the messages to write after the terms were applied."""
        chance = self.chance
        acked = rows[1:] if self.rarely() else rows
        terms: list[Term] = [(Kind.INPUT, a, i, "") for row in acked for a, i in row]
        children: list[tuple[Pair, ...]] = []
        for ordinal in range(chance.choice([0, 0, 1, 2, 4])):
            parents = self.messages if self.rarely() else rows
            many = chance.sample(parents, min(len(parents), chance.choice([1, 1, 2])))
            key = 0 if self.rarely() else ordinal
            pairs = [(a, derived(i, "e", batch_id, key)) for row in many for a, i in row]
            if self.rarely():
                anchors = [a for a, _ in pairs]
                chance.shuffle(anchors)
                pairs = list(zip(anchors, (i for _, i in pairs), strict=True))
            children.append(tuple(pairs))
            terms += [(Kind.CHILD, a, i, "") for a, i in pairs]
        for a, _ in {pair for row in rows for pair in row}:
            if self.rarely(12):
                terms.append((Kind.FAIL, a, 0, "no"))
            if self.rarely(12):
                terms.append((Kind.TOUCH, a, 0, ""))
        return terms, children


@given(seed=st.integers(0, 2**32), shards=st.sampled_from([1, 2]))
@settings(max_examples=examples(0.3), suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_random_plans_never_ack_falsely(make_any_acker: MakeAcker, seed: int, shards: int) -> None:
    client = make_any_acker(shards=shards)
    plans = Plans(client, seed)
    for _ in range(8):
        plans.step()
    plans.world.drain()
    event(f"acked {len(plans.world.acked) > 0}")
    tick(client, 3)
    plans.world.check()
    assert total(client)["pending"] == 0
