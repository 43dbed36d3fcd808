"""A browser logs in with a token, is identified by a cookie, and logs out."""

import logging
from http.cookies import SimpleCookie
from typing import Any

import httpx
import pytest
from itsdangerous import TimestampSigner
from starlette.datastructures import Headers

from acker_api.auth.identity import COOKIE, SECURE_COOKIE, Identity
from acker_api.auth.tokens import Tokens
from acker_redis.embedded import EmbeddedRedis
from tests.api.service import HOST, METRICS_TOKEN, TOKEN, api, asked, bearer, is_problem
from tests.api.test_namespaces import V1
from tests.conftest import MakeAcker

SESSION = "/api/v1/session"
ALICE = "alice-" * 4
SOME = (
    f'tokens = [{{name="alice", role="operator", token="{ALICE}", namespaces=["orders", "x-*"]}}]'
)
OURS = {"Origin": HOST}


def cookie_of(response: httpx.Response) -> Any:
    """Return the one cookie that a response sets, with its attributes."""
    (line,) = response.headers.get_list("set-cookie")
    ((_, morsel),) = SimpleCookie(line).items()
    return morsel


def test_log_in_act_and_log_out(any_server: EmbeddedRedis, make_any_acker: MakeAcker) -> None:
    acker = make_any_acker()
    path = f"{V1}/{acker.namespace}/rotate"

    async def talk(client: httpx.AsyncClient) -> None:
        unknown = {"needed": True, "role": None, "namespaces": None, "who": None}
        assert (await client.get(SESSION)).json() == unknown
        answer = await client.post(SESSION, json={"token": TOKEN}, headers=OURS)
        admin = {"needed": True, "role": "admin", "namespaces": None, "who": "admin"}
        assert (answer.status_code, answer.json()) == (200, admin)
        cookie = cookie_of(answer)
        assert TOKEN not in cookie.value
        assert (cookie.key, cookie["httponly"], cookie["secure"]) == (COOKIE, True, "")
        assert (cookie["samesite"], cookie["path"], cookie["max-age"]) == ("strict", "/", "43200")
        assert cookie["domain"] == ""
        # httpx sends the cookie from now on.
        assert (await client.get(SESSION)).json() == admin
        assert (await client.get(V1)).status_code == 200
        assert (await client.post(path, headers=OURS)).status_code == 200
        # Browsers send a cookie by themselves, so the request must certainly come from our pages.
        for headers in ({}, {"Origin": "null"}, {"Sec-Fetch-Site": "same-site"}):
            is_problem(await client.post(path, headers=headers), 403, "cross-site")
            is_problem(await client.delete(SESSION, headers=headers), 403, "cross-site")
        # A token has precedence over the cookie.
        is_problem(await client.get(V1, headers=bearer("x" * 20)), 401, "unauthorized")
        assert (await client.post(path, headers=bearer(TOKEN))).status_code == 200

        gone = await client.delete(SESSION, headers=OURS)
        assert (gone.status_code, gone.content) == (204, b"")
        lines = gone.headers.get_list("set-cookie")
        assert [line.partition("=")[0] for line in lines] == [COOKIE, SECURE_COOKIE]
        assert all("Max-Age=0" in line and "HttpOnly" in line for line in lines)
        assert (await client.get(SESSION)).json() == unknown
        is_problem(await client.get(V1), 401, "unauthorized")

    asked(any_server.url, talk, token=TOKEN)


def test_session_has_the_rights_of_its_token(any_server: EmbeddedRedis) -> None:
    async def talk(client: httpx.AsyncClient) -> None:
        answer = await client.post(SESSION, json={"token": ALICE}, headers=OURS)
        alice = {"needed": True, "role": "operator", "namespaces": ["orders", "x-*"]}
        assert answer.json() == {**alice, "who": "alice"}
        assert (await client.get(f"{V1}/orders")).status_code == 404
        is_problem(await client.get(f"{V1}/bills"), 403, "forbidden")
        is_problem(await client.post(V1, json={"name": "orders"}, headers=OURS), 403, "forbidden")

    asked(any_server.url, talk, tokens=SOME)


