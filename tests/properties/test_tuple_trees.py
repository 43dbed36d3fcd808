"""Random topologies in random histories: Redis agrees with the model, and no ack is false.

Several producers fold, send, lose and repeat batches. Rows of one tree overtake each other.
Rotators tick and drain at any time. Sets hold the true state of each tree (``topology.py``).
"""

import random
import sys
import uuid
from collections import Counter
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import event
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from acker_redis.embedded import EmbeddedRedis
from acker_redis.errors import BacklogError
from acker_redis.protocol import commands
from acker_redis.protocol.commands import Fence
from acker_redis.sync.client import Acker
from acker_redis.sync.outcomes import Outcome
from proof.reference.acker import Reference, TreeRow
from proof.simulate.redis_shard import RedisShard
from tests.properties.lifetimes import EDGES, LIFETIMES, STEPS, config_of
from tests.properties.play import play, play_until_met, share
from tests.properties.topology import FAIL, TOUCH, TRACK, Forest, Tree, fold
from tests.support import ageless
from tests.tiers import examples

LANES = ("p", "q", "@r")
TASK = "t"
INDEX = st.integers(-3, 1000)
JOINS = st.just([]) | st.lists(INDEX, max_size=2)
WORKS = st.tuples(
    st.lists(INDEX, min_size=1, max_size=1) | st.lists(INDEX, min_size=1, max_size=3),
    st.sampled_from([0, 0, 0, 0, 1, 1, 2, 3]),
    st.sampled_from([0] * 16 + [FAIL, TOUCH]),
)
"""Messages that are processed together, the number of messages that they cause, and flags."""
FATES = st.sampled_from([1, 1, 1, 1, 1, 2, 0, None])
"""How often a batch is delivered at once; None: it waits for more rows."""

reached: Counter[str] = Counter()
"""How often each interesting state was reached, over all histories."""


@dataclass
class Sent:
    """A batch in flight, and the tick at which it was first sent."""

    rows: list[TreeRow]
    fence: Fence
    tick: int
    applied: bool = False


