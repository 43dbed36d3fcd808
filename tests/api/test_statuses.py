"""Every status that OpenAPI documents occurs, and no other."""

import asyncio
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from acker_api import ApiSettings, create_app
from acker_redis.embedded import EmbeddedRedis
from acker_redis.ops.settings import Settings
from acker_redis.protocol.keys import ShardKeys
from tests.api.operations import NEW, OPERATIONS, Operation
from tests.api.service import HOST, METRICS_TOKEN, TOKEN, asked, bearer
from tests.api.test_redis_away import UNREACHABLE
from tests.conftest import MakeAcker
from tests.support import track, track_block

Met = set[tuple[str, str, int]]


def documented() -> Met:
    """Return all operations of the API that these tests know, with their statuses."""
    paths = create_app(Settings(), ApiSettings()).openapi()["paths"]
    known = {operation.key for operation in OPERATIONS}
    return {
        (method.upper(), path, int(status))
        for path, methods in paths.items()
        for method, operation in methods.items()
        for status in operation["responses"]
        if (method.upper(), path) in known
    }


def test_every_operation_is_covered_by_these_tests() -> None:
    paths = create_app(Settings(), ApiSettings()).openapi()["paths"]
    there = {(method.upper(), path) for path, methods in paths.items() for method in methods}
    known = {operation.key for operation in OPERATIONS}
    others = {(m, p) for m, p in there - known if p.startswith("/api/") and "events" not in p}
    assert not others
    assert known <= there


def test_documented_statuses_are_exactly_the_real_ones(
    any_server: EmbeddedRedis, make_any_acker: MakeAcker, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("reading.reader", "acting.actions"):
        monkeypatch.setattr(f"acker_api.{module}.RETRY_FOR", 0.0)  # a retry would not help
    acker, other = make_any_acker(), make_any_acker()
    track_block(acker, 5, [40], task="shop")
    client_ = acker.connection.client
    client_.hset(ShardKeys(other.namespace, 0).meta, "schema", 9)
    client_.acl_setuser(
        "blind", enabled=True, passwords=["+a-password"], keys=["*"], commands=["+ping"]
    )
    blind = any_server.url.replace("redis://", "redis://blind:a-password@")
    met: Met = set()

    def asking(
        send: Callable[[httpx.AsyncClient, Operation], Any], url: str = any_server.url, **more: Any
    ) -> None:
        async def talk(client: httpx.AsyncClient) -> None:
            for operation in OPERATIONS:
                client.cookies.clear()
                for answer in await send(client, operation):
                    met.add((*operation.key, answer.status_code))

        asked(url, talk, **more)

    async def right(client: httpx.AsyncClient, operation: Operation) -> list[httpx.Response]:
        anchor = 1 + OPERATIONS.index(operation)
        track(acker, anchor, 40)
        if operation.action == "create_namespace":
            return [await operation.ask(client, NEW) for _ in range(2)]
        name = NEW if operation.action == "drop_namespace" else acker.namespace
        return [await operation.ask(client, name, anchor=str(anchor))]

    async def nowhere(client: httpx.AsyncClient, operation: Operation) -> list[httpx.Response]:
        found = [await operation.ask(client, other.namespace)]
        if operation.action != "create_namespace":
            found.append(await operation.ask(client, "missing"))
        return found

    async def wrong(client: httpx.AsyncClient, operation: Operation) -> list[httpx.Response]:
        path, method = operation.path(acker.namespace).partition("?")[0], operation.method
        found = [await client.request(method, path, headers={"Host": "evil.example"})]
        if operation.bad_query:
            found.append(await client.request(method, path + operation.bad_query))
        elif operation.bad_body is not None:
            found.append(await client.request(method, path, json=operation.bad_body))
        elif "{namespace}" in operation.template:
            found.append(await client.request(method, operation.path("a%20b")))
        if operation.changes:
            huge = {"content": b"x" * 70_000, "headers": {"Content-Type": "application/json"}}
            found.append(await client.request(method, operation.path(acker.namespace), **huge))
            elsewhere = {"Sec-Fetch-Site": "cross-site"}
            found.append(await operation.ask(client, acker.namespace, elsewhere))
        return found

    async def closed(client: httpx.AsyncClient, operation: Operation) -> list[httpx.Response]:
        found = [await operation.ask(client, acker.namespace)]
        found.append(await operation.ask(client, acker.namespace, bearer(METRICS_TOKEN)))
        return found

    async def once(client: httpx.AsyncClient, operation: Operation) -> list[httpx.Response]:
        return [await operation.ask(client, "missing")]

    async def twice(client: httpx.AsyncClient, operation: Operation) -> list[httpx.Response]:
        return [await operation.ask(client, "missing") for _ in range(2)]

    try:
        asking(right)
        asking(nowhere)
        asking(wrong)
        asking(closed, token=TOKEN, metrics_token=METRICS_TOKEN)
        asking(once, blind)
        asking(once, UNREACHABLE)
        asking(twice, rate_limit=1)
    finally:
        client_.acl_deluser("blind")
    assert not sorted(status for _, _, status in met if status >= 500 and status not in (502, 503))
    assert sorted(documented() - met) == [], "documented, and did not occur"
    assert sorted(met - documented()) == [], "occurred, and not documented"


def test_unauthorized_answers_do_not_reveal_existence(
    any_server: EmbeddedRedis, make_any_acker: MakeAcker
) -> None:
    acker = make_any_acker()

    async def talk(client: httpx.AsyncClient) -> None:
        for operation in OPERATIONS:
            there = await operation.ask(client, acker.namespace)
            nowhere = await operation.ask(client, "missing")
            assert there.json() if there.content else True
            assert (there.status_code, there.content) == (nowhere.status_code, nowhere.content)

    asked(any_server.url, talk, token=TOKEN)


def test_openapi_schemas_have_descriptions() -> None:
    app = create_app(Settings(), ApiSettings())
    schema = app.openapi()
    assert "HTTPValidationError" not in schema["components"]["schemas"]
    assert HOST not in str(schema)
    for name, shape in schema["components"]["schemas"].items():
        assert shape.get("description"), name
    asyncio.run(app.state.services.close())
