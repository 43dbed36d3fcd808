"""Redis is down, hangs, refuses, and recovers: the service reports it and stays up."""

import asyncio
import logging
import re
from urllib.parse import urlsplit

import httpx
import pytest
from prometheus_client import parser

from acker_api.reading.reader import Reader, ReadStatus, See, Survey
from acker_redis.aio import AsyncAcker
from acker_redis.doctor import health
from acker_redis.doctor.health import Thresholds
from acker_redis.embedded import EmbeddedRedis
from acker_redis.errors import RedisUnavailableError
from acker_redis.protocol.keys import ShardKeys
from acker_redis.transport.connect import connect, connect_async
from tests.api.service import app_of, asked, client_of, is_problem, service, settled
from tests.api.test_metrics import Samples, of, samples
from tests.api.test_namespaces import V1, late
from tests.clock import skip
from tests.conftest import MakeAcker
from tests.transport.proxy import proxied
from tests.waiting import LIMIT

UNREACHABLE = "redis://127.0.0.1:1/0"
READS = (V1, f"{V1}/orders")


def _metrics(response: httpx.Response) -> Samples:
    assert response.status_code == 200
    return samples(parser.text_string_to_metric_families(response.text))


def test_unavailable_redis_is_503() -> None:
    async def talk(client: httpx.AsyncClient) -> None:
        assert (await client.get("/livez")).json() == {"status": "ok"}
        for path in (*READS, "/readyz"):
            response = await client.get(path)
            is_problem(response, 503, "redis-unavailable")
            assert response.headers["retry-after"] == "1"
        assert of(_metrics(await client.get("/metrics")), "acker_redis_up") == 0

    asked(UNREACHABLE, talk)


def test_service_recovers_with_redis(any_server: EmbeddedRedis, make_any_acker: MakeAcker) -> None:
    acker = make_any_acker(shards=4)
    path = f"{V1}/{acker.namespace}"

    async def run() -> None:
        with proxied(any_server.url) as line:
            async with service(line.url, answer_within=0.3) as client:
                assert (await settled(client, path)).status_code == 200
                line.stall = True  # connections stay open, without answers
                # Each timeout is short, or the test would hang.
                answers = await asyncio.gather(*(client.get(path) for _ in range(5)))
                others = [await client.get(each) for each in (V1, f"{path}/trees", "/readyz")]
                for answer in (*answers, *others):
                    body = is_problem(answer, 503, "redis-unavailable")
                    # Polls of a namespace are answered earlier.
                    assert re.search(r"within 0\.(3|18) s", body["detail"])
                assert (await client.get("/livez")).status_code == 200
                found = _metrics(await client.get("/metrics"))
                assert of(found, "acker_redis_up") == 0
                line.stall = False
                for _ in range(3):
                    answer = await settled(client, path)
                    assert answer.json()["namespace"] == acker.namespace, answer.text
                    assert len(answer.json()["shards"]) == 4
                    assert (await settled(client, V1)).json()["total"] == 1
                async with asyncio.timeout(LIMIT):
                    while not of(_metrics(await client.get("/metrics")), "acker_redis_up"):
                        pass

    asyncio.run(run())


