"""History and objectives of a namespace over HTTP, as JSON and CSV; their metrics."""

import asyncio
import csv
import re

import httpx

from acker_redis.embedded import EmbeddedRedis
from acker_redis.protocol.history import HOUR_MS, MINUTE_MS, Point
from acker_redis.sync.client import Acker
from tests.api.service import get, is_problem, service
from tests.conftest import MakeAcker
from tests.rotator.test_history import put
from tests.support import fail, row, track
from tests.waiting import LIMIT

V1 = "/api/v1/namespaces"


def filled(acker: Acker) -> list[int]:
    """Write a day of points; one of four trees fails in the last five minutes.

    Return the times of the points, in milliseconds.
    """
    for anchor in range(1, 5):
        track(acker, anchor, 40, task="shop")
        row(acker, anchor, 40) if anchor < 4 else fail(acker, anchor)
    now = Point.of(acker.status())
    before = {"tracked": 0, "acked": 0, "failed": 0, "waiting": 0, "sources": {}}
    ago = [each * MINUTE_MS for each in range(23 * 60, 4, -1) if each != 90]  # a gap
    for each in ago:
        put(acker, each, now, **before)
    return [now.at_ms - each for each in ago]


def points_of(points: list[int], minutes: int, now_ms: int) -> int:
    """Return how many points a range has: the minute of now, and those before it, have one each."""
    return sum(point // MINUTE_MS >= now_ms // MINUTE_MS - minutes for point in points)


def test_history_has_buckets_gaps_and_sums(
    any_server: EmbeddedRedis, make_any_acker: MakeAcker
) -> None:
    acker = make_any_acker(high_water=77)
    points = filled(acker)
    path = f"{V1}/{acker.namespace}/history"
    body = get(any_server.url, f"{path}?range=24h").json()
    assert (body["namespace"], body["range"], body["high_water"]) == (acker.namespace, "24h", 77)
    assert body["now_ms"] - body["from_ms"] == 24 * HOUR_MS
    buckets = body["buckets"]
    assert len(buckets) <= 310
    ends = [bucket["to_ms"] for bucket in buckets]
    assert [bucket["from_ms"] for bucket in buckets[1:]] == ends[:-1]
    # Nothing was written in the last five minutes, either.
    assert [bucket["gap"] for bucket in buckets].count(True) == 1
    last = buckets[-1]
    assert (last["gap"], last["tracked"], last["acked"], last["failed"]) == (True, 4, 3, 1)
    assert (last["good"], last["open"], last["waiting"]) == (3, 0, 4)
    # A new minute may begin meanwhile: it has no point, and the first point is out of range then.
    hour = get(any_server.url, path).json()
    assert hour["range"] == "1h"
    assert len(hour["buckets"]) == points_of(points, 60, hour["now_ms"])
    quarter = get(any_server.url, f"{path}?range=15m").json()
    assert len(quarter["buckets"]) == points_of(points, 15, quarter["now_ms"])
    month = get(any_server.url, f"{path}?range=30d").json()["buckets"]
    assert sum(bucket["tracked"] for bucket in month) == 4


def test_history_as_csv_has_every_point(
    any_server: EmbeddedRedis, make_any_acker: MakeAcker
) -> None:
    acker = make_any_acker()
    filled(acker)
    path = f"{V1}/{acker.namespace}/history?range=24h"
    for asked in (
        get(any_server.url, f"{path}&format=csv"),
        get(any_server.url, path, headers={"Accept": "text/csv"}),
    ):
        assert asked.headers["content-type"] == "text/csv; charset=utf-8"
        assert f'filename="{acker.namespace}-24h.csv"' in asked.headers["content-disposition"]
        rows = list(csv.DictReader(asked.text.splitlines()))
        assert len(rows) == 23 * 60 - 4 - 1
        assert sum(int(each["failed"]) for each in rows) == 1


def test_slo_has_the_namespace_and_its_sources(
    any_server: EmbeddedRedis, make_any_acker: MakeAcker
) -> None:
    acker = make_any_acker(slo_target=99.5)
    filled(acker)
    path = f"{V1}/{acker.namespace}/slo"
    found = get(any_server.url, path).json()
    whole, shop = found["objectives"]
    assert (found["nacks"]["ended"], found["nacks"]["nacked"]) == (4, 1)
    assert (whole["source"], shop["source"]) == ("", "shop")
    for each in (whole, shop):
        assert (each["ended"], each["good"], each["good_percent"]) == (4, 3, 75.0)
        assert (each["met"], each["budget_left_percent"]) == (False, -4900.0)
    assert whole["burn_rates"]["5m"]["rate"] == 50.0
    # The point of an hour is the last of its minutes.
    assert re.fullmatch(
        "75 % complete before they expire, 2[23] h, budget left -4900 %", whole["sentence"]
    )
    rows = list(csv.DictReader(get(any_server.url, f"{path}?format=csv").text.splitlines()))
    assert [(each["source"], each["good_percent"]) for each in rows] == [
        ("", "75.0"),
        ("shop", "75.0"),
    ]


def test_namespace_without_history_has_the_present_only(
    any_server: EmbeddedRedis, make_any_acker: MakeAcker
) -> None:
    acker = make_any_acker()
    path = f"{V1}/{acker.namespace}"
    assert get(any_server.url, f"{path}/history").json()["buckets"] == []
    found = get(any_server.url, f"{path}/slo").json()
    (whole,) = found["objectives"]
    assert found["nacks"] is None
    assert (whole["good_percent"], whole["met"], whole["budget_left_percent"]) == (None, None, None)
    for part in ("history", "slo"):
        is_problem(get(any_server.url, f"{V1}/nowhere/{part}"), 404, "namespace-not-found")


def test_metrics_count_good_trees_per_source(
    any_server: EmbeddedRedis, make_any_acker: MakeAcker
) -> None:
    acker = make_any_acker(slo_target=99.95)
    filled(acker)
    text = get(any_server.url, "/metrics").text
    text = re.sub(r'dataset="\w+",', "", text)
    labels = f'{{namespace="{acker.namespace}",source="shop"}}'
    assert f"acker_ended_total{labels} 4.0" in text
    assert f"acker_good_total{labels} 3.0" in text
    assert f'acker_slo_target_ratio{{namespace="{acker.namespace}"}} 0.9995' in text


def test_state_has_the_nacks_up_to_now_and_all_reports_judge_them(
    any_server: EmbeddedRedis, make_any_acker: MakeAcker
) -> None:
    """The points of the history are up to a minute old, the figures are not."""
    acker = make_any_acker()
    for anchor in range(1, 21):
        track(acker, anchor, 40, task="shop")
        row(acker, anchor, 40) if anchor < 20 else fail(acker, anchor)
    put(acker, 10 * MINUTE_MS, Point.of(acker.status()), tracked=0, acked=0, failed=0, sources={})

    async def talk(client: httpx.AsyncClient) -> None:
        async def told() -> tuple[dict[str, int], set[str]]:
            """Return the figures of the page, and the findings of the page and the overview."""
            page = (await client.get(f"{V1}/{acker.namespace}")).json()
            (listed,) = (await client.get("/api/v1/overview")).json()["namespaces"]
            both = [
                " ".join(each["headline"] for each in judged["findings"] if each["id"] == "nacks")
                for judged in (page, listed)
            ]
            return page["recent"], set(both)

        recent, found = await told()
        assert (recent["ended"], recent["nacked"], found) == (20, 1, {""})
        assert recent["over_ms"] >= 10 * MINUTE_MS
        for anchor in range(21, 31):
            track(acker, anchor, 40, task="shop")
            fail(acker, anchor)
        recent, found = await told()
        assert (recent["ended"], recent["nacked"]) == (30, 11)
        async with asyncio.timeout(LIMIT):  # the judgement of all namespaces is a second old
            while "" in found:
                _, found = await told()
        assert all(each.startswith("37% of the trees that ended in the last 1") for each in found)

    async def run() -> None:
        async with service(any_server.url, rate_limit=0) as client:
            await talk(client)

    asyncio.run(run())
