"""One history: a world of actors, drawn from a seed and played until all trees have ended."""

import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from acker_redis.errors import AckerError, RedisUnavailableError
from acker_redis.protocol.config import AckerConfig
from proof.oracle import BlockKey, Violation
from proof.simulate.actors import Bolt, Rotator, Source
from proof.simulate.backends import Backend
from proof.simulate.clock import Clock
from proof.simulate.faults import Faults, draw
from proof.simulate.lanes import Lane
from proof.simulate.network import Network
from proof.simulate.service import Service
from proof.simulate.trace import Trace
from proof.simulate.trees import Forest, Message, Tree

TICK_MS = 3_600_000
"""An hour: the real time that passes while a server works does not matter."""
TASKS = ("orders", "clicks")
LOSSES: tuple[BlockKey, ...] = ("failed", "failed", "present", "block")
EDGES = ("a", "b", "c", "d", "e", "f", "g", "h")

MakeBackends = Callable[[AckerConfig, Sequence[str]], Sequence[Backend]]
"""Makes the shards of a history, from its configuration and its tasks."""


@dataclass(frozen=True, slots=True)
class Played:
    """The result of one history."""

    seed: int
    digest: str
    trees: int
    ticks: int
    counters: dict[str, int]
    """Counters of the shard, without lost tails."""
    counts: dict[str, int]
    """How often each fault and each interesting state occurred."""
    violation: Violation | None = None
    trace: tuple[str, ...] = ()
    """Last events of the tree that the violation concerns, with their time in ticks."""

    @property
    def kind(self) -> str:
        """The kind of its violation; '' if there is none."""
        return self.violation.kind if self.violation else ""


