"""Actions of operators and admins, and their effect in Redis."""

from typing import Any

import httpx
import pytest

from acker_api.reading.canary import NAME
from acker_redis.batching.batch import Batch
from acker_redis.embedded import EmbeddedRedis
from acker_redis.errors import NamespaceNotFoundError
from acker_redis.protocol import commands
from acker_redis.protocol.ids import block_anchor
from acker_redis.protocol.keys import AUDITED, NAMESPACES, ShardKeys, audit_of
from acker_redis.sync.client import Acker
from tests.api.service import asked, is_problem
from tests.api.test_namespaces import V1
from tests.conftest import MakeAcker
from tests.support import dump, fail_slot, rotate, row, total, track, track_block, verdicts


def records(acker: Acker) -> int:
    """Return the number of records of loose trees, with and without a track."""
    return sum(sum(shard.pending) for shard in acker.status().shards)


def test_namespace_is_created_changed_and_dropped(
    any_server: EmbeddedRedis, make_any_acker: MakeAcker
) -> None:
    make_any_acker()  # so that the server is empty
    hour = 3_600_000
    new = {"name": "orders", "shards": 2, "tick_ms": hour, "refresh": "update"}
    new |= {"deadline_ms": 24 * hour, "edges": ["mill", "shop"], "slo_target": 99.9}

    async def talk(client: httpx.AsyncClient) -> None:
        made = await client.post(V1, json=new)
        assert made.status_code == 201
        assert made.headers["location"] == f"{V1}/orders"
        body = made.json()
        assert (body["name"], body["created"], body["config"]["shards"]) == ("orders", True, 2)
        assert (await client.get(body["href"])).json()["config"] == body["config"]
        again = await client.post(V1, json=new)
        assert (again.status_code, again.json()["created"]) == (200, False)
        for name, value in {
            "shards": 4,
            "edges": ["shop", "mill"],
            "deadline_ms": hour * 48,
            "slo_target": 99.5,
        }.items():
            other = await client.post(V1, json={**new, name: value})
            is_problem(other, 409, "namespace-exists")
        # Settings that are not in the request are not compared.
        for part in ({}, {"shards": new["shards"]}, {"refresh": "update"}):
            again = await client.post(V1, json={"name": "orders", **part})
            assert (again.status_code, again.json()["config"]) == (200, body["config"])
        contradiction = await client.post(V1, json={"name": "orders", "refresh": "never"})
        is_problem(contradiction, 409, "namespace-exists")
        path = f"{V1}/orders/config"
        assert (await client.get(path)).json() == body["config"]
        changed = (await client.patch(path, json={"high_water": 7, "tick_ms": 5000})).json()
        assert changed == {
            **body["config"],
            "high_water": 7,
            "tick_ms": 5000,
            "timeout_ms": 15_000,
            "lifetime_ms": 24 * hour + 5000,
        }
        assert (changed["edges"], changed["deadline_ms"]) == (["mill", "shop"], 24 * hour)
        assert (await client.get(path)).json() == changed
        with Acker.from_url(any_server.url, "orders", timeout=60) as acker:
            assert {shard.config.high_water for shard in acker.status().shards} == {7}
            for query in ("", "?confirm=", "?confirm=order", f"?confirm={'x' * 65}"):
                refused = await client.delete(f"{V1}/orders{query}")
                assert "?confirm=orders" in is_problem(refused, 422, "not-confirmed")["detail"]
            assert acker.status().pending == 0
            gone = await client.delete(f"{V1}/orders?confirm=orders")
            assert (gone.status_code, gone.content) == (204, b"")
            with pytest.raises(NamespaceNotFoundError):
                acker.status()
        for request in (
            client.get(path),
            client.delete(f"{V1}/orders?confirm=orders"),
            client.patch(path, json={"high_water": 7}),
            client.post(f"{V1}/orders/rotate"),
        ):
            is_problem(await request, 404, "namespace-not-found")

    asked(any_server.url, talk)