class Histories(RuleBasedStateMachine):
    """One history on the reference model and, with a URL, on Redis at the same time."""

    url: str | None = None

    @initialize(
        seed=st.integers(0, 2**32),
        buckets=st.integers(2, 4),
        high_water=st.sampled_from([2, 5, 1000, 1000]),
        outcomes_limit=st.sampled_from([2, 1000, 1000]),
        lifetime=LIFETIMES,
        edges=EDGES,
    )
    def begin(self, seed: int, **fields: Any) -> None:
        config = config_of(**fields)
        self.forest = Forest(random.Random(seed), config.edges)
        self.model = Reference(config, now_ms=1_700_000_000_000)
        self.redis: RedisShard | None = None
        if self.url:
            acker = Acker.from_url(self.url, f"h-{uuid.uuid4().hex[:12]}")
            acker.create(config)
            self.redis = RedisShard(acker)
        self.buffers: dict[str, list[TreeRow]] = {lane: [] for lane in LANES}
        self.in_flight: dict[str, Sent] = {}
        self.past: list[Sent] = []
        self.seqs = dict.fromkeys(LANES, 0)
        self.ticks = 0

    # Actions of sources and bolts.

    @rule(
        trees=st.lists(st.tuples(st.integers(0, 3), JOINS), min_size=1, max_size=4),
        lane=st.sampled_from(LANES),
        fate=FATES,
    )
    def emit(self, trees: list[tuple[int, list[int]]], lane: str, fate: int | None) -> None:
        for firsts, joins in trees:
            also = self.forest.pick(joins)
            if also:
                self.note("a message of several trees")
            self.buffers[lane].append(self.forest.begin(firsts, also))
        self._go(lane, fate)

    @precondition(lambda self: self.forest.messages)
    @rule(works=st.lists(WORKS, min_size=1, max_size=5), lane=st.sampled_from(LANES), fate=FATES)
    def process(self, works: list[tuple[list[int], int, int]], lane: str, fate: int | None) -> None:
        """Let bolts process messages, alone or joined, and deliver their calls as ``fate`` says."""
        for which, children, flags in works:
            if not self.forest.messages:
                break
            inputs = self.forest.pick(which)
            rows = self.forest.process(inputs, children, flags, "why" if flags & FAIL else "")
            if len(inputs) > 1 and children:
                trees = [set(message.ids) for message in inputs]
                shared = any(a & b for i, a in enumerate(trees) for b in trees[i + 1 :])
                self.note("a join in one tree" if shared else "a join of trees")
            self.buffers[lane] += rows
        self._go(lane, fate)

    @precondition(lambda self: self.forest.messages)
    @rule(which=INDEX)
    def lose_message(self, which: int) -> None:
        self.forest.lose(self.forest.pick([which])[0])

    # Actions of the network.

    def send(self, lane: str) -> None:
        """Send a batch. A lane has one call in flight: an older one is given up."""
        if self.buffers[lane]:
            self._close(lane)
            self.seqs[lane] += 1
            fence = Fence(lane, self.seqs[lane], f"{self.seqs[lane]:x}")
            self.in_flight[lane] = Sent(fold(self.buffers[lane]), fence, self.ticks)
            self.buffers[lane] = []

    @rule(lane=st.sampled_from(LANES), times=st.sampled_from([1, 2, 3]))
    def deliver(self, lane: str, times: int) -> None:
        sent = self.in_flight.get(lane)
        if sent:
            for _ in range(times):
                self._apply(sent)

    @precondition(lambda self: self.past)
    @rule(which=INDEX)
    def duplicate(self, which: int) -> None:
        """Deliver an earlier batch again while its fence holds."""
        sent = self.past[which % len(self.past)]
        if self.ticks - sent.tick < self.model.config.buckets - 1 and sent.applied:
            self.note("a late duplicate")
            self._apply(sent)

    # Actions of rotators and sources.

    @rule(ms=STEPS, happens=st.sampled_from([True, False, False, False]))
    def time_passes(self, ms: int, happens: bool) -> None:
        """Move the clock; sometimes a tick follows."""
        self.model.advance(ms)
        if self.redis:
            self.redis.advance(ms)
        if happens:
            self.rotate()

    def rotate(self) -> None:
        ticked = self.model.rotate(force=True)
        if self.redis:
            assert self.redis.rotate(force=True) == ticked
        self.ticks += ticked
        for lane in LANES:
            sent = self.in_flight.get(lane)
            if sent and self.ticks - sent.tick >= self.model.config.buckets - 1:
                self._close(lane)  # the fence may have expired, so no client sends it again

    @precondition(lambda self: self.model.expiring)
    @rule(records=st.sampled_from([1, 3, 1000]))
    def drain(self, records: int) -> None:
        if self.redis is None:
            some = list(self.model.expiring)[:records]
        else:
            client, key = self.redis.acker.connection.client, self.redis.keys.expiring
            before = client.hkeys(key)
            self.redis.expire_some(records)
            after = set(client.hkeys(key))
            some = [int.from_bytes(anchor, "big") for anchor in before if anchor not in after]
        left = self.model.expire(some)
        self.note("drained in part" if left else "drained")
        self._listen()

    @rule()
    def take(self) -> None:
        mine = self.model.take(TASK)
        if self.redis:
            assert sorted(map(ageless, self.redis.take(TASK))) == sorted(map(ageless, mine))
        for outcome in mine:
            self._hear(outcome)

    @invariant()
    def every_tree_is_accounted_for(self) -> None:
        if not hasattr(self, "model"):
            return
        model = self.model
        counters = {name: model.counters[name] for name in commands.COUNTERS}
        ended = sum(counters[n] for n in ("acked", "failed", "expired", "overflow", "conflict"))
        assert counters["tracked"] == ended + model.tracked_records
        if self.redis:
            (shard,) = self.redis.acker.status().shards
            assert shard.counters == counters
            assert shard.latency.count == model.latency.count == counters["acked"]
            assert shard.pending == tuple(map(len, model.buckets))
            assert shard.expiring == len(model.expiring)
            assert self.redis.tracked_records == model.tracked_records

    def teardown(self) -> None:
        if not hasattr(self, "model"):
            return
        try:
            if not sys.exc_info()[0]:  # after a failure, later failures mean nothing
                self._finish()
        finally:
            if self.redis:
                self.redis.acker.close()

    def _finish(self) -> None:
        """End the history: nothing is pending, and each tracked tree has exactly one verdict."""
        for _ in range(self.model.config.buckets + 1):
            self.model.expire()
            if self.redis:
                self.redis.expire()
            self.rotate()
        self.take()
        assert self.model.pending == len(self.model.expiring) == 0
        if self.redis:
            status = self.redis.acker.status()
            assert status.pending == status.expiring == 0
        for tree in self.forest.trees.values():
            assert len(tree.verdicts) == tree.tracked, tree.verdicts
        self.every_tree_is_accounted_for()
        acks = sum("completed" in tree.verdicts for tree in self.forest.trees.values())
        if acks > 2:
            self.note("three acks in one history")

    def _go(self, lane: str, fate: int | None) -> None:
        if fate is not None:
            self.send(lane)
            self.deliver(lane, fate)

    def _apply(self, sent: Sent) -> None:
        task = TASK if any(row.flags & TRACK for row in sent.rows) else ""
        try:
            reply = self.model.apply(sent.rows, task, sent.fence)
        except BacklogError:
            self.note("backlog")
            if self.redis:
                with pytest.raises(BacklogError):
                    self.redis.apply(sent.rows, task, sent.fence)
            return
        if self.redis:
            assert self.redis.apply(sent.rows, task, sent.fence) == reply
        if reply.highest is not None:
            self.note("a repeat")
            assert sent.applied or reply.highest > sent.fence.seq
            return
        assert not sent.applied, "applied twice"
        sent.applied = True
        if reply.rejected:
            self.note("overflow")
        for row in sent.rows:
            tree = self.forest.trees[row.anchor]
            if not tree.tracked and not row.flags & TRACK:
                self.note("a row before its track")
            tree.tracked |= bool(row.flags & TRACK)
            tree.failed |= bool(row.flags & FAIL)
            if row.flags & (TRACK | TOUCH) or self.model.config.refresh == "update":
                tree.due = self.ticks + self.model.config.buckets
        self._listen()

    def _listen(self) -> None:
        """Check the new verdicts, without taking them."""
        waiting = self.model.outcomes.get(TASK, ())
        for outcome in waiting:
            tree = self.forest.trees[outcome.anchor]
            if outcome.verdict == "ack":
                assert tree.complete, "acked while a message is outstanding"
                assert not tree.failed, "acked though it failed"
        told = {outcome.anchor for outcome in waiting}
        if not self.model.expiring:
            for tree in self.forest.trees.values():
                if tree.tracked and not tree.verdicts and tree.anchor not in told:
                    assert self.ticks < tree.due, "no verdict after N ticks"

    def _hear(self, outcome: Outcome) -> None:
        if outcome.verdict == "touch":
            self.note("a touch")
            return
        tree: Tree = self.forest.trees[outcome.anchor]
        assert not tree.verdicts, "a second verdict"
        assert outcome.source_id == f"source {tree.anchor}"
        tree.verdicts.append(outcome.reason)
        self.note(f"ended {outcome.reason}")
        if outcome.cause == "deadline":
            self.note("ended by a deadline")
        if outcome.reason == "expired" and tree.complete:
            self.note("complete but nacked: rows were lost")
        if outcome.reason == "completed" and tree.processed > 3:
            self.note("a tree of four messages acked")

    def _close(self, lane: str) -> None:
        sent = self.in_flight.pop(lane, None)
        if sent:
            self.past.append(sent)
            if not sent.applied:
                self.note("a lost batch")

    def note(self, what: str) -> None:
        event(what)
        reached[what] += 1


INTERESTING = (
    "a message of several trees",
    "a join in one tree",
    "a join of trees",
    "a late duplicate",
    "a repeat",
    "a lost batch",
    "a row before its track",
    "backlog",
    "overflow",
    "a touch",
    "drained in part",
    "ended completed",
    "ended failed",
    "ended expired",
    "ended by a deadline",
    "ended overflow",
    "complete but nacked: rows were lost",
    "a tree of four messages acked",
    "three acks in one history",
)


def test_never_a_false_ack(server: EmbeddedRedis) -> None:
    """On Redis and on the reference model at the same time."""
    play(Histories, share(server, examples(0.6)), 50, url=server.url)


def test_never_a_false_ack_in_many_histories() -> None:
    """On the fast reference model alone, until all interesting states were reached."""
    play_until_met(Histories, reached, INTERESTING, 5)
