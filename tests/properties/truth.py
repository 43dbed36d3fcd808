"""The check of every verdict on loose trees and on trees in blocks, by sets.

It knows the applied rows and the lifetimes of the trees, and never reads a checksum. A loose tree
is a block of one slot here, with one difference: rows may come before its TRACK.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from acker_redis.protocol.commands import ShardApplied
from acker_redis.protocol.config import AckerConfig
from acker_redis.protocol.ids import block_anchor, split_anchor
from acker_redis.sync.outcomes import BlockOutcome, Outcome
from proof.reference.acker import TreeRow
from proof.reference.blocks import BlockReference, BlockRow
from proof.simulate.deadline import newest_bucket
from proof.simulate.records import Place
from tests.properties.topology import FAIL, TOUCH, TRACK, Tree

Content = tuple[str, tuple[int, ...], frozenset[int]]
COUNTER = {"completed": "acked"}


@dataclass
class Life:
    """A block or a loose tree from its TRACK to its end. A block number may have several lives."""

    trees: dict[int, Tree]
    """By slot; an absent slot has none."""
    place: Place
    """Its bucket. Of a loose tree with rows before its TRACK, the newest that it may be in."""
    size: int = 1
    """Number of its slots, absent ones included."""
    content: Content = ("", (), frozenset())
    """Label, or source id, and the column and the absent slots of the TRACK."""
    tracked: bool = True
    certain: bool = True
    """Whether no row came before the TRACK. Such a row may have expired on its own."""
    touched: bool = False
    """Whether the current call touched it."""
    applied: dict[int, set[int]] = field(default_factory=dict)
    """Per slot, deltas of the applied rows. A delta that was applied twice is not in the set."""
    strays: dict[int, set[int]] = field(default_factory=dict)
    """The same of absent slots."""
    failed: set[int] = field(default_factory=set)
    maybe_failed: bool = False
    """A failure without a delta came before the TRACK; it may have been dropped, or expired."""
    told: set[int] = field(default_factory=set)
    """Slots that have a verdict."""

    def __post_init__(self) -> None:
        self.applied = {slot: set() for slot in self.trees}

    def complete(self, slot: int) -> bool:
        """Return whether all messages of a tree were processed, and all its rows were applied."""
        tree = self.trees[slot]
        return not tree.outstanding and self.applied[slot] == tree.rows

    @property
    def ends(self) -> bool:
        """Whether all its trees are complete, and no absent slot has received a delta."""
        return all(map(self.complete, self.trees)) and not any(self.strays.values())

    def stray(self, slot: int, delta: int) -> None:
        """Record a row of an absent slot."""
        self.strays[slot] = self.strays.get(slot, set()) ^ ({delta} - {0})

    def row(self, slot: int, row: TreeRow) -> None:
        self.applied[slot] ^= {row.delta} - {0}
        if row.flags & FAIL and not (self.tracked or row.delta):
            self.maybe_failed = True
        elif row.flags & FAIL:
            self.failed.add(slot)


class Truth:
    """All lives of one history."""

    def __init__(
        self, trees: Mapping[int, Tree], config: AckerConfig, note: Callable[[str], None]
    ) -> None:
        self.trees = trees
        self.config = config
        self.note = note
        self.ticks = self.ticked_ms = self.now_ms = 0
        self.lives: dict[int, Life] = {}
        """By anchor; a block by the anchor of its slot 0."""
        self.counts: Counter[str] = Counter()
        self._rejected: dict[int, tuple[str, str, list[int]]] = {}

    def expiring(self, life: Life) -> bool:
        """Return whether its bucket is being drained: rows for it are late."""
        return self.ticks >= life.place.born + self.config.buckets

    def tick(self) -> None:
        """Record a tick."""
        self.ticks += 1
        self.ticked_ms = self.now_ms

    def pending_blocks(self) -> dict[int, Life]:
        """Return the blocks that may still complete, by the anchor of slot 0."""
        lives = self.lives.items()
        return {a: life for a, life in lives if split_anchor(a) and not self.expiring(life)}

    def blocks(self) -> list[Life]:
        """Return all pending and expiring blocks."""
        return [life for anchor, life in self.lives.items() if split_anchor(anchor)]

    def changed(self, rows: Iterable[BlockRow]) -> bool:
        """Return whether one of the rows tracks a pending block with other content."""
        pending = self.pending_blocks()
        for row in rows:
            life = pending.get(block_anchor(row.block, 0)) if row.task else None
            if life and life.content != _content(row):
                return True
        return False

    def apply(self, raws: Sequence[TreeRow], reply: ShardApplied) -> None:
        """Record that rows of loose trees were applied; ``raws`` are the rows before folding."""
        for anchor in dict.fromkeys(row.anchor for row in raws):
            tree, life = self.trees[anchor], self.lives.get(anchor)
            rows = [row for row in raws if row.anchor == anchor]
            if any(row.flags & TRACK for row in rows):
                self.counts["tracked"] += 1
                tree.tracked = True
                source = f"source {anchor}"
                if anchor in reply.rejected:
                    self._rejected[anchor] = ("overflow", source, [0])
                    self.lives.pop(anchor, None)
                    continue
                life = life or Life({0: tree}, self._begun())
                life.tracked, life.place = True, self._begun()
                life.content = (source, (), frozenset())
                self.lives[anchor] = life
            elif life is None and tree.tracked:
                self.note("a row after the end")
                continue
            elif life is None:
                self.note("a row before its track")
                life = Life({0: tree}, self._begun(), tracked=False, certain=False)
                self.lives[anchor] = life
            elif life.certain and self.expiring(life):
                self.note("a row while its tree expires")
                continue
            for row in rows:
                life.row(0, row)
            self._restart(life, any(row.flags & TOUCH for row in rows))

    def apply_block(self, row: BlockRow, raws: Sequence[TreeRow], rejected: bool) -> None:
        """Record that the row of one block was applied; ``raws`` are its rows before folding."""
        anchor = block_anchor(row.block, 0)
        life = self.lives.get(anchor)
        if row.task and life and not self.expiring(life):
            self.note("a block tracked again")
            assert not rejected, "rejected though it is pending already"
            # Its deltas count already; its failures and its touch count now.
            raws = [replace(raw, delta=0) for raw in raws]
            if row.failed.keys() - life.failed:
                self.note("a failure with a block tracked again")
        elif row.task:
            size = len(row.deltas)
            slots = [slot for slot in range(size) if slot not in row.absent]
            trees = {slot: self.trees[anchor + slot] for slot in slots}
            self.counts["tracked"] += len(trees)
            if life or rejected:
                assert rejected, "tracked while its predecessor expires"
                reason = "conflict" if life else "overflow"
                self._rejected[anchor] = (reason, row.label, slots)
                if row.absent:
                    self.note(f"a block with absent slots rejected: {reason}")
                return
            if any(tree.tracked for tree in trees.values()):
                self.note("a block number was reused")
            for tree in trees.values():
                tree.tracked = True
            life = self.lives[anchor] = Life(trees, self._begun(), size, _content(row))
        elif life is None:
            its = [tree for a, tree in self.trees.items() if a >> 12 == anchor >> 12]
            before = not any(tree.tracked for tree in its)
            self.note("block rows before its track" if before else "block rows after its end")
            return
        elif self.expiring(life):
            self.note("block rows while it expires")
            return
        for raw in raws:
            _, slot = split_anchor(raw.anchor) or (0, 0)
            if slot >= life.size:
                self.note("a slot that the block does not have")
                continue
            if slot not in life.trees:
                self.note(f"a {'failure' if raw.flags & FAIL else 'row'} of an absent slot")
                life.stray(slot, raw.delta)
                continue
            if raw.flags & FAIL and slot in life.failed:
                self.note("a slot failed again")
            if raw.delta in life.applied[slot]:
                self.note("a row of a block applied twice")
            life.row(slot, raw)
        self._restart(life, row.touch)

    def hear(self, outcome: Outcome | BlockOutcome) -> None:
        """Check a new verdict."""
        in_block = isinstance(outcome, BlockOutcome)
        if isinstance(outcome, BlockOutcome):
            singles, label = list(outcome.expand()), outcome.label
            anchor = block_anchor(outcome.block, 0)
            acked = [anchor + s for start, stop in outcome.acked() for s in range(start, stop)]
            singly = [o.anchor for o in singles if o.verdict == "ack"]
            assert acked == singly, "the acked ranges differ from the single acks"
            assert outcome.count == len(singles) > 0, "n is not the number of verdicts"
        else:
            singles, label, anchor = [outcome], outcome.source_id, outcome.anchor
        life = self.lives.get(anchor)
        if outcome.reason == "reset":
            assert life, "a touch verdict for an unknown tree"
            assert life.touched, "a touch verdict without a touch"
            assert len(singles) == len(life.trees), "a touch verdict without some of the trees"
            return
        self.counts.update(COUNTER.get(o.reason, o.reason) for o in singles)
        if outcome.reason in ("overflow", "conflict"):
            self.note(f"{'a block' if in_block else 'a tree'} rejected: {outcome.reason}")
            expected = self._rejected.pop(anchor, None)
            slots = [single.anchor - anchor for single in singles]
            assert expected == (outcome.reason, label, slots), "rejected wrongly"
            return
        assert life, "a verdict for an untracked tree"
        assert life.content[0] == label, "a verdict for another source"
        for single in singles:
            slot = single.anchor - anchor
            assert slot in life.trees, "a verdict for a slot without a tree"
            assert slot not in life.told, "a second verdict"
            self._judge(life, slot, single)
            life.told.add(slot)
        if outcome.reason == "expired" and life.certain:
            assert self.expiring(life), "expired too early"
        if in_block and outcome.reason == "completed":
            assert life.ends, "it ended while a tree is open, or an absent slot is not zero"
        if not in_block or outcome.reason != "failed":
            assert len(life.told) == len(life.trees), "a tree of the block has no verdict"
            self._ended(life, outcome)
            del self.lives[anchor]

    def settle(self) -> None:
        """Check after a call that all verdicts that are due at once were written."""
        assert not self._rejected, "rejected without a verdict"
        for anchor, life in list(self.lives.items()):
            life.touched = False
            if not life.tracked or not life.certain:
                continue
            assert life.failed <= life.told, "failed without a verdict"
            if not self.expiring(life) and life.ends:
                assert len(life.told) == len(life.trees), "complete without a verdict"
                self.note("a block of failed trees ended without an entry")
                del self.lives[anchor]

    def drained(self, blocks: Iterable[int], everything: bool) -> None:
        """Record that these blocks have expired; ``everything``: nothing is left to expire."""
        for block in blocks:
            life = self.lives.pop(block_anchor(block, 0), None)
            assert not life or life.told == set(life.trees), "expired without a verdict"
        if everything:
            late = [life for life in self.lives.values() if life.tracked and self.expiring(life)]
            assert not late, "no verdict after N ticks"

    def check(self, model: BlockReference) -> None:
        """Check the counters and the number of pending trees."""
        for name in ("tracked", "acked", "failed", "expired", "overflow", "conflict"):
            assert model.counters[name] == self.counts[name], f"{name} is counted wrongly"
        lives = [life for life in self.lives.values() if life.tracked]
        untold = sum(len(life.trees) - len(life.told) for life in lives)
        assert model.tracked_records == untold, "the number of trees without a verdict is wrong"
        in_blocks = sum(life.size for life in self.pending_blocks().values())
        loose = sum(map(len, model.buckets))
        assert model.pending == loose + in_blocks, "pending is counted wrongly"

    def _judge(self, life: Life, slot: int, single: Outcome) -> None:
        complete = life.complete(slot)
        if single.verdict == "ack":
            assert complete, "acked while a message is outstanding"
            assert slot not in life.failed, "acked though it failed"
        elif single.reason == "failed":
            failed = slot in life.failed or life.maybe_failed
            assert failed, "nacked as failed, though it has not failed"
        else:
            assert not (life.certain and complete), "a needless nack: the tree is complete"
            assert not (life.certain and slot in life.failed), "expired though it failed"
            self._diagnosed(life, slot, single)

    def _diagnosed(self, life: Life, slot: int, single: Outcome) -> None:
        """Check cause, edges and residual of an expired tree, where they are known."""
        tree = life.trees[slot]
        if life.certain:
            cause = "deadline" if life.place.capped else "idle"
            assert single.cause == cause, "the cause is wrong"
            self.note(f"a {'block' if len(life.trees) > 1 else 'tree'} expired: {cause}")
        if life.certain and life.applied[slot] == tree.rows:
            odd = Counter(message.edge for message in tree.outstanding)
            edges = tuple(edge for edge in self.config.edges if odd[edge] % 2)
            assert single.edges == edges, "the edges are wrong"
            if len(tree.outstanding) == 1:
                (message,) = tree.outstanding
                assert single.residual == message.ids[tree.anchor], "the residual is wrong"
                self.note("a tree expired with one message missing")

    def _begun(self) -> Place:
        return Place(self.ticks, self.now_ms)

    def _restart(self, life: Life, touch: bool) -> None:
        if touch or self.config.refresh == "update":
            newest = newest_bucket(
                self.config,
                life.place.first_ms,
                ticks=self.ticks,
                ticked_ms=self.ticked_ms,
                now_ms=self.now_ms,
            )
            restarted = life.place.move(newest, self.ticks)
            # If the deadline leaves it where it is, no clock was restarted.
            life.touched |= touch and (restarted or not life.certain)

    def _ended(self, life: Life, outcome: Outcome | BlockOutcome) -> None:
        """Note how a life ended, for the list of interesting states."""
        if not isinstance(outcome, BlockOutcome):
            self.note(f"a loose tree ended: {outcome.reason}")
            return
        self.note(f"a block ended: {outcome.reason}")
        acked = set(life.trees) - life.failed - set(outcome.nacked)
        if len(life.trees) < life.size and acked:
            self.note(f"a block with absent slots acked: {outcome.reason}")
        if outcome.failed and outcome.reason == "completed":
            self.note("a block acked except its failed trees")
        if acked and outcome.nacked:
            self.note("a block expired, some trees acked and some nacked")
        if acked and outcome.nacked and outcome.failed:
            self.note("and some had failed")
        if outcome.reason == "completed" and sum(life.trees[s].processed > 1 for s in acked) > 1:
            self.note("a block acked, two trees of two messages")
        if any(not life.trees[slot].rows for slot in acked):
            self.note("a hole acked")


def _content(row: BlockRow) -> Content:
    return row.label, tuple(row.deltas[slot] for slot in range(len(row.deltas))), row.absent
