"""The events of several namespaces on one stream, so that a browser needs one connection."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from acker_api.live import hub as live
from acker_api.live import stream as live_stream
from acker_redis.embedded import EmbeddedRedis
from tests.api.service import TOKEN
from tests.api.streams import Service, streaming
from tests.conftest import MakeAcker
from tests.support import fail, track

PATH = "/api/v1/events"


def run(url: str, talk: Callable[[Service], Awaitable[None]], **fields: str) -> None:
    async def main() -> None:
        async with streaming(url, **fields) as service:
            await talk(service)

    asyncio.run(main())


def test_one_stream_has_the_events_of_several_namespaces(
    any_server: EmbeddedRedis, make_any_acker: MakeAcker
) -> None:
    one, other = make_any_acker(), make_any_acker()

    async def talk(service: Service) -> None:
        names = f"namespace={one.namespace}&namespace={other.namespace}"
        stream = await service.open(f"{PATH}?{names}")
        for name in (one.namespace, other.namespace):
            status = await stream.wait_for(f"status {name}")
            assert (status.data["namespace"], status.data["pending"]) == (name, 0)
        assert (await stream.wait_for("namespaces")).data["total"] == 2
        track(one, 7, 40)
        fail(one, 7, "torn")
        told = await stream.wait_for(f"outcome {one.namespace}")
        assert told.data["outcomes"][0]["why"] == "torn"
        await stream.leave()
        assert service.services.live._listeners == {}

        # Each namespace is resumed after its own last event.
        fail(one, 8, "lost")
        track(one, 8, 40)
        watch = service.services.live._watches[one.namespace]
        assert not watch.bells
        again = f"{PATH}?namespace={one.namespace}@{told.id}&overview=false"
        stream = await service.open(again)
        missed = await stream.wait_for(f"outcome {one.namespace}")
        assert missed.data["outcomes"][0]["why"] == "lost"
        assert (await stream.wait_for(f"status {one.namespace}")).data["counters"]["failed"] == 2

    run(any_server.url, talk)


def test_missing_and_forbidden_namespaces_are_problems_on_the_stream(
    any_server: EmbeddedRedis, make_any_acker: MakeAcker
) -> None:
    mine, other = make_any_acker(), make_any_acker()
    scope = f'namespaces=["{mine.namespace}", "missing"]'
    tokens = f'tokens = [{{name="v", role="viewer", token="{"v" * 20}", {scope}}}]'

    async def talk(service: Service) -> None:
        viewer = {"authorization": f"Bearer {'v' * 20}"}
        names = "&".join(f"namespace={n}" for n in (mine.namespace, other.namespace, "missing"))
        stream = await service.open(f"{PATH}?{names}", **viewer)
        assert stream.status == 200
        found = {}
        while len(found) < 2:
            got = await stream.next()
            assert got
            if got.event.startswith("problem "):
                found[got.event] = got.data["status"]
        assert found == {f"problem {other.namespace}": 403, "problem missing": 404}
        assert (await stream.wait_for(f"status {mine.namespace}")).data["pending"] == 0
        assert (await service.open(f"{PATH}?{names}")).status == 401
        for wrong in ("namespace=a/b", "namespace=a@b@c", "&".join(["namespace=a"] * 33)):
            assert (await service.open(f"{PATH}?{wrong}", **viewer)).status == 422

    run(any_server.url, talk, token=TOKEN, tokens=tokens)


def test_stream_of_several_counts_as_its_namespaces(
    any_server: EmbeddedRedis, make_any_acker: MakeAcker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "MAX_EACH", 2)
    one, other = make_any_acker(), make_any_acker()

    async def talk(service: Service) -> None:
        names = f"namespace={one.namespace}&namespace={other.namespace}"
        refused = await service.open(f"{PATH}?{names}")
        assert refused.status == 429
        # A refused stream has no listeners.
        assert service.services.live._listeners == {}
        assert (await service.open(f"{PATH}?{names}&overview=false")).status == 200

    run(any_server.url, talk)


def test_expired_session_ends_a_stream_of_several(
    any_server: EmbeddedRedis, make_any_acker: MakeAcker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live_stream, "BEAT", 0.02)
    acker = make_any_acker()

    async def talk(service: Service) -> None:
        identity = service.services.identity
        (grant,) = identity.tokens
        cookie = f"acker-redis={identity.begin(grant)}"
        stream = await service.open(f"{PATH}?namespace={acker.namespace}", cookie=cookie)
        await stream.wait_for(f"status {acker.namespace}")
        identity.session_for = -1
        while await stream.next():
            pass
        assert stream.task
        await stream.task
        assert service.services.live._listeners == {}

    run(any_server.url, talk, token=TOKEN)


def test_shutdown_ends_a_stream_of_several(
    any_server: EmbeddedRedis, make_any_acker: MakeAcker
) -> None:
    acker = make_any_acker()

    async def talk(service: Service) -> None:
        stream = await service.open(f"{PATH}?namespace={acker.namespace}&overview=false")
        await stream.wait_for(f"status {acker.namespace}")
        service.services.live.end()
        while await stream.next():
            pass

    run(any_server.url, talk)
