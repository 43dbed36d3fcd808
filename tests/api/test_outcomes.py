"""Untaken verdicts, newest first, page by page; and the backlog of each source."""

from contextlib import suppress
from typing import Any

import httpx
import pytest

from acker_api.reading.verdicts import MAX_LOOKED, After, Meant, choose, newest
from acker_redis.batching.batch import Batch
from acker_redis.embedded import EmbeddedRedis
from acker_redis.errors import BacklogError, ConfigError
from acker_redis.flows.steps import AskAll
from acker_redis.protocol.ids import block_anchor
from acker_redis.protocol.keys import ShardKeys
from tests.api.service import asked, get
from tests.api.test_namespaces import V1
from tests.conftest import MakeAcker
from tests.support import (
    advance,
    block_row,
    fail,
    fail_slot,
    rotate,
    row,
    tick,
    track,
    track_block,
)


async def walked(client: httpx.AsyncClient, path: str, **query: Any) -> list[Any]:
    found: list[Any] = []
    before: str | None = ""
    while before is not None:
        page = (await client.get(path, params={**query, "before": before})).json()
        assert len(page["outcomes"]) <= query.get("limit", 100)
        found, before = found + page["outcomes"], page["next"]
    return found


def test_verdict_has_all_its_fields(any_server: EmbeddedRedis, make_any_acker: MakeAcker) -> None:
    acker = make_any_acker()
    track(acker, 7, 40, "order-1", "shop")
    fail(acker, 7, "no such address")
    body = get(any_server.url, f"{V1}/{acker.namespace}/outcomes").json()
    (entry,) = acker.outcomes("shop").read()
    (outcome,) = body["outcomes"]
    assert 0 <= outcome.pop("age_ms") < 60_000
    assert outcome == {
        "verdict": "nack",
        "reason": "failed",
        "source_id": "order-1",
        "slot": None,
        "anchor": "7",
        "why": "no such address",
        "cause": "",
        "residual": None,
        "edges": [],
        "idle_ms": None,
        "at_ms": entry.at_ms,
        "source": "shop",
        "entry": f"0:{entry.id}",
    }
    assert (body["next"], body["looked"], body["sources"]) == (None, 1, ["shop"])
    assert len(acker.outcomes("shop").read()) == 1, "the request takes no verdict"


def test_verdict_of_an_expired_tree_has_its_residual(
    any_server: EmbeddedRedis, make_any_acker: MakeAcker
) -> None:
    hour = 3_600_000
    acker = make_any_acker(
        buckets=2, refresh="update", deadline_ms=2 * hour, edges=("mill", "shop")
    )
    missing = 1 << 56 | 0xABC
    track(acker, 7, missing, "order-1", "shop")
    track_block(acker, 5, [missing, 0, 1 << 55 | 1], "page", "shop")
    advance(acker, hour)
    rotate(acker)
    row(acker, 7, 0)  # shortly before its deadline: its bucket stays
    tick(acker, 2)
    found = get(any_server.url, f"{V1}/{acker.namespace}/outcomes?reason=expired").json()
    by_anchor = {each["anchor"]: each for each in found["outcomes"]}
    loose = by_anchor["7"]
    shown = [loose[name] for name in ("cause", "residual", "edges", "why")]
    assert shown == ["deadline", "0100000000000abc", ["shop"], ""]
    assert 0 <= loose["idle_ms"] < hour <= loose["age_ms"]
    first, last = (by_anchor[str(block_anchor(5, slot))] for slot in (0, 2))
    assert [first[name] for name in ("cause", "residual", "edges")] == [
        "idle",
        "0100000000000abc",
        ["shop"],
    ]
    assert (last["residual"], last["edges"]) == ("0080000000000001", ["mill"])
    assert hour <= last["idle_ms"] <= last["age_ms"]


