"""The gate refuses requests of other sites, above a rate limit, and with large bodies."""

import itertools
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from starlette.datastructures import Headers

from acker_api.auth.limits import Limiter
from acker_api.http.gate import cross_site
from acker_api.http.services import FILES, WRONG_TOKENS
from acker_redis.embedded import EmbeddedRedis
from tests.api.operations import OPERATIONS, Operation
from tests.api.service import HOST, METRICS_TOKEN, TOKEN, asked, bearer, is_problem
from tests.api.test_namespaces import V1
from tests.conftest import MakeAcker
from tests.support import dump, track, track_block

SITES = {"same-origin": True, "same-site": False, "cross-site": False, "none": False, "": False}
ORIGINS = {
    "http://127.0.0.1:8000": True,
    "http://127.0.0.1:8001": False,
    "http://127.0.0.1": False,
    "http://localhost:8000": False,
    "http://evil.example": False,
    "https://127.0.0.1:8000.evil.example": False,
    "null": False,
    "": False,
    "http://127.0.0.1:x": False,
}


def test_changes_from_other_sites_are_refused(
    any_server: EmbeddedRedis, make_any_acker: MakeAcker
) -> None:
    acker = make_any_acker()
    track(acker, 7, 40)
    track_block(acker, 5, [40])
    before = dump(acker)

    async def talk(client: httpx.AsyncClient) -> None:
        for operation in OPERATIONS:
            for headers in (
                {"Sec-Fetch-Site": "cross-site"},
                {"Sec-Fetch-Site": "cross-site", "Origin": HOST},
                {"Origin": "https://evil.example"},
            ):
                answer = await operation.ask(client, acker.namespace, headers)
                if operation.changes:
                    is_problem(answer, 403, "cross-site")
                else:
                    assert answer.status_code == 200, "another site cannot read it"
        after = dump(acker)
        after.pop(b"acker:audit")
        assert after == before
        ours = {"Sec-Fetch-Site": "same-origin", "Origin": HOST}
        for headers in (ours, {"Origin": HOST}, {}):
            answer = await client.post(f"{V1}/{acker.namespace}/rotate", headers=headers)
            assert answer.status_code == 200

    asked(any_server.url, talk)


@pytest.mark.parametrize("compulsory", [False, True])
def test_cross_site_rule_for_all_header_combinations(compulsory: bool) -> None:
    for (site, by_site), (origin, by_origin) in itertools.product(
        [*SITES.items(), (None, None)], [*ORIGINS.items(), (None, None)]
    ):
        headers = {"host": "127.0.0.1:8000"}
        headers |= {} if site is None else {"sec-fetch-site": site}
        headers |= {} if origin is None else {"origin": origin}
        ours = by_site if by_site is not None else by_origin
        if ours is None:
            ours = not compulsory
        assert (cross_site(Headers(headers), compulsory) is None) == ours, headers


@pytest.mark.parametrize(
    ("host", "origin", "ours"),
    [
        ("acker.example", "https://acker.example", True),
        ("acker.example:443", "https://acker.example", True),
        ("acker.example", "https://ACKER.example:443", True),
        ("acker.example:80", "http://acker.example", True),
        ("acker.example", "https://acker.example:80", False),
        ("[::1]:8000", "http://[::1]:8000", True),
        ("", "http://", False),
        ("acker.example", "file://acker.example", False),
        ("[::1]evil", "http://[::1]", False),
        ("[::1]", "http://[::1]evil", False),
        ("user@acker.example", "http://acker.example", False),
        ("acker.example", "http://user@acker.example", False),
    ],
)
def test_default_ports_of_origins_are_implied(host: str, origin: str, ours: bool) -> None:
    headers = Headers({"host": host, "origin": origin})
    assert (cross_site(headers, True) is None) == ours


@pytest.mark.parametrize("origin", ["http://acker.example", "HTTP://acker.example:443"])
def test_http_page_is_cross_site_over_https(origin: str) -> None:
    for port in ("", ":443", ":80"):
        headers = Headers({"host": f"acker.example{port}", "origin": origin})
        assert cross_site(headers, True, https=True) is not None
    ours = Headers({"host": "acker.example", "origin": "https://acker.example"})
    assert cross_site(ours, True, https=True) is None


@pytest.mark.parametrize(
    ("headers", "fields"),
    [
        ({"X-Forwarded-Proto": "https"}, {}),
        ({"Cookie": "__Host-acker-redis=x"}, {}),
        ({}, {"https_only": True}),
    ],
)
def test_https_is_detected_by_proxy_cookie_or_setting(
    any_server: EmbeddedRedis, headers: dict[str, str], fields: dict[str, Any]
) -> None:
    async def talk(client: httpx.AsyncClient) -> None:
        plain = {**headers, "Origin": HOST}
        is_problem(await client.delete("/api/v1/session", headers=plain), 403, "cross-site")
        by_https = {**headers, "Origin": HOST.replace("http", "https")}
        assert (await client.delete("/api/v1/session", headers=by_https)).status_code == 204
        unknown = {"Origin": HOST}
        status = 403 if fields else 204
        assert (await client.delete("/api/v1/session", headers=unknown)).status_code == status

    asked(any_server.url, talk, **fields)


