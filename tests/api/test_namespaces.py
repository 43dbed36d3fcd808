"""Namespaces, and the state of one, as JSON."""

from typing import Any

import httpx
import pytest

from acker_api import ApiSettings, create_app
from acker_api.reading.metrics import OTHERS, most_waiting
from acker_redis.batching.batch import Batch
from acker_redis.embedded import EmbeddedRedis
from acker_redis.ops.settings import Settings
from acker_redis.protocol.keys import NAMESPACES, ShardKeys
from tests.api.operations import OPERATIONS
from tests.api.service import asked, get, is_problem
from tests.conftest import MakeAcker
from tests.support import fail, rotate, tick, track

V1 = "/api/v1/namespaces"


def test_state_equals_the_status_of_the_namespace(
    any_server: EmbeddedRedis, make_any_acker: MakeAcker
) -> None:
    acker = make_any_acker(shards=2, high_water=8)
    batch = Batch("shop")
    for anchor in (2, 4, 6, 8, 10):  # all on shard 0, whose share is 4
        batch.track(anchor, f"order-{anchor}", [40])
    batch.track(3, "order-3", [])
    acker.apply(batch)
    fail(acker, 2, "no")
    rotate(acker)
    acker.track_block("shop", "page", [7, 8], block=1)
    status = acker.status()

    body = get(any_server.url, f"{V1}/{acker.namespace}").json()
    assert body["namespace"] == acker.namespace
    assert (body["open"], body["pending"], body["in_blocks"]) == (6, 6, 2)
    assert body["pending_by_bucket"] == list(status.pending_by_bucket) == [2, 4, 0]
    assert [shard["pending"] for shard in body["shards"]] == [[0, 4, 0], [2, 0, 0]]
    assert (body["high_water"], body["high_water_ratio"]) == ("high", 1.0)
    assert body["counters"] == {**status.counters, "after_failure": status.after_failure}
    assert body["odd"] == {}
    assert body["backlog"] == {"shop": 2}
    assert (body["lag_ms"], body["late_ms"]) == (0, 0)
    assert body["config"]["high_water"] == 8
    assert body["config"]["timeout_ms"] == 3 * 3_600_000
    assert [shard["ticked_ms"] for shard in body["shards"]] == [s.ticked_ms for s in status.shards]
    tick(acker, 3)
    again = get(any_server.url, f"{V1}/{acker.namespace}").json()
    assert (again["pending"], again["counters"]["expired"]) == (0, 6)
    assert again["high_water"] == "ok"


def test_state_counts_expired_trees_by_edge(
    any_server: EmbeddedRedis, make_any_acker: MakeAcker
) -> None:
    acker = make_any_acker(shards=2, edges=("mill", "shop", "till"))
    mill, till = 1 << 55, 1 << 57
    batch = Batch("shop")
    for anchor, residual in enumerate((mill | 1, mill | 2, mill | till | 3, 4), 1):
        batch.track(anchor, "s", [residual])  # on both shards
    batch.track(10, "s", [till | 5])
    acker.apply(batch)
    fail(acker, 10)
    tick(acker, 3)
    body = get(any_server.url, f"{V1}/{acker.namespace}").json()
    assert body["odd"] == {"mill": 3, "shop": 0, "till": 1, "": 1}
    assert body["odd"] == acker.status().odd
    assert body["counters"]["expired"] == 4


def test_oldest_tree_has_no_slots_of_its_block(
    any_server: EmbeddedRedis, make_any_acker: MakeAcker
) -> None:
    acker = make_any_acker()
    (anchor, *_) = acker.track_block("shop", "page", [7] * 4000, block=1)
    response = get(any_server.url, f"{V1}/{acker.namespace}")
    tree = response.json()["oldest"]["tree"]
    assert tree["block"] == {"block": "1", "slots": 4000}
    assert tree["source_id"] == "page"
    assert len(response.content) < 4000, "each dashboard gets it every second"
    whole = get(any_server.url, f"{V1}/{acker.namespace}/trees/{anchor}").json()
    assert len(whole["block"]["open"]) == 4000


def test_overdue_tick_is_reported_per_shard(
    any_server: EmbeddedRedis, make_any_acker: MakeAcker
) -> None:
    acker = make_any_acker(shards=2, tick_ms=600_000)
    late(acker, 1, 2_100_000)
    body = get(any_server.url, f"{V1}/{acker.namespace}").json()
    assert 1_500_000 <= body["lag_ms"] < 2_000_000
    assert body["shards"][0]["lag_ms"] == 0
    assert body["shards"][1]["lag_ms"] == body["lag_ms"]


def late(acker: Any, shard: int, ms: int) -> None:
    """Set the last tick of a shard back by so many ms."""
    meta = ShardKeys(acker.namespace, shard).meta
    acker.connection.client.hincrby(meta, "ticked_ms", -ms)


