"""The fence: a batch is applied once, however often it is sent."""

import pytest

from acker_redis.client import Acker
from acker_redis.commands import Fence
from acker_redis.errors import ChangedBatchError, FenceFullError
from acker_redis.keys import ShardKeys
from tests.conftest import MakeAcker
from tests.support import TRACK, columns, dump, row, send, tick, total, track, verdicts

A, B = 0x0F0F_0F0F_0F0F, 0x3333_CCCC_3333


def test_repeat_is_not_applied(acker: Acker) -> None:
    part = columns([(7, A, TRACK)], "t", ["s7"])
    assert send(acker, part, Fence("p", 1)).tracked == 1
    for _ in range(3):
        assert send(acker, part, Fence("p", 1)).highest == 1
    counters = total(acker)
    assert (counters["tracked"], counters["conflict"], counters["repeated"]) == (1, 0, 3)


def test_repeated_ack_does_not_cancel_itself(acker: Acker) -> None:
    """x XOR x = 0: a row that ran twice would be as if it had never run."""
    track(acker, 7, A)
    send(acker, columns([(7, A ^ B, 0)]), Fence("p", 1))
    send(acker, columns([(7, A ^ B, 0)]), Fence("p", 1))
    assert row(acker, 7, B).acked == 1


def test_older_numbers_are_repeats(acker: Acker) -> None:
    for seq in (1, 5, 9):
        assert send(acker, columns([(seq, A, 0)]), Fence("p", seq)).highest is None
    for seq in (1, 4, 8):
        assert send(acker, columns([(90 + seq, A, 0)]), Fence("p", seq)).highest == 9
    assert total(acker)["pending"] == 3


def test_producers_do_not_fence_each_other(acker: Acker) -> None:
    assert send(acker, columns([(1, A, 0)]), Fence("p", 5)).highest is None
    assert send(acker, columns([(1, B, 0)]), Fence("q", 5)).highest is None


def test_numbers_compare_as_numbers(acker: Acker) -> None:
    send(acker, columns([(1, A, 0)]), Fence("p", 9))
    assert send(acker, columns([(1, A, 0)]), Fence("p", 10)).highest is None
    assert send(acker, columns([(1, A, 0)]), Fence("p", 999_999_999_999_998)).highest is None
    assert send(acker, columns([(1, A, 0)]), Fence("p", 999_999_999_999_999)).highest is None
    assert send(acker, columns([(1, A, 0)]), Fence("p", 999_999_999_999_998)).highest is not None


def test_other_content_under_one_number_is_a_conflict(acker: Acker) -> None:
    send(acker, columns([(1, A, 0)]), Fence("p", 1, "aa"))
    before = dump(acker)
    with pytest.raises(ChangedBatchError, match="other content"):
        send(acker, columns([(1, B, 0)]), Fence("p", 1, "ab"))
    assert dump(acker) == before
    assert send(acker, columns([(1, A, 0)]), Fence("p", 1, "aa")).highest == 1


def test_a_digest_on_one_side_only_is_a_conflict(acker: Acker) -> None:
    send(acker, columns([(1, A, 0)]), Fence("p", 1))
    with pytest.raises(ChangedBatchError):
        send(acker, columns([(1, A, 0)]), Fence("p", 1, "aa"))


@pytest.mark.parametrize("buckets", [2, 3, 5])
def test_fence_holds_for_n_minus_1_ticks(make_acker: MakeAcker, buckets: int) -> None:
    acker = make_acker(buckets=buckets)
    send(acker, columns([(1, A, 0)]), Fence("p", 1))
    for _ in range(buckets - 1):
        tick(acker)
        assert send(acker, columns([(1, A, 0)]), Fence("p", 1)).highest == 1
    tick(acker)
    assert acker.status().shards[0].fences == 0


def test_fence_moves_with_its_lane(acker: Acker) -> None:
    """A lane that goes on is found in one bucket only, and does not rot with the oldest."""
    for seq in range(1, 9):
        assert send(acker, columns([(seq, A, 0)]), Fence("p", seq)).highest is None
        tick(acker)
        assert acker.status().shards[0].fences == 1
        assert send(acker, columns([(seq, A, 0)]), Fence("p", seq)).highest == seq


def test_durable_lane_outlives_all_buckets(acker: Acker) -> None:
    send(acker, columns([(1, A, 0)]), Fence("@spark/q/0", 100_001, "aa"))
    tick(acker, 10)
    assert send(acker, columns([(1, A, 0)]), Fence("@spark/q/0", 100_001, "aa")).highest == 100_001
    with pytest.raises(ChangedBatchError):
        send(acker, columns([(1, B, 0)]), Fence("@spark/q/0", 100_001, "ab"))


def test_durable_lane_ends_after_thirty_days(acker: Acker) -> None:
    send(acker, columns([(1, A, 0)]), Fence("@old", 1))
    send(acker, columns([(1, A, 0)]), Fence("@new", 1))
    client, key = acker.connection.client, ShardKeys(acker.namespace, 0).durable_fences
    used = int(client.hget(key, "@old").rpartition(b":")[2])
    client.hset(key, "@old", f"1::{used - 31 * 24 * 3600 * 1000}")
    tick(acker)
    assert client.hkeys(key) == [b"@new"]


def test_fences_are_capped(acker: Acker) -> None:
    keys = ShardKeys(acker.namespace, 0)
    client = acker.connection.client
    for start in range(0, 100_000, 20_000):
        full = {f"p{i}": "1:" for i in range(start, start + 20_000)}
        client.hset(keys.fence(start // 20_000 % 3), mapping=full)
    with pytest.raises(FenceFullError, match="100000 fences"):
        send(acker, columns([(1, A, 0)]), Fence("one-more", 1))
    assert send(acker, columns([(1, A, 0)]), Fence("p7", 2)).highest is None
    assert send(acker, columns([(1, A, 0)])).highest is None


def test_a_refused_batch_does_not_use_its_number_up(make_acker: MakeAcker) -> None:
    acker = make_acker(outcomes_limit=1)
    track(acker, 1, 0)
    part = columns([(2, A, TRACK)], "t", ["s2"])
    with pytest.raises(Exception, match="BACKLOG|waiting"):
        send(acker, part, Fence("p", 1))
    verdicts(acker)
    assert send(acker, part, Fence("p", 1)).tracked == 1


def test_durable_fences_are_capped(acker: Acker) -> None:
    key = ShardKeys(acker.namespace, 0).durable_fences
    now = 10**13
    for start in range(0, 100_000, 20_000):
        full = {f"@{i}": f"1::{now}" for i in range(start, start + 20_000)}
        acker.connection.client.hset(key, mapping=full)
    with pytest.raises(FenceFullError):
        send(acker, columns([(1, A, 0)]), Fence("@one-more", 1))
    assert send(acker, columns([(1, A, 0)]), Fence("@7", 2)).highest is None


def test_old_durable_lanes_end_however_many_there_are(acker: Acker) -> None:
    """A tick looks at a page of them, the next tick at the next page."""
    key = ShardKeys(acker.namespace, 0).durable_fences
    acker.connection.client.hset(key, mapping={f"@{i}": "1::1" for i in range(1000)})
    for _ in range(200):
        tick(acker)
        if not acker.status().shards[0].fences:
            break
    assert acker.status().shards[0].fences == 0
