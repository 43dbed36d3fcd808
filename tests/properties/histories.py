"""A state machine of random histories with loose trees and trees in blocks.

A message may belong to loose trees, to slots of one block and of several. Lanes fold, send, lose
and repeat batches, so rows of one tree overtake each other; a batch is up to two calls: loose rows,
then blocks. The oracle checks each reply and verdict of the reference model with sets
(``proof/oracle``), and Redis is compared with the model at each step.
"""

import random
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from hypothesis import event
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from acker_redis.errors import BacklogError, ChangedBatchError
from acker_redis.protocol.commands import COUNTERS, Fence
from acker_redis.protocol.ids import block_anchor, split_anchor
from acker_redis.sync.outcomes import BlockOutcome, Outcome
from proof.oracle import Call, Oracle, Reply, Told
from proof.oracle.records import Block
from proof.reference.blocks import BlockReference, BlockRow
from tests.properties.in_step import TASK, InStep, Part
from tests.properties.lifetimes import EDGES, LIFETIMES, STEPS, config_of
from tests.properties.topology import (
    FAIL,
    TOUCH,
    FactRow,
    Forest,
    Message,
    Slot,
    Tree,
    block_facts,
    facts,
    fold,
    fold_blocks,
)

LANES = ("p", "q", "s", "@r")
INDEX = st.integers(-3, 1000)
JOINS = st.just([]) | st.lists(INDEX, max_size=2)
TREES = st.tuples(st.sampled_from([1, 1, 1, 2, 3, 0]), JOINS)
SLOTS = st.tuples(st.sampled_from([True] * 4 + [False]), TREES).map(
    lambda s: s[1] if s[0] else None
)
BLOCKS = st.lists(st.lists(SLOTS, min_size=1, max_size=6).filter(any), min_size=1, max_size=3)
WORKS = st.tuples(
    st.lists(INDEX, min_size=1, max_size=1) | st.lists(INDEX, min_size=1, max_size=3),
    st.sampled_from([0, 0, 0, 0, 1, 1, 2, 3]),
    st.sampled_from([0] * 16 + [FAIL, FAIL, TOUCH]),
)
FATES = st.sampled_from([(1, 2)] * 6 + [(2, 2), (1, 1), (0, 0), None])
"""How often each call is delivered at once, and how many calls; None: wait for more rows."""

reached: Counter[str] = Counter()
"""How often each interesting state was reached, over all histories."""