@pytest.mark.parametrize(
    "wrong",
    [
        {},
        {"name": "a b"},
        {"name": "x" * 65},
        {"name": "orders\n"},
        {"name": "."},  # no URL can contain it as a path
        {"name": ".."},
        {"name": NAME},  # reserved for the canary
        {"name": "orders", "shards": 3},
        {"name": "orders", "buckets": 1},
        {"name": "orders", "tick_ms": 0},
        {"name": "orders", "tick_ms": 10**12 + 1},
        {"name": "orders", "refresh": "always"},
        {"name": "orders", "refresh": "update"},  # without a deadline
        {"name": "orders", "refresh": "update", "deadline_ms": 89_999},
        {"name": "orders", "deadline_ms": 90_000},  # without refresh
        {"name": "orders", "edges": "mill"},
        {"name": "orders", "edges": ["mill", "mill"]},
        {"name": "orders", "edges": ["a b"]},
        {"name": "orders", "edges": [f"e{n}" for n in range(9)]},
        {"name": "orders", "color": "red"},
        {"name": "orders", "slo_target": 100},
        {"name": "orders", "slo_target": 99.9999},
        {"name": "orders", "slo_ms": -1},
        [],
    ],
)
def test_invalid_namespace_is_refused(
    any_server: EmbeddedRedis, make_any_acker: MakeAcker, wrong: Any
) -> None:
    acker = make_any_acker()

    async def talk(client: httpx.AsyncClient) -> None:
        is_problem(await client.post(V1, json=wrong), 422, "bad-request")

    asked(any_server.url, talk)
    assert acker.connection.client.smembers(NAMESPACES) == {acker.namespace.encode()}


def test_deadline_of_a_namespace_in_use_is_changed(
    any_server: EmbeddedRedis, make_any_acker: MakeAcker
) -> None:
    acker = make_any_acker(shards=2, tick_ms=1000, refresh="update", deadline_ms=10_000)
    never = make_any_acker()

    async def talk(client: httpx.AsyncClient) -> None:
        path = f"{V1}/{acker.namespace}/config"
        changed = (await client.patch(path, json={"deadline_ms": 60_000})).json()
        assert (changed["deadline_ms"], changed["lifetime_ms"]) == (60_000, 61_000)
        assert {shard.config.deadline_ms for shard in acker.status().shards} == {60_000}
        (done,) = (await client.get("/api/v1/audit")).json()["entries"]
        assert (done["before"], done["after"]) == ({"deadline_ms": 10_000}, {"deadline_ms": 60_000})
        for wrong in ({"deadline_ms": 2999}, {"tick_ms": 20_001}, {"deadline_ms": 0}):
            is_problem(await client.patch(path, json=wrong), 422, "bad-request")
        other = f"{V1}/{never.namespace}/config"
        is_problem(await client.patch(other, json={"deadline_ms": 10**9}), 422, "bad-request")

    asked(any_server.url, talk)


def test_objective_of_a_namespace_in_use_is_changed(
    any_server: EmbeddedRedis, make_any_acker: MakeAcker
) -> None:
    acker = make_any_acker(shards=2)

    async def talk(client: httpx.AsyncClient) -> None:
        path = f"{V1}/{acker.namespace}/config"
        before = (await client.get(path)).json()
        assert (before["slo_target"], before["slo_ms"]) == (99, 0)
        # These are the defaults already: the request changes nothing, and leaves no entry.
        assert (await client.patch(path, json={"slo_target": 99, "slo_ms": 0})).json() == before
        changed = (await client.patch(path, json={"slo_target": 99.95, "slo_ms": 60_000})).json()
        assert changed == {**before, "slo_target": 99.95, "slo_ms": 60_000}
        assert (await client.patch(path, json={"slo_ms": 0})).json()["slo_ms"] == 0
        entries = (await client.get("/api/v1/audit")).json()["entries"]
        assert [(entry["before"], entry["after"]) for entry in entries] == [
            ({"slo_ms": 60_000}, {"slo_ms": 0}),
            ({"slo_target": 99, "slo_ms": 0}, {"slo_target": 99.95, "slo_ms": 60_000}),
        ]
        for wrong in ({"slo_target": 100}, {"slo_target": 99.9999}, {"slo_ms": True}):
            is_problem(await client.patch(path, json=wrong), 422, "bad-request")

    asked(any_server.url, talk)
    assert {shard.config.slo_target for shard in acker.status().shards} == {99.95}


