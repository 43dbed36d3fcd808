"""The master is demoted, its address moves, no connection is cut: the service reconnects."""

import asyncio
from collections.abc import Iterator

import httpx
import pytest

from acker_api.live import hub as live
from acker_api.live import watch as live_watch
from acker_api.reading import moved
from acker_redis.ops.acl import rule
from acker_redis.protocol.config import AckerConfig
from acker_redis.sync.client import Acker
from tests.api.service import asked
from tests.api.streams import Service, streaming
from tests.api.test_namespaces import V1
from tests.conftest import binary_of
from tests.support import track
from tests.transport.address import TwoServers
from tests.transport.address import client_of as redis_of
from tests.waiting import LIMIT, wait_until_async


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorten the intervals: no test here is about them."""
    for name in ("PERIOD", "AGAIN"):
        monkeypatch.setattr(live_watch, name, 0.02)
    monkeypatch.setattr(live, "LINGER", 0.0)
    monkeypatch.setattr(moved, "EVERY", 0.05)


@pytest.fixture
def two() -> Iterator[TwoServers]:
    with TwoServers(binary_of("default")) as running:
        for server in (running.old, running.new):
            with redis_of(server) as client:
                words = rule("viewer", password="pw").split()[1:]
                client.execute_command("ACL", "SETUSER", *words)
        with Acker.from_url(running.url, "n") as acker:
            acker.create(AckerConfig(tick_ms=3_600_000))
        running.catch_up()
        yield running


def viewer(two: TwoServers) -> str:
    return two.url.replace("//", "//viewer:pw@")


def test_reads_and_events_of_a_viewer_leave_the_demoted_master(two: TwoServers) -> None:
    """A viewer writes nothing, so the demoted master would never refuse its calls."""

    async def talk(service: Service) -> None:
        stream = await service.open(f"{V1}/n/events")
        assert (await stream.wait_for("hello")).data["live"] is True
        await stream.wait_for("status")
        assert two.connected(two.old)
        await asyncio.to_thread(two.fail_over)
        await wait_until_async(lambda: not two.connected(two.old), "no client there", pause=0.02)
        await wait_until_async(lambda: _listens(two), "a subscription to the new master")
        with redis_of(two.old) as old:
            old.execute_command("REPLICAOF", "NO", "ONE")  # it relays no message any longer
        with Acker.from_url(two.new.url, "n") as direct:
            track(direct, 7, 0)
        assert (await stream.wait_for("outcome")).data["outcomes"][0]["anchor"] == "7"

    async def run() -> None:
        async with streaming(viewer(two)) as service:
            await asyncio.wait_for(talk(service), 2 * LIMIT)

    asyncio.run(run())


def _listens(two: TwoServers) -> bool:
    with redis_of(two.new) as client:
        return bool(client.pubsub_numpat())


def test_the_canary_leaves_the_demoted_master(two: TwoServers) -> None:
    """The refusal of its write is enough; the next check is not needed."""

    async def talk(client: httpx.AsyncClient) -> None:
        assert (await client.get("/readyz")).json()["canary"] == "ok"
        await asyncio.to_thread(two.fail_over)
        async with asyncio.timeout(LIMIT):
            while (answer := await client.get("/readyz")).json().get("canary") != "ok":
                pass
            assert answer.status_code == 200
            # A concurrent read may have been answered by the demoted master.
            while two.connected(two.old):
                await client.get(f"{V1}/n")

    asked(two.url, talk)


def test_replica_in_the_url_keeps_its_subscription(two: TwoServers) -> None:
    """A URL may name a replica on purpose; the subscription stays there."""
    two.address.leads_to = two.new.port

    async def talk(service: Service) -> None:
        stream = await service.open(f"{V1}/n/events")
        assert (await stream.wait_for("hello")).data["live"] is True
        feed = service.services.live._feed
        assert feed
        heard = feed._hears.changed
        changes: list[str] = []
        feed._hears.changed = lambda: (changes.append(feed.why), heard())  # type: ignore
        before = two.address.accepted
        await wait_until_async(lambda: two.address.accepted > before + 3, "some looks")
        assert changes == []

    async def run() -> None:
        async with streaming(viewer(two)) as service:
            await asyncio.wait_for(talk(service), 2 * LIMIT)

    asyncio.run(run())
