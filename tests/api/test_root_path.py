"""Behind a proxy at a sub path: the proxy may remove the path from requests or not."""

import asyncio
import re
from http.cookies import SimpleCookie
from typing import Any

import httpx
import pytest

from acker_api import ApiSettings
from acker_redis.embedded import EmbeddedRedis
from acker_redis.errors import ConfigError
from tests.api.service import HOST, TOKEN, app_of, asked, bearer, is_problem
from tests.api.test_namespaces import V1

ROOT = "/tools/acker"
UNREACHABLE = "redis://127.0.0.1:1/0"
OURS = {"Origin": HOST}


@pytest.mark.parametrize("prefix", [ROOT, ""])
def test_service_works_with_and_without_the_path_of_the_proxy(
    any_server: EmbeddedRedis, prefix: str
) -> None:
    async def talk(client: httpx.AsyncClient) -> None:
        is_problem(await client.get(f"{prefix}{V1}"), 401, "unauthorized")
        for path in ("/livez", "/readyz", "/docs", "/favicon.ico", "/docs/begin.js"):
            assert (await client.get(prefix + path)).status_code == 200, path
        assert (await client.get(f"{prefix}/metrics")).status_code == 401

        new = {"name": "orders"}
        made = await client.post(f"{prefix}{V1}", json=new, headers=bearer(TOKEN))
        href = f"{ROOT}{V1}/orders"
        assert (made.headers["location"], made.json()["href"]) == (href, href)
        (named,) = (await client.get(f"{prefix}{V1}", headers=bearer(TOKEN))).json()["namespaces"]
        assert named["href"] == href
        assert (await client.get(named["href"], headers=bearer(TOKEN))).status_code == 200

        schema = (await client.get(f"{prefix}/openapi.json")).json()
        assert schema["servers"] == [{"url": ROOT}]
        assert V1 in schema["paths"]

    asked(any_server.url, talk, root_path=ROOT, token=TOKEN, ready_canary=False)


@pytest.mark.parametrize("page", ["", "/", "/login"])
def test_pages_name_their_files_below_the_path(page: str) -> None:
    async def talk(client: httpx.AsyncClient) -> None:
        text = (await client.get(ROOT + page)).text
        files = re.findall(r'(?:src|href)="([^"#][^"]*)"', text)
        assert len(files) > 3
        for file in files:
            assert file.startswith(f"{ROOT}/static/")
            assert (await client.get(file)).status_code == 200, file

    asked(UNREACHABLE, talk, root_path=ROOT)


def test_without_the_setting_names_of_files_are_relative() -> None:
    """So the pages also work behind a proxy that removes a path which the service does not know."""

    async def talk(client: httpx.AsyncClient) -> None:
        for page in ("/", "/login", "/docs"):
            text = (await client.get(page)).text
            files = re.findall(r'(?:src|href)="([^"#][^"]*)"', text)
            assert len(files) > 3
            assert not [file for file in files if file.startswith(("/", "http"))]
        assert "servers" not in (await client.get("/openapi.json")).json()

    asked(UNREACHABLE, talk)


def test_sessions_under_several_paths_of_a_host_are_separate() -> None:
    async def cookies(root_path: str, **headers: str) -> dict[str, Any]:
        found: dict[str, Any] = {}

        async def talk(client: httpx.AsyncClient) -> None:
            session = f"{root_path}/api/v1/session"
            answer = await client.post(session, json={"token": TOKEN}, headers=OURS | headers)
            (found["set"],) = SimpleCookie(answer.headers["set-cookie"]).values()
            known = {"Cookie": f"{found['set'].key}={found['set'].value}"}
            assert (await client.get(session, headers=known)).json()["who"] == "admin"
            answer = await client.delete(session, headers=OURS | headers)
            found["deleted"] = {
                (key, each["path"])
                for line in answer.headers.get_list("set-cookie")
                for key, each in SimpleCookie(line).items()
            }

        async with httpx.AsyncClient(
            transport=httpx.ASGITransport(app_of(UNREACHABLE, root_path=root_path, token=TOKEN)),
            base_url=HOST,
        ) as client:
            await talk(client)
        return found

    async def run() -> None:
        one, other, top = [await cookies(each) for each in (ROOT, "/acker", "")]
        paths = [(each["set"].key, each["set"]["path"]) for each in (one, other, top)]
        assert paths == [
            ("acker-redis-tools-acker", ROOT),
            ("acker-redis-acker", "/acker"),
            ("acker-redis", "/"),
        ]
        secure = await cookies(
            ROOT, **{"X-Forwarded-Proto": "https", "Origin": "https://127.0.0.1:8000"}
        )
        name = "__Host-acker-redis-tools-acker"
        assert (secure["set"].key, secure["set"]["path"]) == (name, "/"), "as browsers demand"
        assert secure["deleted"] == one["deleted"] == {(name, "/"), paths[0]}

    asyncio.run(run())


def test_other_paths_are_not_served() -> None:
    async def talk(client: httpx.AsyncClient) -> None:
        for path in ("/tools/livez", "/tools/ackers/livez", f"{ROOT}{ROOT}/livez", "/acker/livez"):
            is_problem(await client.get(path), 404, "not-found")

    asked(UNREACHABLE, talk, root_path=ROOT)


def test_mounted_service_finds_its_paths() -> None:
    """Another app, or ``uvicorn --root-path``, gives the path to the app."""

    async def run() -> None:
        transport = httpx.ASGITransport(app_of(UNREACHABLE, token=TOKEN), root_path="/mounted")
        async with httpx.AsyncClient(transport=transport, base_url=HOST) as client:
            session = "/mounted/api/v1/session"
            answer = await client.post(session, json={"token": TOKEN}, headers=OURS)
            assert answer.json()["who"] == "admin"
            assert (await client.get("/mounted/docs")).status_code == 200

    asyncio.run(run())


INVALID = ("acker", "/acker/", "/", "//acker", "/a b", "/../x", "/a/../b", "/a\n", "http://x", "/ä")
OURS_ALREADY = ("/api", "/api/v1/x", "/docs", "/static/x", "/login", "/livez", "/openapi.json")


@pytest.mark.parametrize("path", [*INVALID, *OURS_ALREADY])
def test_invalid_root_path_is_refused(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ACKER_REDIS_API_ROOT_PATH", path)
    with pytest.raises(ConfigError, match="ROOT_PATH"):
        ApiSettings.read()
