"""Scans take turns, and leave Redis to the producers for most of the time."""

import asyncio
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any

import pytest
import redis.asyncio

from acker_api.problems import Problem
from acker_api.reading import scans
from acker_api.reading.scans import MAX_REST, WAITING, Scanning, Turns
from acker_api.reading.walk import Filter, walk
from acker_redis.aio import AsyncAcker
from acker_redis.aio.connection import AsyncConnection
from acker_redis.batching.batch import Batch
from acker_redis.embedded import EmbeddedRedis
from acker_redis.flows.browse import PageCursor
from acker_redis.protocol.commands import Call
from tests.api.service import app_of, bearer, client_of
from tests.api.test_namespaces import V1
from tests.conftest import MakeAcker
from tests.waiting import LIMIT

ALICE, BOB = "alice-" * 4, "bob-" * 5
TOKENS = f"""tokens = [
  {{name = "alice", role = "admin", token = "{ALICE}"}},
  {{name = "bob", role = "viewer", token = "{BOB}"}},
]"""


async def _settle() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


def test_clients_take_turns_however_many_scans_each_has() -> None:
    async def run() -> None:
        turns, order = Turns(), list[str]()
        running = 0

        async def scan(client: str) -> None:
            nonlocal running
            async with turns.of(client):
                running += 1
                assert running == 1
                order.append(client)
                await asyncio.sleep(0)
                running -= 1

        async with asyncio.timeout(LIMIT):
            await asyncio.gather(*map(scan, "aaaaabbc"))
        assert sorted(order) == [*"aaaaabbc"]
        assert "".join(order) == "aabcabaa"
        async with asyncio.timeout(LIMIT):
            await scan("a")

    asyncio.run(run())


def test_too_many_and_too_long_waits_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    async def run() -> None:
        turns, end = Turns(), asyncio.Event()

        async def scan(client: str) -> None:
            async with turns.of(client):
                await end.wait()

        monkeypatch.setattr(scans, "WAIT", LIMIT)
        waiting = [asyncio.create_task(scan("a")) for _ in range(1 + WAITING)]
        await _settle()
        with pytest.raises(Problem, match="429"):
            await scan("a")
        monkeypatch.setattr(scans, "WAIT", 0.0)
        with pytest.raises(Problem) as caught:
            await scan("b")
        assert caught.value.status == 429
        assert caught.value.headers["Retry-After"]
        waiting[0].cancel()  # it has the turn
        waiting[2].cancel()  # it waits
        await _settle()
        waiting[1].cancel()  # it has just got the turn
        end.set()
        async with asyncio.timeout(LIMIT):
            ended = await asyncio.gather(*waiting, return_exceptions=True)
            assert [type(each) for each in ended[3:]] == [type(None)] * (WAITING - 2)
            await scan("b")

    asyncio.run(run())


def test_turn_of_a_cancelled_waiter_is_passed_on() -> None:
    async def run() -> None:
        turns = Turns()
        first, other = turns.of("a"), turns.of("c")
        await first.__aenter__()
        waiter = asyncio.create_task(turns.of("b").__aenter__())
        last = asyncio.create_task(other.__aenter__())
        await _settle()
        await first.__aexit__(None, None, None)  # the waiter has the turn, and has not run yet
        waiter.cancel()
        async with asyncio.timeout(LIMIT):
            await last
            await other.__aexit__(None, None, None)

    asyncio.run(run())


class _Slow(AsyncConnection):
    """Each call takes ``took`` seconds of the clock."""

    def __init__(self, clock: list[float], took: float) -> None:
        super().__init__(redis.asyncio.Redis(port=1))
        self.clock, self.took, self.begun = clock, took, list[float]()

    async def run(self, call: Call) -> Any:
        self.begun.append(self.clock[0])
        await asyncio.sleep(self.took)

    async def commands(self, commands: Any) -> list[Any]:
        await self.run(Call("list", ("", ""), ()))
        return []


