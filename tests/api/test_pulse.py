"""Polls of a namespace report a hanging Redis early, and a starved process reports nothing."""

import asyncio
import time
from collections.abc import Awaitable, Callable

import httpx
import pytest
import redis.exceptions

from acker_api.reading import pulse
from acker_api.reading.pulse import Pulse
from acker_redis.embedded import EmbeddedRedis
from acker_redis.errors import NamespaceNotFoundError, RedisUnavailableError
from tests.api.service import is_problem, service, settled
from tests.api.test_namespaces import V1
from tests.conftest import MakeAcker
from tests.transport.proxy import proxied
from tests.waiting import LIMIT


def test_poll_of_a_hanging_redis_fails_before_its_timeout(
    any_server: EmbeddedRedis, make_any_acker: MakeAcker
) -> None:
    path = f"{V1}/{make_any_acker().namespace}"

    async def run() -> None:
        with proxied(any_server.url) as line:
            async with service(line.url, answer_within=0.25) as client:
                assert (await settled(client, path)).status_code == 200
                line.stall = True
                # The first poll may end before the hang is known.
                async with asyncio.timeout(LIMIT):
                    while "within 0.15 s" not in await _detail(client, path):
                        pass
                line.stall = False
                assert (await settled(client, path)).status_code == 200

    asyncio.run(run())


async def _detail(client: httpx.AsyncClient, path: str) -> str:
    return str(is_problem(await client.get(path), 503, "redis-unavailable")["detail"])


async def _never() -> None:
    await asyncio.Event().wait()


def beating(ping: Callable[[], Awaitable[None]], talk: Callable[[Pulse], Awaitable[None]]) -> None:
    """Run a talk with a pulse whose heartbeats are due within milliseconds."""

    async def run() -> None:
        one = Pulse(ping, 0.05)
        async with asyncio.timeout(LIMIT):
            await talk(one)
        await one.close()

    asyncio.run(run())


async def _soon() -> str:
    await asyncio.sleep(0)
    return "read"


def test_read_returns_its_result_or_error() -> None:
    async def missing() -> None:
        raise NamespaceNotFoundError("orders")

    async def talk(one: Pulse) -> None:
        assert await one.read(_soon()) == "read"
        with pytest.raises(NamespaceNotFoundError):
            await one.read(missing())
        with pytest.raises(RedisUnavailableError, match="within 0.03 s"):
            await one.read(_never())
        assert await one.read(_soon()) == "read", "a read that is answered in time"

    beating(_never, talk)


@pytest.mark.usefixtures("without_end")
def test_starved_process_does_not_report_redis_as_late() -> None:
    asked = 0

    async def ping() -> None:
        nonlocal asked
        asked += 1
        await asyncio.sleep(0.001)

    async def talk(one: Pulse) -> None:
        await one.read(_soon())
        while asked < 3:
            time.sleep(0.1)  # twice the timeout of an answer
            await asyncio.sleep(0.002)
            assert not one._late.is_set()

    beating(ping, talk)


@pytest.fixture
def without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let heartbeats continue also if the machine stalls after the last poll."""
    monkeypatch.setattr(pulse, "ON", LIMIT)


@pytest.mark.usefixtures("without_end")
@pytest.mark.parametrize(
    ("error", "late"),
    [
        (redis.exceptions.ConnectionError("refused"), False),
        (redis.exceptions.ResponseError("BUSY"), False),
        (redis.exceptions.TimeoutError("no reply"), True),
    ],
)
def test_refusing_redis_is_not_late(error: Exception, late: bool) -> None:
    hangs, asked = True, asyncio.Event()

    async def ping() -> None:
        if hangs:
            await asyncio.sleep(0.06)
        asked.set()
        raise error

    async def talk(one: Pulse) -> None:
        nonlocal hangs
        await one.read(_soon())
        await one._late.wait()
        hangs = False
        asked.clear()
        await asked.wait()
        for _ in range(10):  # until the result is noted
            await asyncio.sleep(0)
        assert one._late.is_set() == late

    beating(ping, talk)


def test_heartbeats_end_without_polls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pulse, "ON", 0.0)

    async def talk(one: Pulse) -> None:
        await one.read(_soon())
        assert one._task
        await one._task
        assert await one.read(_soon()) == "read", "the heartbeats begin again"

    beating(_soon, talk)  # type: ignore[arg-type]