def test_resharding_namespace_refuses_new_settings(
    any_server: EmbeddedRedis, make_any_acker: MakeAcker
) -> None:
    acker = make_any_acker()
    acker.connection.client.hset(ShardKeys(acker.namespace, 0).meta, "reshard", "1:4")

    async def talk(client: httpx.AsyncClient) -> None:
        path = f"{V1}/{acker.namespace}/config"
        is_problem(await client.patch(path, json={"tick_ms": 5}), 409, "reshard")
        nothing: list[Any] = [{}, {"high_water": 0}, {"shards": 4}, {"high_water": None}]
        for wrong in [*nothing, {"high_water": True}, {"tick_ms": "5"}]:
            is_problem(await client.patch(path, json=wrong), 422, "bad-request")

    asked(any_server.url, talk)
    assert acker.connection.client.hget(ShardKeys(acker.namespace, 0).meta, "tick_ms") == b"3600000"


def test_failed_tree_gets_one_nack(any_server: EmbeddedRedis, make_any_acker: MakeAcker) -> None:
    acker = make_any_acker()
    track(acker, 7, 40, "order-1")
    track(acker, 8, 40, "order-2")
    track_block(acker, 5, [40, 41], "page")
    path = f"{V1}/{acker.namespace}/trees"

    async def talk(client: httpx.AsyncClient) -> None:
        done = await client.post(f"{path}/7/fail", json={"why": "by hand"})
        assert done.json() == {"anchor": "7", "failed": 1}
        is_problem(await client.post(f"{path}/7/fail", json={}), 404, "tree-not-pending")
        slot = block_anchor(5, 1)
        assert (await client.post(f"{path}/{slot:#x}/fail", json={})).json()["failed"] == 1
        # It stays in its block until the block ends, and gets no second nack.
        assert (await client.post(f"{path}/{slot}/fail", json={})).json()["failed"] == 0

    asked(any_server.url, talk)
    assert sorted(verdicts(acker)) == [
        ("nack", "failed", 7, "order-1", "by hand"),
        ("nack", "failed", block_anchor(5, 1), "page", ""),
    ]
    assert total(acker)["pending"] == 1 + 2


def test_unknown_anchor_creates_no_record(
    any_server: EmbeddedRedis, make_any_acker: MakeAcker
) -> None:
    acker = make_any_acker()
    track(acker, 8, 40)
    before = dump(acker)

    async def talk(client: httpx.AsyncClient) -> None:
        for anchor in (7, block_anchor(5, 1)):
            for action, body in (("fail", {"why": "x"}), ("touch", None)):
                path = f"{V1}/{acker.namespace}/trees/{anchor}/{action}"
                is_problem(await client.post(path, json=body), 404, "tree-not-pending")

    asked(any_server.url, talk)
    after = dump(acker)
    after.pop(audit_of(acker.namespace).encode())
    after.pop(AUDITED.encode())
    assert after == before


def test_fail_before_track_nacks_the_tree_at_its_track(
    any_server: EmbeddedRedis, make_any_acker: MakeAcker
) -> None:
    acker = make_any_acker()
    row(acker, 7, 40)

    async def talk(client: httpx.AsyncClient) -> None:
        path = f"{V1}/{acker.namespace}/trees/7/fail"
        assert (await client.post(path, json={"why": "early"})).json()["failed"] == 0

    asked(any_server.url, talk)
    assert records(acker) == 1
    track(acker, 7, 40, "late")
    assert verdicts(acker) == [("nack", "failed", 7, "late", "early")]


def test_invalid_reason_is_refused(any_server: EmbeddedRedis, make_any_acker: MakeAcker) -> None:
    acker = make_any_acker()
    track(acker, 7, 40)

    async def talk(client: httpx.AsyncClient) -> None:
        path = f"{V1}/{acker.namespace}/trees/7/fail"
        for why in ("a\nb", "x" * 256, "\U0001f600" * 64, "\ud800", 7, None):
            response = await client.post(path, content=_json(why), headers=_JSON)
            is_problem(response, 422, "bad-request")
        longest = "\U0001f600" * 63
        assert (await client.post(path, json={"why": longest})).json()["failed"] == 1

    asked(any_server.url, talk)


