"""Sources, bolts and rotators."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from acker_redis.protocol.ids import block_anchor
from proof.oracle import FAIL, TOUCH, TRACK, Link
from proof.simulate.batches import FoldedBlock, FoldedRow
from proof.simulate.lanes import Lane
from proof.simulate.trees import Block, Message, Part, Tree

if TYPE_CHECKING:
    from proof.simulate.world import World


class Source:
    """A source: emits the first messages of trees, tracks them, and takes their verdicts."""

    def __init__(self, world: World, task: str) -> None:
        chance = world.chance
        self._world, self._task = world, task
        self._late = Lane(world, f"{task}-late", task)
        self.lane = Lane(world, world.lane_name(task), task, chance.random() < 0.75)
        self._waits = chance.random() < 0.5
        """Whether it emits only after its tree was tracked."""
        self._blocks_wait = chance.random() < 0.6
        """The same for its blocks: rows that come before their block are dropped."""
        self.in_blocks: float = world.in_blocks(chance.choice((0, 0.5, 1)))
        """Share of its trees that it tracks in blocks."""
        self._slow = world.happens("backlog")
        world.clock.after(0, self._polls, background=True)

    def collects(self) -> int:
        """Return the number of trees to collect before they are tracked."""
        return self._world.chance.randrange(1, 13) if self.in_blocks else 1

    def emit(self, tree: Tree) -> None:
        """Track a tree and emit its first messages."""
        row = self._first_row(tree)
        again = replace(row, after=[])
        self._deliver([row], self._waits)
        self.lane.add(row)
        if self._again():
            world = self._world
            world.counts["trees tracked again by a new lane"] += 1
            wait = world.chance.randrange(2 * world.config.tick_ms)
            world.clock.after(wait, partial(self._late.add, again))

    def emit_block(self, block: Block) -> None:
        """Track a block and emit the first messages of its trees."""
        world, chance = self._world, self._world.chance
        rows = [self._first_row(tree) for tree in block.trees]
        again = FoldedBlock(block, [replace(row, after=[]) for row in rows], block.size)
        repeats = self._again(share=6)
        fewer = repeats and len(rows) > 1 and chance.random() < 0.6
        # A source with fewer trees the second time has not waited for the first reply.
        self._deliver(rows, self._blocks_wait and not fewer)
        track = partial(self.lane.track, FoldedBlock(block, rows, block.size))
        tick_ms = world.config.tick_ms
        if not repeats:
            track()
            return
        world.counts["blocks tracked again by a new lane"] += 1
        if fewer:
            self._lose_a_tree(again)
        elif not world.breaks:
            self._change(again)
        # The second TRACK may come before the first life of the block, or while that life lasts,
        # expires or has ended.
        when = chance.choice((0, 0, 0, 1, 2, 2) if fewer else (0, 1, 1, 2, 2, 2))
        if when == 0:
            self._late.track(again)
            world.clock.after(chance.randrange(tick_ms // 10), track)
            return
        track()
        if when == 1:
            life = (world.config.buckets + 1) * tick_ms
            wait = chance.choice((tick_ms // 8, chance.randrange(life)))
            world.clock.after(wait, partial(self._late.track, again))
        else:
            world.clock.after(tick_ms, partial(self._track_expiring, again))

    def _change(self, again: FoldedBlock) -> None:
        """Let some TRACKs that come again fail or touch a tree, or have another label.

        Others come with a row of a slot that holds no tree, or that the block does not have.
        """
        world, chance = self._world, self._world.chance
        row = chance.choice(again.rows)
        what = chance.choice(("", "failed", "failed", "touched", "label", "stray", "stray"))
        world.counts[f"blocks tracked again, {what or 'the same'}"] += 1
        if what == "failed":
            row.flags, row.why = row.flags | FAIL, "again"
        elif what == "touched":
            row.flags |= TOUCH
        elif what == "label":
            again.block = replace(again.block, label="another")
        elif what == "stray":
            block = again.block
            slots = set(range(block.size)) - {tree.slot for tree in block.trees} or {block.size}
            self._world.clock.after(
                chance.randrange(world.config.tick_ms),
                partial(self._late.add, self._stray(block, chance.choice(sorted(slots)))),
            )

    def _stray(self, block: Block, slot: int) -> FoldedRow:
        """Return a row of a slot without a tree: a message that no tree has, a failure, or both."""
        forest, chance = self._world.forest, self._world.chance
        tree = Tree(block_anchor(block.number, slot), block.label, slot, block=block)
        made = (forest.new_number(),)
        row = FoldedRow(tree, made=made, links=_links(made), delta=forest.new_id())
        failed = FoldedRow(tree, FAIL, why="stray")
        if chance.random() < 0.5:
            failed.fold(row)
        return chance.choice((row, failed, failed))

    def _track_expiring(self, again: FoldedBlock) -> None:
        """Track a block again after it has left the buckets, preferably while it expires."""
        world, number = self._world, again.block.number
        if number in world.service.oracle.blocks:
            wait = world.config.tick_ms // 64
            world.clock.after(wait, partial(self._track_expiring, again), background=True)
        else:
            self._late.track(again)

    def _lose_a_tree(self, again: FoldedBlock) -> None:
        """Take a tree away: the last one with its slot, or any one, whose slot is then absent."""
        world, chance = self._world, self._world.chance
        world.counts["blocks tracked again with a tree less"] += 1
        if chance.random() < 0.5:
            del again.rows[-1]
            again.size = again.rows[-1].tree.slot + 1
            return
        world.counts["blocks tracked again with an absent slot more"] += 1
        # Preferably a hole: then only the bitmap of the present slots differs.
        holes = [row for row in again.rows if not row.tree.firsts]
        again.rows.remove(chance.choice(holes or again.rows))

    def _first_row(self, tree: Tree) -> FoldedRow:
        """Return the row that tracks a tree. Its first messages exist from now on."""
        world = self._world
        numbers = tuple(message.number for message, _ in tree.firsts)
        tree.exists.update(numbers)
        firsts = tree.firsts
        if world.breaks == "late" and len(numbers) > 1:
            wait = world.chance.randrange(world.config.tick_ms)
            world.clock.after(wait, partial(self._announce, tree))
            firsts = firsts[:1]
        made = numbers[: len(firsts)]
        return FoldedRow(tree, TRACK, made=made, links=_links(made), delta=_xor(firsts))

    def _deliver(self, rows: Sequence[FoldedRow], waits: bool) -> None:
        """Emit the messages that these rows announce; if ``waits``, once the rows were applied."""
        world = self._world
        for row in rows:
            for message, _ in row.tree.firsts[: len(row.made)]:
                action = partial(world.deliver, message)
                if waits:
                    row.after.append(action)
                else:
                    action()

    def _announce(self, tree: Tree) -> None:
        """Break the third rule: emit the other first messages after the track."""
        rest = tree.firsts[1:]
        made = tuple(message.number for message, _ in rest)
        self._late.add(FoldedRow(tree, made=made, links=_links(made), delta=_xor(rest)))
        for message, _ in rest:
            self._world.deliver(message)

    def _again(self, share: float = 1) -> bool:
        """Draw whether a restarted source tracks again. On another lane, no fence stops it."""
        world = self._world
        return world.breaks != "late" and world.happens("rerun", share)

    def _polls(self) -> None:
        self._world.take(self._task)
        wait = self._world.config.tick_ms * (2 if self._slow else 1) // 3
        self._world.clock.after(wait, self._polls, background=True)


class Bolt:
    """A bolt: processes messages, with one whole row per message and tree."""

    def __init__(self, world: World, name: str, lane: Lane | None = None) -> None:
        """``lane``: that of a source in the same process, until the bolt dies; else its own."""
        self._world, self._name = world, name
        self._born = 0
        self._down_until = -1
        self._waits = world.chance.random() < 0.3
        self._own, self._other = self._lanes()
        self._lane = lane or self._own

    def process(self, message: Message, again: bool = False) -> None:
        """Process or fail a message; ``again``: another bolt has processed it before."""
        world = self._world
        if world.clock.now < self._down_until or world.happens("deaths"):
            world.counts["messages lost"] += 1
            return
        if again:
            world.counts["messages processed twice"] += 1
            for part in message.parts:
                part.tree.exists.update(part.children)
                part.tree.failed.discard(message.number)
            self._rows(message)
            return
        if world.chance.random() < world.touches / 2:
            # It is not yet ready, and keeps the trees from expiring.
            for part in message.parts:
                self._lane.add(FoldedRow(part.tree, TOUCH))
        dice = world.chance.random()
        if dice < world.fails:
            for part in message.parts:
                part.tree.failed.add(message.number)
                if dice < world.fails / 2:
                    self._lane.add(FoldedRow(part.tree, FAIL, why=f"w{message.number}"))
            if dice < world.fails / 2:
                return
            self._rows(message, FAIL, f"w{message.number}")
        else:
            self._rows(message, TOUCH if dice > 1 - world.touches else 0)
        for part in message.parts:
            part.tree.exists.update(part.children)
        for child in message.children:
            child.inputs -= 1
            if child.inputs == 0:
                if self._waits:
                    self._lane.then(message.parts[-1].tree, partial(world.deliver, child))
                else:
                    world.deliver(child)

    def die(self) -> None:
        """Lose all rows that it holds, and restart after a while under another name."""
        self._world.counts["bolts died"] += 1
        self._own.alive = self._other.alive = False
        self._down_until = self._world.clock.now + self._world.config.tick_ms // 4
        self._own, self._other = self._lanes()
        self._lane = self._own

    def _lanes(self) -> tuple[Lane, Lane]:
        self._born += 1
        name = self._world.lane_name(f"{self._name}.{self._born}")
        digests = self._world.chance.random() < 0.75
        lane = Lane(self._world, name, digests=digests)
        return lane, Lane(self._world, f"{self._name}.{self._born}-other")

    def _rows(self, message: Message, flags: int = 0, why: str = "") -> None:
        for part in message.parts:
            self._row(part, message.number, flags, why)

    def _row(self, part: Part, number: int, flags: int, why: str) -> None:
        lane, children = self._lane, tuple(part.children)
        delta, links = part.id ^ part.caused, part.announced | part.links
        if self._world.breaks == "parted" and flags & FAIL:
            rest = FoldedRow(part.tree, 0, (number,), children, links, delta)
            self._lane.add(FoldedRow(part.tree, FAIL, why=why, after=[partial(lane.add, rest)]))
            return
        if self._world.breaks == "split" and children:
            announces = FoldedRow(
                part.tree,
                flags,
                made=children,
                links=part.announced,
                delta=part.caused,
                why=why,
            )
            self._lane.add(announces)
            links = frozenset(part.links)
            self._other.add(FoldedRow(part.tree, done=(number,), links=links, delta=part.id))
            return
        lane.add(FoldedRow(part.tree, flags, (number,), children, links, delta, why))


class Rotator:
    """A rotator: ticks when a tick is due, and drains after a while."""

    def __init__(self, world: World) -> None:
        self._world = world
        world.clock.after(0, self._turn, background=True)

    def _turn(self) -> None:
        world = self._world
        service = world.service
        if world.clock.now >= world.rotators_back:
            service.rotate()
            oracle = service.oracle
            left = bool(oracle.expiring or oracle.blocks_expiring)
            if left and world.happens("rotators", 0.3):
                world.counts["rotators died before a drain"] += 1
            elif left:
                wait = world.chance.randrange(world.config.tick_ms // 8)
                world.clock.after(wait, self._drain, background=True)
        # In sixteenths of a tick: on a real server real time passes too, and must not decide
        # whether a tick is due.
        wait = world.chance.randrange(3, 9) * world.config.tick_ms // 16
        world.clock.after(wait, self._turn, background=True)

    def _drain(self) -> None:
        world = self._world
        if world.happens("rotators", 0.5):
            self._drain_some()
        world.service.expire()
        if world.service.oracle.blocks_expiring and world.happens("rotators", 0.5):
            # A tick may be due before another rotator drains the blocks.
            world.counts["rotators died before a drain of blocks"] += 1
            world.rotators_leave(ticks=2)
        else:
            world.service.expire_blocks()

    def _drain_some(self) -> None:
        """Drain a part of the trees and of the blocks, as a rotator that dies while it drains."""
        service, chance = self._world.service, self._world.chance
        for _ in range(chance.randrange(1, 4)):
            if chance.random() < 0.5:
                service.expire(chance.choice((1, 3)))
            else:
                service.expire_blocks(1)


def _links(firsts: Sequence[int]) -> frozenset[Link]:
    return frozenset((number, 0) for number in firsts)


def _xor(firsts: Sequence[tuple[Message, int]]) -> int:
    delta = 0
    for _, id_ in firsts:
        delta ^= id_
    return delta
