"""/docs: the service sends all its files, and the vendor files are unmodified."""

import asyncio
import gzip
import hashlib
import re

import httpx
import pytest
from starlette.types import Message

from acker_api.apidocs import FILES, ROOT
from acker_api.http.routes.static import PART
from tests.api.service import app_of, asked, client_of, is_problem
from tests.api.test_namespaces import V1

UNREACHABLE = "redis://127.0.0.1:1/0"
VENDOR = {
    "LICENSE": "cfc7749b96f63bd31c3c42b5c471bf756814053e847c10f3eb003417bc523d30",
    "NOTICE": "0d20d1adef18aee3f40dd258172155521ce702ac445cb5f7b7d60ed32dad2fb2",
    "swagger-ui-bundle.js": "e6a898692f2d768e807c3ba4626068a69a2c5dd960dd6c76f3e4d3a3de180af2",
    "swagger-ui-bundle.js.LICENSE.txt": (
        "37eb6e7e59aed57b2c1acf076574b818ea07b74265717e0bd67b59e0baf9abbb"
    ),
    "swagger-ui.css": "5ed08757e53da3e026d6cbecc61fe5d43585c9560b302d534ad56692519a273d",
}
"""Digests of the files in npm's package swagger-ui-dist 5.35.0."""


def test_vendor_files_are_unmodified() -> None:
    found = {path.name for path in (ROOT / "vendor").iterdir()} - {"README.md"}
    assert found == set(VENDOR)
    for name, digest in VENDOR.items():
        assert hashlib.sha256((ROOT / "vendor" / name).read_bytes()).hexdigest() == digest
    words = (ROOT / "vendor" / "README.md").read_text()
    assert all(name in words for name in VENDOR)
    packed = sum(len(gzip.compress(path.read_bytes(), 1)) for path in FILES.values())
    assert packed < 1_000_000, "each wheel contains it"


def test_docs_page_loads_only_files_of_the_service() -> None:
    async def talk(client: httpx.AsyncClient) -> None:
        page = await client.get("/docs")
        assert page.headers["content-type"] == "text/html; charset=utf-8"
        policy = page.headers["content-security-policy"]
        assert "default-src 'none'; script-src 'self'; style-src 'self'" in policy
        assert "unsafe" not in policy
        assert "http" not in policy
        again = await client.get("/docs", headers={"If-None-Match": page.headers["etag"]})
        assert again.status_code == 304
        assert again.headers["content-security-policy"] == policy, "it replaces the cached header"
        assert not re.search(r"<script(?![^>]*\ssrc=)|<style|\son\w+=|\sstyle=", page.text)
        loaded = re.findall(r'(?:src|href)="([^"]+)"', page.text)
        assert {path.rpartition("/")[2] for path in loaded} > set(FILES) - {"index.html"}
        for path in loaded:
            file = await client.get(path)
            assert file.status_code == 200, path
            assert not path.startswith(("/", "http")), "relative: a proxy may add a path"
        js = await client.get("/docs/swagger-ui-bundle.js")
        assert js.headers["content-type"] == "text/javascript; charset=utf-8"
        assert js.headers["content-encoding"] == "gzip"
        assert js.content == FILES["swagger-ui-bundle.js"].read_bytes()
        kept = {"If-None-Match": js.headers["etag"]}
        again = await client.get("/docs/swagger-ui-bundle.js", headers=kept)
        assert (again.status_code, again.content) == (304, b"")
        for path in ("__init__.py", "vendor/LICENSE", "..%2fguard.py", "index.htm", ""):
            is_problem(await client.get(f"/docs/{path}"), 404, "not-found")

    asked(UNREACHABLE, talk, docs=True)


@pytest.mark.parametrize(
    ("host", "docs", "there"),
    [
        ("127.0.0.1", None, True),
        ("::1", None, True),
        ("127.0.0.1", False, False),
        ("0.0.0.0", None, False),
        ("0.0.0.0", True, True),
    ],
)
def test_docs_are_on_by_default_on_loopback_only(host: str, docs: bool | None, there: bool) -> None:
    async def talk(client: httpx.AsyncClient) -> None:
        for path in ("/docs", "/docs/begin.js", "/openapi.json"):
            answer = await client.get(path)
            assert answer.status_code == (200 if there else 404), path

    asked(UNREACHABLE, talk, host=host, docs=docs)


@pytest.mark.parametrize("path", ["/docs/swagger-ui-bundle.js", "/openapi.json"])
def test_unread_answer_holds_one_part(path: str) -> None:
    """A large file is sent part by part, each after the client has read the one before."""

    async def run() -> None:
        app, reads, sent = app_of(UNREACHABLE), asyncio.Semaphore(0), list[bytes]()

        async def send(message: Message) -> None:
            if message["type"] == "http.response.body":
                sent.append(message.get("body", b""))
                await reads.acquire()

        async def receive() -> Message:
            return await asyncio.Event().wait() or {}

        scope = {"type": "http", "method": "GET", "path": path, "query_string": b""}
        scope["headers"] = [(b"host", b"localhost")]
        answering = asyncio.create_task(app(scope, receive, send))
        while not sent:
            await asyncio.wait([answering], timeout=0.001)
        for _ in range(3):
            await asyncio.sleep(0)
        assert [len(part) for part in sent] == [PART], "the client has read nothing"
        while not answering.done():
            reads.release()
            await asyncio.sleep(0)
        await answering
        async with client_of(app) as client:
            whole = await client.get(path, headers={"Accept-Encoding": "identity"})
        assert b"".join(sent) == whole.content
        assert max(map(len, sent)) <= PART < len(whole.content)

    asyncio.run(run())


def test_openapi_is_cached_by_browsers() -> None:
    async def talk(client: httpx.AsyncClient) -> None:
        found = await client.get("/openapi.json")
        assert found.headers["content-type"] == "application/json"
        assert f"{V1}/{{namespace}}" in found.json()["paths"]
        kept = {"If-None-Match": found.headers["etag"]}
        assert (await client.get("/openapi.json", headers=kept)).status_code == 304
        head = await client.head("/openapi.json")
        assert (head.status_code, head.content) == (200, b"")

    asked(UNREACHABLE, talk)
