"""Random calls, also those that no client makes: Redis does what the reference does."""

import struct
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
    precondition,
    rule,
    run_state_machine_as_test,
)

from acker_redis.embedded import EmbeddedRedis
from acker_redis.errors import AckerError, BacklogError, ChangedBatchError, SchemaError
from acker_redis.protocol import commands
from acker_redis.protocol.commands import Fence, ShardApplied
from acker_redis.protocol.slots import pack_slots
from acker_redis.sync.client import Acker
from proof.reference.acker import TreeRow
from proof.reference.blocks import Block, BlockKey, BlockReference, BlockRow
from proof.simulate.redis_shard import RedisShard
from tests.properties.lifetimes import EDGES, LIFETIMES, OBJECTIVES, STEPS, config_of
from tests.properties.play import share
from tests.support import FAIL, TRACK, ageless
from tests.tiers import examples

ANCHORS = st.integers(1, 6)
DELTAS = st.sampled_from([0, 1, 2, 3, 1 << 31, 1 << 62, (1 << 62) | 1, (1 << 63) - 1])
FLAGS = st.sampled_from([0, 0, 0, 1, 1, 1, 2, 3, 4, 5, 6, 7])
TASKS = ("t", "u")
TEXTS = ['q"\\', "é"]
FENCES = st.none() | st.builds(
    Fence, st.sampled_from(["p", "q", "@d"]), st.integers(1, 6), st.sampled_from(["", "a", "b"])
)
BLOCK_FENCES = st.none() | st.builds(
    Fence, st.sampled_from(["p", "@d"]), st.integers(1, 8), st.sampled_from(["", "a"])
)
BLOCKS = st.integers(1, 4)
SLOT_DELTAS = st.sampled_from([0, 0, 1, 2, 3, 1 << 31, (1 << 63) - 1])
SLOTS = st.integers(0, 9)
ABSENT = st.just(set()) | st.sets(st.integers(0, 8), max_size=4)


@st.composite
def loose_rows(draw: st.DrawFn, most: int = 6) -> list[TreeRow]:
    rows = []
    for anchor in draw(st.lists(ANCHORS, min_size=1, max_size=most, unique=True)):
        flags = draw(FLAGS)
        source = draw(st.sampled_from(["s1", *TEXTS])) if flags & TRACK else ""
        why = draw(st.sampled_from(["", "w", '"'])) if flags & FAIL else ""
        rows.append(TreeRow(anchor, draw(DELTAS), flags, source, why))
    return rows


@st.composite
def block_rows(draw: st.DrawFn) -> list[BlockRow]:
    rows = []
    for block in draw(st.lists(BLOCKS, min_size=1, max_size=3, unique=True)):
        failed = draw(st.dictionaries(SLOTS, st.sampled_from(["", "w", *TEXTS]), max_size=2))
        touch = draw(st.sampled_from([False, False, True]))
        if draw(st.booleans()):
            column = dict(enumerate(draw(st.lists(SLOT_DELTAS, min_size=1, max_size=9))))
            label = draw(st.sampled_from(["kafka/3/1000", *TEXTS]))
            absent = frozenset(draw(ABSENT) & column.keys())
            if absent == column.keys():
                absent -= {0}
            column |= dict.fromkeys(absent, 0)
            rows.append(BlockRow(block, column, failed, touch, "t", label, absent))
        else:
            deltas = draw(st.dictionaries(SLOTS, SLOT_DELTAS, max_size=6))
            rows.append(BlockRow(block, deltas, failed, touch))
    return rows


