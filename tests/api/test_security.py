"""Tokens, hosts and headers protect the service."""

import asyncio
import logging
from functools import partial
from pathlib import Path

import httpx
import pytest

from acker_api import ApiSettings, check_bind, create_app
from acker_api.auth import guard
from acker_api.auth.guard import REFUSED_LINES
from acker_api.auth.hosts import Hosts, is_loopback
from acker_api.auth.limits import Limiter
from acker_redis.embedded import EmbeddedRedis
from acker_redis.errors import ConfigError
from acker_redis.ops.settings import Settings
from tests.api.service import METRICS_TOKEN, TOKEN, api, asked, bearer, get, is_problem
from tests.api.test_namespaces import V1, late
from tests.conftest import MakeAcker

PUBLIC = ("0.0.0.0", "::", "192.0.2.1", "example.org", "::ffff:192.0.2.1")
LOOPBACK = ("127.0.0.1", "127.1.2.3", "localhost", "LOCALHOST", "::1", "[::1]", "::ffff:127.0.0.1")


@pytest.mark.parametrize("host", PUBLIC)
def test_public_address_requires_a_token(host: str) -> None:
    assert not is_loopback(host)
    for without in (api(host=host), api(host=host, metrics_token=METRICS_TOKEN)):
        with pytest.raises(ConfigError, match="ACKER_REDIS_API_TOKENS_FILE, or listen on 127"):
            check_bind(without)
    check_bind(api(host=host, token=TOKEN))


@pytest.mark.parametrize("host", LOOPBACK)
def test_loopback_requires_no_token(host: str) -> None:
    check_bind(ApiSettings(host=host))


def test_everything_is_open_without_tokens(
    any_server: EmbeddedRedis, make_any_acker: MakeAcker
) -> None:
    acker = make_any_acker()

    async def talk(client: httpx.AsyncClient) -> None:
        for path in ("/livez", "/readyz", "/metrics", V1, f"{V1}/{acker.namespace}"):
            assert (await client.get(path)).status_code == 200
            # A proxy or a scraper may send a token nevertheless.
            assert (await client.get(path, headers=bearer("any token"))).status_code == 200

    asked(any_server.url, talk)


def test_with_a_token_only_probes_are_open(
    any_server: EmbeddedRedis, make_any_acker: MakeAcker
) -> None:
    acker = make_any_acker()
    closed = ("/metrics", V1, f"{V1}/{acker.namespace}", f"{V1}/missing", f"{V1}/a%20b")
    wrong: tuple[dict[str, str], ...] = (
        {},
        bearer(TOKEN[:-1]),
        bearer(TOKEN + "t"),
        bearer("ü"),
        {"Authorization": f"Basic {TOKEN}"},
        {"Authorization": "Bearer"},
        {"X-Token": TOKEN},
    )

    async def talk(client: httpx.AsyncClient) -> None:
        for path in ("/livez", "/readyz"):
            assert (await client.get(path)).status_code == 200
        for path in closed:
            for headers in wrong:
                raw = {name.encode(): value.encode() for name, value in headers.items()}
                refused = await client.get(path, headers=raw)
                is_problem(refused, 401, "unauthorized")
                assert refused.headers["www-authenticate"].startswith("Bearer")
            refused = await client.get(path, params={"token": TOKEN})
            is_problem(refused, 401, "unauthorized")
        for path in closed[:3]:
            assert (await client.get(path, headers=bearer(TOKEN))).status_code == 200

    asked(any_server.url, talk, token=TOKEN)


def test_metrics_token_is_for_metrics_only(any_server: EmbeddedRedis) -> None:
    async def talk(client: httpx.AsyncClient) -> None:
        for token in (TOKEN, METRICS_TOKEN):
            assert (await client.get("/metrics", headers=bearer(token))).status_code == 200
        is_problem(await client.get("/metrics"), 401, "unauthorized")
        is_problem(await client.get(V1, headers=bearer(METRICS_TOKEN)), 403, "forbidden")
        assert (await client.get(V1, headers=bearer(TOKEN))).status_code == 200

    asked(any_server.url, talk, token=TOKEN, metrics_token=METRICS_TOKEN)


def test_metrics_token_alone_leaves_the_api_open(any_server: EmbeddedRedis) -> None:
    async def talk(client: httpx.AsyncClient) -> None:
        is_problem(await client.get("/metrics"), 401, "unauthorized")
        assert (await client.get("/metrics", headers=bearer(METRICS_TOKEN))).status_code == 200
        assert (await client.get(V1)).status_code == 200

    asked(any_server.url, talk, metrics_token=METRICS_TOKEN)


