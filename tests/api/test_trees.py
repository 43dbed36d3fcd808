"""Pending trees, page by page and one by one, as JSON."""

import itertools
from typing import Any

import httpx
import pytest

from acker_api.http import services
from acker_api.reading.walk import past
from acker_redis.batching.batch import Batch
from acker_redis.embedded import EmbeddedRedis
from acker_redis.flows.browse import PageCursor
from acker_redis.protocol.ids import block_anchor
from acker_redis.protocol.keys import ShardKeys
from tests.api.service import asked, get, is_problem
from tests.api.test_namespaces import V1
from tests.conftest import MakeAcker
from tests.support import advance, fail, fail_slot, rotate, row, track, track_block

BIG = 2**62 - 1


async def walked(client: httpx.AsyncClient, path: str, **query: Any) -> tuple[list[Any], list[Any]]:
    """Return all trees and blocks of a full pagination."""
    trees: list[Any] = []
    blocks: list[Any] = []
    cursor = ""
    for _ in itertools.count():
        page = (await client.get(path, params={**query, "cursor": cursor})).json()
        trees, blocks = trees + page["trees"], blocks + page["blocks"]
        assert page["complete"] is (page["next"] is None)
        if page["complete"]:
            return trees, blocks
        cursor = page["next"]
    raise AssertionError


def test_tree_has_all_its_fields(any_server: EmbeddedRedis, make_any_acker: MakeAcker) -> None:
    acker = make_any_acker(edges=("mill", "shop", "till"))
    track(acker, BIG, 0b101 << 55 | 0xFF, "order-1", "shop")
    advance(acker, 90_000)
    row(acker, BIG, 0xF0)
    path = f"{V1}/{acker.namespace}/trees"

    async def talk(client: httpx.AsyncClient) -> None:
        tree = (await client.get(f"{path}/{BIG}")).json()
        assert 0 <= tree.pop("idle_ms") < 60_000
        assert 90_000 <= tree.pop("age_ms") < 150_000
        assert tree == {
            "anchor": "4611686018427387903",
            "checksum": "028000000000000f",
            "edges": ["mill", "till"],
            "source": "shop",
            "source_id": "order-1",
            "state": "open",
            "why": "",
            "bucket": 0,
            "block": None,
        }
        assert (await client.get(f"{path}/{BIG:#x}")).json()["anchor"] == str(BIG)
        is_problem(await client.get(f"{path}/8"), 404, "tree-not-pending")
        for wrong in ("0", "-1", "0x", "x", "1e3", str(2**63), "9" * 30, "%D9%A1"):
            is_problem(await client.get(f"{path}/{wrong}"), 422, "bad-request")
        page = (await client.get(path)).json()
        (listed,) = page["trees"]
        assert 0 <= listed.pop("idle_ms") < 60_000
        assert 90_000 <= listed.pop("age_ms") < 150_000
        assert listed == tree
        assert (page["next"], page["looked"], page["complete"]) == (None, 1, True)
        assert page["scan"] == {"looked": 1, "unreadable": 0, "cost": page["scan"]["cost"]}

    asked(any_server.url, talk)


def test_tree_in_a_block_has_its_block(
    any_server: EmbeddedRedis, make_any_acker: MakeAcker
) -> None:
    acker = make_any_acker(edges=("mill",))
    track_block(acker, 5, [40, 0, 1 << 55 | 42], "page 1", "shop")
    fail_slot(acker, 5, 2, "torn")
    path = f"{V1}/{acker.namespace}/trees"

    async def talk(client: httpx.AsyncClient) -> None:
        (block,) = (await client.get(path)).json()["blocks"]
        assert 0 <= block.pop("idle_ms") <= block.pop("age_ms") < 60_000
        assert block == {
            "block": "5",
            "first_anchor": str(block_anchor(5, 0)),
            "slots": 3,
            "partial": False,
            "source": "shop",
            "label": "page 1",
            "bucket": 0,
        }
        states = []
        for slot in range(3):
            tree = (await client.get(f"{path}/{block_anchor(5, slot)}")).json()
            slots = {"open": [0, 2], "failed": [2], "absent": []}
            assert tree["block"] == {"block": "5", "slots": 3, **slots}
            states.append((tree["state"], tree["why"], tree["edges"]))
        assert states == [("open", "", []), ("complete", "", []), ("failed", "", ["mill"])]

    asked(any_server.url, talk)


