"""The overview judges all namespaces, the worst first, at a bounded cost."""

import asyncio
from typing import Any

import httpx
import pytest

from acker_api.reading.ages import Ages
from acker_api.reading.overview import AWAY, LISTED, TIMES, Judged, Overview
from acker_api.reading.reader import Reader, ReadStatus, Survey
from acker_redis.batching.batch import Batch
from acker_redis.embedded import EmbeddedRedis
from acker_redis.errors import RedisUnavailableError
from acker_redis.flows.untaken import LEAST_MS, MAX_STREAMS, read_untaken
from acker_redis.protocol.config import AckerConfig
from acker_redis.protocol.keys import ShardKeys
from acker_redis.protocol.status import Status
from acker_redis.sync.client import Acker
from acker_redis.transport.connect import connect_async
from acker_redis.transport.readers import reader_name
from tests.api.service import TOKEN, asked, get, is_problem
from tests.conftest import MakeAcker
from tests.doctor.made import status
from tests.support import fail, let_wait, track

PATH = "/api/v1/overview"
LATE_MS = 34 * 60_000


def nacked(acker: Acker, count: int) -> None:
    """Fail so many trees of the source ``shop``."""
    batch = Batch("shop")
    for anchor in range(1, count + 1):
        batch.track(anchor, f"order-{anchor}", [40])
        batch.fail(anchor, "no")
    acker.apply(batch)


def levels(body: dict[str, Any]) -> list[tuple[str, str]]:
    return [(each["name"], each["level"]) for each in body["namespaces"]]


def test_all_namespaces_are_judged_and_the_worst_are_first(
    any_server: EmbeddedRedis, make_any_acker: MakeAcker
) -> None:
    fine = [make_any_acker() for _ in range(3)]
    waits, bad = make_any_acker(tick_ms=60_000), make_any_acker()
    nacked(bad, 12)
    track(waits, 7, 0, "order-7", "shop")
    let_wait(waits, "shop", LATE_MS)
    body = get(any_server.url, PATH).json()
    names = sorted(each.namespace for each in fine)
    assert levels(body) == [
        (bad.namespace, "error"),
        (waits.namespace, "warning"),
        *((name, "ok") for name in names),
    ]
    assert (body["total"], body["counts"]) == (5, {"error": 1, "warning": 1, "ok": 3})
    assert body["every_ms"] >= 1000
    first, second, third = body["namespaces"][:3]
    assert first["findings"][0]["headline"] == "Nothing was ever acked"
    assert second["findings"][0]["headline"] == "Source shop has not taken a verdict for 34 min"
    assert (second["untaken"], second["oldest_ms"], third["findings"]) == (1, 0, [])
    assert first["counters"] == {**bad.status().counters, "after_failure": 0}

    # The page of a namespace and the metrics say the same.
    page = get(any_server.url, f"/api/v1/namespaces/{waits.namespace}").json()
    assert [each["id"] for each in page["findings"]] == ["outcomes"]
    metrics = get(any_server.url, "/metrics").text
    sample = f'acker_outcomes_oldest_seconds{{namespace="{waits.namespace}",source="shop"}} '
    (line,) = [line for line in metrics.splitlines() if line.startswith(sample)]
    assert 60 * 34 <= float(line.removeprefix(sample)) < 60 * 35
    assert f'acker_slo_target_ratio{{namespace="{bad.namespace}"}} 0.99' in metrics


def test_overview_is_searched_and_limited(
    any_server: EmbeddedRedis, make_any_acker: MakeAcker
) -> None:
    ackers = [make_any_acker() for _ in range(4)]
    wanted = ackers[2].namespace

    async def ask(client: httpx.AsyncClient) -> None:
        found = (await client.get(PATH, params={"search": wanted.upper()})).json()
        assert (levels(found), found["total"]) == ([(wanted, "ok")], 1)
        few = (await client.get(PATH, params={"limit": 3})).json()
        assert (len(few["namespaces"]), few["total"], few["counts"]["ok"]) == (3, 4, 4)
        none = (await client.get(PATH, params={"search": "no such name"})).json()
        assert (none["namespaces"], none["total"]) == ([], 0)
        for query in ("?limit=0", f"?limit={LISTED + 1}", f"?search={'x' * 65}", "?after=x"):
            is_problem(await client.get(PATH + query), 422, "bad-request")

    asked(any_server.url, ask)


def test_overview_has_only_the_namespaces_of_the_token(
    any_server: EmbeddedRedis, make_any_acker: MakeAcker
) -> None:
    mine, other = make_any_acker(), make_any_acker()
    nacked(other, 12)
    grant = f'{{name="v", role="viewer", token="{"v" * 20}", namespaces=["{mine.namespace}"]}}'
    tokens = f"tokens = [{grant}]"

    async def ask(client: httpx.AsyncClient) -> None:
        found = await client.get(PATH, headers={"authorization": f"Bearer {'v' * 20}"})
        assert found.json()["counts"] == {"error": 0, "warning": 0, "ok": 1}
        assert levels(found.json()) == [(mine.namespace, "ok")]

    asked(any_server.url, ask, token=TOKEN, tokens=tokens)