_JSON = {"Content-Type": "application/json"}


def _json(why: Any) -> bytes:
    import json

    return json.dumps({"why": why}).encode()


def test_touch_resets_the_timeout(any_server: EmbeddedRedis, make_any_acker: MakeAcker) -> None:
    acker = make_any_acker(buckets=2)
    track(acker, 7, 40)
    track_block(acker, 5, [40, 41], "page")
    rotate(acker)

    async def talk(client: httpx.AsyncClient) -> None:
        path = f"{V1}/{acker.namespace}/trees"
        for anchor in (7, block_anchor(5, 1)):
            assert (await client.get(f"{path}/{anchor}")).json()["bucket"] == 1
            done = (await client.post(f"{path}/{anchor}/touch")).json()
            assert done == {"anchor": str(anchor), "touched": 1}
            assert (await client.get(f"{path}/{anchor}")).json()["bucket"] == 0

    asked(any_server.url, talk)
    assert {verdict for verdict, *_ in verdicts(acker)} == {"touch"}


def test_forced_tick_also_ticks_a_shard_that_it_just_drained(
    any_server: EmbeddedRedis, make_any_acker: MakeAcker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("acker_api.acting.drain.MAX_CALLS", 1)
    acker = make_any_acker(buckets=2, shards=1)
    track(acker, 7, 5, "a")
    keys = ShardKeys(acker.namespace, 0)
    for _ in range(2):  # the bucket of the tree is the one that expires, and it is not drained
        acker.connection.run(commands.rotate(keys, force=True))
    assert acker.status().expiring == 1

    async def talk(client: httpx.AsyncClient) -> None:
        body = (await client.post(f"{V1}/{acker.namespace}/rotate")).json()
        assert (body["ticked"], body["expired"], body["left"]) == (1, 1, 0)

    asked(any_server.url, talk)
    assert acker.status().ticks == 3


def test_forced_tick_drains_in_bounded_calls(
    any_server: EmbeddedRedis, make_any_acker: MakeAcker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("acker_api.acting.drain.RECORDS", 10)
    monkeypatch.setattr("acker_api.acting.drain.MAX_CALLS", 4)
    acker = make_any_acker(buckets=2, shards=2)
    batch = Batch("t")
    for anchor in range(2, 802, 2):  # all on shard 0
        batch.track(anchor, "s", [40])
    acker.apply(batch)
    row(acker, 900, 40)
    track_block(acker, 4, [0, 41], "page")

    async def talk(client: httpx.AsyncClient) -> None:
        async def rotated() -> dict[str, int]:
            done = await client.post(f"{V1}/{acker.namespace}/rotate")
            assert done.status_code == 200
            body: dict[str, int] = done.json()
            return body

        nothing = {"expired": 0, "acked": 0, "orphaned": 0, "left": 0}
        assert await rotated() == {"shards": 2, "ticked": 2, **nothing}
        first = await rotated()
        assert first["ticked"] == 2
        # A call drains whole buckets of the server's hash table: ten records or somewhat more.
        assert 402 - 120 < first["left"] <= 402 - 40
        seen = [first, await rotated()]
        assert seen[1]["ticked"] == 1, "shard 0 must be drained before its next tick"
        assert 0 < seen[1]["left"] <= 402 - 80
        while seen[-1]["left"]:
            assert len(seen) < 12
            seen.append(await rotated())
        assert seen[-1]["ticked"] == 2
        assert sum(each["expired"] for each in seen) == 400 + 1
        assert sum(each["acked"] for each in seen) == 1
        assert sum(each["orphaned"] for each in seen) == 1

    asked(any_server.url, talk)
    assert total(acker)["expired"] == 401


def filled(make_any_acker: MakeAcker) -> Acker:
    """Return a namespace with trees of all kinds."""
    acker = make_any_acker(shards=2)
    for anchor in range(1, 41):
        track(acker, anchor, 40, f"s{anchor}", "shop") if anchor % 2 == 0 else None
    batch = Batch("shop")
    for anchor in range(1, 41, 2):
        batch.track(anchor, f"s{anchor}", [40])
    for anchor in range(101, 111):
        batch.ack(anchor, 7)
    acker.apply(batch)
    other = Batch("other")
    other.track(500, "s500", [40])
    acker.apply(other)
    track_block(acker, 6, [40, 0, 42, 43], "page", "shop")
    fail_slot(acker, 6, 3, "torn")
    return acker


def test_dry_run_changes_nothing_and_then_all_matches_fail(
    any_server: EmbeddedRedis, make_any_acker: MakeAcker
) -> None:
    acker = filled(make_any_acker)
    before = dump(acker)
    verdicts_before = 1

    async def talk(client: httpx.AsyncClient) -> None:
        path = f"{V1}/{acker.namespace}/trees/fail"
        asking = {"filter": {"source": "shop"}, "why": "down"}
        dry = (await client.post(path, json=asking)).json()
        assert (dry["matched"], dry["failed"], dry["ended"], dry["dry_run"]) == (42, 0, 0, True)
        assert len(dry["sample"]) == 20
        assert dry["next"] is None
        assert dump(acker) == before, "a dry run changes nothing"
        done = (await client.post(path, json={**asking, "dry_run": False})).json()
        assert (done["matched"], done["failed"], done["ended"]) == (42, 42, 0)
        again = (await client.post(path, json={**asking, "dry_run": False})).json()
        assert (again["matched"], again["failed"]) == (0, 0)

    asked(any_server.url, talk)
    found = verdicts(acker, "shop")
    assert len(found) == 42 + verdicts_before
    assert {(anchor, why) for verdict, _, anchor, _, why in found if why == "down"} == {
        *((anchor, "down") for anchor in range(1, 41)),
        (block_anchor(6, 0), "down"),
        (block_anchor(6, 2), "down"),
    }
    assert total(acker)["failed"] == 43
    assert verdicts(acker, "other") == []
    assert records(acker) == 10 + 1 + 4, "records without a tree, and the block, are unchanged"


def test_bulk_fail_fails_the_open_trees_of_a_block_with_absent_slots(
    any_server: EmbeddedRedis, make_any_acker: MakeAcker
) -> None:
    """Slot 0 holds no tree, slot 1 is complete, slot 3 has failed; the sample has checksums."""
    acker = make_any_acker(edges=("mill",))
    deltas = [0, 0, 1 << 55 | 42, 43, 0, 45]
    acker.track_block("shop", "page", deltas, 6, present=[1, 2, 3, 5])
    fail_slot(acker, 6, 3, "torn")

    async def talk(client: httpx.AsyncClient) -> None:
        path = f"{V1}/{acker.namespace}/trees/fail"
        asking = {"filter": {"source_id": "page"}, "why": "down"}
        dry = (await client.post(path, json=asking)).json()
        assert dry["matched"] == 2
        shown = [(each["anchor"], each["state"], each["edges"]) for each in dry["sample"]]
        assert shown == [
            (str(block_anchor(6, 2)), "open", ["mill"]),
            (str(block_anchor(6, 5)), "open", []),
        ]
        done = (await client.post(path, json={**asking, "dry_run": False})).json()
        assert (done["matched"], done["failed"], done["ended"]) == (2, 2, 0)

    asked(any_server.url, talk)
    failed = {(anchor, why) for verdict, _, anchor, _, why in verdicts(acker, "shop")}
    assert failed == {
        (block_anchor(6, 2), "down"), (block_anchor(6, 3), "torn"), (block_anchor(6, 5), "down"),
    }  # fmt: skip
    assert total(acker)["orphaned"] == 0, "no absent slot was failed"


def test_bulk_fail_respects_its_limit_per_call(
    any_server: EmbeddedRedis, make_any_acker: MakeAcker
) -> None:
    acker = filled(make_any_acker)

    async def talk(client: httpx.AsyncClient) -> None:
        path = f"{V1}/{acker.namespace}/trees/fail"
        asking = {"filter": {"min_age_ms": 0}, "most": 9, "dry_run": False}
        cursor, failed = None, []
        while True:
            done = (await client.post(path, json={**asking, "cursor": cursor})).json()
            assert done["failed"] == done["matched"] <= 9
            failed.append(done["failed"])
            cursor = done["next"]
            if cursor is None:
                break
            assert len(failed) < 20
        assert sum(failed) == 43
        assert len(failed) >= 5

    asked(any_server.url, talk)
    assert total(acker)["failed"] == 44


def test_filters_of_bulk_fail(any_server: EmbeddedRedis, make_any_acker: MakeAcker) -> None:
    acker = filled(make_any_acker)
    rotate(acker)
    track(acker, 900, 40, "young", "shop")

    async def talk(client: httpx.AsyncClient) -> None:
        path = f"{V1}/{acker.namespace}/trees/fail"

        async def matched(**which: Any) -> int:
            found: int = (await client.post(path, json={"filter": which})).json()["matched"]
            return found

        assert await matched(source_id="s7") == 1
        assert await matched(source_id="page") == 2
        assert await matched(source="other") == 1
        assert await matched(bucket=0) == 20 + 1, "shard 1 has not ticked"
        assert await matched(bucket=1) == 20 + 1 + 2
        assert await matched(min_age_ms=10**9) == 0
        assert await matched(state="untracked") == 10
        assert await matched(state="open") == 44
        assert await matched(kind="block") == 2
        assert await matched(kind="tree") == 42
        assert await matched(kind="block", state="untracked") == 0
        for wrong in (
            {"filter": {}},
            {"filter": {"source_id": ""}},
            {"filter": {"bucket": None, "source": ""}},
            {},
            {"filter": {"state": "failed"}},
            {"filter": {"sorce_id": "x"}},
            {"filter": {"source": "shop"}, "most": 10_001},
            {"filter": {"source": "shop"}, "cursor": "0"},
            {"filter": {"source": "shop"}, "dry_run": "no"},
            {"filter": {"source": "shop"}, "dry_run": 0},
            {"filter": {"bucket": True}},
            {"filter": {"source_id": "a\nb"}},
            {"filter": {"source": "shop"}, "why": "a\nb"},
        ):
            is_problem(await client.post(path, json=wrong), 422, "bad-request")

    asked(any_server.url, talk)


def test_tree_acked_during_bulk_fail_counts_as_ended(
    any_server: EmbeddedRedis, make_any_acker: MakeAcker, monkeypatch: pytest.MonkeyPatch
) -> None:
    acker = make_any_acker()
    for anchor in (7, 8):
        track(acker, anchor, 40)
    from acker_redis.aio import AsyncAcker

    page = AsyncAcker.page

    async def then_it_ends(self: AsyncAcker, *args: Any, **more: Any) -> Any:
        found = await page(self, *args, **more)
        row(acker, 7, 40)
        return found

    monkeypatch.setattr(AsyncAcker, "page", then_it_ends)

    async def talk(client: httpx.AsyncClient) -> None:
        asking = {"filter": {"source": "t"}, "dry_run": False}
        done = (await client.post(f"{V1}/{acker.namespace}/trees/fail", json=asking)).json()
        assert (done["matched"], done["failed"], done["ended"]) == (2, 1, 1)

    asked(any_server.url, talk)
    assert sorted(v[:3] for v in verdicts(acker)) == [
        ("ack", "completed", 7),
        ("nack", "failed", 8),
    ], "an ack stays an ack"


def test_bulk_fail_sends_batches(any_server: EmbeddedRedis, make_any_acker: MakeAcker) -> None:
    """With reasons of the maximum length, a batch holds a few hundred."""
    acker = make_any_acker()
    batch = Batch("t")
    for anchor in range(1, 1001):
        batch.track(anchor, "s", [40])
    acker.apply(batch)

    async def talk(client: httpx.AsyncClient) -> None:
        asking = {"filter": {"source": "t"}, "dry_run": False, "why": "x" * 255, "most": 5000}
        done = (await client.post(f"{V1}/{acker.namespace}/trees/fail", json=asking)).json()
        assert (done["failed"], done["next"]) == (1000, None)

    asked(any_server.url, talk)
    assert total(acker)["pending"] == 0