class Histories(RuleBasedStateMachine):
    """One history on the reference model and, with a URL, on Redis at the same time."""

    url: str | None = None
    reference: type[BlockReference] = BlockReference
    books = True
    """Whether to check the counters as well as the verdicts."""
    blocks = True
    """Whether trees are tracked in blocks, too."""

    @initialize(
        seed=st.integers(0, 2**32),
        buckets=st.integers(2, 4),
        high_water=st.sampled_from([3, 8, 1000, 1000]),
        outcomes_limit=st.sampled_from([6, 1000, 1000]),
        lifetime=LIFETIMES,
        edges=EDGES,
    )
    def begin(self, seed: int, **fields: Any) -> None:
        config = config_of(**fields)
        self.forest = Forest(random.Random(seed), config.edges)
        self.oracle = Oracle(config)
        self.now_ms = 0
        self.shard = InStep(self.reference, config, self.url)
        self.model = self.shard.model
        self.buffers: dict[str, list[FactRow]] = {lane: [] for lane in LANES}
        self.tracks: list[tuple[BlockRow, list[FactRow]]] = []
        self.in_flight: dict[str, list[Part]] = {}
        self.past: list[Part] = []
        self.nacked: list[Tree] = []
        self.seqs = dict.fromkeys(LANES, 0)
        self.heard = [0, 0]

    # Actions of sources and bolts.

    @rule(trees=st.lists(TREES, min_size=1, max_size=3), lane=st.sampled_from(LANES), fate=FATES)
    def emit(self, trees: list[tuple[int, list[int]]], lane: str, fate: Any) -> None:
        for firsts, joins in trees:
            also = self.forest.pick(joins)
            if also:
                self.note("a message of several trees")
            self.buffers[lane].append(self.forest.begin(firsts, also))
        self._go(lane, fate)

    @precondition(lambda self: self.blocks)
    @rule(blocks=BLOCKS, lane=st.sampled_from(LANES), fate=FATES)
    def emit_blocks(self, blocks: list[list[Slot]], lane: str, fate: Any) -> None:
        rows = [row for slots in blocks for row in self.forest.begin_block(slots)[1]]
        self.buffers[lane] += rows
        for message in self.forest.messages:
            if message.ids.keys() & {row.anchor for row in rows}:
                self._note_kinds("a message of", message.ids)
        self._go(lane, fate)

    @precondition(lambda self: self.forest.messages)
    @rule(works=st.lists(WORKS, min_size=1, max_size=5), lane=st.sampled_from(LANES), fate=FATES)
    def process(self, works: list[tuple[list[int], int, int]], lane: str, fate: Any) -> None:
        """Let bolts process messages, alone or joined, and deliver their calls as ``fate`` says."""
        for which, children, flags in works:
            inputs = self.forest.pick(which)
            if len(inputs) > 1 and children:
                self._note_kinds("a join over", [anchor for m in inputs for anchor in m.ids])
                trees = [set(message.ids) for message in inputs]
                shared = any(a & b for i, a in enumerate(trees) for b in trees[i + 1 :])
                self.note("a join in one tree" if shared else "a join of trees")
            self._work(lane, inputs, children, flags)
        self._go(lane, fate)

    @precondition(lambda self: self._open_blocks())
    @rule(
        which=INDEX,
        spare=st.sampled_from([0, 0, 0, 1, 2]),
        flag=st.sampled_from([0, 0, FAIL]),
        lane=st.sampled_from(LANES),
        fate=FATES,
    )
    def finish(self, which: int, spare: int, flag: int, lane: str, fate: Any) -> None:
        """Process all or nearly all open messages of a block, which chance rarely does."""
        base = block_anchor(self._open_block(which).rows.number, 0) >> 12
        left = [m for m in self.forest.messages if any(a >> 12 == base for a in m.ids)]
        for k, message in enumerate(left[spare:]):
            self._work(lane, [message], 0, 0 if k else flag)
        self._go(lane, fate)

    @precondition(lambda self: self.forest.messages)
    @rule(which=INDEX, flag=st.sampled_from([FAIL, TOUCH]), lane=st.sampled_from(LANES), fate=FATES)
    def say(self, which: int, flag: int, lane: str, fate: Any) -> None:
        """Let a bolt fail or touch the trees of a message that it has not processed."""
        for anchor in self.forest.pick([which])[0].ids:
            why = "not yet" if flag == FAIL else ""
            self.buffers[lane].append(FactRow(anchor, 0, flag, why=why))
            self.note(f"{'failed' if why else 'touched'} without a delta")
        self._go(lane, fate)

    @precondition(lambda self: self._open_blocks())
    @rule(
        which=INDEX,
        delta=st.sampled_from([0, 1, 1]),
        flags=st.sampled_from([0, FAIL]),
        lane=st.sampled_from(LANES),
        fate=FATES,
    )
    def stray(self, which: int, delta: int, flags: int, lane: str, fate: Any) -> None:
        """Send a row for an absent slot, or for one that the block does not have."""
        block = self._open_block(which)
        slots = [slot for slot in range(block.size + 1) if slot not in block.slots]
        anchor = block_anchor(block.rows.number, slots[which % len(slots)])
        self.buffers[lane].append(_stray(anchor, flags) if delta else FactRow(anchor, 0, flags))
        self._go(lane, fate)

    @precondition(lambda self: self.forest.messages)
    @rule(which=INDEX)
    def lose_message(self, which: int) -> None:
        self.forest.lose(self.forest.pick([which])[0])

    @precondition(lambda self: self.nacked)
    @rule(count=st.integers(1, 4), block=st.booleans(), lane=st.sampled_from(LANES), fate=FATES)
    def replay(self, count: int, block: bool, lane: str, fate: Any) -> None:
        """Emit nacked trees again under new anchors, while old messages may still run."""
        trees = []
        for tree in self.nacked[:count]:
            waiting = [i for i, m in enumerate(self.forest.messages) if m in tree.outstanding]
            trees.append((1, waiting[:1]))
            self.note(f"replayed {'in a block' if block and self.blocks else 'loose'}")
        del self.nacked[:count]
        if block and self.blocks:
            self.emit_blocks([trees], lane, fate)
        else:
            self.emit(trees, lane, fate)

    @precondition(lambda self: self.tracks)
    @rule(
        which=INDEX,
        ended=st.booleans(),
        other=st.sampled_from(
            ["", "failed", "touch", "delta", "label", "slots", "slots", "absent"]
        ),
        lane=st.sampled_from(LANES),
        fate=FATES,
    )
    def track_again(self, which: int, ended: bool, other: str, lane: str, fate: Any) -> None:
        """Track a block again: a restarted source, or another one with other content."""
        known = [t for t in self.tracks if ended ^ (t[0].block in self._open_blocks())]
        known = known or self.tracks
        row, raws = known[which % len(known)]
        present = sorted(row.deltas.keys() - row.absent)
        last = present[-1]
        anchor = block_anchor(row.block, last)
        if other == "delta":
            row = replace(row, deltas={**row.deltas, last: row.deltas[last] ^ 1})
            raws = [*raws, _stray(anchor)]
        elif other == "failed":
            row = replace(row, failed={**row.failed, last: "again"})
            raws = [*raws, FactRow(anchor, 0, FAIL, why="again")]
        elif other == "touch":
            row = replace(row, touch=True)
        elif other == "label":
            row = replace(row, label="another")
        elif other == "slots" and len(present) > 1:
            kept = {slot: row.deltas[slot] for slot in range(last)}
            failed = {slot: why for slot, why in row.failed.items() if slot < last}
            absent = frozenset(slot for slot in row.absent if slot < last)
            row = replace(row, deltas=kept, failed=failed, absent=absent)
            raws = [raw for raw in raws if raw.anchor != anchor]
        elif other == "absent" and len(present) > 1:
            row, raws = self._without_a_slot(row, raws)
        self._dispatch(lane, [([], [row], raws)])
        if fate:
            self.deliver(lane, fate[0])

    # Actions of the network.

    @rule(lane=st.sampled_from(LANES), times=st.sampled_from([1, 2, 3]))
    def deliver(self, lane: str, times: int, calls: int = 2) -> None:
        """Deliver calls in flight to the shard. The lane gets the last reply."""
        for part in self.in_flight.get(lane, [])[:calls]:
            for _ in range(times):
                self._apply(part)
            if part.applied and part in self.in_flight[lane]:
                self.in_flight[lane].remove(part)
                self.past.append(part)
            if not part.applied:
                break  # the call with the next number waits for this one

    @precondition(lambda self: self.past)
    @rule(which=INDEX, blocks=st.booleans())
    def late(self, which: int, blocks: bool) -> None:
        """Deliver an earlier call again, or a late one for the first time.

        Loose rows must not be repeated after their fence has expired. With blocks it may be a
        resumed run: a block is tracked once, and doubled deltas only make it expire.
        """
        parts = [part for part in self.past if part.blocks or not blocks] or self.past
        part = parts[which % len(parts)]
        if not part.applied or part.blocks or self._fenced(part):
            self.note("a late call")
            self._apply(part)

    # Actions of rotators and sources.

    @rule(ms=STEPS, ticks=st.sampled_from([0, 0, 0, 1, 1, 1, 1, 1, 4]))
    def time_passes(self, ms: int, ticks: int) -> None:
        self.shard.advance(ms)
        self.now_ms += ms
        for tick in range(ticks):
            if tick:
                self._drain_all()
            self.rotate()

    def rotate(self) -> None:
        self.oracle.rotated(self.shard.rotate(), self.now_ms, forced=True)
        for lane in LANES:
            parts = self.in_flight.get(lane)
            if parts and not self._fenced(parts[0]):
                self._close(lane)  # the fence may have expired, so no client sends it again

    @precondition(lambda self: self.model.expiring)
    @rule(records=st.sampled_from([1, 3, 1000]))
    def drain(self, records: int) -> None:
        gone = self.shard.drain(records)
        self.note(f"loose trees drained{' in part' if self.model.expiring else ''}")
        self.oracle.expired(self._told(), gone)

    @precondition(lambda self: self.model.blocks_expiring)
    @rule(blocks=st.sampled_from([1, 1, 1, 1, 100]))
    def drain_blocks(self, blocks: int) -> None:
        gone = self.shard.drain_blocks(blocks)
        self.note(f"blocks drained{' in part' if self.model.blocks_expiring else ''}")
        if self.model.expiring:
            self.note("blocks drained before loose trees")
        self.oracle.blocks_expired(self._told(), gone)

    @rule()
    def take(self) -> None:
        self.heard = [0, 0]
        singles = [single for outcome in self.shard.take() for single in _singles(outcome)]
        self.oracle.taken(TASK, singles)
        self.nacked += [self.forest.trees[o.anchor] for o in singles if o.verdict == "nack"]

    @invariant()
    def every_tree_is_accounted_for(self) -> None:
        if hasattr(self, "shard") and self.books:
            model, counters = self.model, self.oracle.counters
            assert {name: model.counters[name] for name in COUNTERS} == {
                name: counters[name] for name in COUNTERS
            }
            assert model.odd == {
                number: counters[f"odd:{'none' if number < 0 else number}"] for number in model.odd
            }
            assert model.ended[TASK] == counters[f"ended:{TASK}"]
            assert model.pending == self.oracle.load
            assert model.tracked_records == len(list(self.oracle.open_trees()))
            self.shard.check()

    def teardown(self) -> None:
        if not hasattr(self, "shard"):
            return
        try:
            if sys.exc_info()[0]:
                return  # the history has failed already; later failures mean nothing
            for _ in range(self.model.config.buckets + 1):
                self._drain_all()
                self.rotate()
            self._drain_all()
            self.take()
            self.every_tree_is_accounted_for()
            assert not any((*self.model.buckets, *self.model.block_buckets)), "something is left"
            assert not list(self.oracle.open_trees()), "tracked without a verdict"
            reached.update(self.oracle.seen)
        finally:
            self.shard.close()

    def _drain_all(self) -> None:
        while self.model.expiring:
            self.drain(1000)
        while self.model.blocks_expiring:
            self.drain_blocks(100)

    def _work(self, lane: str, inputs: Sequence[Message], children: int, flags: int) -> None:
        rows = self.forest.process(inputs, children, flags, "why" if flags & FAIL else "")
        self.buffers[lane] += rows

    def _without_a_slot(self, row: BlockRow, raws: list[FactRow]) -> tuple[BlockRow, list[FactRow]]:
        """Return a TRACK with one more absent slot, preferably that of a hole."""
        present = sorted(row.deltas.keys() - row.absent)
        holes = [slot for slot in present if not row.deltas[slot]]
        slot = (holes or present)[0]
        self.note(f"tracked again with a {'hole' if holes else 'tree'} absent")
        failed = {other: why for other, why in row.failed.items() if other != slot}
        deltas, absent = {**row.deltas, slot: 0}, row.absent | {slot}
        row = replace(row, deltas=deltas, failed=failed, absent=absent)
        return row, [raw for raw in raws if raw.anchor != block_anchor(row.block, slot)]

    def _open_blocks(self) -> dict[int, Block]:
        """Return the pending and the expiring blocks, by number."""
        return {**self.oracle.blocks_expiring, **self.oracle.blocks}

    def _open_block(self, which: int) -> Block:
        blocks = [*self._open_blocks().values()]
        return blocks[which % len(blocks)]

    def _go(self, lane: str, fate: tuple[int, int] | None) -> None:
        if fate and self.buffers[lane]:
            raws, self.buffers[lane] = self.buffers[lane], []
            loose = [raw for raw in raws if not split_anchor(raw.anchor)]
            in_blocks = [raw for raw in raws if split_anchor(raw.anchor)]
            blocks = fold_blocks(in_blocks, TASK, self.forest.sizes)
            for row in blocks:
                if row.task:
                    self.tracks.append((row, _of(row, in_blocks)))
            if loose and blocks:
                self.note("a batch of two calls")
            calls = [(fold(loose), [], loose), ([], blocks, in_blocks)]
            self._dispatch(lane, [call for call in calls if call[2]])
            self.deliver(lane, *fate)

    def _dispatch(self, lane: str, calls: list[Any]) -> None:
        """Send calls. A lane has one call in flight: older ones are given up, and may come late."""
        self._close(lane)
        self.in_flight[lane] = []
        for call in calls:
            self.seqs[lane] += 1
            fence = Fence(lane, self.seqs[lane], f"{self.seqs[lane]:x}")
            self.in_flight[lane].append(Part(fence, *call, self.oracle.ticks))

    def _fenced(self, part: Part) -> bool:
        return self.oracle.ticks - part.tick < self.model.config.buckets - 1

    def _apply(self, part: Part) -> None:
        kind = "blocks" if part.blocks else "loose rows"
        reply: Reply
        try:
            reply = self.shard.apply(part)
        except (ChangedBatchError, BacklogError) as error:
            reply = error
            self.note(
                f"{kind}: {'backlog' if isinstance(error, BacklogError) else 'other content'}"
            )
        else:
            if reply.highest is not None:
                self.note(f"{kind}: a repeat")
            elif part.applied:
                self.note(f"{kind}: a repeat without fence")
            part.applied |= reply.highest is None
        self.oracle.applied(self._call(part), reply, self._told(), self.now_ms)

    def _call(self, part: Part) -> Call:
        trees = self.forest.trees
        blocks = [block_facts(row, _of(row, part.raws), trees) for row in part.blocks]
        return Call(part.fence, TASK, [] if blocks else facts(part.raws, trees), blocks)

    def _told(self) -> list[Told]:
        """Return the new verdicts, without taking them."""
        told: list[Told] = []
        kinds: Any = (self.model.outcomes, self.model.block_outcomes)
        for which, waiting in enumerate(kinds):
            outcomes = waiting.get(TASK, [])
            for outcome in outcomes[self.heard[which] :]:
                self._note_outcome(outcome)
                told += [(TASK, single) for single in _singles(outcome)]
            self.heard[which] = len(outcomes)
        return told

    def _note_outcome(self, outcome: Outcome | BlockOutcome) -> None:
        what = "block" if isinstance(outcome, BlockOutcome) else "loose tree"
        if outcome.verdict == "touch":
            self.note(f"a touch of a {what}")
            return
        self.note(f"a {what} ended: {outcome.reason}")
        if outcome.cause:
            self.note(f"a {what} expired: {outcome.cause}")
        # A wrong verdict may be on no tree: the oracle reports it.
        trees = self.forest.trees
        told = [o for o in _singles(outcome) if o.verdict == "ack" and o.anchor in trees]
        acked = [trees[o.anchor] for o in told]
        if not isinstance(outcome, BlockOutcome):
            if outcome.reason == "expired" and not trees[outcome.anchor].outstanding:
                self.note("complete but nacked: rows were lost")
            if acked and acked[0].processed > 3:
                self.note("a loose tree of four messages acked")
            return
        if outcome.absent and acked:
            self.note(f"a block with absent slots acked: {outcome.reason}")
        if outcome.failed and outcome.reason == "completed":
            self.note("a block acked except its failed trees")
        if acked and outcome.nacked:
            self.note("a block expired, some trees acked and some nacked")
        if acked and outcome.nacked and outcome.failed:
            self.note("and some had failed")
        if outcome.reason == "completed" and sum(tree.processed > 1 for tree in acked) > 1:
            self.note("a block acked, two trees of two messages")
        if not all(tree.parts for tree in acked):
            self.note("a hole acked")

    def _close(self, lane: str) -> None:
        for part in self.in_flight.pop(lane, []):
            self.past.append(part)
            self.note(f"{'blocks' if part.blocks else 'loose rows'}: given up")

    def _note_kinds(self, what: str, anchors: Any) -> None:
        places = [split_anchor(anchor) for anchor in set(anchors)]
        blocks = Counter(place[0] for place in places if place)
        if blocks and None in places:
            self.note(f"{what} loose trees and blocks")
        if blocks and max(blocks.values()) > 1:
            self.note(f"{what} slots of one block")
        if len(blocks) > 1:
            self.note(f"{what} two blocks")

    def note(self, what: str) -> None:
        event(what)
        reached[what] += 1


def _of(row: BlockRow, raws: Sequence[FactRow]) -> list[FactRow]:
    """Return the rows that were folded into the row of a block."""
    return [raw for raw in raws if (split_anchor(raw.anchor) or (None,))[0] == row.block]


def _stray(anchor: int, flags: int = 0) -> FactRow:
    """Return a row that announces a message that does not exist."""
    return FactRow(anchor, 1, flags, made=(-1,), links=frozenset({(-1, 0)}))


def _singles(outcome: Outcome | BlockOutcome) -> list[Outcome]:
    """Return the verdicts on single trees, and check that the ways to read an entry agree."""
    if not isinstance(outcome, BlockOutcome):
        return [outcome]
    singles, anchor = list(outcome.expand()), block_anchor(outcome.block, 0)
    acked = [anchor + slot for start, stop in outcome.acked() for slot in range(start, stop)]
    assert acked == [o.anchor for o in singles if o.verdict == "ack"], "the acked ranges differ"
    assert outcome.count == len(singles) > 0, "n is not the number of verdicts"
    return singles
