"""Search: pending trees, untaken verdicts, and verdicts that passed, in bounded requests."""

import asyncio
from dataclasses import replace
from typing import Any

import httpx
import pytest

from acker_api.reading.search import Sought
from acker_redis.batching.batch import Batch
from acker_redis.embedded import EmbeddedRedis
from acker_redis.protocol.ids import block_anchor
from acker_redis.sync.client import Acker
from tests.api.service import HOST, TOKEN, asked, bearer, get, is_problem
from tests.api.streams import Service, streaming
from tests.api.test_namespaces import V1
from tests.conftest import MakeAcker
from tests.support import fail, fail_slot, row, tick, track, track_block


def path(acker: Acker) -> str:
    return f"{V1}/{acker.namespace}/search"


def names(found: list[Any]) -> list[str]:
    return [each["source_id"] for each in found]


async def walked(client: httpx.AsyncClient, acker: Acker, **query: Any) -> list[dict[str, Any]]:
    """Return all answers to a search."""
    answers: list[dict[str, Any]] = []
    cursor: str | None = ""
    while cursor is not None:
        answer = await client.get(path(acker), params={**query, "cursor": cursor})
        assert answer.status_code == 200, answer.text
        answers.append(answer.json())
        cursor = answers[-1]["next"]
    return answers


def search(server: EmbeddedRedis, acker: Acker, text: str) -> dict[str, Any]:
    answer = get(server.url, f"{path(acker)}?q={text}")
    assert answer.status_code == 200, answer.text
    body: dict[str, Any] = answer.json()
    assert body["next"] is None
    return body


@pytest.mark.parametrize(
    ("text", "anchor", "message"),
    [
        ("order-17", None, None),
        (" 4711 ", 4711, 4711),
        ("4711:40", 4711, 40),
        ("0x1267", 4711, 4711),
        ("0080000000000abc", 1 << 55 | 0xABC, 1 << 55 | 0xABC),
        ("0", None, 0),
        (str(2**63), None, 2**63),
        ("a:1", None, None),
    ],
)
def test_text_may_be_an_anchor_or_a_message_id(
    text: str, anchor: int | None, message: int | None
) -> None:
    sought = Sought.parse(text, ids=True)
    assert (sought.text, sought.anchor, sought.message) == (text.strip(), anchor, message)
    assert Sought.parse(text, ids=False) == replace(sought, message=None)


def test_pending_trees_are_found_by_prefix_anchor_and_message_id(
    any_server: EmbeddedRedis, make_any_acker: MakeAcker
) -> None:
    acker = make_any_acker()
    track(acker, 7, 40, "order-1")
    track(acker, 9, 41, "order-12")
    track(acker, 4711, 42, "bill-1")
    track_block(acker, 815, [43, 0], "order-page")
    row(acker, 11, 44)
    body = search(any_server, acker, "order-1")
    assert sorted(names(body["trees"])) == ["order-1", "order-12"]
    assert [each["label"] for each in search(any_server, acker, "order-p")["blocks"]] == [
        "order-page"
    ]
    for text in ("4711", "4711:42", "0x1267"):
        assert names(search(any_server, acker, text)["trees"]) == ["bill-1"], text
    (slot,) = search(any_server, acker, str(block_anchor(815, 1)))["trees"]
    assert (slot["source_id"], slot["block"]["block"]) == ("order-page", "815")
    # A record of rows that no source has tracked is found by its anchor only.
    (late,) = search(any_server, acker, "11")["trees"]
    assert late["state"] == "untracked"
    nothing = search(any_server, acker, "nothing")
    assert not any(nothing[place] for place in ("trees", "blocks", "verdicts", "recent"))
    assert nothing["places"]["pending"] == {"looked": 5, "total": 4, "complete": True}