def test_readyz_names_no_namespace_without_a_token(
    any_server: EmbeddedRedis, make_any_acker: MakeAcker
) -> None:
    acker = make_any_acker(tick_ms=1000)
    late(acker, 0, 60_000)

    async def talk(client: httpx.AsyncClient) -> None:
        stranger = await client.get("/readyz")
        is_problem(stranger, 503, "not-ready")
        assert acker.namespace not in stranger.text
        assert acker.namespace in (await client.get("/readyz", headers=bearer(TOKEN))).text

    asked(any_server.url, talk, token=TOKEN)


def test_token_is_read_from_a_file(tmp_path: Path, any_server: EmbeddedRedis) -> None:
    file = tmp_path / "token"
    file.write_text(f"{TOKEN}\n")
    assert get(any_server.url, V1, token_file=file).status_code == 401
    assert get(any_server.url, V1, bearer(TOKEN), token_file=file).status_code == 200
    check_bind(ApiSettings(host="::", token_file=file))


@pytest.mark.parametrize(
    "token", ["short", "with a space in it", "ümlaute-und-anderes", "a\nb" * 9]
)
def test_weak_token_is_refused_and_not_shown(token: str) -> None:
    for fields in ({"token": token}, {"metrics_token": token}):
        with pytest.raises(ConfigError, match="token_urlsafe") as raised:
            create_app(Settings(), api(**fields))
        assert token not in str(raised.value)


def test_unreadable_token_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="TOKEN_FILE: cannot read"):
        create_app(Settings(), ApiSettings(token_file=tmp_path / "none"))
    with pytest.raises(ConfigError, match="both set"):
        create_app(Settings(), api(token=TOKEN, token_file=tmp_path / "none"))


def test_api_settings_are_read_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ACKER_REDIS_API_TOKEN", TOKEN)
    monkeypatch.setenv("ACKER_REDIS_API_PORT", "9000")
    monkeypatch.setenv("ACKER_REDIS_API_ALLOWED_HOSTS", "a.example, B.example")
    settings = ApiSettings.read(host=None, port=None)
    assert (settings.read_token(), settings.port) == (TOKEN, 9000)
    assert settings.hosts == ("a.example", "b.example")
    assert TOKEN not in repr(settings)
    monkeypatch.setenv("ACKER_REDIS_API_TOKEN", "")
    assert ApiSettings.read().read_token() is None
    monkeypatch.setenv("ACKER_REDIS_API_PORT", "hunter2")
    with pytest.raises(ConfigError, match="ACKER_REDIS_API_PORT") as raised:
        ApiSettings.read()
    assert "hunter2" not in str(raised.value)


ODD = ("[::1]evil", "[::1]:80evil", "[::1]evil:80", "[::1", "[::1].evil.example", "127.0.0.1:8o")
"""Malformed, although they begin with a name of loopback."""


def test_foreign_host_is_refused_on_loopback(any_server: EmbeddedRedis) -> None:
    async def talk(client: httpx.AsyncClient) -> None:
        for host in (
            "evil.example",
            "evil.example:8000",
            "127.0.0.1.evil.example",
            "",
            "a:b",
            *ODD,
        ):
            for path in ("/livez", V1, "/nothing"):
                refused = await client.get(path, headers={"Host": host})
                is_problem(refused, 421, "unknown-host")
        for host in ("127.0.0.1", "localhost:8000", "LOCALHOST", "[::1]:8000", "[::1]"):
            assert (await client.get("/livez", headers={"Host": host})).status_code == 200

    asked(any_server.url, talk)


def test_requests_with_foreign_hosts_are_rate_limited(any_server: EmbeddedRedis) -> None:
    async def talk(client: httpx.AsyncClient) -> None:
        foreign = {"Host": "evil.example"}
        found = [(await client.get("/livez", headers=foreign)).status_code for _ in range(5)]
        assert found == [421, 421, 421, 429, 429]
        # A page of another site can cause these: a browser's other requests are counted apart.
        assert (await client.get(V1)).status_code == 200

    asked(any_server.url, talk, rate_limit=3)


def test_allowed_hosts() -> None:
    def allowed(header: str, names: str = "", host: str = "127.0.0.1") -> bool:
        return Hosts(ApiSettings(allowed_hosts=names, host=host)).allow(header)

    assert allowed("acker.example", "acker.example,other.example")
    assert allowed("ACKER.example:80", "acker.EXAMPLE")
    assert not allowed("sub.acker.example", "acker.example")
    assert allowed("sub.example", "*.example")
    assert not allowed("example", "*.example")
    assert not allowed("badexample", "*.example")
    assert allowed("acker.example:8000", "acker.example:8000")
    assert allowed("any.name", "*")
    assert allowed("any.name", host="0.0.0.0")
    assert not allowed("any.name", "acker.example", host="0.0.0.0")
    assert allowed("127.0.0.1:8000", "acker.example", host="0.0.0.0")


