"""Pages, searches and the oldest tree, through the clients."""

import asyncio
from typing import Any

import pytest

from acker_redis.aio import AsyncAcker
from acker_redis.batching.batch import Batch
from acker_redis.embedded import EmbeddedRedis
from acker_redis.errors import ConfigError, InvalidBatchError, NamespaceNotFoundError
from acker_redis.flows import browse as tree_page
from acker_redis.flows.browse import PageCursor
from acker_redis.protocol import commands
from acker_redis.protocol.commands import Call
from acker_redis.protocol.keys import ShardKeys
from acker_redis.sync.client import Acker
from tests.conftest import MakeAcker
from tests.support import TRACK, columns, row, send, tick, track

A, B = 0x1234_5678_9ABC, 0x7777_0000_1111


def fill(acker: Acker, count: int, name: str = "s") -> None:
    """Track ``count`` trees over all shards."""
    for start in range(1, count + 1, 1000):
        batch = Batch("t")
        for anchor in range(start, min(start + 1000, count + 1)):
            batch.track(anchor, f"{name}{anchor}", [A])
        acker.apply(batch)


def listings(acker: Acker, monkeypatch: pytest.MonkeyPatch) -> list[Call]:
    """Record the calls of the script ``list``."""
    asked: list[Call] = []
    run = acker.connection.run

    def noted(call: Call) -> Any:
        if call.script == "list":
            asked.append(call)
        return run(call)

    monkeypatch.setattr(acker.connection, "run", noted)
    return asked


@pytest.mark.parametrize(
    "cursor",
    [PageCursor(), PageCursor(1023, "blocks", 10**15 - 1, 10**19 - 1), PageCursor(2, "pending", 3)],
)
def test_cursor_round_trips_as_text(cursor: PageCursor) -> None:
    assert PageCursor.parse(str(cursor)) == cursor
    assert not set(str(cursor)) & set("/?#&=%+ :,")


@pytest.mark.parametrize(
    "text",
    [
        *("", "0", "0.pending.0", "0.pending.0.0.0", "-1.pending.0.0", "0.Pending.0.0", "0.x.0.0"),
        *(" 0.pending.0.0", "0.pending.0.0\n", "10000.pending.0.0", "0.pending.0." + "1" * 20),
        *("0.pending.\u0661.0", "1" * 1000, None),
    ],
)
def test_invalid_cursor_text_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="invalid cursor") as caught:
        PageCursor.parse(text)
    assert len(str(caught.value)) < 200


