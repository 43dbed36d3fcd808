"""``Acker.lost``: trees that are neither pending nor decided, in the right order of reads."""

import asyncio
from typing import Any

import pytest

from acker_redis import (
    Acker,
    BacklogError,
    Batch,
    ConfigError,
    StoredVerdict,
    StoredVerdicts,
    TrackedTree,
)
from acker_redis.aio import AsyncAcker
from acker_redis.protocol.keys import ShardKeys
from tests.conftest import MakeAcker
from tests.support import send_blocks, tick, touch, track, tracked_block

A = 4242


class Store:
    """The table of a program that stores verdicts before it takes them."""

    def __init__(self, acker: Acker) -> None:
        self.acker = acker
        self.rows: list[StoredVerdict] = []
        self.asked: list[list[int]] = []

    def take(self, store: bool = True) -> None:
        outcomes = self.acker.outcomes("t")
        entries = outcomes.read()
        for entry in entries if store else ():
            self.rows += [
                StoredVerdict(each.anchor, entry.at_ms, each.age_ms, 1, each.reason)
                for each in entry
                if each.verdict != "touch"
            ]
        outcomes.take(entries)

    def read(self, anchors: list[int]) -> StoredVerdicts:
        self.asked.append(anchors)
        newest = max((each.at_ms for each in self.rows), default=0)
        return StoredVerdicts(newest, [each for each in self.rows if each.anchor in anchors])


def now_ms(acker: Acker) -> int:
    return acker.status().shards[0].now_ms


def lost(acker: Acker, store: Store, *anchors: int, age: int = 0, within: float = 0) -> list[int]:
    at = now_ms(acker) - age
    trees = [TrackedTree(anchor, f"s{anchor}", at) for anchor in anchors]
    return [each.anchor for each in acker.lost("t", trees, store.read, within=within)]


def acker_track(acker: Acker, anchor: int, delta: int) -> None:
    batch = Batch("t")
    batch.track(anchor, f"s{anchor}", [delta] if delta else [])
    acker.apply(batch)


def test_tree_without_a_trace_is_lost(make_acker: MakeAcker) -> None:
    """Not one that is pending, waits to be drained, has failed, or has a verdict in the stream."""
    acker = make_acker(shards=2)
    store = Store(acker)
    for anchor, delta in ((1, A), (2, 0), (3, A)):
        acker_track(acker, anchor, delta)
    assert lost(acker, store, 1, 2, 3, 4, 5, within=60, age=60_000) == [4, 5]
    (asked,) = store.asked
    assert 1 not in asked, "a pending tree needs no verdict"
    store.take()
    tick(acker, 3)
    assert lost(acker, store, 1, 2, 3, 4, 5, within=60, age=60_000) == [4, 5]
    store.take()
    assert lost(acker, store, 1, 2, 3, 4, 5, within=60, age=60_000) == [4, 5]


def test_trees_of_a_block(acker: Acker) -> None:
    send_blocks(acker, tracked_block(5, [A, 0, A]))
    anchors = [(1 << 62) + (5 << 12) + slot for slot in range(4)]
    store = Store(acker)
    assert lost(acker, store, *anchors, within=60, age=60_000) == anchors[3:]
    tick(acker, 3)
    assert lost(acker, store, *anchors, within=60, age=60_000) == anchors[3:]


def test_track_that_may_be_on_its_way_is_not_lost_yet(acker: Acker) -> None:
    store = Store(acker)
    assert lost(acker, store, 4, within=60, age=50_000) == []
    assert store.asked == []
    assert lost(acker, store, 4, within=60, age=60_000) == [4]


def test_anchor_that_is_pending_again_may_have_lost_its_first_tree(acker: Acker) -> None:
    track(acker, 7, A)
    now = now_ms(acker)
    trees = [TrackedTree(7, "s", now - 500_000), TrackedTree(7, "s", now)]
    assert acker.lost("t", trees, Store(acker).read, within=0) == trees[:1]


def test_touch_decides_nothing(acker: Acker) -> None:
    track(acker, 7, A)
    touch(acker, 7)
    acker.connection.client.hdel(ShardKeys(acker.namespace, 0).pending(0), (7).to_bytes(8, "big"))
    assert lost(acker, Store(acker), 7, within=60, age=60_000) == [7]


def test_outdated_table_is_refused(acker: Acker) -> None:
    """A verdict was taken that it lacks, also if others wait."""
    track(acker, 1, 0)
    store = Store(acker)
    store.take(store=False)
    with pytest.raises(BacklogError, match="not up to date: its latest is of 0"):
        lost(acker, store, 1, within=60, age=60_000)
    track(acker, 2, 0)
    key = ShardKeys(acker.namespace, 0).outcomes("t")
    if "max-deleted-entry-id" in acker.connection.client.xinfo_stream(key):  # Redis 7.0
        with pytest.raises(BacklogError, match="not up to date"):
            lost(acker, store, 1, 2, within=60, age=60_000)
    store.take()
    assert lost(acker, store, 1, 2, within=60, age=60_000) == [1]


def test_verdict_that_is_taken_between_two_reads_is_found_in_the_table(acker: Acker) -> None:
    """The table is read last, so it has the verdict that the stream has no longer."""
    track(acker, 1, 0)
    store = Store(acker)
    run, each = acker.connection.run, acker.connection.each

    def taken_first(commands: Any) -> Any:
        acker.connection.each = each  # type: ignore[method-assign]
        store.take()
        return each(commands)

    def noted(call: Any) -> Any:
        reply = run(call)
        if call.script == "alive":
            acker.connection.each = taken_first  # type: ignore[method-assign]
        return reply

    acker.connection.run = noted  # type: ignore[method-assign]
    assert lost(acker, store, 1, within=60, age=60_000) == []
    assert store.asked == [[1]]
    assert store.rows


def test_many_waiting_verdicts_are_read_page_by_page(make_acker: MakeAcker) -> None:
    acker = make_acker(shards=2)
    for anchor in range(1, 400):
        acker_track(acker, anchor, 0)
    anchors = range(1, 402)
    assert lost(acker, Store(acker), *anchors, within=60, age=60_000) == [400, 401]


def test_errors_of_the_table_and_of_arguments_are_raised(acker: Acker) -> None:
    def broken(_: list[int]) -> StoredVerdicts:
        raise KeyError("no table")

    with pytest.raises(KeyError, match="no table"):
        acker.lost("t", [TrackedTree(1, "s", 0)], broken)
    with pytest.raises(ConfigError, match="0 or more"):
        acker.lost("t", [], Store(acker).read, within=-1)


def test_asyncio_client_finds_the_same(acker: Acker) -> None:
    track(acker, 1, A)
    trees = [TrackedTree(anchor, "s", 1) for anchor in (1, 2)]

    async def table(anchors: list[int]) -> StoredVerdicts:
        return StoredVerdicts(0, [])

    async def main() -> list[TrackedTree]:
        port = acker.connection.client.connection_pool.connection_kwargs["port"]
        async with AsyncAcker.from_url(f"redis://127.0.0.1:{port}", acker.namespace) as own:
            return await own.lost("t", trees, table)

    assert asyncio.run(main()) == trees[1:]