@pytest.mark.parametrize(("took", "rest"), [(0.004, 0.012), (1.0, MAX_REST)])
def test_scan_rests_after_each_call(
    monkeypatch: pytest.MonkeyPatch, took: float, rest: float
) -> None:
    clock, sleep = [100.0], asyncio.sleep

    async def slept(seconds: float) -> None:
        clock[0] += max(0.0, seconds)
        await sleep(0)

    async def run() -> None:
        slow = _Slow(clock, took)
        scanning = Scanning(slow, share=0.25, answer_within=LIMIT)
        reads: list[Callable[[], Awaitable[Any]]] = [
            lambda: scanning.run(Call("list", ("", ""), ())),
            lambda: scanning.commands([("XREVRANGE",)]),
        ]
        await asyncio.gather(*(reads[number % 2]() for number in range(5)))
        gaps = [b - a for a, b in zip(slow.begun, slow.begun[1:], strict=False)]
        assert gaps == pytest.approx([took + rest] * 4)
        await scanning.run(Call("show", ("", ""), ()))
        assert slow.begun[-1] == pytest.approx(slow.begun[-2] + took), "only scans rest"

    monkeypatch.setattr("asyncio.sleep", slept)
    monkeypatch.setattr(scans, "time", SimpleNamespace(monotonic=lambda: clock[0]))
    asyncio.run(run())


def test_parallel_searches_read_one_after_the_other(
    any_server: EmbeddedRedis, make_any_acker: MakeAcker, monkeypatch: pytest.MonkeyPatch
) -> None:
    acker, batch = make_any_acker(shards=4, high_water=10_000), Batch("shop")
    for anchor in range(1, 1001):
        batch.track(anchor, f"order-{anchor}", [anchor])
    acker.apply(batch)
    run, most, reading = AsyncConnection.run, 0, 0

    async def counted(self: AsyncConnection, call: Call) -> Any:
        nonlocal most, reading
        if call.script != "list":
            return await run(self, call)
        reading += 1
        most = max(most, reading)
        try:
            return await run(self, call)
        finally:
            reading -= 1

    monkeypatch.setattr(AsyncConnection, "run", counted)
    monkeypatch.setattr(scans, "WAIT", LIMIT)
    root = f"{V1}/{acker.namespace}"

    async def talk() -> None:
        async with client_of(app_of(any_server.url, tokens=TOKENS)) as client:

            async def whole(token: str, path: str) -> int:
                cursor, looked = "", 0
                while True:
                    page = await client.get(f"{root}/{path}&cursor={cursor}", headers=bearer(token))
                    assert page.status_code == 200, page.text
                    body = page.json()
                    looked += body.get("looked") or body["places"]["pending"]["looked"]
                    if not (cursor := body["next"]):
                        return looked

            async def fail() -> int:
                asked = {"filter": {"source_id": "zzz"}}
                body = await client.post(f"{root}/trees/fail", json=asked, headers=bearer(ALICE))
                return int(body.json()["looked"])

            async def waits() -> int:
                body = await client.get(f"{root}/waits?sample=10000", headers=bearer(BOB))
                return int(body.json()["sampled"])

            async def audits() -> int:
                body = await client.get("/api/v1/audit", headers=bearer(BOB))
                return len(body.json()["entries"])

            looked = await asyncio.gather(
                *(whole(token, "trees?source_id=zzz&limit=1000") for token in (ALICE, BOB) * 2),
                *(whole(token, "search?q=zzz") for token in (ALICE, BOB)),
                fail(),
                waits(),
                audits(),
            )
            assert looked == [1000] * 8 + [0]

    asyncio.run(talk())
    assert most == 1


def test_answer_of_a_slow_scan_is_partial(
    any_server: EmbeddedRedis, make_any_acker: MakeAcker
) -> None:
    acker, batch = make_any_acker(shards=4, high_water=10_000), Batch("shop")
    for anchor in range(1, 1001):
        batch.track(anchor, f"order-{anchor}", [anchor])
    acker.apply(batch)

    async def run() -> None:
        async with AsyncAcker.from_url(any_server.url, acker.namespace) as other:
            at: PageCursor | None = None
            pages, seen = 0, set[int]()
            while not pages or at:
                async for _, page, next_ in walk(other, Filter(), at, 100, within=-1.0):
                    pages, at = pages + 1, next_
                    seen |= {tree.anchor for tree in page.trees}
                assert pages < 1000, "each call reads on"
            assert seen == set(range(1, 1001))
            assert pages > 3

    asyncio.run(run())