def test_token_without_origin_headers_is_accepted(
    any_server: EmbeddedRedis, make_any_acker: MakeAcker
) -> None:
    path = f"{V1}/{make_any_acker().namespace}/rotate"

    async def talk(client: httpx.AsyncClient) -> None:
        assert (await client.post(path, headers=bearer(TOKEN))).status_code == 200
        # A page of another site is refused even with the token.
        elsewhere = {**bearer(TOKEN), "Sec-Fetch-Site": "cross-site"}
        is_problem(await client.post(path, headers=elsewhere), 403, "cross-site")
        # An unknown caller is refused before its body is read.
        for body in (b"{", b"x" * 100_000):
            is_problem(await client.post(path, content=body), 401, "unauthorized")

    asked(any_server.url, talk, token=TOKEN)


def test_requests_above_the_rate_limit_get_429(
    any_server: EmbeddedRedis, make_any_acker: MakeAcker
) -> None:
    make_any_acker()
    both = f'tokens = [{{name="b", role="viewer", token="{"b" * 20}"}}]'

    async def talk(client: httpx.AsyncClient) -> None:
        one, other = bearer(TOKEN), bearer("b" * 20)
        for _ in range(5):
            assert (await client.get(V1, headers=one)).status_code == 200
        refused = await client.get(V1, headers=one)
        is_problem(refused, 429, "too-many-requests")
        assert 1 <= int(refused.headers["retry-after"]) <= 12
        assert (await client.get(V1, headers=other)).status_code == 200, "a separate limit"
        for path in ("/livez", "/readyz", "/metrics"):
            for _ in range(6):
                assert (await client.get(path, headers=one)).status_code in (200, 404)
        strangers = [await client.get(V1, headers=bearer(f"{n}" * 20)) for n in range(6)]
        assert [each.status_code for each in strangers] == [401] * 5 + [429]

    asked(any_server.url, talk, token=TOKEN, tokens=both, rate_limit=5)


def test_files_have_their_own_rate_limit(any_server: EmbeddedRedis) -> None:
    async def talk(client: httpx.AsyncClient) -> None:
        found = [await client.get("/static/0/js/main.js") for _ in range(4 * FILES + 1)]
        assert [each.status_code for each in found] == [200] * 4 * FILES + [429]
        statuses = [(await client.get(V1)).status_code for _ in range(5)]
        assert statuses == [200] * 4 + [429], "they do not use up the requests of the caller"

    asked(any_server.url, talk, rate_limit=4)


@pytest.mark.parametrize(
    "path", [V1, "/metrics", "/livez", "/readyz", "/static/0/x.js", "/docs", "/x"]
)
def test_wrong_tokens_are_limited_everywhere(any_server: EmbeddedRedis, path: str) -> None:
    """A valid token is refused then, too: otherwise a client could go on guessing."""
    other = f'tokens = [{{name="b", role="viewer", token="{"b" * 20}"}}]'

    async def talk(client: httpx.AsyncClient) -> None:
        assert (await client.get(path, headers=bearer(TOKEN))).status_code in (200, 404)
        answers = [await client.get(path, headers=bearer(f"{n}" * 20)) for n in range(WRONG_TOKENS)]
        assert 429 not in {each.status_code for each in answers}
        for headers in (bearer("z" * 20), bearer("b" * 20), {"Authorization": "Basic x"}):
            refused = await client.get(path, headers=headers)
            is_problem(refused, 429, "too-many-requests")
            assert int(refused.headers["retry-after"]) >= 1
        # Known clients are not locked out, nor are clients without a token.
        assert (await client.get(path, headers=bearer(TOKEN))).status_code in (200, 404)
        assert (await client.get("/livez")).status_code == 200

    asked(any_server.url, talk, token=TOKEN, tokens=other, docs=True)


def test_metrics_token_cannot_be_guessed(any_server: EmbeddedRedis) -> None:
    async def talk(client: httpx.AsyncClient) -> None:
        for n in range(WRONG_TOKENS):
            wrong = await client.get("/metrics", headers=bearer(f"{n}" * 20))
            is_problem(wrong, 401, "unauthorized")
        right = await client.get("/metrics", headers=bearer(METRICS_TOKEN))
        is_problem(right, 429, "too-many-requests")

    asked(any_server.url, talk, metrics_token=METRICS_TOKEN)


def test_rate_limit_is_per_address_without_tokens(
    any_server: EmbeddedRedis, make_any_acker: MakeAcker
) -> None:
    make_any_acker()

    async def talk(client: httpx.AsyncClient) -> None:
        found = [(await client.get(V1, headers=bearer("x" * n))).status_code for n in range(1, 5)]
        assert found == [200, 200, 200, 429]

    asked(any_server.url, talk, rate_limit=3)
    asked(any_server.url, _many, rate_limit=0)


