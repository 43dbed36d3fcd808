"""Where pending trees wait, from a sample: in a bounded number of calls."""

from types import SimpleNamespace
from typing import Any

import httpx

from acker_api.reading.expired import APART_MS, ExpiredByEdge
from acker_redis.batching.batch import Batch
from acker_redis.embedded import EmbeddedRedis
from acker_redis.flows.waits import MAX_SAMPLE, MAX_SHARDS
from acker_redis.protocol.keys import ShardKeys
from acker_redis.sync.client import Acker
from tests.api.service import asked, get, is_problem
from tests.api.test_namespaces import V1
from tests.conftest import MakeAcker
from tests.support import advance, fail_slot, row, tick, track, track_block

MILL, SHOP = 1 << 55, 1 << 56


def path(acker: Acker) -> str:
    return f"{V1}/{acker.namespace}/waits"


def scripts(acker: Acker) -> int:
    """Return the number of calls of scripts so far."""
    return int(acker.connection.client.info("commandstats")["cmdstat_evalsha"]["calls"])


def test_waiting_trees_are_counted_by_edge(
    any_server: EmbeddedRedis, make_any_acker: MakeAcker
) -> None:
    acker = make_any_acker(edges=("mill", "shop", "till"))
    track(acker, 1, MILL | 1)
    track(acker, 2, MILL | 2)
    advance(acker, 600_000)
    track(acker, 3, MILL | SHOP | 3)
    track(acker, 4, 4)
    row(acker, 5, SHOP | 5)  # not tracked yet: only the part of it is known that came first
    track_block(acker, 6, [SHOP | 1, SHOP | 2, SHOP | 3, 0])
    fail_slot(acker, 6, 2)

    async def talk(client: httpx.AsyncClient) -> None:
        body = (await client.get(path(acker))).json()
        assert (body["sampled"], body["pending"]) == (6, 9)
        found = {each["edge"]: each for each in body["edges"]}
        assert [(each["edge"], each["trees"]) for each in body["edges"]] == [
            ("mill", 3),
            ("shop", 3),
            ("", 1),
        ]
        assert 600_000 <= found["mill"]["idle_ms"] <= found["mill"]["max_idle_ms"] < 660_000
        assert 0 <= found["shop"]["idle_ms"] < 60_000
        for sample in (0, MAX_SAMPLE + 1, "all"):
            wrong = await client.get(path(acker), params={"sample": sample})
            is_problem(wrong, 422, "bad-request")

    asked(any_server.url, talk)


def test_without_edges_all_trees_wait_on_none(
    any_server: EmbeddedRedis, make_any_acker: MakeAcker
) -> None:
    acker = make_any_acker()
    body = get(any_server.url, path(acker)).json()
    assert body.pop("expired_since_ms") > 0
    assert body == {"sampled": 0, "pending": 0, "edges": [], "expired": {}}
    track(acker, 1, MILL | 1)
    (each,) = get(any_server.url, path(acker)).json()["edges"]
    assert (each["edge"], each["trees"]) == ("", 1)


def test_sample_takes_a_bounded_number_of_calls(
    any_server: EmbeddedRedis, make_any_acker: MakeAcker
) -> None:
    shards = 4 * MAX_SHARDS
    acker = make_any_acker(shards=shards, edges=("mill",), high_water=10**6)
    for begin in range(0, 64 * shards, 1000):
        batch = Batch("shop")
        for anchor in range(begin + 1, begin + 1001):
            batch.track(anchor, "s", [MILL | anchor])
        acker.apply(batch)

    async def talk(client: httpx.AsyncClient) -> None:
        async def cost(sample: int) -> tuple[int, Any]:
            before = scripts(acker)
            body = (await client.get(path(acker), params={"sample": sample})).json()
            # The state of each shard has the number of pending trees.
            return scripts(acker) - before - shards, body

        calls, body = await cost(1000)
        assert calls == 2 * MAX_SHARDS, "a call for the only bucket with trees, one for blocks"
        # The sample follows HSCAN, whose pages are no exact numbers.
        assert MAX_SHARDS < body["sampled"] < 2000
        assert body["edges"][0]["trees"] == body["sampled"]
        calls, body = await cost(1)
        assert calls == 2
        assert 1 <= body["sampled"] < 100

    asked(any_server.url, talk)


def test_large_blocks_do_not_outweigh_the_sample(
    any_server: EmbeddedRedis, make_any_acker: MakeAcker
) -> None:
    acker = make_any_acker(edges=("mill", "shop"))
    for block in range(20):
        track_block(acker, block, [MILL | 1] * 2000 + [SHOP | 1] * 2000, f"page {block}")
    before = scripts(acker)
    body = get(any_server.url, f"{path(acker)}?sample=100").json()
    assert scripts(acker) - before < 20
    assert body["pending"] == 80_000
    assert 1 < body["sampled"] <= 100
    counts = {each["edge"]: each["trees"] for each in body["edges"]}
    # The slots that are read are spread over each block.
    assert min(counts.values()) > body["sampled"] / 3


def test_trees_that_expired_while_the_service_watched_are_counted_by_edge(
    any_server: EmbeddedRedis, make_any_acker: MakeAcker
) -> None:
    acker = make_any_acker(edges=("mill", "shop"))
    track(acker, 1, MILL | 1)
    tick(acker, 3)

    async def talk(client: httpx.AsyncClient) -> None:
        first = (await client.get(path(acker))).json()
        assert first["expired"] == {"mill": 0, "shop": 0, "": 0}
        track(acker, 2, SHOP | 2)
        tick(acker, 3)
        body = (await client.get(path(acker))).json()
        assert body["expired"] == {"mill": 0, "shop": 1, "": 0}
        assert body["expired_since_ms"] == first["expired_since_ms"]
        # Redis lost data: the count begins again.
        acker.connection.client.hset(ShardKeys(acker.namespace, 0).meta, "odd:0", "0")
        body = (await client.get(path(acker))).json()
        assert body["expired"] == {"mill": 0, "shop": 0, "": 0}

    asked(any_server.url, talk)


def test_expired_trees_are_counted_for_a_day() -> None:
    def status(hours: int, count: int) -> Any:
        shard = SimpleNamespace(now_ms=hours * APART_MS)
        return SimpleNamespace(namespace="orders", shards=[shard], odd={"mill": count, "": 0})

    expired = ExpiredByEdge()
    counts = [expired.note(status(hours, 10 * hours)) for hours in range(1, 60)]
    assert [each.edges["mill"] for each in counts[:3]] == [0, 10, 20]
    assert counts[23].since_ms == APART_MS
    assert counts[-1].edges["mill"] == 240
    assert counts[-1].since_ms == 35 * APART_MS
    # The namespace was created again, or Redis lost data.
    assert expired.note(status(60, 5)).edges["mill"] == 0
    assert expired.note(status(61, 7)).edges["mill"] == 2
    assert expired.note(status(1, 9)).since_ms == APART_MS