def test_block_with_absent_slots(any_server: EmbeddedRedis, make_any_acker: MakeAcker) -> None:
    """Slots 0, 2 and 4 hold no tree: the block is read by its number, or by a tree in it."""
    acker = make_any_acker(edges=("mill",))
    acker.track_block("shop", "page", [0, 1 << 55 | 40, 0, 41, 0], 5, present=[1, 3])
    path = f"{V1}/{acker.namespace}"

    async def talk(client: httpx.AsyncClient) -> None:
        (block,) = (await client.get(f"{path}/trees")).json()["blocks"]
        assert (block["slots"], block["partial"]) == (5, True)
        assert block["first_anchor"] == str(block_anchor(5, 0))
        first = (await client.get(f"{path}/blocks/{block['block']}")).json()
        slots = {"open": [1, 3], "failed": [], "absent": [0, 2, 4]}
        assert first["block"] == {"block": "5", "slots": 5, **slots}
        assert (first["anchor"], first["edges"]) == (str(block_anchor(5, 1)), ["mill"])
        same = (await client.get(f"{path}/trees/{first['anchor']}")).json()
        for tree in (first, same):
            assert tree.pop("idle_ms") <= tree.pop("age_ms") < 60_000
        assert same == first
        for slot in (0, 2, 4, 5):
            absent = f"{path}/trees/{block_anchor(5, slot)}"
            is_problem(await client.get(absent), 404, "tree-not-pending")
            is_problem(await client.post(f"{absent}/fail", json={}), 404, "tree-not-pending")
            is_problem(await client.post(f"{absent}/touch"), 404, "tree-not-pending")
        oldest = (await client.get(path)).json()["oldest"]["tree"]
        assert oldest["anchor"] == str(block_anchor(5, 1))

    asked(any_server.url, talk)


def test_block_that_is_not_pending(any_server: EmbeddedRedis, make_any_acker: MakeAcker) -> None:
    acker = make_any_acker()
    track_block(acker, 2**50 - 1, [40], "page", "shop")
    path = f"{V1}/{acker.namespace}/blocks"

    async def talk(client: httpx.AsyncClient) -> None:
        assert (await client.get(f"{path}/{2**50 - 1}")).json()["source_id"] == "page"
        body = is_problem(await client.get(f"{path}/5"), 404, "tree-not-pending")
        assert body["detail"].startswith("the block is not pending")
        for wrong in ("-1", "x", "0x5", "1e3", str(2**50), "9" * 30, "%D9%A1"):
            is_problem(await client.get(f"{path}/{wrong}"), 422, "bad-request")
        is_problem(await client.get(f"{V1}/none/blocks/5"), 404, "namespace-not-found")

    asked(any_server.url, talk)


def test_damaged_bitmap_of_a_block_is_a_problem(
    any_server: EmbeddedRedis, make_any_acker: MakeAcker
) -> None:
    """Without the bitmap, absent slots would look like complete trees."""
    acker = make_any_acker()
    acker.track_block("shop", "page", [0, 40, 0], 5, present=[1])
    acker.connection.client.delete(ShardKeys(acker.namespace, 0).present(5))
    path = f"{V1}/{acker.namespace}"

    async def talk(client: httpx.AsyncClient) -> None:
        for tree in ("blocks/5", *(f"trees/{block_anchor(5, slot)}" for slot in range(3))):
            body = is_problem(await client.get(f"{path}/{tree}"), 409, "schema")
            assert "tampered" in body["detail"]

    asked(any_server.url, talk)