async def _many(client: httpx.AsyncClient) -> None:
    for _ in range(20):
        assert (await client.get(f"{V1}?limit=0")).status_code == 422


def test_limiter_refills_over_time() -> None:
    now = [0.0]
    limiter = Limiter(60, clients=3, clock=lambda: now[0])
    assert [limiter.wait("a") for _ in range(61)][-2:] == [0.0, 1.0]
    now[0] = 0.5
    assert limiter.wait("a") == 0.5
    now[0] = 1.5
    assert [limiter.wait("a"), limiter.wait("a")] == [0.0, 0.5]
    now[0] = 1e6
    assert [limiter.wait("a") for _ in range(61)].count(0.0) == 60, "no more are saved"
    for each in "bcd":
        limiter.wait(each)
    assert limiter.wait("a") == 0.0, "the least recent client was forgotten"
    assert len(limiter._left) == 3


def test_too_large_body_is_refused(any_server: EmbeddedRedis, make_any_acker: MakeAcker) -> None:
    acker = make_any_acker()
    track(acker, 7, 40)

    def stream() -> Iterator[bytes]:
        yield b'{"why":"'
        for _ in range(30):
            yield b"x" * 100

    async def chunks() -> Any:
        for chunk in stream():
            yield chunk

    async def talk(client: httpx.AsyncClient) -> None:
        path = f"{V1}/{acker.namespace}/trees/7/fail"
        headers = {"Content-Type": "application/json"}
        is_problem(await client.post(path, json={"why": "x" * 3000}), 413, _TOO_LARGE)
        told = await client.post(path, content=chunks(), headers=headers)
        is_problem(told, 413, _TOO_LARGE)
        assert (await client.get(f"{V1}/{acker.namespace}/trees/7")).status_code == 200

    asked(any_server.url, talk, max_body=1024)


_TOO_LARGE = "body-too-large"


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda each: " ".join(each.key))
def test_unknown_query_parameter_is_refused(
    any_server: EmbeddedRedis, make_any_acker: MakeAcker, operation: Operation
) -> None:
    """If it were ignored, a misspelt filter would return everything. Nothing is changed."""
    acker = make_any_acker()
    track(acker, 7, 40)
    before = dump(acker)

    async def talk(client: httpx.AsyncClient) -> None:
        path = operation.path(acker.namespace)
        path += "&" if "?" in path else "?"
        sent = operation.body and {**operation.body, "name": "made"}
        sent = sent if operation.action == "create_namespace" else operation.body
        for query in ("sourceid=x", "Limit=1", "x", "%00=1", f"{'y' * 5000}=1", "confirm=y&z=2"):
            answer = await client.request(operation.method, path + query, json=sent)
            body = is_problem(answer, 422, "bad-request")
            assert body["detail"].startswith("unknown query parameter; ")
            assert len(str(body)) < 1000
        if operation.template.endswith("/trees"):
            body = (await client.get(path + "sourceid=x")).json()
            assert "source_id" in body["detail"]
            assert [each["where"] for each in body["errors"]] == ["query.sourceid"]

    asked(any_server.url, talk)
    assert dump(acker) == before


def test_missing_token_is_reported_before_unknown_parameters(any_server: EmbeddedRedis) -> None:
    async def talk(client: httpx.AsyncClient) -> None:
        is_problem(await client.get(f"{V1}?nonsense=1"), 401, "unauthorized")
        # Other routes accept any parameters: of scrapers, probes, browsers.
        for path in ("/metrics", "/livez", "/readyz", "/"):
            answer = await client.get(f"{path}?nonsense=1", headers=bearer(TOKEN))
            assert answer.status_code == 200

    asked(any_server.url, talk, token=TOKEN)


def test_body_must_be_json_with_its_content_type(
    any_server: EmbeddedRedis, make_any_acker: MakeAcker
) -> None:
    """Types that a form of another page can send, such as text/plain, are not read."""
    acker = make_any_acker()
    track(acker, 7, 40)

    async def talk(client: httpx.AsyncClient) -> None:
        path = f"{V1}/{acker.namespace}/trees/7/fail"
        for kind in ("text/plain", "application/x-www-form-urlencoded", ""):
            headers = {"Content-Type": kind} if kind else {}
            answer = await client.post(path, content=b'{"why":"x"}', headers=headers)
            is_problem(answer, 422, "bad-request")
        for body in (b"", b"{", b"\xff", b"[" * 60_000, b'{"why":' + b"1" * 5000 + b"}"):
            answer = await client.post(
                path, content=body, headers={"Content-Type": "application/json"}
            )
            is_problem(answer, 422, "bad-request")

    asked(any_server.url, talk)
