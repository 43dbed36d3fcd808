"""Compare blocks on Redis with the reference model in random histories, with loose trees too."""

import struct
import uuid
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
from acker_redis.errors import BacklogError, ChangedBatchError, SchemaError
from acker_redis.protocol import commands
from acker_redis.protocol.commands import Fence
from acker_redis.protocol.slots import pack_slots
from acker_redis.sync.client import Acker
from proof.reference.acker import TreeRow
from proof.reference.blocks import Block, BlockKey, BlockReference, BlockRow
from proof.simulate.redis_shard import RedisShard
from tests.properties.lifetimes import EDGES, LIFETIMES, OBJECTIVES, STEPS, config_of
from tests.properties.play import share
from tests.support import ageless
from tests.tiers import examples

BLOCKS = st.integers(1, 4)
DELTAS = st.sampled_from([0, 0, 1, 2, 3, 1 << 31, (1 << 63) - 1])
SLOTS = st.integers(0, 9)
ABSENT = st.just(set()) | st.sets(st.integers(0, 8), max_size=4)
WHYS = st.sampled_from(["", "w", 'q"\\', "é"])
FENCES = st.none() | st.builds(
    Fence, st.sampled_from(["p", "@d"]), st.integers(1, 8), st.sampled_from(["", "a"])
)


@st.composite
def block_rows(draw: st.DrawFn) -> list[BlockRow]:
    rows = []
    for block in draw(st.lists(BLOCKS, min_size=1, max_size=3, unique=True)):
        failed = draw(st.dictionaries(SLOTS, WHYS, max_size=2))
        touch = draw(st.sampled_from([False, False, True]))
        if draw(st.booleans()):
            column = dict(enumerate(draw(st.lists(DELTAS, min_size=1, max_size=9))))
            label = draw(st.sampled_from(["kafka/3/1000", 'q"\\', "é"]))
            absent = frozenset(draw(ABSENT) & column.keys())
            if absent == column.keys():
                absent -= {0}
            column |= dict.fromkeys(absent, 0)
            rows.append(BlockRow(block, column, failed, touch, "t", label, absent))
        else:
            deltas = draw(st.dictionaries(SLOTS, DELTAS, max_size=6))
            rows.append(BlockRow(block, deltas, failed, touch))
    return rows


