"""The latency of acked trees: statistics that are counted with the verdicts and stop none."""

import pytest

from acker_redis.protocol.keys import ShardKeys
from acker_redis.protocol.latency import Latency
from proof.reference.acker import Reference
from proof.reference.blocks import BlockRow
from tests.conformance.conftest import MakeTarget
from tests.support import (
    Target,
    advance,
    block_row,
    columns,
    fail,
    row,
    send,
    send_blocks,
    tick,
    total,
    track,
    track_block,
    verdicts,
)
from tests.support import row as delta

SECOND, HOUR = 1000, 3_600_000
SPAN = 3 << 16
"""Milliseconds of 18 binary digits, which are 131,072 to 262,143: a stall of a minute is
tolerated."""


def latency(target: Target) -> Latency:
    """Return the latency of all shards, and check that it counts all acked trees."""
    found = target.latency if isinstance(target, Reference) else target.status().latency
    assert found.count == total(target)["acked"]
    return found


def digits(target: Target) -> dict[int, int]:
    """Return the number of trees by the binary digits of their latency in ms."""
    return {n: count for n, count in enumerate(latency(target).counts) if count}


def test_each_ack_counts_by_its_age(acker: Target) -> None:
    track(acker, 1, 40)
    track(acker, 2, 41)
    advance(acker, SPAN)
    track(acker, 3, 42)
    delta(acker, 1, 40)
    advance(acker, HOUR)  # 22 digits
    delta(acker, 2, 41)
    delta(acker, 3, 42)
    assert digits(acker) == {18: 1, 22: 2}
    assert 2 * HOUR + 2 * SPAN <= latency(acker).sum_ms < 2 * HOUR + 2 * SPAN + 120 * SECOND


def test_only_acks_count(acker: Target) -> None:
    track(acker, 1, 40)
    fail(acker, 1)
    track(acker, 2, 41)
    row(acker, 3, 7)
    tick(acker, 3)
    assert latency(acker) == Latency()


def test_latency_starts_at_the_first_row_of_any_kind(acker: Target) -> None:
    row(acker, 1, 40)
    advance(acker, SPAN)
    track(acker, 1, 40)
    assert digits(acker) == {18: 1}


def test_latency_is_zero_after_a_clock_jump_back(acker: Target) -> None:
    track(acker, 1, 40)
    advance(acker, -HOUR)
    delta(acker, 1, 40)
    assert latency(acker) == Latency((1,), 0)


def test_latency_is_capped_at_24_days(acker: Target) -> None:
    track(acker, 1, 40)
    advance(acker, 2**33)
    delta(acker, 1, 40)
    assert digits(acker) == {31: 1}
    assert latency(acker).sum_ms == 2**31 - 1


def test_a_block_counts_when_it_ends(acker: Target) -> None:
    track_block(acker, 7, [40, 41, 42])
    send_blocks(acker, BlockRow(7, {0: 40}, {1: "no"}))
    advance(acker, SPAN)
    assert latency(acker) == Latency()
    send_blocks(acker, BlockRow(7, {1: 41, 2: 42}))
    assert digits(acker) == {18: 2}
    assert 2 * SPAN <= latency(acker).sum_ms < 2 * SPAN + 120 * SECOND


def test_expired_block_counts_the_latency_of_its_acks(acker: Target) -> None:
    track_block(acker, 7, [40, 41, 42, 43])
    track_block(acker, 8, [50])
    send_blocks(acker, BlockRow(7, {0: 40, 2: 42}, {3: "no"}))
    advance(acker, SPAN)
    tick(acker, 3)
    assert digits(acker) == {18: 2}


def test_a_block_whose_trees_all_failed_counts_nothing(acker: Target) -> None:
    track_block(acker, 7, [40])
    send_blocks(acker, BlockRow(7, {0: 40}, {0: "no"}))
    assert latency(acker) == Latency()


def test_a_batch_of_a_thousand_ages(make_acker: MakeTarget) -> None:
    acker = make_acker(high_water=10_000)
    for start in range(0, 1000, 250):
        rows = [(anchor, 40, 1) for anchor in range(start + 1, start + 251)]
        send(acker, columns([*rows], "t", ["s"] * 250))
        advance(acker, 5 << 17)
    send(acker, columns([(anchor, 40, 0) for anchor in range(1, 1001)]))
    # After 5, 10, 15 and 20 times 2^17 ms, each with more than two minutes to the next digit.
    assert digits(acker) == {20: 250, 21: 500, 22: 250}


@pytest.mark.parametrize("field", ["latency:18", "latency_ms"])
def test_latency_that_cannot_be_counted_stops_no_verdict(acker: Target, field: str) -> None:
    if isinstance(acker, Reference):
        return
    client, meta = acker.connection.client, ShardKeys(acker.namespace, 0).meta
    client.hset(meta, field, "many")
    track(acker, 1, 40)
    track_block(acker, 7, [41])
    track_block(acker, 8, [42, 43])
    block_row(acker, 8, {0: 42})
    advance(acker, SPAN)
    delta(acker, 1, 40)
    block_row(acker, 7, {0: 41})
    tick(acker, 3)
    assert acker.status().counters["acked"] == 3
    found = [each[:2] for each in verdicts(acker)]
    assert sorted(found) == [("ack", "completed")] * 3 + [("nack", "expired")]
    assert total(acker)["acked"] == 3