def test_verdict_that_waits_is_found_among_many(
    any_server: EmbeddedRedis, make_any_acker: MakeAcker
) -> None:
    acker = make_any_acker(edges=("mill",), high_water=100_000)
    missing = 1 << 55 | 0xABC
    track(acker, 7, missing, 'a "quoted" \\ / id-7')
    track_block(acker, 815, [missing, 0, 1], "page 1")
    fail_slot(acker, 815, 2)
    tick(acker, 3)
    for begin in range(1000, 31_000, 1000):
        batch = Batch("shop")
        for anchor in range(begin, begin + 1000):
            batch.track(anchor, f"order-{anchor}", [])
        acker.apply(batch)

    async def talk(client: httpx.AsyncClient) -> None:
        for text in ('a "quoted"', "7", "7:1", f"{missing:016x}"):
            answers = await walked(client, acker, q=text)
            found = [each for answer in answers for each in answer["verdicts"]]
            seven = [each for each in found if each["anchor"] == "7"]
            assert [each["reason"] for each in seven] == ["expired"], text
            looked = sum(answer["places"]["verdicts"]["looked"] for answer in answers)
            assert looked == answers[0]["places"]["verdicts"]["total"] == 30_004
        # Entries that cannot match are skipped, so few requests suffice.
        assert len(answers) <= 3
        (order,) = [
            each
            for answer in await walked(client, acker, q="order-30999")
            for each in answer["verdicts"]
        ]
        assert (order["verdict"], order["anchor"], order["trees"]) == ("ack", "30999", 1)
        # By its label a block is found once for each kind of verdict; a slot by its anchor.
        pages = [
            (each["verdict"], each["reason"], each["trees"], each["block"])
            for answer in await walked(client, acker, q="page")
            for each in answer["verdicts"]
        ]
        assert sorted(pages) == [
            ("ack", "completed", 1, "815"),
            ("nack", "expired", 1, "815"),
            ("nack", "failed", 1, "815"),
        ]
        slot = str(block_anchor(815, 2))
        found = [
            each["reason"]
            for answer in await walked(client, acker, q=slot)
            for each in answer["verdicts"]
        ]
        assert found == ["failed"]

    asked(any_server.url, talk)


def test_search_continues_where_it_stopped(
    any_server: EmbeddedRedis, make_any_acker: MakeAcker
) -> None:
    acker = make_any_acker(shards=2)
    for each in range(1, 41):
        batch = Batch(f"shop-{each % 3}")
        batch.track(each, f"order-{each}", [40] if each > 30 else [])
        acker.apply(batch)

    async def talk(client: httpx.AsyncClient) -> None:
        answers = await walked(client, acker, q="order", limit=4)
        assert len(answers) > 5
        found = [each for answer in answers for each in answer["verdicts"]]
        assert sorted(int(each["anchor"]) for each in found) == list(range(1, 31))
        trees = {each["anchor"] for answer in answers for each in answer["trees"]}
        assert sorted(map(int, trees)) == list(range(31, 41))
        assert answers[-1]["places"]["pending"]["complete"]
        for wrong in ("x", "0.pending.1.1", "0.pending.1.1,a,b,c", "-,-,-"):
            answer = await client.get(path(acker), params={"q": "order", "cursor": wrong})
            is_problem(answer, 422, "bad-request")
        for text in ("", " ", "a\nb", "x" * 256):
            answer = await client.get(path(acker), params={"q": text})
            is_problem(answer, 422, "bad-request")

    asked(any_server.url, talk)