class Machine(RuleBasedStateMachine):
    """The same calls to Redis and to the reference model."""

    url = ""
    surplus = 0
    """Verdicts on no tree, or second verdicts, that blocks owe because they have lost a key."""

    @initialize(
        buckets=st.integers(2, 3),
        high_water=st.sampled_from([3, 100]),
        outcomes_limit=st.sampled_from([4, 100]),
        lifetime=LIFETIMES,
        edges=EDGES,
        slo_ms=OBJECTIVES,
    )
    def begin(self, **fields: Any) -> None:
        config = config_of(**fields)
        self.model = BlockReference(config)
        acker = Acker.from_url(self.url, f"b-{uuid.uuid4().hex[:12]}")
        acker.create(config)
        self.redis = RedisShard(acker)

    @rule(rows=block_rows(), fence=FENCES)
    def apply_blocks(self, rows: list[BlockRow], fence: Fence | None) -> None:
        try:
            expected = self.model.apply_blocks(rows, fence)
        except (ChangedBatchError, BacklogError, SchemaError) as error:
            event(f"refused: {type(error).__name__}")
            before = self.redis.dump() if isinstance(error, SchemaError) else None
            with pytest.raises(type(error)):
                self.redis.apply_blocks(rows, fence)
            assert before is None or before == self.redis.dump()
            return
        for name in ("acked", "failed", "rejected", "highest"):
            if getattr(expected, name):
                event(f"apply_blocks: {name}")
        assert self.redis.apply_blocks(rows, fence) == expected

    @rule(which=st.integers(0, 10), fail=st.booleans())
    def finish(self, which: int, fail: bool) -> None:
        """Bring all slots of a block to zero, which random deltas rarely do."""
        blocks = [item for item in self.blocks() if not item[1].lost]
        blocks = [item for item in blocks if item[0] not in self.model.blocks_expiring]
        if not blocks:
            return
        number, block = blocks[which % len(blocks)]
        deltas = dict(enumerate(block.checksums))
        row = BlockRow(number, deltas, {0: "late"} if fail else {})
        event(f"finished a block{' with absent slots' if block.absent else ''}")
        assert self.redis.apply_blocks([row]) == self.model.apply_blocks([row])

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

    @rule(anchor=st.integers(1, 3), delta=DELTAS, flags=st.sampled_from([0, 1, 4]))
    def apply_loose(self, anchor: int, delta: int, flags: int) -> None:
        row = TreeRow(anchor, delta, flags, "s" if flags == 1 else "")
        task = "t" if flags == 1 else ""
        try:
            expected = self.model.apply([row], task)
        except BacklogError:
            with pytest.raises(BacklogError):
                self.redis.apply([row], task)
            return
        assert self.redis.apply([row], task) == expected

    @rule(ms=STEPS)
    def time_passes(self, ms: int) -> None:
        self.redis.advance(ms)
        self.model.advance(ms)

    @rule()
    def rotate(self) -> None:
        assert self.redis.rotate(force=True) == self.model.rotate(force=True)

    @rule()
    def expire(self) -> None:
        assert self.redis.expire() == self.model.expire()

    @precondition(lambda self: self.model.blocks_expiring)
    @rule()
    def expire_a_block(self) -> None:
        client, key = self.redis.acker.connection.client, self.redis.keys.blocks_expiring
        before = set(client.hkeys(key))
        left = self.redis.expire_blocks(1)
        gone = [int.from_bytes(b, "big") for b in before - set(client.hkeys(key))]
        assert self.model.expire_blocks(gone) == left
        event("expired a block")

    @rule()
    def take(self) -> None:
        outcomes = self.redis.acker.outcomes("t")
        entries = outcomes.read(1000)
        blocks = [ageless(entry.block) for entry in entries if entry.block]
        loose = [ageless(o) for entry in entries for o in entry.outcomes]
        assert sorted(blocks) == sorted(map(ageless, self.model.take_blocks("t")))
        assert sorted(loose) == sorted(map(ageless, self.model.take("t")))
        assert outcomes.take(entries) == len(loose) + sum(e.block.count for e in entries if e.block)

    @invariant()
    def same_state(self) -> None:
        if not hasattr(self, "model"):
            return
        (shard,) = self.redis.acker.status().shards
        assert sum(shard.pending) == self.model.pending
        assert shard.counters == {name: self.model.counters[name] for name in commands.COUNTERS}
        assert shard.after_failure == self.model.after_failure
        assert shard.backlog.get("t", 0) == self.model.backlog("t")
        assert set(shard.backlog) == set(self.model.names)
        assert shard.expiring == len(self.model.expiring) + len(self.model.blocks_expiring)
        client, keys = self.redis.acker.connection.client, self.redis.keys
        for place in (*self.model.block_buckets, self.model.blocks_expiring):
            for number, block in place.items():
                column = struct.pack(f">{len(block.checksums)}Q", *block.checksums)
                assert client.get(keys.block(number)) == (None if "block" in block.lost else column)
                failed, present = client.mget(keys.failed(number), keys.present(number))
                slots, some = len(block.checksums), bool(block.absent)
                assert failed == (pack_slots(block.failed, slots) if block.failed else None)
                assert present == (pack_slots(block.trees, slots) if some else None)
        assert shard.latency.count == shard.counters["acked"]
        assert shard.ended.get("t", 0) == self.model.ended["t"]
        assert shard.good.get("t", 0) == self.model.good["t"]
        assert shard.slow == self.model.slow
        counters = shard.counters
        ended = sum(counters[n] for n in ("acked", "failed", "expired", "overflow", "conflict"))
        assert counters["tracked"] + self.surplus == ended + self.model.tracked_records

    def teardown(self) -> None:
        if hasattr(self, "redis"):
            for _ in range(6):
                self.redis.expire()
                self.redis.rotate(force=True)
                while self.redis.expire_blocks():
                    pass
            client = self.redis.acker.connection.client
            kinds = (b":block", b":failed", b":present")
            left = {key for key in self.redis.dump() if any(kind in key for kind in kinds)}
            assert not left, "no key remains when all blocks have ended"
            assert not client.exists(f"{self.redis.keys.prefix}:scratch")
            self.redis.acker.close()


def test_redis_agrees_with_the_reference_on_blocks(server: EmbeddedRedis) -> None:
    machine = type("Machine", (Machine,), {"url": server.url})
    histories = share(server, examples(0.6))
    run_state_machine_as_test(
        machine, settings=settings(max_examples=histories, stateful_step_count=30)
    )
