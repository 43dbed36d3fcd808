"""An old snapshot is restored: trees, counters and fences are in an earlier state."""

from pathlib import Path

import pytest

from acker_redis.batching.batch import Batch
from acker_redis.embedded.binary import ServerBinary
from acker_redis.protocol.commands import Fence
from acker_redis.protocol.config import AckerConfig
from acker_redis.protocol.ids import new_anchor, new_tuple_id
from acker_redis.sync.client import Acker
from proof.simulate.redis_shard import RedisShard
from tests.conftest import MakeAcker
from tests.durability.load import Load
from tests.durability.records import Replayed
from tests.durability.servers import ALWAYS, NEITHER, Kept
from tests.source.conftest import Clock
from tests.source.conftest import clock as clock
from tests.support import (
    TRACK,
    block_row,
    columns,
    fail_slot,
    row,
    send,
    tick,
    track,
    track_block,
    verdicts,
)
from tests.waiting import LIMIT, wait_until

CONFIG = AckerConfig(tick_ms=3_600_000, high_water=1_000_000, shards=2, publish=False)


def test_restored_snapshot_under_load_never_acks_falsely(
    binary: ServerBinary, directory: Path
) -> None:
    with (
        Kept(binary, directory, *NEITHER) as server,
        Acker.from_url(server.url, "n", retry_for=LIMIT) as acker,
    ):
        acker.create(CONFIG)
        with Load(server.url, acker) as load:
            for _ in range(3):
                load.go_on(2)
                known, one = new_anchor(), new_tuple_id()
                load.books.tracked.add(known)
                load.books.done.add(known)
                batch, ack = Batch("t"), Batch()
                batch.track(known, "known", [one])
                acker.apply(batch)
                server.ask("SAVE")
                ack.ack(known, one)
                acker.apply(ack)
                wait_until(lambda known=known: known in load.books.verdicts, "its ack")
                load.go_on(4)
                server.kill()
                server.start()
            load.go_on(2)
        counted = load.finish()
    books, lost = load.books, load.books.lost()
    print(f"snapshots: {dict(lost)}, {counted}")
    assert not books.false_acks
    assert 0 < lost["never reported"] < lost["tracked"]
    assert lost["done, not acked"] > 0
    assert counted["pending"] == counted["expiring"] == counted["conflict"] == 0
    # Acked after the snapshot, pending again in the snapshot, and then expired.
    again = [each for each in books.verdicts.values() if set(each) == {"completed", "expired"}]
    assert len(again) >= 3


@pytest.mark.parametrize("settings", [ALWAYS, NEITHER], ids=["every write", "snapshots"])
def test_source_replays_each_record_until_it_is_acked(
    binary: ServerBinary, directory: Path, clock: Clock, settings: tuple[str, ...]
) -> None:
    with (
        Kept(binary, directory, *settings) as server,
        Acker.from_url(server.url, "n", retry_for=LIMIT) as acker,
    ):
        acker.create(CONFIG)
        source = Replayed(server.url, "n", clock, seed=5)

        def again() -> None:
            server.kill()
            server.start()

        source.run(120, {15: lambda: server.ask("SAVE"), 45: again, 60: again, 100: again})
        source.close()
    lost = sum(attempt > 1 for attempt in source.attempts.values())
    assert (lost == 0) == (settings == ALWAYS), "no record is replayed unless a write is lost"


@pytest.fixture
def acker(make_any_acker: MakeAcker) -> Acker:
    return make_any_acker()


def test_acked_tree_is_pending_after_a_restore_and_expires(acker: Acker) -> None:
    shard = RedisShard(acker)
    track(acker, 7, 10 ^ 20)
    row(acker, 7, 10)
    before = shard.dump()
    row(acker, 7, 20)
    assert [verdict[:2] for verdict in verdicts(acker)] == [("ack", "completed")]
    shard.restore(before)
    tick(acker, 3)
    assert [verdict[:2] for verdict in verdicts(acker)] == [("nack", "expired")]


def test_taken_verdicts_return_after_a_restore(acker: Acker) -> None:
    shard = RedisShard(acker)
    track(acker, 7, 0)
    before = shard.dump()
    assert len(verdicts(acker)) == 1
    shard.restore(before)
    assert len(verdicts(acker)) == 1


