"""Trees that ended, and those that completed in time, per source: statistics that stop nothing."""

import pytest

from acker_redis.protocol.keys import ShardKeys
from proof.reference.acker import Reference
from proof.reference.blocks import BlockRow
from tests.conformance.conftest import MakeTarget
from tests.support import (
    Target,
    advance,
    fail,
    send_blocks,
    tick,
    total,
    touch,
    track,
    track_block,
    verdicts,
)
from tests.support import row as delta

LIMIT_MS = 3_600_000
"""A stall of a minute is tolerated."""
SOON, LATE = LIMIT_MS - 120_000, LIMIT_MS + 120_000


def counts(target: Target) -> tuple[dict[str, int], dict[str, int], int]:
    """Return ended and good trees per source, and slow ones; check their sums."""
    found = target if isinstance(target, Reference) else target.status()
    ended = {task: n for task, n in found.ended.items() if n}
    good = {task: n for task, n in found.good.items() if n}
    all_ = total(target)
    assert sum(good.values()) == all_["acked"] - found.slow
    nacked = sum(all_[name] for name in ("failed", "expired", "overflow", "conflict"))
    assert sum(ended.values()) == all_["acked"] + nacked
    return ended, good, found.slow


def test_each_end_counts_for_its_source(acker: Target) -> None:
    for anchor, task in enumerate("ttttuu", 1):
        track(acker, anchor, 40, task=task)
    delta(acker, 1, 40)
    fail(acker, 2)
    delta(acker, 5, 40)
    track(acker, 3, 41, "another", task="u")  # a conflict: both sources get a nack
    assert counts(acker) == ({"t": 3, "u": 2}, {"t": 1, "u": 1}, 0)
    tick(acker, 3)
    assert counts(acker) == ({"t": 4, "u": 3}, {"t": 1, "u": 1}, 0)


def test_a_millisecond_may_be_the_limit(make_acker: MakeTarget) -> None:
    acker = make_acker(slo_ms=1)
    track(acker, 1, 40)
    track_block(acker, 7, [40])
    track_block(acker, 8, [0, 40])
    advance(acker, 60_000)
    delta(acker, 1, 40)
    send_blocks(acker, BlockRow(7, {0: 40}))
    assert counts(acker) == ({"t": 2}, {}, 2)
    tick(acker, 3)
    assert counts(acker) == ({"t": 4}, {}, 3)


def test_slow_acks_are_not_good(make_acker: MakeTarget) -> None:
    acker = make_acker(slo_ms=LIMIT_MS, tick_ms=100 * LIMIT_MS)
    for anchor in (1, 2):
        track(acker, anchor, 40)
    track_block(acker, 7, [40, 41])
    track_block(acker, 8, [40])
    advance(acker, SOON)
    delta(acker, 1, 40)
    send_blocks(acker, BlockRow(7, {0: 40}, {1: "no"}), BlockRow(8, {0: 40}))
    advance(acker, LATE - SOON)
    delta(acker, 2, 40)
    send_blocks(acker, BlockRow(7, {1: 41}))
    assert counts(acker) == ({"t": 5}, {"t": 2}, 2)


def test_expired_block_counts_its_acks_and_nacks(make_acker: MakeTarget) -> None:
    acker = make_acker(slo_ms=LIMIT_MS, tick_ms=100 * LIMIT_MS)
    track_block(acker, 7, [40, 41, 42, 43])
    send_blocks(acker, BlockRow(7, {0: 40, 1: 41}, {3: "no"}))
    tick(acker, 3)
    assert counts(acker) == ({"t": 4}, {"t": 2}, 0)
    track_block(acker, 8, [40, 41])
    send_blocks(acker, BlockRow(8, {0: 40}))
    advance(acker, LATE)
    tick(acker, 3)
    assert counts(acker) == ({"t": 6}, {"t": 2}, 1)


def test_rejected_trees_end_and_are_not_good(make_acker: MakeTarget) -> None:
    acker = make_acker(high_water=1)
    for anchor in range(1, 9):
        track(acker, anchor, 40)
    track_block(acker, 7, [40, 41])
    rejected = total(acker)["overflow"]
    assert rejected > 2, "trees, and those of the block"
    assert counts(acker) == ({"t": rejected}, {}, 0)


def test_touches_and_repeats_count_nothing(acker: Target) -> None:
    track(acker, 1, 40)
    touch(acker, 1)
    delta(acker, 2, 7)
    assert counts(acker) == ({}, {}, 0)


def test_idle_source_is_forgotten_with_its_counts(acker: Target) -> None:
    track(acker, 1, 0, task="t")
    assert counts(acker)[0] == {"t": 1}
    verdicts(acker)
    for _ in range(102):
        tick(acker)
    found = acker if isinstance(acker, Reference) else acker.status()
    assert "t" not in found.ended


@pytest.mark.parametrize("field", ["ended:t", "good:t"])
def test_count_that_is_no_number_stops_no_verdict(acker: Target, field: str) -> None:
    if isinstance(acker, Reference):
        return
    client, meta = acker.connection.client, ShardKeys(acker.namespace, 0).meta
    track(acker, 1, 40)
    track_block(acker, 7, [41])
    track_block(acker, 8, [42])
    client.hset(meta, field, "many")
    delta(acker, 1, 40)
    client.hset(meta, field, "many")
    send_blocks(acker, BlockRow(7, {0: 41}))
    client.hset(meta, field, "many")
    tick(acker, 3)
    assert [each[:2] for each in verdicts(acker)] == [
        ("ack", "completed"),
        ("ack", "completed"),
        ("nack", "expired"),
    ]