def test_pages_of_many_streams_are_ordered_and_complete(
    any_server: EmbeddedRedis, make_any_acker: MakeAcker
) -> None:
    acker = make_any_acker(shards=4)
    for turn in range(12):
        batch = Batch(f"source-{turn % 3}")
        for each in range(5):
            batch.track(1 + 5 * turn + each, f"{turn}-{each}", [])
        acker.apply(batch)
    track_block(acker, 8, [0] * 7, "page", "source-0")

    async def talk(client: httpx.AsyncClient) -> None:
        path = f"{V1}/{acker.namespace}/outcomes"
        whole = (await client.get(path, params={"limit": 1000})).json()["outcomes"]
        assert len(whole) == 67
        times = [outcome["at_ms"] for outcome in whole]
        assert times == sorted(times, reverse=True)
        for limit in (3, 10, 66, 67):
            assert await walked(client, path, limit=limit) == whole, limit
        one = await walked(client, path, limit=4, source="source-0")
        assert one == [outcome for outcome in whole if outcome["source"] == "source-0"]
        assert len(one) == 27
        assert sorted(o["slot"] for o in one if o["source_id"] == "page") == list(range(7))
        assert await walked(client, path, source="unknown") == []

    asked(any_server.url, talk)


def test_filters(any_server: EmbeddedRedis, make_any_acker: MakeAcker) -> None:
    acker = make_any_acker(buckets=2)
    for anchor in range(1, 4):
        track(acker, anchor, 40, f"s{anchor}")
    fail(acker, 1, "no")
    track(acker, 9, 0, "done")
    track_block(acker, 5, [40, 41], "b")
    fail_slot(acker, 5, 1, "torn", 41)
    block_row(acker, 5, {0: 40})
    for _ in range(2):
        rotate(acker)
    acker.connection.run(_expire(acker))

    async def talk(client: httpx.AsyncClient) -> None:
        async def found(**query: Any) -> list[tuple[str, str, str]]:
            path = f"{V1}/{acker.namespace}/outcomes"
            outcomes = await walked(client, path, limit=2, **query)
            return sorted((o["verdict"], o["reason"], o["source_id"]) for o in outcomes)

        acks = [("ack", "completed", "b"), ("ack", "completed", "done")]
        failed = [("nack", "failed", "b"), ("nack", "failed", "s1")]
        expired = [("nack", "expired", "s2"), ("nack", "expired", "s3")]
        assert await found() == acks + expired + failed
        assert await found(verdict="ack") == acks
        assert await found(verdict="nack") == expired + failed
        assert await found(reason="expired") == expired
        assert await found(verdict="ack", reason="failed") == []
        assert (await client.get(f"{V1}/{acker.namespace}/outcomes?verdict=no")).status_code == 422

    asked(any_server.url, talk)


def _expire(acker: Any) -> Any:
    from acker_redis.protocol import commands

    return commands.expire(ShardKeys(acker.namespace, 0), 100)