def test_retry_is_judged_by_the_fence_of_the_snapshot(acker: Acker) -> None:
    """Applied before the snapshot: a repeat. Applied after it: lost with its fence, so applied."""
    shard = RedisShard(acker)
    track(acker, 7, 10 ^ 20)
    first, second = columns([(7, 10, 0)]), columns([(7, 20, 0)])
    for lane in ("p", "@p"):
        assert send(acker, first, Fence(lane, 1, "aa")).highest is None
        before = shard.dump()
        assert send(acker, second, Fence(lane, 2, "bb")).highest is None
        shard.restore(before)
        assert send(acker, first, Fence(lane, 1, "aa")).highest == 1
        assert send(acker, second, Fence(lane, 2, "bb")).highest is None
        assert send(acker, second, Fence(lane, 2, "bb")).highest == 2
        # The first lane has completed the tree; for the second lane it was never tracked.
        expected = ["completed"] if lane == "p" else []
        assert [verdict[1] for verdict in verdicts(acker)] == expected


def test_tree_without_its_track_gets_no_verdict(acker: Acker) -> None:
    """The TRACK was lost, but an earlier ack was not: no verdict is written."""
    shard = RedisShard(acker)
    row(acker, 7, 10)
    before = shard.dump()
    track(acker, 7, 10 ^ 20)
    shard.restore(before)
    row(acker, 7, 20)
    tick(acker, 3)
    assert verdicts(acker) == []
    assert acker.status().counters["orphaned"] == 1


def test_failure_is_lost_together_with_its_delta(acker: Acker) -> None:
    """So its tree cannot complete, although all its other rows were applied."""
    shard = RedisShard(acker)
    track_block(acker, 5, [10, 20])
    before = shard.dump()
    fail_slot(acker, 5, 1, "no", delta=20)
    block_row(acker, 5, {0: 10})
    shard.restore(before)
    block_row(acker, 5, {0: 10})
    tick(acker, 3)
    slots = {anchor & 0xFFF: verdict for verdict, _, anchor, _, _ in verdicts(acker)[-2:]}
    assert slots == {0: "ack", 1: "nack"}


def test_reused_block_may_be_acked_falsely_after_a_restore(acker: Acker) -> None:
    """Each attempt needs a new anchor: the snapshot has the rows of the first attempt."""
    shard = RedisShard(acker)
    track_block(acker, 5, [10, 20], "attempt")
    block_row(acker, 5, {0: 10})
    before = shard.dump()
    block_row(acker, 5, {1: 20})
    verdicts(acker)
    # The first attempt has ended; another one, of other records, uses the same label.
    assert track_block(acker, 5, [30, 40], "attempt").tracked == 2
    shard.restore(before)
    tick(acker, 3)
    found = verdicts(acker)
    assert ("ack", "completed") in [verdict[:2] for verdict in found], "30 was never processed"
    # With another number, which the client derives from a label for each attempt:
    track_block(acker, 6, [30, 40], "attempt 2")
    shard.restore(before)
    block_row(acker, 6, {1: 40})
    tick(acker, 3)
    assert {verdict[2] >> 12 & 0xFFF for verdict in verdicts(acker)} == {5}


def test_reused_loose_anchor_is_not_acked_after_a_restore(acker: Acker) -> None:
    shard = RedisShard(acker)
    track(acker, 7, 10 ^ 20, "first")
    row(acker, 7, 10)
    before = shard.dump()
    row(acker, 7, 20)
    send(acker, columns([(7, 30 ^ 40, TRACK)], "t", ["second"]))
    verdicts(acker)
    shard.restore(before)
    row(acker, 7, 30)
    row(acker, 7, 40)
    tick(acker, 3)
    assert [verdict[:2] for verdict in verdicts(acker)] == [("nack", "expired")]


def test_client_lane_continues_after_a_restore(acker: Acker) -> None:
    """The client's lane continues, regardless of the number in the snapshot."""
    shard = RedisShard(acker)
    before = shard.dump()
    for _ in range(3):
        batch = Batch("t")
        batch.track(7, "s", [10])
        acker.apply(batch)
        shard.restore(before)
    batch = Batch("t")
    batch.track(7, "s", [10])
    batch.ack(7, 10)
    assert acker.apply(batch).acked == 1
