"""Compare Redis with the reference model step by step in random histories, on each server."""

import uuid
from collections import Counter
from typing import Any

import pytest
from hypothesis import event, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)

from acker_redis.embedded import EmbeddedRedis
from acker_redis.errors import AckerError, BacklogError, ChangedBatchError
from acker_redis.protocol import commands
from acker_redis.protocol.commands import Fence, ShardApplied
from acker_redis.sync.client import Acker
from proof.reference.acker import Reference, TreeRow
from proof.simulate.redis_shard import RedisShard
from tests.properties.lifetimes import EDGES, LIFETIMES, OBJECTIVES, STEPS, config_of
from tests.properties.play import share
from tests.support import FAIL, TRACK, ageless, columns, send, tick
from tests.tiers import examples

ANCHORS = st.integers(1, 6)
DELTAS = st.sampled_from([0, 1, 2, 3, 1 << 31, 1 << 62, (1 << 62) | 1, (1 << 63) - 1])
FLAGS = st.sampled_from([0, 0, 0, 1, 1, 1, 2, 3, 4, 5, 6, 7])
TASKS = st.sampled_from(["t", "u"])
FENCES = st.none() | st.builds(
    Fence, st.sampled_from(["p", "q", "@d"]), st.integers(1, 6), st.sampled_from(["", "a", "b"])
)


@st.composite
def batches(draw: st.DrawFn) -> list[TreeRow]:
    anchors = draw(st.lists(ANCHORS, min_size=1, max_size=6, unique=True))
    rows = []
    for anchor in anchors:
        flags = draw(FLAGS)
        source = draw(st.sampled_from(["s1", 'q"\\', "é"])) if flags & TRACK else ""
        why = draw(st.sampled_from(["", "w", '"'])) if flags & FAIL else ""
        rows.append(TreeRow(anchor, draw(DELTAS), flags, source, why))
    return rows


class Machine(RuleBasedStateMachine):
    """The same calls to Redis and to the reference model."""

    url = ""

    @initialize(
        buckets=st.integers(2, 4),
        high_water=st.sampled_from([1, 2, 3, 100]),
        outcomes_limit=st.sampled_from([1, 3, 100]),
        lifetime=LIFETIMES,
        edges=EDGES,
        slo_ms=OBJECTIVES,
    )
    def begin(self, **fields: Any) -> None:
        config = config_of(**fields)
        self.model = Reference(config)
        self.acker = Acker.from_url(self.url, f"m-{uuid.uuid4().hex[:12]}")
        self.acker.create(config)

    @rule(rows=batches(), task=TASKS, fence=FENCES)
    def apply(self, rows: list[TreeRow], task: str, fence: Fence | None) -> None:
        task = task if any(row.flags & TRACK for row in rows) else ""
        texts = [row.source_id for row in rows if row.flags & TRACK]
        texts += [row.why for row in rows if row.flags & FAIL]
        part = columns([(row.anchor, row.delta, row.flags) for row in rows], task, texts)
        expected: ShardApplied | type[AckerError]
        try:
            expected = self.model.apply(rows, task, fence)
        except (ChangedBatchError, BacklogError) as error:
            expected = type(error)
            event(f"refused: {expected.__name__}")
            with pytest.raises(expected):
                send(self.acker, part, fence)
            return
        for name in ("acked", "failed", "rejected", "highest"):
            if getattr(expected, name):
                event(f"apply: {name}")
        assert send(self.acker, part, fence) == expected

    @rule(ms=STEPS)
    def time_passes(self, ms: int) -> None:
        RedisShard(self.acker).advance(ms)
        self.model.advance(ms)

    @rule()
    def tick(self) -> None:
        tick(self.acker)
        self.model.rotate(force=True)
        self.model.expire()

    @rule(task=TASKS)
    def take(self, task: str) -> None:
        outcomes = self.acker.outcomes(task)
        entries = outcomes.read(1000)
        assert outcomes.take(entries) == len(self.model.outcomes.pop(task, []))

    @invariant()
    def same_outcomes(self) -> None:
        if not hasattr(self, "model"):
            return
        for task in ("t", "u"):
            entries = self.acker.outcomes(task).read(1000)
            found = [ageless(o) for entry in entries for o in entry.outcomes]
            wanted = [ageless(o) for o in self.model.outcomes.get(task, [])]
            assert sorted(found) == sorted(wanted)

    @invariant()
    def same_state(self) -> None:
        if not hasattr(self, "model"):
            return
        (shard,) = self.acker.status().shards
        assert shard.pending == tuple(len(bucket) for bucket in self.model.buckets)
        assert shard.counters == {name: self.model.counters[name] for name in commands.COUNTERS}
        assert shard.after_failure == self.model.after_failure
        edges = (*self.model.config.edges, "")
        assert +Counter(shard.odd) == Counter({edges[e]: n for e, n in self.model.odd.items()})
        waiting = {task: len(rows) for task, rows in self.model.outcomes.items() if rows}
        assert {task: n for task, n in shard.backlog.items() if n} == waiting
        assert set(shard.backlog) == set(self.model.names)
        lanes = sum(map(len, self.model.fences)) + len(self.model.durable)
        assert shard.fences == lanes
        assert shard.latency.count == shard.counters["acked"]
        assert +Counter(shard.ended) == +self.model.ended
        assert +Counter(shard.good) == +self.model.good
        assert (shard.slow, sum(shard.good.values())) == (
            self.model.slow,
            shard.counters["acked"] - shard.slow,
        )
        counters = shard.counters
        ended = sum(counters[n] for n in ("acked", "failed", "expired", "overflow", "conflict"))
        tracked = sum(1 for bucket in self.model.buckets for r in bucket.values() if r.task)
        assert counters["tracked"] == ended + tracked
        assert sum(shard.ended.values()) == ended

    def teardown(self) -> None:
        if hasattr(self, "acker"):
            self.acker.close()


def test_redis_agrees_with_the_reference(server: EmbeddedRedis) -> None:
    machine = type("Machine", (Machine,), {"url": server.url})
    histories = share(server, examples(1.5))
    run_state_machine_as_test(
        machine, settings=settings(max_examples=histories, stateful_step_count=30)
    )