def test_page_takes_a_bounded_number_of_calls(
    make_any_acker: MakeAcker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if hardly anything matches; the scan still comes to its end."""
    acker = make_any_acker(shards=32)
    track(acker, 32, A, "the first")
    send(acker, columns([(31, A, TRACK)], "t", ["the last"]), shard=31)
    asked = listings(acker, monkeypatch)
    pages, page = 1, acker.page()
    found = [tree.source_id for tree in page.trees]
    while page.next:
        assert len(asked) == tree_page.MAX_CALLS * pages
        pages, page = pages + 1, acker.page(page.next)
        found += [tree.source_id for tree in page.trees]
    assert found == ["the first", "the last"]
    assert len(asked) == 64, "of each shard the trees and the blocks"


def test_page_ends_when_it_is_full(
    make_any_acker: MakeAcker, monkeypatch: pytest.MonkeyPatch
) -> None:
    acker = make_any_acker()
    fill(acker, 3000)
    asked = listings(acker, monkeypatch)
    page = acker.page(count=100)
    assert 100 <= len(page.trees) < 130
    assert (len(asked), page.looked, page.unreadable) == (1, len(page.trees), 0)
    assert page.next
    assert len(acker.page(page.next, 1000).trees) >= 1000
    asked.clear()
    page = acker.page(source_id="s2999", count=1)
    assert [tree.source_id for tree in page.trees] == ["s2999"]
    page = acker.page(source_id="no such")
    assert (page.trees, page.next, page.looked) == ((), None, 3000)
    assert [call.args[3] for call in asked] == [1000] * len(asked), "a search takes large steps"


@pytest.mark.parametrize("count", [0, -1, 1001, 1.5, None])
def test_invalid_page_counts_are_refused(make_any_acker: MakeAcker, count: Any) -> None:
    with pytest.raises(ConfigError, match="count must be 1 to 1000"):
        make_any_acker().page(count=count)


def test_find_by_source_id_label_and_source(make_any_acker: MakeAcker) -> None:
    acker = make_any_acker(shards=4)
    fill(acker, 2000)
    batch = Batch("u")
    batch.track(5000, "s77", [A])
    acker.apply(batch)
    acker.track_block("t", "page 1", [A, B], 9)
    found = acker.find("s77")
    assert {(tree.anchor, tree.source) for tree in found.trees} == {(77, "t"), (5000, "u")}
    assert (found.blocks, found.looked, found.complete) == ((), 2002, True)
    assert [tree.anchor for tree in acker.find("s77", "u").trees] == [5000]
    found = acker.find("page 1")
    assert ([block.block for block in found.blocks], found.trees) == ([9], ())
    tree = acker.show(found.blocks[0].anchors[1])
    assert tree
    assert tree.checksum == B
    assert acker.find("nothing-such").complete


def test_find_stops_at_its_limits_and_reports_incomplete(
    make_any_acker: MakeAcker, monkeypatch: pytest.MonkeyPatch
) -> None:
    acker = make_any_acker(high_water=10**6)
    for anchors in (range(1, 501), range(501, 1001), range(1001, 4001)):
        for start in range(anchors[0], anchors[-1], 500):
            rows = [(anchor, A, TRACK) for anchor in range(start, start + 500)]
            send(acker, columns(rows, "t", ["same" if start < 1000 else "other"] * 500))
    found = acker.find("same")
    assert (len(found.trees), found.complete) == (10, False)
    assert len({tree.anchor for tree in acker.find("same", limit=1001).trees}) == 1000
    assert acker.find("same", limit=1001).complete
    asked = listings(acker, monkeypatch)
    found = acker.find("nothing-such", most=1500)
    assert (found.complete, len(asked), 1500 <= found.looked < 2500) == (False, 2, True)
    for limit, most in ((0, 1), (1, 0)):
        with pytest.raises(ConfigError, match="at least 1"):
            acker.find("same", limit=limit, most=most)


@pytest.mark.parametrize("source_id", ["", "x" * 256, "a\nb", "\ud800"])
def test_invalid_source_ids_are_refused(make_any_acker: MakeAcker, source_id: str) -> None:
    acker = make_any_acker()
    with pytest.raises(InvalidBatchError):
        acker.find(source_id)
    if source_id:
        with pytest.raises(InvalidBatchError):
            acker.page(source_id=source_id)


def test_find_refuses_an_invalid_source(make_any_acker: MakeAcker) -> None:
    acker = make_any_acker()
    for ask in (lambda: acker.find("s", "a b"), lambda: acker.page(source="a b")):
        with pytest.raises(ConfigError, match="a source is"):
            ask()


def test_oldest_returns_the_oldest_tree_of_the_sample(
    make_any_acker: MakeAcker, monkeypatch: pytest.MonkeyPatch
) -> None:
    acker = make_any_acker(shards=2)
    client = acker.connection.client
    assert acker.oldest() is None
    row(acker, 2, A)
    oldest = acker.oldest()
    assert oldest
    assert (oldest.tree.anchor, oldest.tree.source, oldest.exact) == (2, "", True)
    track(acker, 2, B)
    tick(acker)
    # Make the ages differ by more than the clock's resolution.
    track(acker, 4, A, "older")
    send(acker, columns([(1, A, TRACK)], "t", ["younger"]), shard=1)
    for keys, anchor, earlier in ((0, 2, 9), (0, 4, 99), (1, 1, 5)):
        shard = ShardKeys(acker.namespace, keys)
        for bucket in range(3):
            name = anchor.to_bytes(8, "big")
            record = client.hget(shard.pending(bucket), name)
            if record:
                seen = int.from_bytes(record[9:15], "big") - earlier * 1000
                moved = record[:9] + seen.to_bytes(6, "big") + record[15:]
                client.hset(shard.pending(bucket), name, moved)
    oldest = acker.oldest()
    assert oldest
    assert oldest.tree.anchor == 2, "oldest of the oldest buckets; 4 is in a newer one"
    assert 9_000 <= oldest.tree.age_ms < 60_000
    assert oldest.exact
    fill(acker, 4000)
    tick(acker)
    with monkeypatch.context() as patched:
        patched.setattr(tree_page, "SAMPLE", 10)
        sampled = acker.oldest()
    assert sampled
    assert sampled.tree.source_id.startswith("s"), "2 was tracked again and has ended"
    assert not sampled.exact


def test_oldest_skips_unreadable_records(make_any_acker: MakeAcker) -> None:
    """The next readable record is returned, even if an unreadable one seems older."""
    acker = make_any_acker()
    track(acker, 1, A, "order-1")
    acker.track_block("t", "page 1", [A], 6)
    keys, client = ShardKeys(acker.namespace, 0), acker.connection.client
    for name, record in (
        (b"short", bytes(40)),
        (bytes(8), b"x"),
        (b"longtask", bytes(19) + b"\x40"),
    ):
        client.hset(keys.pending(0), name, record)
        client.hset(keys.blocks(0), name, record)
    oldest = acker.oldest()
    assert oldest
    assert oldest.tree.source_id in ("order-1", "page 1")
    assert oldest.exact
    client.hdel(keys.pending(0), (1).to_bytes(8, "big"))
    oldest = acker.oldest()
    assert oldest
    assert oldest.tree.source_id == "page 1"


def test_oldest_returns_the_first_open_tree_of_a_block(make_any_acker: MakeAcker) -> None:
    """The result is the block's first open tree, with its block."""
    acker = make_any_acker(shards=2)
    anchors = acker.track_block("t", "page 1", [0, A, B], 6)
    tick(acker)
    track(acker, 2, A)
    oldest = acker.oldest()
    assert oldest
    assert (oldest.tree.anchor, oldest.tree.source_id) == (anchors[1], "page 1")
    assert oldest.tree.block
    assert (oldest.tree.block.open, oldest.tree.bucket, oldest.exact) == ((1, 2), 1, True)


def test_oldest_skips_a_block_that_ends_meanwhile(
    make_any_acker: MakeAcker, monkeypatch: pytest.MonkeyPatch
) -> None:
    acker = make_any_acker()
    anchors = acker.track_block("t", "page 1", [A], 6)
    tick(acker)
    track(acker, 2, A)
    show = commands.show

    def late(*args: Any) -> Call:
        batch = Batch()
        batch.ack(anchors[0], A)
        acker.apply(batch)
        return show(*args)

    monkeypatch.setattr(commands, "show", late)
    oldest = acker.oldest()
    assert oldest
    assert (oldest.tree.anchor, oldest.exact) == (2, False)


def test_cursor_of_a_removed_shard_ends_the_scan(make_any_acker: MakeAcker) -> None:
    """The namespace has fewer shards now, and the removed one was empty."""
    acker = make_any_acker(shards=2)
    page = acker.page(PageCursor(7, "pending", 3, 99))
    assert (page.trees, page.blocks, page.next) == ((), (), None)
    acker.connection.client.delete(ShardKeys(acker.namespace, 1).meta)
    with pytest.raises(NamespaceNotFoundError):
        acker.page(PageCursor(1))


def test_browsing_an_unknown_namespace_is_refused(any_server: EmbeddedRedis) -> None:
    with Acker.from_url(any_server.url, "nothing-such") as acker:
        for ask in (acker.page, acker.oldest, lambda: acker.find("s")):
            with pytest.raises(NamespaceNotFoundError):
                ask()


def test_asyncio_client_pages_and_finds_alike(
    make_any_acker: MakeAcker, any_server: EmbeddedRedis
) -> None:
    acker = make_any_acker(shards=2)
    fill(acker, 300)
    acker.track_block("t", "page 1", [A], 6)

    async def ask() -> None:
        async with AsyncAcker.from_url(any_server.url, acker.namespace) as twin:
            page = await twin.page(count=50)
            trees, blocks = list(page.trees), list(page.blocks)
            while page.next:
                page = await twin.page(page.next)
                trees, blocks = [*trees, *page.trees], [*blocks, *page.blocks]
            assert {tree.anchor for tree in trees} == set(range(1, 301))
            assert [block.label for block in blocks] == ["page 1"]
            assert [tree.anchor for tree in (await twin.find("s77", "t")).trees] == [77]
            assert (await twin.find("page 1")).complete
            oldest = await twin.oldest()
            assert oldest
            assert oldest.exact

    asyncio.run(ask())