def test_unreadable_namespace_is_an_error_without_text_of_a_script(
    any_server: EmbeddedRedis, make_any_acker: MakeAcker
) -> None:
    fine, torn = make_any_acker(), make_any_acker()
    meta = ShardKeys(torn.namespace, 0).meta
    for damage in ({"acked": "many"}, {"tick_ms": "soon"}, {"schema": "1"}):
        before = torn.connection.client.hgetall(meta)
        torn.connection.client.hset(meta, mapping=damage)
        body = get(any_server.url, PATH).json()
        assert levels(body) == [(torn.namespace, "error"), (fine.namespace, "ok")]
        told = body["namespaces"][0]
        assert (told["up"], told["counters"]) == (False, None)
        for said in (told, get(any_server.url, f"/api/v1/namespaces/{torn.namespace}").json()):
            text = str(said)
            assert not any(word in text for word in ("user_script", ".lua", "attempt to", "Lua"))
        torn.connection.client.hset(meta, mapping=before)


def test_verdicts_kept_by_a_spark_query_do_not_count(
    any_server: EmbeddedRedis, make_any_acker: MakeAcker
) -> None:
    acker = make_any_acker()
    for source in ("shop", "till"):
        track(acker, 7 if source == "shop" else 8, 0, "order", source)
        let_wait(acker, source, LATE_MS)

    async def untaken() -> dict[str, int] | None:
        client = connect_async(any_server.url, 60.0)
        reader, query = Reader(client, 60.0, 60.0), connect_async(any_server.url, 60.0)
        other = connect_async(any_server.url, 60.0)
        name = reader_name(acker.namespace, "shop", acker.ids.salt)
        await query.execute_command("CLIENT", "SETNAME", name)
        # Of a user who cannot read this namespace, and knows the names of its sources only.
        pretended = reader_name(acker.namespace, "till", "0" * 32)
        await other.execute_command("CLIENT", "SETNAME", pretended)
        try:
            return await reader.untaken(acker.status())
        finally:
            await other.aclose()
            await query.aclose()
            await reader.close()

    found = asyncio.run(untaken())
    assert found is not None
    assert set(found) == {"till"}
    assert LATE_MS <= found["till"] < LATE_MS + 600_000


def test_only_late_verdicts_of_a_bounded_number_of_streams_are_read() -> None:
    shard = status(0, AckerConfig(), backlog={f"s-{n}": n for n in range(400)})
    state = Status("orders", shard.config, (shard,))
    flow = read_untaken(state)
    asked_for = next(flow)
    commands = asked_for.commands  # type: ignore[union-attr]
    assert len(commands) == MAX_STREAMS
    assert commands[0] == (
        *("XRANGE", ShardKeys("orders", 0).outcomes("s-399"), "-"),
        *(str(shard.now_ms - LEAST_MS), "COUNT", 1),
    )
    replies: list[list[Any]] = [[] for _ in commands]
    replies[3] = [(f"{shard.now_ms - 70_000}-0".encode(), [])]
    with pytest.raises(StopIteration) as done:
        flow.send(replies)
    assert done.value.value == {"s-396": 70_000}


def test_cost_of_the_overview_is_a_tenth_of_the_time() -> None:
    seconds = 0.0
    shard = status()

    async def survey() -> Survey:
        return Survey(
            {"orders": ReadStatus(Status("orders", shard.config, (shard,)))}, seconds=seconds
        )

    async def see(state: Status) -> ReadStatus:
        return ReadStatus(state)

    overview = Overview(survey, Ages(see))
    assert asyncio.run(overview.judge()).every == 1.0
    seconds = 2.0
    assert asyncio.run(overview.judge()).every >= TIMES * seconds


def test_overview_is_judged_soon_after_an_outage() -> None:
    shard = status()
    state = Status("orders", shard.config, (shard,))

    async def survey() -> Survey:
        away = RedisUnavailableError("no answer")
        return Survey({"orders": away, "parcels": ReadStatus(state)}, seconds=5.0)

    async def see(state: Status) -> ReadStatus:
        return ReadStatus(state)

    # These seconds were waited, not spent: ten times as long would show an old error.
    assert asyncio.run(Overview(survey, Ages(see)).judge()).every == AWAY


def test_overview_fails_if_the_names_cannot_be_read() -> None:
    async def survey() -> Survey:
        return Survey({}, RedisUnavailableError("no answer"))

    async def see(state: Status) -> ReadStatus:
        return ReadStatus(state)

    with pytest.raises(RedisUnavailableError):
        asyncio.run(Overview(survey, Ages(see)).judge())
    assert Judged(()).body()["counts"] == {"error": 0, "warning": 0, "ok": 0}


def test_ages_are_cached_longer_with_more_namespaces() -> None:
    shard, now, read = status(), [0.0], list[str]()

    def of(name: str) -> Status:
        return Status(name, shard.config, (shard,))

    async def see(state: Status) -> ReadStatus:
        read.append(state.namespace)
        return ReadStatus(state, oldest_ms=len(read))

    ages = Ages(see, names=100, clock=lambda: now[0])

    async def walk(count: int) -> None:
        for number in range(count):
            await ages.see(of(f"n-{number}"))

    asyncio.run(walk(100))
    assert (len(read), ages.seconds) == (100, 10.0)
    now[0] = 9.9
    asyncio.run(walk(100))
    assert len(read) == 100
    now[0] = 10.0
    fresh = of("n-7")
    seen = asyncio.run(ages.see(fresh))
    assert (len(read), seen.oldest_ms) == (101, 101)
    assert seen.status is fresh
    ages.forget_others({"n-7"})
    assert ages.seconds == 2.0
    asyncio.run(walk(200))
    assert len(ages._kept) == 100


def test_failed_tree_in_the_first_reading_is_no_finding(
    any_server: EmbeddedRedis, make_any_acker: MakeAcker
) -> None:
    acker = make_any_acker()
    track(acker, 7, 40)
    fail(acker, 7, "no")
    assert levels(get(any_server.url, PATH).json()) == [(acker.namespace, "ok")]
