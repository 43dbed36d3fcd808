"""A namespace whose keys hold anything blinds no reader of the others."""

import json
import re
from dataclasses import replace
from typing import Any

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client import parser

from acker_api.reading.ages import Ages
from acker_api.reading.metrics import encode
from acker_api.reading.overview import Overview
from acker_api.reading.reader import ReadStatus, Survey
from acker_api.shapes.history import NamespaceHistory, Slo
from acker_redis.doctor import examine
from acker_redis.doctor.readings import Readings as Recent
from acker_redis.embedded import EmbeddedRedis
from acker_redis.errors import SchemaError
from acker_redis.flows.history import Readings, history_of, losses_of, objectives_of
from acker_redis.operate.status import NamespaceStatus
from acker_redis.protocol import commands
from acker_redis.protocol.history import Point, name_of, parse
from acker_redis.protocol.keys import ShardKeys
from acker_redis.protocol.series import RANGES, merged_buckets
from acker_redis.protocol.status import Status
from acker_redis.protocol.tables import history_csv, objectives_csv
from acker_redis.transport import bounded
from tests.api.service import asked
from tests.conftest import MakeAcker
from tests.garbage import MORE_FIELDS, VALUES, spoilt
from tests.support import track
from tests.tiers import examples

V1 = "/api/v1/namespaces"
PAGES = ("", "/config", "/waits", "/history?range=1h", "/slo", "/trees", "/outcomes", "/backlog")


def as_bytes(value: Any) -> bytes:
    return value if isinstance(value, bytes) else str(value).encode()


META = {
    **dict.fromkeys(("current", "cursor", "tasks", "slots", *commands.COUNTERS), b"0"),
    **{"schema": b"2", "shard": b"0", "shards": b"1", "buckets": b"3", "tick_ms": b"30000"},
    **{"high_water": b"100000", "refresh": b"never", "deadline_ms": b"0", "edges": b"mill,saw"},
    **{"outcomes_limit": b"1000000", "publish": b"yes", "salt": b"0" * 32},
    **{"ticked_ms": b"1700000000000"},
}
ANY = st.one_of(
    st.sampled_from([each for each in VALUES if each is not None]),
    st.integers(-(10**20), 10**20).map(str),
    st.binary(max_size=30),
    st.text(max_size=30),
).map(as_bytes)
FIELD = st.one_of(
    st.sampled_from([*META, *MORE_FIELDS]),
    st.builds("{}{}".format, st.sampled_from(["backlog:", "ended:", "odd:", "slots:"]), st.text()),
).map(as_bytes)


@given(st.dictionaries(FIELD, ANY, min_size=1, max_size=4), st.sampled_from([0, 7, 10**15]))
@settings(max_examples=examples(10))
def test_any_meta_is_refused_or_can_be_shown(wrong: dict[bytes, bytes], trees: int) -> None:
    meta = {as_bytes(field): value for field, value in META.items()} | wrong
    flat = [each for pair in meta.items() for each in pair]
    reply = (1_700_000_000_123, [trees] * 3, trees, [0] * 3, 0, flat)
    refused = ""
    try:
        shard = commands.parse_status(reply, ShardKeys("orders", 0))
    except SchemaError as error:
        refused = str(error)
    assert len(refused) < 300
    assert "0" * 32 not in refused, "the salt is secret"
    if refused:
        return
    status = Status("orders", shard.config, (shard,))
    assert NamespaceStatus.of(status).model_dump_json()
    body, _ = encode(Survey({"orders": ReadStatus(status, 0)}), "")
    assert 'acker_up{namespace="orders"} 1.0' in body.decode()
    assert len(body) < 100_000

    async def nothing() -> Survey:
        raise NotImplementedError

    overview = Overview(nothing, Ages(lambda _: NotImplemented))
    assert json.dumps(overview.row("orders", ReadStatus(status, 0)))
    for values in Point.of(status).fields().values():
        parse(values)
    Recent().add(status)


def status_of(meta: dict[str, bytes]) -> Status:
    flat = [each for field, value in meta.items() for each in (field.encode(), value)]
    shard = commands.parse_status((NOW, [0] * 3, 0, [0] * 3, 0, flat), ShardKeys("orders", 0))
    return Status("orders", shard.config, (shard,))


MORE = st.one_of(st.binary(max_size=20), st.integers(1, 400).map(lambda n: b"\xff" * n + b"\1"))
"""Bytes, or a number of so many groups of seven bits."""


@st.composite
def points(draw: st.DrawFn) -> bytes | None:
    """Draw a point, as it is, cut, or with other bytes; or anything."""
    value = draw(st.one_of(st.none(), st.binary(max_size=40), st.sampled_from(POINTS)))
    if value and draw(st.booleans()):
        at, more = draw(st.integers(0, len(value))), draw(MORE)
        value = value[:at] + more + value[draw(st.integers(at, len(value))) :]
    return value and value.replace(b"TIME", (NOW - draw(st.integers(0, 10**9))).to_bytes(6)[2:])


NOW = 1_700_000_000_123
POINTS = [
    value[:1] + NOW.to_bytes(6)[:2] + b"TIME" + value[7:]
    for value in Point.of(status_of({**META, "ended:shop": b"7", "acked": b"7"})).fields().values()
]


@given(st.lists(points(), max_size=60), st.lists(points(), max_size=30))
@settings(max_examples=examples(2))
def test_any_history_can_be_shown(minutes: list[bytes | None], hours: list[bytes | None]) -> None:
    readings = Readings(status_of(META), minutes, hours)
    for wanted in RANGES:
        found = history_of(readings, wanted)
        buckets = merged_buckets(found.buckets, 300)
        assert json.dumps(NamespaceHistory.of(found, buckets).model_dump(mode="json"))
        assert history_csv(found.buckets)
    found = objectives_of(readings)
    slo = Slo.of("orders", NOW, found, losses_of(readings))
    assert json.dumps(slo.model_dump(mode="json"))
    assert objectives_csv("orders", found, NOW)