def test_full_pagination_returns_every_tree_in_bounded_pages(
    any_server: EmbeddedRedis, make_any_acker: MakeAcker
) -> None:
    acker = make_any_acker(shards=2)
    batch = Batch("shop")
    for anchor in range(1, 1001):
        batch.track(anchor, f"order-{anchor}", [40])
    acker.apply(batch)
    for block in range(3):
        track_block(acker, 2 * block, [1], f"page {block}", "shop")

    async def talk(client: httpx.AsyncClient) -> None:
        path = f"{V1}/{acker.namespace}/trees"
        trees, blocks = await walked(client, path, limit=50)
        assert {int(tree["anchor"]) for tree in trees} == set(range(1, 1001))
        assert {block["block"] for block in blocks} == {"0", "2", "4"}
        page = (await client.get(path, params={"limit": 50})).json()
        assert len(page["trees"]) < 200
        assert page["next"]
        trees, blocks = await walked(client, path, source_id="order-777")
        assert [tree["anchor"] for tree in trees] == ["777"]
        trees, blocks = await walked(client, path, source_id="page 1")
        assert (trees, [block["block"] for block in blocks]) == ([], ["2"])
        assert await walked(client, path, source="shop-2") == ([], [])

    asked(any_server.url, talk)


def test_filters(any_server: EmbeddedRedis, make_any_acker: MakeAcker) -> None:
    acker = make_any_acker(edges=("mill",))
    track(acker, 1, 40, "old", "a")
    track_block(acker, 9, [1], "old block", "a")
    rotate(acker)
    track(acker, 2, 40, "young", "b")
    row(acker, 3, 1 << 55 | 40)
    fail(acker, 4, "no way")
    key = ShardKeys(acker.namespace, 0).pending(0)
    client_ = acker.connection.client
    (field,) = [f for f in client_.hkeys(key) if f == (1).to_bytes(8, "big")]
    record = client_.hget(key, field)
    began = int.from_bytes(record[9:15], "big") - 90_000
    client_.hset(key, field, record[:9] + began.to_bytes(6, "big") + record[15:])

    async def talk(client: httpx.AsyncClient) -> None:
        async def found(**query: Any) -> tuple[set[str], int]:
            trees, blocks = await walked(client, f"{V1}/{acker.namespace}/trees", **query)
            return {tree["anchor"] for tree in trees}, len(blocks)

        assert await found() == ({"1", "2", "3", "4"}, 1)
        assert await found(bucket=1) == ({"1"}, 1)
        assert await found(bucket=0) == ({"2", "3", "4"}, 0)
        assert await found(bucket=2) == (set(), 0)
        assert await found(min_age_ms=80_000) == ({"1"}, 0)
        assert await found(state="open") == ({"1", "2"}, 0)
        assert await found(state="untracked") == ({"3"}, 0)
        assert await found(state="failed") == ({"4"}, 0)
        assert await found(state="complete") == (set(), 0)
        assert await found(kind="tree") == ({"1", "2", "3", "4"}, 0)
        assert await found(kind="block") == (set(), 1)
        assert await found(source="a") == ({"1"}, 1)
        assert await found(source="a", kind="tree") == ({"1"}, 0)
        assert await found(state="open", bucket=0, source="b") == ({"2"}, 0)
        tree = (await client.get(f"{V1}/{acker.namespace}/trees/4")).json()
        assert (tree["state"], tree["why"], tree["source"]) == ("failed", "no way", "")
        tree = (await client.get(f"{V1}/{acker.namespace}/trees/3")).json()
        # Its checksum also has the ids of processed messages.
        assert (tree["state"], tree["edges"]) == ("untracked", [])

    asked(any_server.url, talk)