def test_names_are_paginated(any_server: EmbeddedRedis, make_any_acker: MakeAcker) -> None:
    names = sorted(make_any_acker().namespace for _ in range(5))

    async def talk(client: httpx.AsyncClient) -> None:
        found: list[str] = []
        after: str | None = ""
        while after is not None:
            page = (await client.get(V1, params={"after": after, "limit": 2})).json()
            assert page["total"] == 5
            assert len(page["namespaces"]) <= 2
            found += [each["name"] for each in page["namespaces"]]
            after = page["next"]
        assert found == names
        first = page["namespaces"][0]
        assert (await client.get(first["href"])).json()["namespace"] == first["name"]
        is_problem(await client.get(V1, params={"limit": 0}), 422, "bad-request")

    asked(any_server.url, talk)


def test_invalid_names_in_redis_are_not_listed(
    any_server: EmbeddedRedis, make_any_acker: MakeAcker
) -> None:
    acker = make_any_acker()
    acker.connection.client.sadd(NAMESPACES, "a b", b"\xff", "x" * 65, "")
    body = get(any_server.url, V1).json()
    assert [each["name"] for each in body["namespaces"]] == [acker.namespace]


@pytest.mark.parametrize("name", ["a%20b", "x" * 65, "%7Bx:0%7D", "a%00", "orders%0A", "%E2%80%AE"])
def test_invalid_name_in_the_path_is_refused(any_server: EmbeddedRedis, name: str) -> None:
    body = is_problem(get(any_server.url, f"{V1}/{name}"), 422, "bad-request")
    assert body["errors"][0]["where"] == "path.namespace"


def test_unknown_paths_and_namespaces_are_404(any_server: EmbeddedRedis) -> None:
    async def talk(client: httpx.AsyncClient) -> None:
        body = is_problem(await client.get(f"{V1}/missing"), 404, "namespace-not-found")
        assert "acker-redis create" in body["detail"]
        for path in ("/api/v2", f"{V1}/a/b", "/docs/", "/livez/"):
            is_problem(await client.get(path), 404, "not-found")

    asked(any_server.url, talk)


def test_allow_lists_every_method_of_the_path() -> None:
    methods: dict[str, set[str]] = {"/": {"GET", "HEAD"}, "/livez": {"GET"}}
    for each in OPERATIONS:
        methods.setdefault(each.path("orders").partition("?")[0], set()).add(each.method)
    methods[f"{V1}/orders/trees/fail"].add("GET")  # a tree with that anchor, which is invalid

    async def talk(client: httpx.AsyncClient) -> None:
        for path, allowed in methods.items():
            refused = await client.put(path)
            is_problem(refused, 405, "method-not-allowed")
            assert set(refused.headers["allow"].split(", ")) == allowed, path

    asked("redis://127.0.0.1:1/0", talk)


def test_other_schema_version_is_409(any_server: EmbeddedRedis, make_any_acker: MakeAcker) -> None:
    acker = make_any_acker()
    acker.connection.client.hset(ShardKeys(acker.namespace, 0).meta, "schema", 9)
    is_problem(get(any_server.url, f"{V1}/{acker.namespace}"), 409, "schema")


@pytest.mark.parametrize("value", ["soon", "0", ""])
def test_tampered_meta_is_reported_as_a_schema_problem(
    any_server: EmbeddedRedis, make_any_acker: MakeAcker, value: str
) -> None:
    acker = make_any_acker()
    acker.connection.client.hset(ShardKeys(acker.namespace, 0).meta, "tick_ms", value)
    body = is_problem(get(any_server.url, f"{V1}/{acker.namespace}"), 409, "schema")
    assert "tampered" in body["detail"]


def test_answers_match_openapi(any_server: EmbeddedRedis, make_any_acker: MakeAcker) -> None:
    acker = make_any_acker()
    track(acker, 7, 40)
    schema = create_app(Settings(), ApiSettings()).openapi()

    async def talk(client: httpx.AsyncClient) -> None:
        for path in ("/livez", "/readyz", V1, f"{V1}/{acker.namespace}", f"{V1}/missing"):
            response = await client.get(path)
            template = path if path in schema["paths"] else f"{V1}/{{namespace}}"
            answers = schema["paths"][template]["get"]["responses"]
            content = answers[str(response.status_code)]["content"]
            shape = content[response.headers["content-type"]]["schema"]
            if "$ref" in shape:
                shape = schema["components"]["schemas"][shape["$ref"].rpartition("/")[2]]
            assert (
                set(shape.get("required", ())) <= set(response.json()) <= set(shape["properties"])
            )

    asked(any_server.url, talk)
    assert "HTTPValidationError" not in schema["components"]["schemas"]
    examples = schema["components"]["schemas"]["NamespaceStatus"]["properties"]
    assert examples["backlog"]["examples"] == [{"shop": 5}]
    shown = get(any_server.url, "/openapi.json", docs=True)
    assert shown.json() == schema


def test_backlogs_are_bounded() -> None:
    backlog = {f"source-{n}": n for n in range(1003)}
    found = most_waiting(backlog)
    assert len(found) == 1001
    assert found["source-1002"] == 1002
    assert found[OTHERS] == 0 + 1 + 2
    assert most_waiting({"a": 1}) == {"a": 1}