def test_unreadable_entries_are_counted_and_skipped(
    any_server: EmbeddedRedis, make_any_acker: MakeAcker
) -> None:
    acker = make_any_acker()
    track(acker, 1, 0, "before")
    stream = ShardKeys(acker.namespace, 0).outcomes("t")
    ack = {"verdict": "ack", "reason": "completed"}
    block = {**ack, "block": "5", "label": "b", "age": "1"}
    expired = {"verdict": "nack", "reason": "expired"}
    mixed = {**block, "verdict": "mixed", "reason": "expired", "n": "2", "cause": "idle"}
    mixed |= {"idle": "1", "slots": "2", "failed": "", "residuals": "0" * 15 + "1"}
    whole = {**block, "n": "3", "slots": "3"}
    for fields in (
        {"x": "y"},
        {**ack, "rows": "[1"},
        {**ack, "rows": '[["1f",5,1,""]]'},
        {**block, "rows": '[["x","no"]]'},
        {**block, "rows": "[[5000,7]]"},
        {**expired, "rows": '[["1f","s",1,"idle","no",5]]'},
        {**expired, "rows": '[["1f","s",1,"bored","00000000000000ff",5]]'},
        {**expired, "rows": '[["1f","s",1,"idle","00000000000000ff","5"]]'},
        {**expired, "rows": '[["1f","s",1,"idle","1ffffffffffffffff",5]]'},
        mixed,
        *({**mixed, "nacked": bitmap} for bitmap in ("", "[0]", "8", "8000", "xx", "90", "c0")),
        {**mixed, "nacked": "80", "residuals": "0"},
        {**mixed, "nacked": "80", "failed": "c000"},
        {**mixed, "nacked": "80", "present": ""},
        {**mixed, "nacked": "80", "present": "80"},
        whole,
        {**whole, "failed": "20"},
        {**whole, "failed": "", "present": "a0"},
        {**whole, "failed": "", "present": "e4"},
        *({**whole, "failed": "", "present": "e0", "slots": f"1{'0' * n}"} for n in (4, 30)),
        {**ack, "rows": "[" * 200_000},
        {**ack, "rows": f'[["{"f" * 4000}","s",1,""]]'},
        {**whole, "verdict": "nack", "block": "f" * 4000},
    ):
        acker.connection.client.xadd(stream, fields)
    track(acker, 2, 0, "after")
    body = get(any_server.url, f"{V1}/{acker.namespace}/outcomes").json()
    assert [o["source_id"] for o in body["outcomes"]] == ["after", "before"]
    assert body["unreadable"] == 9 + 8 + 4 + 4 + 5


def test_absent_slots_of_a_block_have_no_verdict(
    any_server: EmbeddedRedis, make_any_acker: MakeAcker
) -> None:
    """Slot 1 has failed, slot 3 expires, slots 4 and 8 are acked; the others hold no tree."""
    acker = make_any_acker()
    acker.track_block("shop", "page", [0, 5, 0, 6, 0, 0, 0, 0, 0], 5, present=[1, 3, 4, 8])
    fail_slot(acker, 5, 1, "torn")
    tick(acker, 3)
    acker.track_block("shop", "done", [0, 0, 0], 6, present=[2])
    path = f"{V1}/{acker.namespace}/outcomes"

    async def talk(client: httpx.AsyncClient) -> None:
        for limit in (1, 2, 100):
            found = await walked(client, path, limit=limit)
            assert sorted((o["source_id"], o["slot"], o["verdict"], o["why"]) for o in found) == [
                ("done", 2, "ack", ""),
                ("page", 1, "nack", "torn"),
                ("page", 3, "nack", ""),
                ("page", 4, "ack", ""),
                ("page", 8, "ack", ""),
            ]

    asked(any_server.url, talk)


def test_reads_for_a_page_are_bounded() -> None:
    """For any number of verdicts that do not match."""
    flow = newest([ShardKeys("n", 0)], ["t"], 10, meant=Meant("nack"))
    read, number, calls = 0, 10**6, 0
    step = next(flow)
    with pytest.raises(StopIteration) as end:
        while True:
            assert isinstance(step, AskAll)
            ((_, _, _, _, _, count),) = step.commands
            entries = [(b"%d-0" % (number - n), _ack(n)) for n in range(int(count))]
            read, number = read + len(entries), number - len(entries)
            calls += 1
            step = flow.send([entries])
    page = end.value.value
    assert 1024 <= read <= 1024 + 256
    assert calls < 12
    assert page.looked == read
    assert page.next
    assert page.next.key[0] == number + 1