def test_dead_connections_are_replaced(
    any_server: EmbeddedRedis, make_any_acker: MakeAcker, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("reading.reader", "reading.canary"):
        monkeypatch.setattr(f"acker_api.{module}.RETRY_FOR", 60.0)
    acker = make_any_acker(shards=4)

    async def talk(client: httpx.AsyncClient) -> None:
        for path in (V1, f"{V1}/{acker.namespace}", "/metrics", "/readyz"):
            assert (await client.get(V1)).status_code == 200
            acker.connection.client.client_kill_filter(_type="normal", skipme=True)
            assert (await client.get(path)).status_code == 200, path

    asked(any_server.url, talk)


def test_known_namespaces_are_down_during_an_outage(
    any_server: EmbeddedRedis, make_any_acker: MakeAcker
) -> None:
    acker = make_any_acker()

    async def run() -> None:
        with proxied(any_server.url) as line:
            async with service(line.url, answer_within=0.2) as client:
                await settled(client, V1)
                line.stall = True
                found = _metrics(await client.get("/metrics"))
                assert of(found, "acker_up", namespace=acker.namespace) == 0
                line.stall = False

    asyncio.run(run())


def test_missing_right_in_a_script_names_the_acl_command(
    server: EmbeddedRedis, make_acker: MakeAcker
) -> None:
    """Versions of Redis and Valkey report it in different words."""
    acker = make_acker()
    admin = acker.connection.client
    admin.acl_setuser(
        "narrow",
        enabled=True,
        passwords=["+a-password"],
        keys=["*"],
        commands=["+smembers", "+eval", "+evalsha", "+hmget"],
    )
    url = server.url.replace("redis://", "redis://narrow:a-password@")

    async def talk(client: httpx.AsyncClient) -> None:
        body = is_problem(await client.get(f"{V1}/{acker.namespace}"), 502, "redis-refused")
        assert body["detail"].endswith("acker-redis acl admin")

    try:
        asked(url, talk)
    finally:
        admin.acl_deluser("narrow")


def test_missing_right_is_reported_without_the_password(
    any_server: EmbeddedRedis, make_any_acker: MakeAcker
) -> None:
    acker = make_any_acker()
    admin = acker.connection.client
    admin.acl_setuser(
        "blind", enabled=True, passwords=["+a-password"], keys=["*"], commands=["+smembers"]
    )
    url = any_server.url.replace("redis://", "redis://blind:a-password@")

    async def talk(client: httpx.AsyncClient) -> None:
        assert (await client.get(V1)).status_code == 200
        body = is_problem(await client.get(f"{V1}/{acker.namespace}"), 502, "redis-refused")
        assert "a-password" not in str(body)
        found = _metrics(await client.get("/metrics"))
        assert of(found, "acker_up", namespace=acker.namespace) == 0
        assert ("acker_redis_script_seconds_total", ()) not in found
        is_problem(await client.get("/readyz"), 503, "not-ready")
        await client.get("/metrics")
        asked_for = [e for e in admin.acl_log() if str(e["object"]).startswith("info")]
        assert [entry["count"] for entry in asked_for] == [1], "and not at each scrape"

    try:
        connect(url, 60.0).smembers("acker:namespaces")  # the URL is valid
        admin.acl_log_reset()
        asked(url, talk)
    finally:
        admin.acl_deluser("blind")


def test_ready_while_a_namespace_is_rotated_in_time(
    any_server: EmbeddedRedis, make_any_acker: MakeAcker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(health, "THRESHOLDS", Thresholds(late_ms=600_000))
    well = make_any_acker(shards=2, tick_ms=1_000_000)
    late(well, 1, 1_600_000)  # overdue, by less than a tick

    async def ready(client: httpx.AsyncClient) -> None:
        assert (await client.get("/readyz")).json() == {
            "status": "ok",
            "namespaces": 1,
            "canary": "ok",
        }

    asked(any_server.url, ready)
    stale = make_any_acker(shards=2, tick_ms=1_000_000)
    late(stale, 1, 2_500_000)
    tampered = make_any_acker()
    tampered.connection.client.hset(ShardKeys(tampered.namespace, 0).meta, "ticked_ms", "-1")

    async def still(client: httpx.AsyncClient) -> None:
        assert (await client.get("/readyz")).json()["namespaces"] == 3, "each may have its own"

    asked(any_server.url, still)
    late(well, 1, 2_500_000)

    async def unready(client: httpx.AsyncClient) -> None:
        body = is_problem(await client.get("/readyz"), 503, "not-ready")
        assert [error["where"] for error in body["errors"]] == sorted(
            [well.namespace, stale.namespace]
        )
        said = body["errors"][0]["what"]
        assert "late on 1 of 2 shards (1); 16 min 40 s are allowed" in said
        assert "2 of 3 namespaces" in body["detail"]

    asked(any_server.url, unready)
    dropped = make_any_acker()
    dropped.connection.client.delete(ShardKeys(dropped.namespace, 0).meta)

    async def blind_to_it(client: httpx.AsyncClient) -> None:
        assert (await client.get("/readyz")).json()["namespaces"] == 4

    asked(any_server.url, blind_to_it, ready_rotation=False)


def test_probes_do_not_load_redis(any_server: EmbeddedRedis, make_any_acker: MakeAcker) -> None:
    acker = make_any_acker(shards=4)
    app = app_of(any_server.url)
    app.state.services.readiness._clock = lambda: 0.0

    async def run() -> None:
        async with client_of(app) as client:
            await asyncio.gather(*(client.get("/readyz") for _ in range(50)))
            late(acker, 0, 7_300_000)
            # The answer is cached for a second, for all callers.
            assert (await client.get("/readyz")).status_code == 200

    calls = acker.connection.client.info("commandstats")
    before = int(calls.get("cmdstat_evalsha", {}).get("calls", 0))
    asyncio.run(run())
    calls = acker.connection.client.info("commandstats")
    assert int(calls["cmdstat_evalsha"]["calls"]) - before <= 16


def test_probe_ends_within_the_scrape_timeout(
    any_server: EmbeddedRedis, make_any_acker: MakeAcker
) -> None:
    make_any_acker()

    async def run() -> None:
        with proxied(any_server.url) as line:
            line.stall = True
            async with service(line.url, scrape_within=0.2) as client:
                probe = asyncio.create_task(client.get("/readyz"))
                assert (await client.get("/livez")).status_code == 200
                problem = is_problem(await probe, 503, "redis-unavailable")
                assert "within 0.2 s" in problem["detail"]
                line.stall = False

    asyncio.run(run())


def test_hanging_namespace_does_not_hide_others(
    any_server: EmbeddedRedis, make_any_acker: MakeAcker
) -> None:
    """Like a cluster of which one node cannot be reached."""
    hung, *well = sorted(make_any_acker().namespace for _ in range(6))
    seen: list[str] = []

    class Torn(Reader):
        def acker(self, namespace: str, retry_for: float | None = None) -> AsyncAcker:
            return elsewhere if namespace == hung else super().acker(namespace, retry_for)

        async def _see(self, namespace: str, see: See | None) -> ReadStatus:
            found = await super()._see(namespace, see)
            seen.append(namespace)
            if len(seen) == len(well):
                skip(1000.0)  # the timeout of the hanging namespace is reached
            return found

    async def run(answer_within: float, scrape_within: float) -> Survey:
        seen.clear()
        reader = Torn(connect_async(any_server.url, 60.0), answer_within, scrape_within)
        async with elsewhere:
            survey = await reader.survey(reader.all_of, scripts=True)
        await reader.close()
        return survey

    with proxied(any_server.url) as line:
        line.stall = True
        for bounds, words in (((200.0, 1e6), "within 200 s"), ((1e6, 500.0), "within 500 s")):
            elsewhere = AsyncAcker.from_url(line.url, hung, timeout=1e6)
            survey = asyncio.run(run(*bounds))
            assert isinstance(survey.found[hung], RedisUnavailableError)
            assert words in str(survey.found[hung])
            assert [
                name for name, seen in survey.found.items() if isinstance(seen, ReadStatus)
            ] == well
            assert list(survey.found) == [hung, *well]
            assert survey.error is None
        line.stall = False


def test_service_reconnects_after_redis_was_down(
    any_server: EmbeddedRedis, make_any_acker: MakeAcker
) -> None:
    acker = make_any_acker()
    path = f"{V1}/{acker.namespace}"
    place = urlsplit(any_server.url)

    async def serve_line(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection(place.hostname, place.port)
        await asyncio.gather(_pump(reader, back), _pump(there, writer))

    async def run() -> None:
        line = await asyncio.start_server(serve_line, "127.0.0.1", 0)
        port = line.sockets[0].getsockname()[1]
        async with service(f"redis://127.0.0.1:{port}/0") as client:
            assert (await client.get(path)).status_code == 200
            line.close()
            acker.connection.client.client_kill_filter(_type="normal", skipme=True)
            is_problem(await client.get(path), 503, "redis-unavailable")
            line = await asyncio.start_server(serve_line, "127.0.0.1", port)
            # Connections that died while idle may cost an answer.
            assert (await settled(client, path)).status_code == 200
        line.close()

    asyncio.run(run())


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(1 << 16):
        writer.write(data)
    writer.close()


def test_change_of_readiness_is_logged_once(
    any_server: EmbeddedRedis, make_any_acker: MakeAcker, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "acker_api")
    acker = make_any_acker(tick_ms=600_000)
    now = [0.0]

    async def run() -> None:
        app = app_of(any_server.url)
        app.state.services.readiness._clock = lambda: now[0]
        async with client_of(app) as client:
            for ms in (0, 1_500_000, 1_500_000, -3_000_000):
                late(acker, 0, ms)
                now[0] += 10
                await client.get("/readyz")

    asyncio.run(run())
    told = [r.getMessage() for r in caplog.records if r.name == "acker_api"]
    assert len(told) == 2
    assert told[0].startswith("not_ready ")
    assert f"{acker.namespace}: a tick is " in told[0]
    assert told[1] == "ready namespaces=1"