def test_any_field_of_a_namespace_may_be_damaged_and_the_others_are_read(
    any_server: EmbeddedRedis, make_any_acker: MakeAcker
) -> None:
    acker = make_any_acker(edges=("mill",))
    track(acker, 7, 0, "order-7", "shop")
    wrong = dict(spoilt(acker, "a-spoilt-"))
    track(acker, 8, 40, "order-8", "shop")

    async def talk(client: httpx.AsyncClient) -> None:
        for path in ("/metrics", "/readyz", "/api/v1/overview?limit=1000", V1):
            said[path] = await client.get(path)
        for path in PAGES:
            said[path] = await client.get(f"{V1}/{acker.namespace}{path}")
            assert said[path].status_code == 200, said[path].text
        # Of each kind of damage one, in all pages of that namespace.
        for name in list(wrong)[::11]:
            for path in PAGES:
                answer = await client.get(f"{V1}/{name}{path}")
                assert answer.status_code in (200, 404, 409), (wrong[name], path, answer.text)

    said: dict[str, httpx.Response] = {}
    asked(any_server.url, talk)
    metrics = said["/metrics"].text
    assert f'acker_up{{namespace="{acker.namespace}"}} 1.0' in metrics
    assert re.search(
        f'acker_trees_tracked_total{{dataset="\\w{{8}}",namespace="{acker.namespace}"}} 2.0',
        metrics,
    )
    assert max(map(len, metrics.splitlines())) < 400, "no label is long"
    list(parser.text_string_to_metric_families(metrics))
    assert said["/readyz"].status_code == 200, said["/readyz"].text
    body = said["/api/v1/overview?limit=1000"].json()
    rows = {row["name"]: row for row in body["namespaces"]}
    assert body["total"] == len(wrong) + 1
    assert rows[acker.namespace]["level"] == "ok"
    for name, what in wrong.items():
        up = f'acker_up{{namespace="{name}"}} 1.0' in metrics
        assert up == rows[name]["up"], what
        assert up or rows[name]["problem"]["type"].endswith((":schema", ":namespace-not-found")), (
            what
        )
    assert sum(row["up"] for row in rows.values()) < len(rows) / 2


@pytest.mark.parametrize("where", ["stream", "record", "header", "meta", "history"])
def test_value_of_any_size_in_one_namespace_is_not_read(
    any_server: EmbeddedRedis,
    make_any_acker: MakeAcker,
    monkeypatch: pytest.MonkeyPatch,
    where: str,
) -> None:
    monkeypatch.setattr(bounded, "MAX_REPLY", 200_000)
    acker, other = make_any_acker(), make_any_acker(edges=("mill",))
    track(other, 7, 40, "order-7", "shop")
    client, keys, large = acker.connection.client, ShardKeys(acker.namespace, 0), b"x" * 300_000
    if where == "stream":
        client.hset(keys.meta, "backlog:shop", "1")
        client.xadd(keys.outcomes("shop"), {"rows": large}, id="1-1")
    elif where == "meta":
        client.hset(keys.meta, "backlog:shop", large)
    elif where == "history":
        now = acker.status().shards[0].now_ms
        client.hset(keys.history, mapping={name_of("m", now - 60_000 * n): large for n in range(5)})
    else:
        track(acker, 8, 40)
        client.hset(keys.blocks(0) if where == "header" else keys.pending(0), b"\0" * 8, large)

    async def talk(service: httpx.AsyncClient) -> None:
        for _ in range(2):
            rows = (await service.get("/api/v1/overview")).json()["namespaces"]
            assert [(row["name"], row["up"]) for row in rows] == [
                (acker.namespace, False),
                (other.namespace, True),
            ]
            assert rows[0]["problem"]["type"] == "urn:acker-redis:problem:schema"
            metrics = (await service.get("/metrics")).text
            assert f'acker_up{{namespace="{acker.namespace}"}} 0.0' in metrics
            assert f'acker_up{{namespace="{other.namespace}"}} 1.0' in metrics
            assert (await service.get("/readyz")).status_code == 200
            calls.append(client.info("commandstats").get("cmdstat_xrange", {}).get("calls"))

    calls: list[Any] = []
    asked(any_server.url, talk)
    assert calls[0] == calls[1], "Redis does not build the reply again for each scrape"


def test_doctor_examines_the_others(any_server: EmbeddedRedis, make_any_acker: MakeAcker) -> None:
    acker = make_any_acker(edges=("mill",))
    names = [name for name, _ in list(spoilt(acker, "a-spoilt-"))[::2]]
    found = list(examine(any_server.url, [*names, acker.namespace], interval=0, canaries=False))
    of = {
        name: [each for each in found if each.where == name] for name in (*names, acker.namespace)
    }
    assert all(each.level in ("ok", "skipped") for each in of[acker.namespace]), found
    for name in names:
        assert of[name], "each namespace has a finding"


def test_metric_that_cannot_be_built_hides_no_other() -> None:
    fine = status_of(META)
    shard = replace(fine.shards[0], expiring=10**400)
    wrong = replace(fine, namespace="bills", shards=(shard,))
    body, _ = encode(Survey({"bills": ReadStatus(wrong), "orders": ReadStatus(fine)}), "")
    text = body.decode()
    assert 'acker_up{namespace="bills"} 0.0' in text
    assert 'acker_up{namespace="orders"} 1.0' in text
    assert 'acker_trees_expiring{namespace="orders",shard="0"} 0.0' in text
    assert 'acker_trees_open{namespace="bills"' not in text, "all of it or nothing"