def test_entries_that_cannot_match_are_not_parsed() -> None:
    """Entries of acks are not even parsed if the filter is nack."""
    acks, all_ = {b"verdict": b"ack", b"reason": b"completed", b"rows": b"no"}, b"4095"
    block = {b"block": b"5", b"label": b"b", b"age": b"1", b"slots": all_, b"n": all_}
    more = {b"cause": b"idle", b"idle": b"1", b"nacked": b"", b"failed": b"", b"residuals": b""}
    mixed = {**block, **more, b"verdict": b"mixed", b"reason": b"expired"}
    flow = newest([ShardKeys("n", 0)], ["t"], 10, meant=Meant("nack"))
    ((*_, count),) = _commands(next(flow))
    entries = [(b"%d-0" % (10**6 - n), acks) for n in range(count // 2)]
    entries += [(b"%d-0" % (10**5 - n), mixed) for n in range(count - len(entries))]
    with pytest.raises(StopIteration) as end:
        while True:
            flow.send([entries])
    page = end.value.value
    assert (page.verdicts, page.unreadable, page.looked) == ((), 0, MAX_LOOKED)
    assert page.next


def test_large_entries_are_read_in_small_steps() -> None:
    flow = newest([ShardKeys("n", 0)], ["t"], 1000, meant=Meant("nack"))
    row = {**_ack(1), b"more": b" " * 200_000}
    step, counts, number = next(flow), [], 10**6
    with pytest.raises(StopIteration):
        while True:
            ((*_, count),) = _commands(step)
            counts.append(count)
            number -= count
            step = flow.send([[(b"%d-0" % (number + count - n), row) for n in range(count)]])
    assert max(counts[1:]) == 5
    assert sum(counts) < 60


def _commands(step: Any) -> Any:
    assert isinstance(step, AskAll)
    return step.commands


def _ack(n: int) -> dict[bytes, bytes]:
    return {b"verdict": b"ack", b"reason": b"completed", b"rows": b'[["%x","s",1,""]]' % (n + 1)}


@pytest.mark.parametrize("text", ["x", "1-0:0:t", "1-0:0:t:-1", "1-0:0:a b:1", "1:0:t:1", ""])
def test_invalid_cursor_of_outcomes_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="a page of outcomes"):
        After.parse(text)


def test_number_of_streams_read_is_bounded() -> None:
    backlog = {f"source-{n}": n for n in range(1000)}
    assert choose(backlog, 16) == [f"source-{n}" for n in range(999, 983, -1)]
    assert choose(backlog, 1024) == ["source-999"]
    assert choose({"idle": 0}, 1) == []


def test_backlog_lists_sources_with_most_untaken_verdicts_first(
    any_server: EmbeddedRedis, make_any_acker: MakeAcker
) -> None:
    acker = make_any_acker(shards=2, outcomes_limit=50)
    track(acker, 2, 0, task="slow")
    acker.apply(_two("slow"))
    acker.apply(_two("slower"))
    track(acker, 40, 40, task="idle")

    async def talk(client: httpx.AsyncClient) -> None:
        path = f"{V1}/{acker.namespace}/backlog"
        body = (await client.get(path)).json()
        since = min(entry.at_ms for entry in acker.outcomes("slow").read())
        assert [(s["source"], s["waiting"], s["limit"]) for s in body["sources"]] == [
            ("slow", 3, 50),
            ("slower", 2, 50),
            ("idle", 0, 50),
        ]
        assert body["sources"][0]["oldest_at_ms"] == since
        assert body["sources"][2]["oldest_at_ms"] is None
        assert body["total"] == 3
        assert len((await client.get(path, params={"limit": 1})).json()["sources"]) == 1

    asked(any_server.url, talk)


def test_backlog_ratio_is_that_of_the_fullest_shard(
    any_server: EmbeddedRedis, make_any_acker: MakeAcker
) -> None:
    acker = make_any_acker(shards=4, outcomes_limit=8)
    for block in (4, 8, 12, 16, 20):
        with suppress(BacklogError):
            track_block(acker, block, [0], task="shop")
    with pytest.raises(BacklogError):
        track_block(acker, 24, [0], task="shop")
    path = f"{V1}/{acker.namespace}"
    status = get(any_server.url, path).json()
    assert status["backlog"]["shop"] < 8
    assert status["backlog_ratio"] == {"shop": 1.0}
    (source,) = get(any_server.url, f"{path}/backlog").json()["sources"]
    assert source["ratio"] == 1.0


def _two(source: str) -> Batch:
    batch = Batch(source)
    batch.track(100 if source == "slow" else 200, "s", [])
    batch.track(101 if source == "slow" else 201, "s", [])
    return batch