def test_cookie_over_https_is_secure(any_server: EmbeddedRedis) -> None:
    """Also behind a proxy that uses http to the service: the browser's Origin has the scheme."""

    async def talk(client: httpx.AsyncClient) -> None:
        headers = {"Origin": "https://acker.example", "Host": "acker.example"}
        answer = await client.post(SESSION, json={"token": TOKEN}, headers=headers)
        cookie = cookie_of(answer)
        assert (cookie.key, cookie["secure"], cookie["path"]) == (SECURE_COOKIE, True, "/")
        known = {"Cookie": f"{SECURE_COOKIE}={cookie.value}", "Host": "acker.example"}
        assert (await client.get(SESSION, headers=known)).json()["who"] == "admin"
        # A cookie that another host has set does not have precedence.
        known["Cookie"] += f"; {COOKIE}=x"
        assert (await client.get(SESSION, headers=known)).json()["who"] == "admin"
        client.cookies.clear()
        plain = await client.post("https://127.0.0.1" + SESSION, json={"token": TOKEN})
        assert cookie_of(plain).key == SECURE_COOKIE

    asked(any_server.url, talk, token=TOKEN, allowed_hosts="acker.example")


def test_cookie_value_is_valid_under_one_name_only() -> None:
    """A value for https is no session in the plain cookie, and the other way round."""
    identity = Identity(Tokens.of(api(token=TOKEN)), 3600)
    strict = Identity(Tokens.of(api(token=TOKEN)), 3600, https_only=True)
    (grant,) = identity.tokens
    for name in (COOKIE, SECURE_COOKIE):
        value = identity.begin(grant, name)
        for under in (COOKIE, SECURE_COOKIE):
            headers = Headers({"cookie": f"{under}={value}"})
            assert bool(identity.of(headers)) == (name == under)
            assert bool(strict.of(headers)) == (name == under == SECURE_COOKIE)


def test_https_only_ignores_the_plain_cookie(any_server: EmbeddedRedis) -> None:
    values: list[str] = []

    async def plain(client: httpx.AsyncClient) -> None:
        answer = await client.post(SESSION, json={"token": TOKEN}, headers=OURS)
        values.append(cookie_of(answer).value)

    async def strict(client: httpx.AsyncClient) -> None:
        planted = {"Cookie": f"{COOKIE}={values[0]}"}
        assert (await client.get(SESSION, headers=planted)).json()["who"] is None
        is_problem(await client.get(V1, headers=planted), 401, "unauthorized")
        answer = await client.post(SESSION, json={"token": TOKEN})
        cookie = cookie_of(answer)
        assert (cookie.key, cookie["secure"]) == (SECURE_COOKIE, True)
        both = {"Cookie": f"{SECURE_COOKIE}={cookie.value}; {COOKIE}={values[0]}"}
        assert (await client.get(SESSION, headers=both)).json()["who"] == "admin"

    asked(any_server.url, plain, token=TOKEN)
    asked(any_server.url, strict, token=TOKEN, https_only=True)


