"""Events: one subscription for all streams, current states and verdicts, gaps for slow readers."""

import asyncio
import json
import socket
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
from uvicorn import Config

from acker_api.live import hub as live
from acker_api.live import stream as live_stream
from acker_api.live import watch as live_watch
from acker_api.live.ring import Ring
from acker_api.serving.uvicorn_server import StreamServer
from acker_redis.embedded import EmbeddedRedis
from acker_redis.ops.acl import rule
from acker_redis.protocol.keys import channel
from acker_redis.sync.client import Acker
from tests.api.service import HOST, METRICS_TOKEN, TOKEN, app_of
from tests.api.streams import Service, streaming
from tests.api.test_namespaces import V1
from tests.api.test_redis_away import UNREACHABLE
from tests.api.test_redis_away import _pump as pump
from tests.conftest import MakeAcker
from tests.support import (
    advance,
    block_row,
    fail,
    fail_slot,
    tick,
    touch_block,
    track,
    track_block,
)
from tests.transport.proxy import proxied
from tests.waiting import LIMIT, wait_until, wait_until_async

LIST = "/api/v1/events"
AWAY = "urn:acker-redis:problem:redis-unavailable"
Talk = Callable[[Service], Awaitable[None]]


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorten the intervals: a poll begins when the one before has ended."""
    for name in ("PERIOD", "AGAIN"):
        monkeypatch.setattr(live_watch, name, 0.02)
    monkeypatch.setattr(live, "LINGER", 0.0)


def run(url: str, talk: Talk, **fields: Any) -> None:
    async def main() -> None:
        async with streaming(url, **fields) as service:
            await asyncio.wait_for(talk(service), 2 * LIMIT)

    asyncio.run(main())


def events(acker: Acker) -> str:
    return f"{V1}/{acker.namespace}/events"


def subscriptions(acker: Acker) -> tuple[int, int]:
    """Return the number of subscribed clients, and of patterns."""
    client = acker.connection.client
    return len(client.client_list(_type="pubsub")), client.pubsub_numpat()


def publish(acker: Acker, rows: str, verdict: str = "nack", source: str = "t", n: int = 1) -> None:
    """Publish as the scripts do, or as another program may."""
    message = f'{{"verdict":"{verdict}","reason":"failed","n":{n},"rows":{rows}}}'
    acker.connection.client.publish(channel(acker.namespace, verdict, source), message)


def test_two_hundred_streams_share_one_subscription(
    any_server: EmbeddedRedis, make_any_acker: MakeAcker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live_watch, "PERIOD", 3600.0)
    acker, other = make_any_acker(), make_any_acker()
    client = acker.connection.client

    async def talk(service: Service) -> None:
        # Redis may not have noticed yet that the service of another test has ended.
        await wait_until_async(lambda: subscriptions(acker) == (0, 0))
        calls = client.info("commandstats").get("cmdstat_evalsha", {"calls": 0})["calls"]
        paths = [events(acker)] * 180 + [events(other)] * 10 + [LIST] * 10
        streams = await asyncio.gather(*map(service.open, paths))
        for stream in streams[:190]:
            hello = await stream.next()
            assert hello
            assert (hello.event, hello.data["live"]) == ("hello", True)
            assert (await stream.wait_for("status")).data["pending"] == 0
        for stream in streams[190:]:
            listed = (await stream.wait_for("namespaces")).data
            assert listed["total"] == 2
        assert subscriptions(acker) == (1, 1)
        calls = client.info("commandstats")["cmdstat_evalsha"]["calls"] - calls
        assert calls <= 20, "and no stream polls separately"
        track(acker, 7, 0)
        told = [await stream.wait_for("outcome") for stream in streams[:180]]
        assert len({each.id for each in told}) == 1
        assert {each.data["outcomes"][0]["anchor"] for each in told} == {"7"}
        for stream in streams[180:]:
            while not stream.chunks.empty():
                assert b"event: outcome" not in (stream.chunks.get_nowait() or b"")
        await asyncio.gather(*(stream.leave() for stream in streams))
        assert service.services.live._listeners == {}
        await wait_until_async(lambda: subscriptions(acker) == (0, 0))
        assert service.services.live._watches == {}
        # The subscription begins again.
        again = await service.open(events(acker))
        assert (await again.wait_for("hello")).data["live"] is True
        assert subscriptions(acker) == (1, 1)

    run(any_server.url, talk)
    wait_until(lambda: subscriptions(acker) == (0, 0), "the subscription has ended")


def test_events_equal_the_answers_of_the_other_routes(
    any_server: EmbeddedRedis, make_any_acker: MakeAcker
) -> None:
    acker = make_any_acker()
    nasty = "<img src=x onerror=alert(1)>\"'\\&amp;\u202e\u2028😀" + "👩‍🚀" * 15

    async def talk(service: Service) -> None:
        stream = await service.open(events(acker))
        assert stream.headers["content-type"] == "text/event-stream; charset=utf-8"
        assert stream.headers["cache-control"] == "no-cache, no-transform"
        assert stream.headers["x-accel-buffering"] == "no"
        assert "content-length" not in stream.headers
        assert stream.headers["x-content-type-options"] == "nosniff"
        await stream.wait_for("status")
        assert int(stream.retry) > 0
        track(acker, 7, 40, nasty, "shop")
        fail(acker, 7, nasty)
        (told,) = (await stream.wait_for("outcome")).data["outcomes"]
        (entry,) = acker.outcomes("shop").read()
        (outcome,) = entry
        assert told == {
            "verdict": "nack",
            "reason": "failed",
            "source_id": nasty,
            "slot": None,
            "anchor": "7",
            "age_ms": outcome.age_ms,
            "why": nasty,
            "cause": "",
            "residual": None,
            "edges": [],
            "idle_ms": None,
            "at_ms": told["at_ms"],
            "source": "shop",
            "entry": "",
        }
        assert abs(told["at_ms"] - entry.at_ms) < 60_000
        # A poll may have read the state before the tree failed.
        while not (status := (await stream.wait_for("status")).data)["counters"]["failed"]:
            pass
        read = (await service.services.status(acker.namespace)).model_dump()
        for body in (status, read):
            del body["shards"][0]["now_ms"], body["rates"]
        assert status == read

    run(any_server.url, talk)


def test_block_verdicts_are_one_entry(any_server: EmbeddedRedis, make_any_acker: MakeAcker) -> None:
    acker = make_any_acker()

    async def talk(service: Service) -> None:
        stream = await service.open(events(acker))
        await stream.wait_for("status")
        track_block(acker, 5, [0] * 3000, 'page "1"', "shop")
        (block,) = (await stream.wait_for("outcome")).data["blocks"]
        at_ms, age_ms = block.pop("at_ms"), block.pop("age_ms")
        assert at_ms > age_ms >= 0
        assert block == {
            "verdict": "ack",
            "reason": "completed",
            "block": "5",
            "label": 'page "1"',
            "source": "shop",
            "count": 3000,
            "acked": 3000,
            "nacked": 0,
            "cause": "",
            "edges": {},
            "idle_ms": None,
        }
        track_block(acker, 6, [40, 41, 0], "page 2", "shop")
        fail_slot(acker, 6, 1, "torn")
        (told,) = (await stream.wait_for("outcome")).data["outcomes"]
        assert (told["slot"], told["why"], told["source_id"]) == (1, "torn", "page 2")
        tick(acker, 3)
        (block,) = (await stream.wait_for("outcome")).data["blocks"]
        assert (block["verdict"], block["count"]) == ("mixed", 2)
        assert (block["acked"], block["nacked"]) == (1, 1)

    run(any_server.url, talk)


def test_verdicts_of_a_block_with_absent_slots(
    any_server: EmbeddedRedis, make_any_acker: MakeAcker
) -> None:
    acker = make_any_acker()

    async def talk(service: Service) -> None:
        stream = await service.open(events(acker))
        await stream.wait_for("status")
        acker.track_block("shop", "done", [0] * 20, 5, present=range(3, 10))
        (block,) = (await stream.wait_for("outcome")).data["blocks"]
        assert (block["verdict"], block["count"]) == ("ack", 7)
        assert (block["acked"], block["nacked"]) == (7, 0)
        acker.track_block("shop", "page", [0, 5, 0, 6, 0, 7, 0, 0, 0], 6, present=[1, 3, 4, 5])
        fail_slot(acker, 6, 5, "torn")
        (told,) = (await stream.wait_for("outcome")).data["outcomes"]
        assert (told["slot"], told["why"]) == (5, "torn")
        touch_block(acker, 6)
        (block,) = (await stream.wait_for("outcome")).data["blocks"]
        assert (block["verdict"], block["count"]) == ("touch", 4)
        assert (block["acked"], block["nacked"]) == (0, 0)
        tick(acker, 3)
        (block,) = (await stream.wait_for("outcome")).data["blocks"]
        assert (block["verdict"], block["count"]) == ("mixed", 3)
        assert (block["acked"], block["nacked"]) == (1, 2)

    run(any_server.url, talk)


def test_expired_trees_have_residual_and_edges(
    any_server: EmbeddedRedis, make_any_acker: MakeAcker
) -> None:
    acker = make_any_acker(edges=("mill", "shop"))
    mill, shop = 1 << 55, 1 << 56

    async def talk(service: Service) -> None:
        stream = await service.open(events(acker))
        await stream.wait_for("status")
        track(acker, 7, shop | 0xABC, "order-1", "shop")
        track_block(acker, 6, [mill | 1, mill | shop | 2, 3, 0], "page", "paper")
        advance(acker, 600_000)
        tick(acker, 3)
        outcomes, blocks = list[Any](), list[Any]()
        while not (outcomes and blocks):
            data = (await stream.wait_for("outcome")).data
            outcomes, blocks = outcomes + data["outcomes"], blocks + data["blocks"]
        (told,), (block,) = outcomes, blocks
        shown = [told[name] for name in ("cause", "residual", "edges", "why")]
        assert shown == ["idle", "0100000000000abc", ["shop"], ""]
        assert 600_000 <= told["idle_ms"] <= told["age_ms"]
        assert (block["acked"], block["nacked"]) == (1, 3)
        assert (block["cause"], block["edges"]) == ("idle", {"mill": 2, "shop": 1})
        assert 600_000 <= block["idle_ms"] <= block["age_ms"]

    run(any_server.url, talk)


def test_published_junk_cannot_forge_an_event(
    any_server: EmbeddedRedis, make_any_acker: MakeAcker
) -> None:
    acker = make_any_acker()
    client = acker.connection.client

    async def talk(service: Service) -> None:
        stream = await service.open(events(acker))
        await stream.wait_for("status")
        for junk in (
            b"",
            b"{",
            b"\xff" * 9,
            b"[" * 99_999,
            b'{"verdict":"ack","reason":"x","n":1,',
        ):
            client.publish(channel(acker.namespace, "ack", "t"), junk)
        for name in (
            "acker:x",
            f"acker:{acker.namespace}:boo:t",
            "acker:a:b:c:d",
            "acker:\n:ack:t",
        ):
            client.publish(name, '{"verdict":"ack","reason":"x","n":1,"rows":[["1","s",0,""]]}')
        for rows in ("7", '[["x"]]', "[[]]", "{}", '[["1",{},0,""]]', '[["1","\\ud800",0,""]]'):
            publish(acker, rows)
        for end in (
            ("bored", "0" * 16, 5),
            ("idle", "0" * 15, 5),
            ("idle", "<b>" + "0" * 13, 5),
            ("idle", 7, 5),
            ("idle", "0" * 16, "x"),
            ("idle", "0" * 16, 5, 6),
        ):
            publish(acker, json.dumps([["1", "s", 0, *end]]))
        publish(acker, json.dumps([["7", "s\n\ndata: x\r\nevent: y", 0, "\r"]]))
        data = (await stream.wait_for("outcome")).data
        (told,) = data["outcomes"]
        assert (told["source_id"], told["why"]) == ("s\n\ndata: x\r\nevent: y", "\r")
        assert data["dropped"] == 0

    run(any_server.url, talk)


def test_slow_reader_gets_a_gap_and_continues(
    any_server: EmbeddedRedis, make_any_acker: MakeAcker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live_watch, "BATCH", 0.0)
    monkeypatch.setattr(live, "Ring", partial(Ring, most=5))
    acker = make_any_acker()

    async def talk(service: Service) -> None:
        slow = await service.open(events(acker), window=2)
        fast = await service.open(events(acker))
        for number in range(1, 41):
            publish(acker, f'[["{number:x}","s",0,""]]')
            told = await fast.wait_for("outcome")
            assert told.data["outcomes"][0]["anchor"] == str(number)
        watch = service.services.live._watches[acker.namespace]
        assert len(watch.ring._events) == 5
        await wait_until_async(lambda: slow.chunks.qsize() == 2, "two chunks are read")
        for _ in range(1000):
            slow.window.release()
        gap = await slow.wait_for("gap")
        assert gap.data["missed"] >= 39
        publish(acker, '[["ff","s",0,""]]')
        assert (await slow.wait_for("outcome")).data["outcomes"][0]["anchor"] == "255"

    run(any_server.url, talk)


def test_stream_resumes_after_last_event_id(
    any_server: EmbeddedRedis, make_any_acker: MakeAcker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "LINGER", 3600.0)
    monkeypatch.setattr(live_watch, "BATCH", 0.0)
    acker = make_any_acker()

    async def talk(service: Service) -> None:
        stream = await service.open(events(acker))
        begin = (await stream.wait_for("hello")).id
        assert begin
        publish(acker, '[["1","s",0,""]]')
        first = (await stream.wait_for("outcome")).id
        await stream.leave()
        watch = service.services.live._watches[acker.namespace]
        for number in (2, 3):
            publish(acker, f'[["{number}","s",0,""]]')
            await wait_until_async(lambda number=number: watch.ring.position == number)
        for last, expected in ((begin, "123"), (first, "23")):
            again = await service.open(events(acker), Last_Event_ID=last)
            hello = await again.next()
            assert hello
            assert (hello.event, hello.id) == ("hello", last)
            found = [(await again.wait_for("outcome")).data["outcomes"][0] for _ in expected]
            assert "".join(each["anchor"] for each in found) == expected
        for unknown in ("0123456789ab-1", "x", f"{begin.partition('-')[0]}-99", "-", "1-²"):
            again = await service.open(events(acker), Last_Event_ID=unknown)
            hello = await again.next()
            assert hello
            assert (hello.event, hello.id) == ("hello", None)
            gap = await again.wait_for("gap")
            assert (gap.data["missed"], gap.id) == (None, watch.ring.id)
        assert (await service.open(events(acker), Last_Event_ID="x" * 65)).status == 422

    run(any_server.url, talk)


def test_broken_subscription_is_renewed_with_a_gap(
    any_server: EmbeddedRedis, make_any_acker: MakeAcker
) -> None:
    acker = make_any_acker()

    async def talk(service: Service) -> None:
        stream = await service.open(events(acker))
        assert (await stream.wait_for("hello")).data["live"] is True
        for anchor in (7, 8):
            acker.connection.client.client_kill_filter(_type="pubsub")
            assert (await stream.wait_for("gap")).data["missed"] is None
            await wait_until_async(lambda: subscriptions(acker) == (1, 1))
            track(acker, anchor, 0)
            (told,) = (await stream.wait_for("outcome")).data["outcomes"]
            assert told["anchor"] == str(anchor)

    run(any_server.url, talk)


def test_message_that_cuts_the_subscription_leaves_a_gap_and_nothing_else(
    any_server: EmbeddedRedis, make_any_acker: MakeAcker
) -> None:
    """Redis disconnects a subscriber with 32 MB of unread messages: any tenant can publish them."""
    acker, bills = make_any_acker(), make_any_acker()

    async def talk(service: Service) -> None:
        stream = await service.open(events(acker))
        assert (await stream.wait_for("hello")).data["live"] is True
        for anchor, size in ((7, 40_000_000), (8, 40_000_000)):
            bills.connection.client.publish(channel(bills.namespace, "ack", "t"), b"x" * size)
            assert (await stream.wait_for("gap")).data["missed"] is None
            await wait_until_async(lambda: subscriptions(acker) == (1, 1))
            track(acker, anchor, 0)
            (told,) = (await stream.wait_for("outcome")).data["outcomes"]
            assert told["anchor"] == str(anchor)

    run(any_server.url, talk)


def test_other_namespaces_of_the_same_name_are_not_heard(
    any_server: EmbeddedRedis, make_any_acker: MakeAcker
) -> None:
    """All databases of a server have the same channels."""
    acker = make_any_acker()
    staging_url = any_server.url.rpartition("/")[0] + "/1"

    async def talk(service: Service) -> None:
        stream = await service.open(events(acker))
        await stream.wait_for("status")
        for anchor in range(1, 9):
            track(staging if anchor < 8 else acker, anchor, 0, f"order-{anchor}")
        (told,) = (await stream.wait_for("outcome")).data["outcomes"]
        assert told["source_id"] == "order-8"
        transport = httpx.ASGITransport(service.app)
        async with httpx.AsyncClient(transport=transport, base_url=HOST) as client:
            found = await client.get(f"{V1}/{acker.namespace}/search?q=order")
        assert [each["source_id"] for each in found.json()["recent"]] == ["order-8"]
        publish(acker, '[["ff","s",0,""]]')  # as a script of an older client: without a tag
        (told,) = (await stream.wait_for("outcome")).data["outcomes"]
        assert told["anchor"] == "255"

    with Acker.from_url(staging_url, acker.namespace) as staging:
        staging.create(acker.config)
        run(any_server.url, talk)
        staging.connection.client.flushdb()


def test_namespace_that_is_created_again_is_heard_after_a_gap(
    any_server: EmbeddedRedis, make_any_acker: MakeAcker, monkeypatch: pytest.MonkeyPatch
) -> None:
    acker = make_any_acker()
    config = acker.config

    async def talk(service: Service) -> None:
        stream = await service.open(events(acker))
        await stream.wait_for("status")
        monkeypatch.setattr(live_watch, "PERIOD", 3600.0)
        watch = service.services.live._watches[acker.namespace]
        watch.poke()
        await stream.wait_for("status")
        acker.drop()
        acker.create(config)
        watch.poke()
        assert "created again" in (await stream.wait_for("gap")).data["why"]
        track(acker, 7, 0)
        (told,) = (await stream.wait_for("outcome")).data["outcomes"]
        assert told["anchor"] == "7"

    run(any_server.url, talk)


def test_hanging_redis_is_reported_and_recovers(
    any_server: EmbeddedRedis, make_any_acker: MakeAcker
) -> None:
    acker = make_any_acker()

    async def main() -> None:
        with proxied(any_server.url) as line:
            # Not the poll detects it: its timeout is longer than this test.
            async with streaming(line.url) as service:
                streams = [await service.open(path) for path in (events(acker), LIST)]
                kinds = ["status", "namespaces"]
                for stream, kind in zip(streams, kinds, strict=True):
                    await stream.wait_for(kind)
                line.stall = True
                for stream in streams:
                    problem = (await stream.wait_for("problem")).data
                    assert (problem["type"], problem["status"]) == (AWAY, 503)
                line.stall = False
                for stream, kind in zip(streams, kinds, strict=True):
                    await stream.wait_for(kind)

    asyncio.run(main())


def test_outage_of_redis_and_its_end_are_sent_as_events_at_once(
    any_server: EmbeddedRedis, make_any_acker: MakeAcker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both are sent at once, before the next poll is due."""
    monkeypatch.setattr(live_watch, "PERIOD", 3600.0)
    acker = make_any_acker()
    place = urlsplit(any_server.url)

    async def serve_line(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection(place.hostname, place.port)
        await asyncio.gather(pump(reader, back), pump(there, writer))

    async def main() -> None:
        line = await asyncio.start_server(serve_line, "127.0.0.1", 0)
        port = line.sockets[0].getsockname()[1]
        async with streaming(f"redis://127.0.0.1:{port}/0") as service:
            stream = await service.open(events(acker))
            await stream.wait_for("status")
            line.close()
            acker.connection.client.client_kill_filter(_type="normal", skipme=True)
            acker.connection.client.client_kill_filter(_type="pubsub")
            seen = {}
            while len(seen) < 2:
                got = await stream.next()
                assert got
                if got.event == "problem" or (got.event == "hello" and not got.data["live"]):
                    seen[got.event] = got.data
            assert seen["problem"]["type"] == AWAY
            assert "Redis did not answer" in seen["hello"]["why"]
            # No poll may fail on a dead connection, because the next one is due in an hour.
            await service.services.reader._client.connection_pool.disconnect()
            line = await asyncio.start_server(serve_line, "127.0.0.1", port)
            seen = {}
            while len(seen) < 3:
                got = await stream.next()
                assert got
                # The reason for missing verdicts may be sent more than once.
                if got.event != "problem" and got.data.get("live") is not False:
                    seen[got.event] = got.data
            assert set(seen) == {"hello", "status", "gap"}
            assert seen["hello"]["live"] is True
            track(acker, 7, 0)
            assert (await stream.wait_for("outcome")).data["outcomes"][0]["anchor"] == "7"
            line.close()

    asyncio.run(main())


def test_stream_begins_while_redis_is_unavailable(monkeypatch: pytest.MonkeyPatch) -> None:
    async def talk(service: Service) -> None:
        for path in (f"{V1}/orders/events", LIST):
            stream = await service.open(path)
            assert stream.status == 200, "a browser would not retry otherwise"
            assert (await stream.wait_for("problem")).data["type"] == AWAY
            assert (await stream.wait_for("problem")).data["type"] == AWAY
        stream = await service.open(f"{V1}/orders/events")
        hello = await stream.wait_for("hello")
        assert hello.data["live"] is False
        assert "Redis did not answer" in hello.data["why"]

    run(UNREACHABLE, talk)


def test_hello_has_the_reason_for_missing_verdicts(
    any_server: EmbeddedRedis, make_any_acker: MakeAcker
) -> None:
    silent, acker = make_any_acker(publish=False), make_any_acker()
    admin = acker.connection.client

    async def quiet(service: Service) -> None:
        hello = await (await service.open(events(silent))).next()
        assert hello
        assert hello.event == "hello"
        assert (hello.data["live"], "publish=no" in hello.data["why"]) == (False, True)

    async def hears(service: Service) -> None:
        hello = await (await service.open(events(acker))).wait_for("hello")
        assert hello.data["live"] is True

    async def deaf(service: Service) -> None:
        stream = await service.open(events(acker))
        hello = await stream.wait_for("hello")
        assert (hello.data["live"], "acker-redis acl" in hello.data["why"]) == (False, True)
        await stream.wait_for("status")

    run(any_server.url, quiet)
    words = rule("viewer", None, "ears", "a-password").split()[1:]
    url = any_server.url.replace("redis://", "redis://ears:a-password@")
    try:
        admin.execute_command("ACL", "SETUSER", *words)
        run(url, hears)
        admin.execute_command("ACL", "SETUSER", "ears", "resetchannels")
        run(url, deaf)
    finally:
        admin.acl_deluser("ears")


def test_streams_require_a_token_for_the_namespace(
    any_server: EmbeddedRedis, make_any_acker: MakeAcker
) -> None:
    acker, other = make_any_acker(), make_any_acker()
    mine = (
        f'tokens = [{{name="v", role="viewer", token="{"v" * 20}", '
        f'namespaces=["{acker.namespace}"]}}]'
    )

    async def talk(service: Service) -> None:
        viewer = {"authorization": f"Bearer {'v' * 20}"}
        for path in (events(acker), LIST, f"{LIST}?token={TOKEN}"):
            for refused in ({}, {"authorization": f"Bearer {METRICS_TOKEN}"}):
                stream = await service.open(path, **refused)
                assert stream.status in (401, 403), path
            # Unknown query parameters are refused, and a token in the query opens nothing.
            status = 422 if "?" in path else 200
            assert (await service.open(path, **viewer)).status == status
        assert (await service.open(events(other), **viewer)).status == 403
        listed = (await (await service.open(LIST, **viewer)).wait_for("namespaces")).data
        assert [each["name"] for each in listed["namespaces"]] == [acker.namespace]
        everything = await service.open(LIST, authorization=f"Bearer {TOKEN}")
        assert (await everything.wait_for("namespaces")).data["total"] == 2
        missing = await service.open(f"{V1}/missing/events", authorization=f"Bearer {TOKEN}")
        assert missing.status == 404

    run(any_server.url, talk, token=TOKEN, metrics_token=METRICS_TOKEN, tokens=mine)


def test_expired_session_ends_its_stream(
    any_server: EmbeddedRedis, make_any_acker: MakeAcker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live_stream, "BEAT", 0.02)
    acker = make_any_acker()

    async def talk(service: Service) -> None:
        identity = service.services.identity
        (grant,) = identity.tokens
        stream = await service.open(events(acker), cookie=f"acker-redis={identity.begin(grant)}")
        assert stream.status == 200
        await wait_until_async(lambda: stream.chunks.qsize() > 20)
        while stream.comments < 3:
            await stream.next()
        identity.session_for = -1
        while await stream.next():
            pass
        assert stream.task
        await stream.task
        assert service.services.live._listeners == {}

    run(any_server.url, talk, token=TOKEN)


def test_stuck_reader_is_disconnected(
    any_server: EmbeddedRedis, make_any_acker: MakeAcker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live_stream, "STUCK", 0.05)
    acker = make_any_acker()

    async def talk(service: Service) -> None:
        stuck = await service.open(events(acker), window=1)
        assert stuck.task
        await asyncio.wait_for(stuck.task, LIMIT)
        assert service.services.live._listeners == {}

    run(any_server.url, talk)


def test_number_of_streams_is_limited(
    any_server: EmbeddedRedis, make_any_acker: MakeAcker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "MAX_EACH", 2)
    monkeypatch.setattr(live, "MOST", 3)
    acker = make_any_acker()

    async def talk(service: Service) -> None:
        path = events(acker)
        opened = [await service.open(path) for _ in range(2)]
        refused = await service.open(path)
        assert (refused.status, refused.headers["retry-after"]) == (429, "10")
        assert b"too-many-streams" in refused.body
        assert (await service.open(path, address="127.0.0.2")).status == 200
        assert (await service.open(path, address="127.0.0.3")).status == 503
        await opened[0].leave()
        assert (await service.open(path)).status == 200
        for _ in range(5):  # a client that is refused for another reason does not count
            assert (await service.open(f"{V1}/missing/events", address="::1")).status in (404, 503)
        await opened[1].leave()
        assert (await service.open(f"{V1}/missing/events")).status == 404
        assert (await service.open(path)).status == 200

    run(any_server.url, talk)


def test_shutdown_ends_open_streams(any_server: EmbeddedRedis, make_any_acker: MakeAcker) -> None:
    """Also if one of the clients reads nothing."""
    acker = make_any_acker()

    async def main() -> None:
        app = app_of(any_server.url)
        hub = app.state.services.live
        config = Config(app, port=0, log_config=None, access_log=False)
        server = StreamServer(config, hub.end)
        serving = asyncio.create_task(server.serve())
        await wait_until_async(lambda: server.started)
        port = server.servers[0].sockets[0].getsockname()[1]
        stuck = socket.create_connection(("127.0.0.1", port))
        stuck.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        request = f"GET {events(acker)} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()
        stuck.sendall(request)
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(request)
        await reader.readuntil(b"event: status")
        await wait_until_async(lambda: len(hub._listeners) == 2)
        watch = hub._watches[acker.namespace]
        for _ in range(40):
            watch.tell("outcome", '"' + "x" * 200_000 + '"')
            await asyncio.sleep(0)
        server.should_exit = True
        async with asyncio.timeout(LIMIT):
            while await reader.read(1 << 20):
                pass
            stuck.close()
            await serving
        writer.close()
        assert hub._listeners == {}

    asyncio.run(main())


def test_stream_survives_drop_and_recreation(
    any_server: EmbeddedRedis, make_any_acker: MakeAcker
) -> None:
    acker = make_any_acker()
    config = acker.config

    async def talk(service: Service) -> None:
        stream = await service.open(events(acker))
        await stream.wait_for("status")
        acker.drop()
        problem = (await stream.wait_for("problem")).data
        assert problem["type"].endswith(":namespace-not-found")
        acker.create(config)
        await stream.wait_for("status")

    run(any_server.url, talk)


def test_namespace_that_is_created_again_is_found_by_new_streams_at_once(
    any_server: EmbeddedRedis, make_any_acker: MakeAcker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The watch of an earlier stream goes on for some seconds; its last poll found no namespace."""
    monkeypatch.setattr(live, "LINGER", 3600.0)
    acker = make_any_acker()
    config = acker.config

    async def talk(service: Service) -> None:
        stream = await service.open(events(acker))
        await stream.wait_for("status")
        await stream.leave()
        watch = service.services.live._watches[acker.namespace]
        # No poll by itself any more, so the test does not depend on when one happens.
        monkeypatch.setattr(live_watch, "PERIOD", 3600.0)
        acker.drop()
        watch.poke()
        await wait_until_async(lambda: watch.error is not None)
        acker.create(config)
        stream = await service.open(events(acker))
        assert stream.status == 200
        found = [await stream.next() for _ in range(2)]
        assert [got.event for got in found if got] == ["hello", "status"]
        assert service.services.live._watches[acker.namespace] is watch
        acker.drop()
        watch.poke()
        await wait_until_async(lambda: watch.error is not None)
        assert (await service.open(events(acker))).status == 404

    run(any_server.url, talk)


def test_block_completed_later_is_one_entry(
    any_server: EmbeddedRedis, make_any_acker: MakeAcker
) -> None:
    acker = make_any_acker()

    async def talk(service: Service) -> None:
        stream = await service.open(events(acker))
        await stream.wait_for("status")
        track_block(acker, 5, [40], "page", "shop")
        block_row(acker, 5, {0: 40})
        assert (await stream.wait_for("outcome")).data["blocks"][0]["acked"] == 1

    run(any_server.url, talk)