def test_cursor_skips_entries_of_the_other_kind() -> None:
    loose, blocks = PageCursor(1, "pending", 7, 8), PageCursor(1, "blocks", 7, 8)
    assert past(loose, "tree", 4) == loose
    assert past(blocks, "block", 4) == blocks
    assert past(loose, "block", 4) == PageCursor(1, "blocks")
    assert past(blocks, "tree", 4) == PageCursor(2)
    assert past(blocks, "tree", 2) is None
    assert past(None, "tree", 2) is None
    assert past(blocks, None, 2) == blocks


def test_filtered_page_may_be_empty_and_have_a_next(
    any_server: EmbeddedRedis, make_any_acker: MakeAcker, monkeypatch: Any
) -> None:
    monkeypatch.setattr("acker_api.reading.walk.MAX_LOOKED", 300)
    acker = make_any_acker()
    batch = Batch("shop")
    for anchor in range(1, 1001):
        batch.track(anchor, "s", [40])
    acker.apply(batch)

    async def talk(client: httpx.AsyncClient) -> None:
        path = f"{V1}/{acker.namespace}/trees"
        page = (await client.get(path, params={"state": "failed"})).json()
        assert page["trees"] == []
        assert page["next"]
        assert 300 <= page["looked"] < 1000
        assert await walked(client, path, state="failed") == ([], [])
        assert len((await walked(client, path, state="open"))[0]) >= 1000

    asked(any_server.url, talk)


def test_unreadable_records_are_counted(
    any_server: EmbeddedRedis, make_any_acker: MakeAcker
) -> None:
    acker = make_any_acker()
    track(acker, 7, 40)
    acker.connection.client.hset(ShardKeys(acker.namespace, 0).pending(0), b"x" * 8, b"torn")
    page = get(any_server.url, f"{V1}/{acker.namespace}/trees").json()
    assert ([tree["anchor"] for tree in page["trees"]], page["scan"]["unreadable"]) == (["7"], 1)


def test_texts_are_returned_unchanged(any_server: EmbeddedRedis, make_any_acker: MakeAcker) -> None:
    acker = make_any_acker()
    name = "<script>alert('1')</script> \u202e\" \\ \U0001f600&amp;"
    track(acker, 7, 40, name)
    response = get(any_server.url, f"{V1}/{acker.namespace}/trees/7")
    assert response.json()["source_id"] == name
    assert response.headers["content-type"] == "application/json"


def test_state_has_the_oldest_tree_and_caches_it(
    any_server: EmbeddedRedis, make_any_acker: MakeAcker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(services, "OLDEST_KEPT", 3600.0)
    acker = make_any_acker(edges=("mill",))

    async def talk(client: httpx.AsyncClient) -> None:
        path = f"{V1}/{acker.namespace}"
        body = (await client.get(path)).json()
        assert (body["oldest"], body["resharding_to"]) == (None, None)
        track(acker, 7, 1 << 55 | 40, "first")
        rotate(acker)
        track(acker, 8, 40, "second")
        body = (await client.get(path)).json()
        assert body["oldest"]["exact"] is True
        tree = body["oldest"]["tree"]
        assert (tree["source_id"], tree["edges"]) == ("first", ["mill"])
        assert 0 <= tree["idle_ms"] <= tree["age_ms"]
        listed = _calls(acker)
        for _ in range(5):
            assert (await client.get(path)).json()["oldest"] == body["oldest"], "cached for a while"
        assert _calls(acker) - listed < 10

    asked(any_server.url, talk)


def _calls(acker: Any) -> int:
    return int(acker.connection.client.info("commandstats")["cmdstat_evalsha"]["calls"])


def test_state_has_the_target_of_a_reshard(
    any_server: EmbeddedRedis, make_any_acker: MakeAcker
) -> None:
    acker = make_any_acker()
    acker.connection.client.hset(ShardKeys(acker.namespace, 0).meta, "reshard", "1:4")
    assert get(any_server.url, f"{V1}/{acker.namespace}").json()["resharding_to"] == 4