def test_logins_are_rate_limited(
    any_server: EmbeddedRedis, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    wrong: tuple[Any, ...] = ("", "x", TOKEN + "x", TOKEN[:-1], "\ud800", "ü" * 20)

    async def talk(client: httpx.AsyncClient) -> None:
        for each in ({}, {"token": None}, {"token": 7}, {"token": "x" * 1001}, {"tokn": TOKEN}):
            refused = await client.post(SESSION, json=each)
            body = is_problem(refused, 422, "bad-request")
            assert TOKEN not in str(body)
        for token in wrong:
            content = b'{"token":%b}' % _json(token)
            headers = {"Content-Type": "application/json"}
            refused = await client.post(SESSION, content=content, headers=headers)
            is_problem(refused, 401, "unauthorized")
            assert "set-cookie" not in refused.headers
        refused = await client.post(SESSION, json={"token": METRICS_TOKEN})
        is_problem(refused, 403, "forbidden")
        for _ in range(10 - len(wrong) - 1):
            client.cookies.clear()
            assert (await client.post(SESSION, json={"token": TOKEN})).status_code == 200
        client.cookies.clear()
        refused = await client.post(SESSION, json={"token": TOKEN})
        is_problem(refused, 429, "too-many-requests")
        assert int(refused.headers["retry-after"]) <= 6
        assert (await client.get(V1, headers=bearer(TOKEN))).status_code == 200

    asked(any_server.url, talk, token=TOKEN, metrics_token=METRICS_TOKEN)
    told = "\n".join(r.getMessage() for r in caplog.records if r.name.startswith("acker"))
    assert "path=/api/v1/session status=401" in told
    assert "who=admin" in told
    for secret in (TOKEN, METRICS_TOKEN, f"{COOKIE}="):
        assert secret not in told


def _json(text: str) -> bytes:
    import json

    return json.dumps(text).encode()


def test_login_without_tokens_sets_no_cookie(any_server: EmbeddedRedis) -> None:
    async def talk(client: httpx.AsyncClient) -> None:
        open_ = {"needed": False, "role": "admin", "namespaces": None, "who": "anybody"}
        assert (await client.get(SESSION)).json() == open_
        answer = await client.post(SESSION, json={"token": "any token"})
        assert (answer.status_code, answer.json()) == (200, open_)
        assert "set-cookie" not in answer.headers
        assert (await client.delete(SESSION)).status_code == 204

    asked(any_server.url, talk)


def test_session_ends_by_age_or_with_its_token(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [1_700_000_000]
    monkeypatch.setattr(TimestampSigner, "get_timestamp", lambda self: now[0])
    identity = Identity(Tokens.of(api(token=TOKEN, tokens=SOME)), 3600)
    grants = {grant.who.name: grant for grant in identity.tokens}
    alice = identity.begin(grants["alice"])
    assert alice != identity.begin(grants["alice"])

    def who(value: str, of: Identity = identity) -> str | None:
        found = of.of(Headers({"cookie": f"{COOKIE}={value}"}))
        return found.name if found else None

    assert who(alice) == "alice"
    now[0] += 3600
    assert who(alice) == "alice"
    now[0] += 1
    assert who(alice) is None
    now[0] -= 3000
    assert who(alice) == "alice"

    # Another worker or replica accepts it too, unless its token has changed.
    assert who(alice, Identity(Tokens.of(api(tokens=SOME)), 3600)) == "alice"
    assert who(alice, Identity(Tokens.of(api(token=TOKEN)), 3600)) is None
    changed = SOME.replace(ALICE, ALICE[::-1])
    assert who(alice, Identity(Tokens.of(api(tokens=changed)), 3600)) is None

    id_, nonce, stamp, signature = alice.split(".")
    root_id = identity.begin(grants["admin"]).split(".")[0]
    for forged in (
        "",
        ".",
        id_,
        f"{id_}...",
        f"{root_id}.{nonce}.{stamp}.{signature}",
        f"{id_}.{nonce}x.{stamp}.{signature}",
        f"{id_}.{nonce}.zzzzzz.{signature}",
        f"{id_}.{nonce}.{stamp}.{signature[:-2]}",
        f"{id_}.{nonce}.{stamp}.",
        "ü" * 10,
        alice + "x",
    ):
        assert who(forged) is None, forged


def test_html_pages_get_a_strict_policy(any_server: EmbeddedRedis) -> None:
    """Pages load scripts and styles from this service only."""
    import asyncio

    from fastapi.responses import HTMLResponse

    from acker_api import ApiSettings, create_app
    from acker_redis.ops.settings import Settings

    app = create_app(Settings(), ApiSettings())

    @app.get("/some-page")
    async def page() -> HTMLResponse:
        return HTMLResponse("<h1>x</h1>")

    async def ask() -> httpx.Response:
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url=HOST) as client:
            return await client.get("/some-page")

    policy = asyncio.run(ask()).headers["content-security-policy"].split("; ")
    assert policy == [
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self' data:",
        "connect-src 'self'",
        "frame-ancestors 'none'",
        "base-uri 'none'",
        "form-action 'self'",
    ]