class Calls(RuleBasedStateMachine):
    """The same calls to Redis and to the reference model, with loose rows."""

    url = ""
    surplus = 0
    """Verdicts on no tree, or second verdicts, that blocks owe because they have lost a key."""

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
        self.model = BlockReference(config)
        self.acker = Acker.from_url(self.url, f"m-{uuid.uuid4().hex[:12]}")
        self.acker.create(config)
        self.redis = RedisShard(self.acker)

    @rule(rows=loose_rows(), task=st.sampled_from(TASKS), fence=FENCES)
    def apply(self, rows: list[TreeRow], task: str, fence: Fence | None) -> None:
        task = task if any(row.flags & TRACK for row in rows) else ""
        self.both("apply", rows, task, fence)

    def both(self, name: str, *args: Any) -> None:
        expected: ShardApplied
        try:
            expected = getattr(self.model, name)(*args)
        except (ChangedBatchError, BacklogError, SchemaError) as error:
            refused: type[AckerError] = type(error)
            event(f"refused: {refused.__name__}")
            before = self.redis.dump() if refused is SchemaError else None
            with pytest.raises(refused):
                getattr(self.redis, name)(*args)
            assert before is None or before == self.redis.dump()
            return
        for field in ("acked", "failed", "rejected", "highest"):
            if getattr(expected, field):
                event(f"{name}: {field}")
        assert getattr(self.redis, name)(*args) == expected

    @rule(ms=STEPS)
    def time_passes(self, ms: int) -> None:
        self.redis.advance(ms)
        self.model.advance(ms)

    @rule(drains=st.sampled_from([True, True, False]))
    def tick(self, drains: bool) -> None:
        assert self.redis.rotate(force=True) == self.model.rotate(force=True)
        if drains:
            self.expire()

    @precondition(lambda self: self.model.expiring)
    @rule()
    def drain(self) -> None:
        self.expire()

    def expire(self) -> None:
        assert self.redis.expire() == self.model.expire()

    @rule(task=st.sampled_from(TASKS))
    def take(self, task: str) -> None:
        taken = self.model.take(task), self.model.take_blocks(task)
        outcomes = self.acker.outcomes(task)
        count = len(taken[0]) + sum(outcome.count for outcome in taken[1])
        assert outcomes.take(outcomes.read(1000)) == count

    @invariant()
    def same_outcomes(self) -> None:
        for task in TASKS:
            found: list[str] = []
            for entry in self.acker.outcomes(task).read(1000):
                found += map(ageless, [entry.block] if entry.block else entry.outcomes)
            wanted = [*map(ageless, self.model.outcomes.get(task, ()))]
            wanted += map(ageless, self.model.block_outcomes.get(task, ()))
            assert sorted(found) == sorted(wanted)

    @invariant()
    def same_state(self) -> None:
        model = self.model
        (shard,) = self.acker.status().shards
        slots = [sum(len(b.checksums) for b in bucket.values()) for bucket in model.block_buckets]
        assert shard.pending == tuple(len(b) + n for b, n in zip(model.buckets, slots, strict=True))
        assert shard.expiring == len(model.expiring) + len(model.blocks_expiring)
        assert shard.counters == {name: model.counters[name] for name in commands.COUNTERS}
        assert shard.after_failure == model.after_failure
        edges = (*model.config.edges, "")
        assert +Counter(shard.odd) == Counter({edges[e]: n for e, n in model.odd.items()})
        assert +Counter(shard.backlog) == +Counter({task: model.backlog(task) for task in TASKS})
        assert set(shard.backlog) == set(model.names)
        assert shard.fences == sum(map(len, model.fences)) + len(model.durable)
        assert shard.latency.count == shard.counters["acked"]
        assert +Counter(shard.ended) == +model.ended
        assert +Counter(shard.good) == +model.good
        acked = shard.counters["acked"]
        assert (shard.slow, sum(shard.good.values())) == (model.slow, acked - shard.slow)
        verdicts = ("acked", "failed", "expired", "overflow", "conflict")
        ended = sum(shard.counters[name] for name in verdicts)
        assert sum(shard.ended.values()) == ended
        assert shard.counters["tracked"] + self.surplus == ended + model.tracked_records

    def teardown(self) -> None:
        if hasattr(self, "acker"):
            self.acker.close()