class World:
    """All state of one history. All randomness comes from ``seed``."""

    def __init__(
        self,
        seed: int,
        trees: int,
        names: Sequence[str],
        make: MakeBackends,
        breaks: str = "",
        blocks: str = "some",
    ) -> None:
        self.seed, self.breaks = seed, breaks
        # A string seed is hashed with SHA-512: the same stream on every machine.
        self.chance = chance = random.Random(f"acker-redis {seed}")  # noqa: S311 - no secret
        # A history in which no key is lost does not depend on this stream.
        self._losses = random.Random(f"acker-redis losses {seed}")  # noqa: S311 - no secret
        self.faults: Faults = draw(chance, names, self._losses)
        self.config = self._draw_config()
        # Only trees that work takes long reach their deadline.
        slow = self.config.deadline_ms and chance.random() < 0.5
        self._work_ms = 2 * TICK_MS if slow else TICK_MS // 10
        self.fails = chance.choice((0, 0.02, 0.06, 0.2))
        """Share of messages that fail."""
        self.touches = chance.choice((0.05, 0.5) if slow else (0, 0.05))
        """Share of messages that reset the timeout of their trees."""
        if breaks:
            # The oracle could not know which blocks end in silence because all trees failed.
            self.fails, blocks = (0.2, "none") if breaks == "parted" else (0, blocks)
        self.clock, self.trace = Clock(), Trace()
        self.service = Service(
            self.config, make(self.config, TASKS), self.clock, self.trace, not breaks
        )
        self.network = Network(self.clock, self.service, self.faults, chance)
        self.counts: Counter[str] = self.service.counts
        """How often each fault and each interesting state occurred."""
        self.rotators_back = 0
        """When the rotators return, in ms of the simulated clock."""
        self.forest = Forest(chance, self.config.edges, breaks == "shared")
        drawn = chance.choice(("none", "some", "some", "only"))
        self._blocks = drawn if blocks == "some" else blocks
        self._sources = [Source(self, task) for task in TASKS]
        self._bolts = [
            Bolt(self, f"bolt{i}", self._shared_lane()) for i in range(chance.randrange(1, 5))
        ]
        for _ in range(2):
            Rotator(self)
        self._schedule(trees, len(names) == 1)

    def play(self) -> Played:
        """Play the history to its end, or to the first violation."""
        violation = None
        try:
            self.clock.run()
            self._settle()
            for tree in self.service.trees.values():
                self._judge(tree)
        except Violation as found:
            violation = found
        except RedisUnavailableError:
            raise
        except AckerError as error:
            violation = Violation("refused", f"{type(error).__name__}: {error}")
        anchor = violation.anchor if violation else 0
        return Played(
            seed=self.seed,
            digest=self.trace.digest,
            trees=len(self.service.trees),
            ticks=self.service.oracle.ticks,
            counters=dict(self.service.oracle.counters),
            counts=dict(self.counts + self.service.oracle.seen),
            violation=violation,
            trace=tuple(self.trace.tail(anchor, TICK_MS)) if violation else (),
        )

    def happens(self, fault: str, share: float = 1) -> bool:
        """Draw whether a fault occurs here, at ``share`` times its rate."""
        rate: float = getattr(self.faults, fault)
        return rate > 0 and self.chance.random() < rate * share

    def linger(self) -> int:
        """Draw the ms that a lane waits for more rows."""
        return self.chance.randrange(TICK_MS // 50)

    def pause(self, again: bool) -> int:
        """Draw the ms that a producer pauses before it sends; usually 0."""
        if not self.happens("pause", 4 if again else 0.3):
            return 0
        self.counts["producers paused"] += 1
        return self.config.fence_ms + self.chance.randrange(3 * TICK_MS)

    def in_blocks(self, share: float) -> float:
        """Return the share of a source's trees to track in blocks; it has drawn ``share``."""
        return {"none": 0, "only": 1}.get(self._blocks, share)

    def lane_name(self, name: str) -> str:
        """Draw the name of a lane; some are durable."""
        return f"@{name}" if self.chance.random() < 0.2 else name

    def _shared_lane(self) -> Lane | None:
        """Draw the source in whose process a bolt is; None: the bolt is alone."""
        if self.breaks or self.chance.random() < 0.7:
            return None
        return self.chance.choice(self._sources).lane

    def deliver(self, message: Message) -> None:
        """Deliver a message to one bolt, or to two."""
        bolts = self._bolts
        chosen = self.chance.randrange(len(bolts))
        wait = self.network.delay() + self.chance.randrange(self._work_ms)
        self.clock.after(wait, partial(bolts[chosen].process, message))
        if len(bolts) > 1 and self.happens("redelivery"):
            wait += self.chance.randrange(TICK_MS)
            other = bolts[(chosen + 1) % len(bolts)]
            self.clock.after(wait, partial(other.process, message, again=True))

    def rotators_leave(self, ticks: int) -> None:
        """Let no rotator tick for up to ``ticks`` ticks."""
        away = self.clock.now + self.chance.randrange(ticks * TICK_MS)
        self.rotators_back = max(self.rotators_back, away)

    def take(self, task: str) -> None:
        """Let a source take its verdicts."""
        self.service.take(task)

    def _draw_config(self) -> AckerConfig:
        chance = self.chance
        buckets, refresh = chance.choice((2, 3, 3, 4, 5)), chance.random() < 0.4
        edges = EDGES[: chance.randrange(1, len(EDGES) + 1)] if chance.random() < 0.5 else ()
        return AckerConfig(
            buckets=buckets,
            tick_ms=TICK_MS,
            refresh="update" if refresh else "never",
            deadline_ms=self._draw_deadline(buckets) if refresh else 0,
            edges=edges,
            high_water=chance.randrange(2, 7) if self.happens("overflow") else 100_000,
            outcomes_limit=chance.randrange(1, 7) if self.happens("backlog") else 1_000_000,
            # Not drawn: each seed keeps its history.
            slo_ms=(0, 1, TICK_MS // 16, TICK_MS)[buckets % 4],
        )

    def _draw_deadline(self, buckets: int) -> int:
        """Draw a deadline, in sixteenths of a tick; the least is the shortest that is allowed."""
        more = self.chance.choice((0, 0, 8, 16, 64))
        return (16 * buckets + (self.chance.randrange(more) if more else 0)) * TICK_MS // 16

    def _schedule(self, trees: int, alone: bool) -> None:
        """Schedule the trees and the faults; ``alone``: there is one kind of fault."""
        chance, at, per_tick = self.chance, 0, self.chance.choice((4, 8, 16))
        batch: list[Tree] = []
        source, wanted, left = self._sources[0], 0, trees
        for group in self.forest.groups(trees):
            at += chance.randrange(2 * TICK_MS // per_tick)
            if not batch:
                source = chance.choice(self._sources)
                wanted = source.collects()
            batch += group
            left -= len(group)
            if len(batch) >= wanted or not left:
                self._emits(source, batch, at)
                batch = []
        for fault, action in (
            ("failover", self._failover),
            ("clock", self._clock_jumps),
            ("rotators", self._rotators_leave),
            ("deaths", self._bolt_dies),
        ):
            # With all faults at once few trees get far.
            for _ in range(1 + trees // (8 if alone else 40)):
                if self.happens(fault, 20 if fault == "deaths" else 1):
                    self.clock.after(chance.randrange(at + 1), action)
        for _ in range(1 + trees // 40):
            if self._losses.random() < self.faults.losses:
                key = self._losses.choice(LOSSES)
                when = self._losses.randrange(at + 1)
                self.clock.after(when, partial(self._key_is_lost, key), background=True)

    def _emits(self, source: Source, trees: Sequence[Tree], at: int) -> None:
        """Let a source track and emit trees, some of them as one block."""
        chance = self.chance
        together: list[Tree] = []
        alone: list[Tree] = []
        for tree in trees:
            inside = source.in_blocks and chance.random() < source.in_blocks
            (together if inside else alone).append(tree)
        # Trees of two blocks may share messages.
        cut = chance.randrange(len(together)) if chance.random() < 0.3 and together else 0
        for some in filter(None, (together[:cut], together[cut:])):
            self.counts["trees in blocks"] += len(some)
            block = self.forest.block(some)
            late = chance.randrange(TICK_MS // 50)
            self.clock.after(at + late, partial(source.emit_block, block))
        for tree in trees:
            self.service.trees[tree.anchor] = tree
        for tree in alone:
            late = chance.randrange(TICK_MS // 50)
            self.clock.after(at + late, partial(source.emit, tree))

    def _failover(self) -> None:
        self.service.snapshot()
        self.clock.after(self.chance.randrange(TICK_MS), self._fail_over)

    def _fail_over(self) -> None:
        """Return to a snapshot, preferably the last one; producers send old batches again."""
        chance = self.chance
        self.service.fail_over(chance.choice((1, 1, 1, 2, 3)))
        for _ in range(chance.choice((0, 0, 1, 3))):
            self.network.again()

    def _clock_jumps(self) -> None:
        sixteenths = self.chance.choice((-40, -16, -8, -1, 1, 8, 16, 40))
        self.service.offset += sixteenths * TICK_MS // 16
        self.counts["clock set forward" if sixteenths > 0 else "clock set back"] += 1

    def _rotators_leave(self) -> None:
        self.counts["rotators away"] += 1
        self.rotators_back = self.clock.now + self.chance.randrange(2, 6) * TICK_MS

    def _bolt_dies(self) -> None:
        self.chance.choice(self._bolts).die()

    def _key_is_lost(self, key: BlockKey) -> None:
        """Delete this key of a block, as soon as a block has it."""
        if not self.service.lose(key, self._losses):
            wait = self.config.tick_ms // 8
            self.clock.after(wait, partial(self._key_is_lost, key), background=True)

    def _settle(self) -> None:
        """Tick N+1 more times, and check that nothing is left."""
        service, clock = self.service, self.clock
        clock.now += -clock.now % (TICK_MS // 16)
        self._drain()
        service.rotate()  # notices a clock that was set back
        for _ in range(self.config.buckets + 1):
            self._drain()
            clock.now += TICK_MS
            service.rotate()
        self._drain()
        for task in TASKS:
            service.take(task)
        oracle = service.oracle
        left = [*oracle.open_trees(), *oracle.pending, *oracle.expiring]
        left += [*oracle.blocks, *oracle.blocks_expiring]
        if left or any(oracle.waiting.values()):
            raise Violation("not over", f"left: {left} {oracle.waiting}")

    def _drain(self) -> None:
        self.service.expire()
        self.service.expire_blocks()

    def _judge(self, tree: Tree) -> None:
        """Check the verdicts that the source of a tree has received, after all has ended."""
        heard, tracks = len(tree.read), tree.tracks
        if heard > 1:
            self.counts["second verdicts"] += heard - 1
        if tracks and not heard:
            self.counts["trees without a verdict, after a failover"] += 1
        if tree.rewound:
            return
        # Each TRACK of a block began a life or was rejected; both end with one verdict.
        least = tracks if tree.block else min(tracks, 1)
        if not least <= heard <= tracks + self.service.oracle.extra[tree.anchor]:
            raise Violation(
                "verdicts", f"tracked {tracks} times, but received {tree.read}", tree.anchor
            )