def test_every_answer_has_the_security_headers(any_server: EmbeddedRedis) -> None:
    async def talk(client: httpx.AsyncClient) -> None:
        for path in ("/livez", "/metrics", V1, "/nothing", f"{V1}/a%20b"):
            found = (await client.get(path, headers={"Origin": "https://evil.example"})).headers
            assert found["content-security-policy"].startswith("default-src 'none'")
            assert "unsafe-inline" not in found["content-security-policy"]
            assert found["x-content-type-options"] == "nosniff"
            assert found["x-frame-options"] == "DENY"
            assert found["referrer-policy"] == "no-referrer"
            assert found["cache-control"] == "no-store"
            assert not [name for name in found if name.startswith("access-control")]
            assert "server" not in found
        preflight = {"Origin": "https://evil.example", "Access-Control-Request-Method": "GET"}
        assert (await client.options(V1, headers=preflight)).status_code == 405
        refused = await client.get(V1, headers={"Host": "evil.example"})
        assert refused.headers["x-content-type-options"] == "nosniff"

    asked(any_server.url, talk)


def test_access_log_has_no_secret(
    any_server: EmbeddedRedis, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)

    async def talk(client: httpx.AsyncClient) -> None:
        await client.get(V1, params={"token": "in-the-query"}, headers=bearer(TOKEN))
        await client.get("/a%0Ab%1b", headers=bearer(TOKEN))
        await client.get("/livez")

    asked(any_server.url, talk, token=TOKEN)
    logged = [record for record in caplog.records if record.name == "acker_api.access"]
    lines = [record.getMessage() for record in logged]
    assert [record.levelno for record in logged] == [logging.INFO, logging.INFO, logging.DEBUG]
    assert f"method=GET path={V1} status=422" in lines[0]
    assert "path=/a%0Ab%1B status=404" in lines[1]
    everything = "\n".join(r.getMessage() for r in caplog.records if r.name.startswith("acker"))
    assert TOKEN not in everything
    assert "in-the-query" not in everything


def test_refused_requests_and_files_do_not_fill_the_log(
    any_server: EmbeddedRedis, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.INFO)
    monkeypatch.setattr(guard, "Limiter", partial(Limiter, clock=lambda: 0.0))

    async def talk(client: httpx.AsyncClient) -> None:
        for path in ("/static/0/none.js", V1, "/static/0/js/main.js"):
            for _ in range(2 * REFUSED_LINES):
                await client.get(path)
        await client.get(V1, headers=bearer(TOKEN))

    asked(any_server.url, talk, token=TOKEN, rate_limit=0)
    logged = [each.getMessage() for each in caplog.records if each.name.startswith("acker_api")]
    lines = [each for each in logged if "status=4" in each]
    summaries = [each for each in lines if "requests_refused" in each]
    assert len(lines) - len(summaries) == REFUSED_LINES
    assert 1 <= len(summaries) < REFUSED_LINES, "one in ten seconds counts the others"
    assert not [each for each in logged if "main.js" in each]
    assert f"path={V1} status=200" in logged[-1], "other requests have their line"


def test_long_paths_are_cut_in_logs(
    any_server: EmbeddedRedis, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    long = "%C3%BC" * 10_000

    async def talk(client: httpx.AsyncClient) -> None:
        for path in (f"/{long}", f"{V1}/{long}/rotate", f"/api/v1/session/{long}"):
            for method in ("GET", "POST", "X" * 10_000):
                await client.request(method, path)
                await client.request(method, path, headers=bearer("x" * 20))
                await client.request(method, path, headers={"Origin": "https://evil.example"})
                await client.request(method, path, headers=bearer(TOKEN))

    asked(any_server.url, talk, token=TOKEN)
    logged = [r.getMessage() for r in caplog.records if r.name.startswith("acker_api")]
    assert len(logged) > 36
    assert max(map(len, logged)) < 4000


def test_internal_error_reveals_no_details(
    any_server: EmbeddedRedis, caplog: pytest.LogCaptureFixture
) -> None:
    app = create_app(Settings(), ApiSettings())

    @app.get("/bug")
    async def bug() -> None:
        raise RuntimeError("words of the inside")

    async def ask() -> httpx.Response:
        async with httpx.AsyncClient(
            transport=httpx.ASGITransport(app), base_url="http://localhost"
        ) as client:
            return await client.get("/bug")

    response = asyncio.run(ask())
    is_problem(response, 500, "internal")
    assert "words of the inside" not in response.text
    assert response.headers["x-content-type-options"] == "nosniff"
    assert "words of the inside" in caplog.text