class CallsOfBlocks(Calls):
    """The same with blocks, which may lose a key, and with few loose rows."""

    @initialize(
        buckets=st.integers(2, 3),
        high_water=st.sampled_from([3, 100]),
        outcomes_limit=st.sampled_from([4, 100]),
        lifetime=LIFETIMES,
        edges=EDGES,
        slo_ms=OBJECTIVES,
    )
    def begin(self, **fields: Any) -> None:
        super().begin(**fields)

    @rule(rows=loose_rows(1), task=st.sampled_from(TASKS), fence=st.none())
    def apply(self, rows: list[TreeRow], task: str, fence: Fence | None) -> None:
        super().apply(rows, task, fence)

    @rule(rows=block_rows(), fence=BLOCK_FENCES)
    def apply_blocks(self, rows: list[BlockRow], fence: Fence | None) -> None:
        self.both("apply_blocks", rows, fence)

    @rule(which=st.integers(0, 10), fail=st.booleans())
    def finish(self, which: int, fail: bool) -> None:
        """Bring all slots of a block to zero, which random deltas rarely do."""
        blocks = [item for item in self.blocks() if not item[1].lost]
        blocks = [item for item in blocks if item[0] not in self.model.blocks_expiring]
        if not blocks:
            return
        number, block = blocks[which % len(blocks)]
        event(f"finished a block{' with absent slots' if block.absent else ''}")
        row = BlockRow(number, dict(enumerate(block.checksums)), {0: "late"} if fail else {})
        self.both("apply_blocks", [row])

    def blocks(self) -> list[tuple[int, Block]]:
        """Return the blocks that have not ended, by number."""
        places = (*self.model.block_buckets, self.model.blocks_expiring)
        return sorted((item for place in places for item in place.items()), key=lambda i: i[0])

    @precondition(lambda self: any(not block.lost for _, block in self.blocks()))
    @rule(which=st.integers(0, 10), key=st.sampled_from(["failed", "failed", "present", "block"]))
    def lose(self, which: int, key: BlockKey) -> None:
        """Delete a key of a block that is pending or expires; if possible, one that it has."""
        blocks = [(n, b, self.counts(b)[key]) for n, b in self.blocks() if not b.lost]
        blocks = [item for item in blocks if item[2]] or blocks
        number, _, lost = blocks[which % len(blocks)]
        self.surplus += lost if key != "block" else 0
        event(f"lost key: {key}" if lost else "no key to lose")
        self.redis.lose(number, key)
        self.model.lose(number, key)

    def counts(self, block: Block) -> dict[BlockKey, int]:
        """Return the number of slots in each key of a block; 0: the block does not have it."""
        return {
            "failed": len(block.failed),
            "present": len(block.absent),
            "block": len(block.checksums),
        }

    @precondition(lambda self: self.model.blocks_expiring)
    @rule()
    def expire_a_block(self) -> None:
        client, key = self.acker.connection.client, self.redis.keys.blocks_expiring
        before = set(client.hkeys(key))
        left = self.redis.expire_blocks(1)
        gone = [int.from_bytes(b, "big") for b in before - set(client.hkeys(key))]
        assert self.model.expire_blocks(gone) == left
        event("expired a block")

    @invariant()
    def same_keys(self) -> None:
        client, keys = self.acker.connection.client, self.redis.keys
        for number, block in self.blocks():
            slots = len(block.checksums)
            column = None if "block" in block.lost else struct.pack(f">{slots}Q", *block.checksums)
            failed = pack_slots(block.failed, slots) if block.failed else None
            present = pack_slots(block.trees, slots) if block.absent else None
            names = keys.block(number), keys.failed(number), keys.present(number)
            assert client.mget(names) == [column, failed, present]

    def teardown(self) -> None:
        if hasattr(self, "acker"):
            for _ in range(6):
                self.redis.expire()
                self.redis.rotate(force=True)
                while self.redis.expire_blocks():
                    pass
            kinds = (b":block:", b":failed:", b":present:", b":scratch")
            left = {key for key in self.redis.dump() if any(kind in key for kind in kinds)}
            assert not left, "no key remains when all blocks have ended"
        super().teardown()


@pytest.mark.parametrize(
    ("kind", "portion"), [(Calls, 1.5), (CallsOfBlocks, 1.0)], ids=["loose", "blocks"]
)
def test_redis_agrees_with_the_reference(
    server: EmbeddedRedis, kind: type[Calls], portion: float
) -> None:
    machine = type("Machine", (kind,), {"url": server.url})
    histories = share(server, examples(portion))
    run_state_machine_as_test(
        machine, settings=settings(max_examples=histories, stateful_step_count=30)
    )
