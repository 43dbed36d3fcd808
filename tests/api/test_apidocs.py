"""/docs: the service sends all its files, and the vendor files are unmodified."""

import gzip
import hashlib
import re

import httpx

from acker_api.apidocs import FILES, ROOT
from tests.api.service import asked, is_problem

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
            assert path.startswith("/")
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


def test_docs_are_off_by_default() -> None:
    async def talk(client: httpx.AsyncClient) -> None:
        for path in ("/docs", "/docs/begin.js", "/openapi.json"):
            is_problem(await client.get(path), 404, "not-found")

    asked(UNREACHABLE, talk)