def test_verdicts_of_all_sources_are_searched(
    any_server: EmbeddedRedis, make_any_acker: MakeAcker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More sources have untaken verdicts than one page of verdicts can read."""
    monkeypatch.setattr("acker_api.reading.search.STREAMS", 4)
    acker = make_any_acker(shards=2)
    for each in range(1, 12):
        batch = Batch(f"shop-{each}")
        batch.track(each, f"order-{each}", [])
        acker.apply(batch)

    async def talk(client: httpx.AsyncClient) -> None:
        answers = await walked(client, acker, q="order")
        found = [each["anchor"] for answer in answers for each in answer["verdicts"]]
        assert sorted(map(int, found)) == list(range(1, 12))
        assert len(answers) == 6
        # Between two requests, a source takes the verdicts of the second group.
        first = (await client.get(path(acker), params={"q": "order"})).json()
        second = {"q": "order", "cursor": first["next"]}
        for name in ("shop-11", "shop-2"):
            outcomes = acker.outcomes(name)
            outcomes.take(outcomes.read())
        assert (await client.get(path(acker), params=second)).status_code == 200

    asked(any_server.url, talk)


def test_verdict_that_was_taken_is_found_while_a_client_listens(
    any_server: EmbeddedRedis, make_any_acker: MakeAcker
) -> None:
    acker = make_any_acker(edges=("mill",))

    async def run() -> None:
        async with streaming(any_server.url) as service:
            transport = httpx.ASGITransport(service.app)
            async with httpx.AsyncClient(transport=transport, base_url=HOST) as client:
                await talk(service, client)

    async def talk(service: Service, client: httpx.AsyncClient) -> None:
        before = (await client.get(path(acker), params={"q": "order"})).json()
        assert before["places"]["recent"] == {"looked": 0, "since_ms": None, "complete": True}
        stream = await service.open(f"{V1}/{acker.namespace}/events")
        await stream.wait_for("status")
        track(acker, 7, 0, "order-1")
        track(acker, 8, 40, "order-2")
        fail(acker, 8, "torn")
        track_block(acker, 815, [0, 0], "order-page")
        while not (await stream.wait_for("outcome")).data["blocks"]:
            pass
        outcomes = acker.outcomes("t")
        outcomes.take(outcomes.read())
        body = (await client.get(path(acker), params={"q": "order"})).json()
        assert body["verdicts"] == []
        recent = {(each["source_id"], each["verdict"]): each for each in body["recent"]}
        assert recent["order-2", "nack"]["why"] == "torn"
        assert recent["order-1", "ack"]["trees"] == 1
        assert recent["order-page", "ack"]["trees"] == 2
        assert body["places"]["recent"]["looked"] == 4
        assert body["places"]["recent"]["complete"]
        body = (await client.get(path(acker), params={"q": "8:40"})).json()
        assert names(body["recent"]) == ["order-2"]

    asyncio.run(run())


def test_search_of_a_viewer_does_not_depend_on_digits_of_ids(
    any_server: EmbeddedRedis, make_any_acker: MakeAcker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither by its matches nor by how far one answer reads, which would tell digit by digit."""
    monkeypatch.setattr("acker_api.reading.verdicts.MAX_LOOKED", 2)
    acker = make_any_acker()
    missing = 0x4ABC4ABC4ABC4ABC
    track_block(acker, 815, [missing + k for k in range(4)], "page")
    for anchor in range(1, 5):
        track(acker, anchor, missing + anchor, f"order-{anchor}")
    tick(acker, 3)
    texts = ["4abc", "0x4abc", "4abc4abc4abc4abd", str(missing + 1), f"7:{missing + 1}"]
    others = ["4abd", "0x4abd", "4abd4abc4abc4abc", str(missing + 9), f"7:{missing + 9}"]
    viewer = f'tokens = [{{name = "v", role = "viewer", token = "{TOKEN}"}}]'

    async def talk(client: httpx.AsyncClient) -> None:
        client.headers.update(bearer(TOKEN))
        for text, other in zip(texts, others, strict=True):
            assert await walked(client, acker, q=text) == await walked(client, acker, q=other), text
        # A source id is found all the same, also in a row that is not parsed.
        found = [each["verdicts"] for each in await walked(client, acker, q="order-3")]
        assert [(each["anchor"], each["residual"]) for page in found for each in page] == [
            ("3", None)
        ]

    asked(any_server.url, talk, tokens=viewer)
