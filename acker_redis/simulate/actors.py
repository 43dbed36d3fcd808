"""Sources, bolts and rotators."""

from functools import partial
from typing import TYPE_CHECKING

from acker_redis.batch import FAIL, TOUCH, TRACK
from acker_redis.simulate.lanes import Lane
from acker_redis.simulate.trees import Message, Part, Tree

if TYPE_CHECKING:
    from acker_redis.simulate.world import World


class Source:
    """Emits the first messages of trees and tracks them; takes their verdicts."""

    def __init__(self, world: "World", task: str) -> None:
        chance = world.chance
        self._world, self._task = world, task
        self._late = Lane(world, f"{task}-late", task)
        self._lane = Lane(world, world.lane_name(task), task, chance.random() < 0.75)
        self._waits = chance.random() < 0.5
        """Emits only after its tree was tracked."""
        self._slow = world.happens("backlog")
        world.clock.after(0, self._polls, background=True)

    def emit(self, tree: Tree) -> None:
        """Track a tree and emit its first messages."""
        world = self._world
        numbers = tuple(message.number for message, _ in tree.firsts)
        tree.exists.update(numbers)
        delta = 0
        for _, id_ in tree.firsts:
            delta ^= id_
        firsts = tree.firsts
        if world.breaks == "late" and len(numbers) > 1:
            first = firsts[0][1]
            self._lane.add(tree, first, TRACK, made=numbers[:1])
            wait = world.chance.randrange(world.config.tick_ms)
            world.clock.after(wait, partial(self._announce, tree, delta ^ first, numbers[1:]))
            firsts = firsts[:1]
        else:
            self._lane.add(tree, delta, TRACK, made=numbers)
            if world.happens("rerun"):
                # A source that was restarted has another lane, and no fence stops it.
                world.counts["trees tracked again by a new lane"] += 1
                again = partial(self._late.add, tree, delta, TRACK, made=numbers)
                world.clock.after(world.chance.randrange(2 * world.config.tick_ms), again)
        for message, _ in firsts:
            if self._waits:
                self._lane.then((tree.anchor, partial(world.deliver, message)))
            else:
                world.deliver(message)

    def _announce(self, tree: Tree, delta: int, numbers: tuple[int, ...]) -> None:
        """Break the third rule: emit the other first messages after the track."""
        self._late.add(tree, delta, made=numbers)
        for message, _ in tree.firsts[1:]:
            self._world.deliver(message)

    def _polls(self) -> None:
        self._world.take(self._task)
        wait = self._world.config.tick_ms * (2 if self._slow else 1) // 3
        self._world.clock.after(wait, self._polls, background=True)


class Bolt:
    """Processes messages: one whole row per message and tree."""

    def __init__(self, world: "World", name: str) -> None:
        self._world, self._name = world, name
        self._born = 0
        self._down_until = -1
        self._waits = world.chance.random() < 0.3
        self._start()

    def process(self, message: Message, again: bool = False) -> None:
        """Process a message, or fail it; ``again``: another bolt has processed it before."""
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
        dice = world.chance.random()
        if dice < world.fails:
            for part in message.parts:
                part.tree.failed.add(message.number)
                if dice < world.fails / 2:
                    self._lane.add(part.tree, 0, FAIL, f"w{message.number}")
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
                    self._lane.then((message.parts[0].tree.anchor, partial(world.deliver, child)))
                else:
                    world.deliver(child)

    def die(self) -> None:
        """Lose all that it holds; it comes back after a while under another name."""
        self._world.counts["bolts died"] += 1
        self._lane.alive = self._other.alive = False
        self._down_until = self._world.clock.now + self._world.config.tick_ms // 4
        self._start()

    def _start(self) -> None:
        self._born += 1
        name = self._world.lane_name(f"{self._name}.{self._born}")
        self._lane = Lane(self._world, name, digests=self._world.chance.random() < 0.75)
        self._other = Lane(self._world, f"{self._name}.{self._born}-other")

    def _rows(self, message: Message, flags: int = 0, why: str = "") -> None:
        for part in message.parts:
            self._row(part, message.number, flags, why)

    def _row(self, part: Part, number: int, flags: int, why: str) -> None:
        children = tuple(part.children)
        if self._world.breaks == "split" and children:
            self._lane.add(part.tree, part.caused, flags, why, made=children)
            self._other.add(part.tree, part.id, done=(number,))
            return
        self._lane.add(part.tree, part.id ^ part.caused, flags, why, (number,), children)


class Rotator:
    """Ticks when a tick is due, and drains after a while."""

    def __init__(self, world: "World") -> None:
        self._world = world
        world.clock.after(0, self._turn, background=True)

    def _turn(self) -> None:
        world = self._world
        service = world.service
        if world.clock.now >= world.rotators_back:
            service.rotate()
            left = bool(service.ledger.expiring)
            if left and world.happens("rotators", 0.3):
                world.counts["rotators died before a drain"] += 1
            elif left:
                wait = world.chance.randrange(world.config.tick_ms // 8)
                world.clock.after(wait, service.expire, background=True)
        # By sixteenths of a tick: on a real server some real time passes as well, and may
        # not decide whether a tick is due.
        wait = world.chance.randrange(3, 9) * world.config.tick_ms // 16
        world.clock.after(wait, self._turn, background=True)
