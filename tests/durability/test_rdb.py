"""An old snapshot comes back: trees, counters and fences are what they were some time ago."""

from pathlib import Path

import pytest

from acker_redis.batching.batch import Batch
from acker_redis.embedded.binary import ServerBinary
from acker_redis.protocol.commands import Fence
from acker_redis.protocol.config import AckerConfig
from acker_redis.simulate.redis_shard import RedisShard
from acker_redis.sync.client import Acker
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
from tests.waiting import LIMIT

CONFIG = AckerConfig(tick_ms=3_600_000, high_water=1_000_000, shards=2, publish=False)


def test_an_old_snapshot_comes_back_under_load(binary: ServerBinary, directory: Path) -> None:
    with (
        Kept(binary, directory, *NEITHER) as server,
        Acker.from_url(server.url, "n", retry_for=LIMIT) as acker,
    ):
        acker.create(CONFIG)
        with Load(server.url, acker) as load:
            for _ in range(3):
                load.go_on(2)
                server.ask("SAVE")
                load.go_on(4)
                server.kill()
                server.start()
            load.go_on(2)
        counted = load.finish()
    books, lost = load.books, load.books.lost()
    print(f"snapshots: {dict(lost)}, {counted}")
    assert not books.false_acks
    assert 0 < lost["never told of"] < lost["tracked"]
    assert lost["done, not acked"] > 0
    assert counted["pending"] == counted["expiring"] == counted["conflict"] == 0
    # Acked behind the snapshot, pending again before it, and then expired.
    again = [told for told in books.verdicts.values() if set(told) == {"completed", "expired"}]
    assert again


@pytest.mark.parametrize("settings", [ALWAYS, NEITHER], ids=["every write", "snapshots"])
def test_a_source_sees_each_record_to_its_end(
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
    assert (lost == 0) == (settings == ALWAYS), "nothing is sent again for want of a write"


@pytest.fixture
def acker(make_any_acker: MakeAcker) -> Acker:
    return make_any_acker()


def test_a_tree_that_was_acked_is_pending_again_and_expires(acker: Acker) -> None:
    shard = RedisShard(acker)
    track(acker, 7, 10 ^ 20)
    row(acker, 7, 10)
    before = shard.dump()
    row(acker, 7, 20)
    assert [verdict[:2] for verdict in verdicts(acker)] == [("ack", "completed")]
    shard.restore(before)
    tick(acker, 3)
    assert [verdict[:2] for verdict in verdicts(acker)] == [("nack", "expired")]


def test_verdicts_that_were_taken_are_there_again(acker: Acker) -> None:
    shard = RedisShard(acker)
    track(acker, 7, 0)
    before = shard.dump()
    assert len(verdicts(acker)) == 1
    shard.restore(before)
    assert len(verdicts(acker)) == 1


def test_what_is_sent_again_counts_by_the_fence_of_the_snapshot(acker: Acker) -> None:
    """Applied before the snapshot: a repeat. Behind it: lost with its fence, and applied anew."""
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
        # By the first lane it was complete; by the second nobody has tracked it.
        expected = ["completed"] if lane == "p" else []
        assert [verdict[1] for verdict in verdicts(acker)] == expected


def test_rows_are_there_without_their_track(acker: Acker) -> None:
    """The TRACK was lost, and what was processed before it was not: nobody is told anything."""
    shard = RedisShard(acker)
    row(acker, 7, 10)
    before = shard.dump()
    track(acker, 7, 10 ^ 20)
    shard.restore(before)
    row(acker, 7, 20)
    tick(acker, 3)
    assert verdicts(acker) == []
    assert acker.status().counters["orphaned"] == 1


def test_a_failure_is_lost_with_its_delta(acker: Acker) -> None:
    """So its tree cannot become complete, though all else of it was processed."""
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


def test_an_anchor_that_serves_two_attempts_may_be_acked_falsely(acker: Acker) -> None:
    """That "an anchor serves one attempt" is needed: the snapshot has the first attempt's rows."""
    shard = RedisShard(acker)
    track_block(acker, 5, [10, 20], "attempt")
    block_row(acker, 5, {0: 10})
    before = shard.dump()
    block_row(acker, 5, {1: 20})
    verdicts(acker)
    # The first attempt is over; another, of other records, goes by its name.
    assert track_block(acker, 5, [30, 40], "attempt").tracked == 2
    shard.restore(before)
    tick(acker, 3)
    told = verdicts(acker)
    assert ("ack", "completed") in [verdict[:2] for verdict in told], "nobody has processed 30"
    # By a number of its own, as the client gives it to a label that tells attempts apart:
    track_block(acker, 6, [30, 40], "attempt 2")
    shard.restore(before)
    block_row(acker, 6, {1: 40})
    tick(acker, 3)
    assert {verdict[2] >> 12 & 0xFFF for verdict in verdicts(acker)} == {5}


def test_a_loose_anchor_that_serves_two_attempts_is_never_zero_by_the_first(acker: Acker) -> None:
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


def test_a_batch_in_doubt_is_applied_by_the_client_that_knows_its_number(acker: Acker) -> None:
    """The client's own lane counts on, whatever number the snapshot has."""
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
