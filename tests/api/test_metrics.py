"""/metrics, as Prometheus parses it."""

import asyncio
import hashlib
import re
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import httpx
import pytest
from prometheus_client import Metric, parser
from prometheus_client.openmetrics.parser import text_string_to_metric_families as open_families
from redis.exceptions import NoPermissionError

from acker_api.reading.metrics import encode
from acker_api.reading.reader import Survey
from acker_api.reading.servers import Servers
from acker_redis import SourceEdge
from acker_redis.batching.batch import Batch
from acker_redis.embedded import EmbeddedRedis
from acker_redis.protocol import commands
from acker_redis.protocol.commands import Fence
from acker_redis.protocol.keys import ShardKeys
from tests.api.service import asked, get
from tests.api.test_namespaces import late
from tests.conftest import MakeAcker
from tests.support import advance, fail, rotate, row, send, tick, track
from tests.support import columns as columns_of

Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def samples(families: Iterable[Metric]) -> Samples:
    found: Samples = {}
    for family in families:
        assert family.documentation, f"{family.name} has no help text"
        for each in family.samples:
            labels = {name: value for name, value in each.labels.items() if name != "dataset"}
            key = each.name, tuple(sorted(labels.items()))
            assert key not in found, "a series occurs once"
            found[key] = each.value
    return found


def scraped(url: str, **fields: Any) -> Samples:
    response = get(url, "/metrics", **fields)
    assert response.status_code == 200
    assert response.headers["content-type"].startswith("text/plain; version=0.0.4")
    return samples(parser.text_string_to_metric_families(response.text))


def of(found: Samples, name: str, **labels: str) -> float:
    return found[name, tuple(sorted(labels.items()))]


def test_docs_page_lists_every_metric(any_server: EmbeddedRedis, make_any_acker: MakeAcker) -> None:
    make_any_acker()
    text = get(any_server.url, "/metrics").text
    found = {
        family.name + "_total" * (family.type == "counter")
        for family in parser.text_string_to_metric_families(text)
    }
    page = (Path(__file__).parents[2] / "docs" / "reference" / "metrics.md").read_text()
    assert set(re.findall(r"^\| `(acker_\w+)` \|", page, re.MULTILINE)) == found


def test_metrics_equal_the_state_of_the_namespace(
    any_server: EmbeddedRedis, make_any_acker: MakeAcker
) -> None:
    acker = make_any_acker(shards=2, buckets=3, high_water=8, outcomes_limit=50)
    ns = acker.namespace
    for anchor in (2, 4, 6, 8):
        track(acker, anchor, 40)
    rotate(acker)
    track(acker, 10, 0)  # complete at once
    fail(acker, 4)
    late(acker, 1, 3_700_000)
    batch = Batch("shop")
    batch.track(3, "s", [])
    acker.apply(batch)
    found = scraped(any_server.url)

    assert of(found, "acker_up", namespace=ns) == 1
    assert of(found, "acker_redis_up") == 1
    assert of(found, "acker_trees_open", namespace=ns, shard="0") == 3
    assert of(found, "acker_trees_pending", namespace=ns, shard="0", bucket="0") == 0
    assert of(found, "acker_trees_pending", namespace=ns, shard="0", bucket="1") == 3
    assert of(found, "acker_trees_pending", namespace=ns, shard="1", bucket="2") == 0
    assert of(found, "acker_trees_expiring", namespace=ns, shard="0") == 0
    assert of(found, "acker_trees_tracked_total", namespace=ns) == 6
    total = "acker_trees_total"
    assert of(found, total, namespace=ns, verdict="ack", reason="completed") == 2
    assert of(found, total, namespace=ns, verdict="nack", reason="failed") == 1
    for reason in ("expired", "overflow", "conflict"):
        assert of(found, total, namespace=ns, verdict="nack", reason=reason) == 0
    took = "acker_complete_latency_seconds"
    assert of(found, f"{took}_bucket", namespace=ns, le="0.001") <= 2
    assert of(found, f"{took}_bucket", namespace=ns, le="4194.304") == 2
    assert of(found, f"{took}_bucket", namespace=ns, le="+Inf") == 2
    assert of(found, f"{took}_count", namespace=ns) == 2
    assert 0 <= of(found, f"{took}_sum", namespace=ns) < 1
    assert of(found, "acker_high_water", namespace=ns) == 8
    assert of(found, "acker_high_water_ratio", namespace=ns) == 0.75
    assert of(found, "acker_outcomes_backlog", namespace=ns, source="t") == 2
    assert of(found, "acker_outcomes_backlog", namespace=ns, source="shop") == 1
    assert of(found, "acker_outcomes_limit", namespace=ns) == 50
    assert of(found, "acker_outcomes_backlog_ratio", namespace=ns, source="t") == 2 / 25
    assert of(found, "acker_tick_seconds", namespace=ns) == 3600
    assert of(found, "acker_rotation_lag_seconds", namespace=ns, shard="0") == 0
    assert 100 <= of(found, "acker_rotation_lag_seconds", namespace=ns, shard="1") < 160
    assert of(found, "acker_rows_orphaned_total", namespace=ns) == 0
    assert of(found, "acker_batches_repeated_total", namespace=ns) == 0
    oldest = acker.oldest()
    assert oldest
    age = of(found, "acker_oldest_pending_age_seconds", namespace=ns)
    assert 0 < age <= oldest.tree.age_ms / 1000
    assert of(found, "acker_scrape_seconds") > 0
    assert of(found, "acker_redis_script_seconds_total") > 0
    assert not [name for name, _ in found if name.endswith("_created")]


def test_metrics_distinguish_reasons_and_drains(
    any_server: EmbeddedRedis, make_any_acker: MakeAcker
) -> None:
    acker = make_any_acker(buckets=2, high_water=2)
    ns = acker.namespace
    for anchor in range(1, 6):
        track(acker, anchor, 40)  # the fifth is above twice the mark
    track(acker, 1, 40)  # conflict
    row(acker, 9, 40)  # no tree, above the mark: dropped
    rotate(acker)
    rotate(acker)
    found = scraped(any_server.url)
    assert of(found, "acker_trees_expiring", namespace=ns, shard="0") == 3
    tick(acker, 2)
    found = scraped(any_server.url)
    nacked = {
        dict(labels)["reason"]: count
        for (name, labels), count in found.items()
        if name == "acker_trees_total" and dict(labels)["verdict"] == "nack"
    }
    counters = acker.status().counters
    assert nacked == {n: counters[n] for n in ("failed", "expired", "overflow", "conflict")}
    assert min(nacked["expired"], nacked["overflow"], nacked["conflict"]) > 0
    assert of(found, "acker_rows_orphaned_total", namespace=ns) == counters["orphaned"] == 1


def test_metrics_of_windows(any_server: EmbeddedRedis, make_any_acker: MakeAcker) -> None:
    acker = make_any_acker(edges=("mill",))
    ns, shop = acker.namespace, {"namespace": acker.namespace, "source": "shop"}
    edges = [SourceEdge("mill", 7, 3, 2, 90.0), SourceEdge("", None, 1, 0, None)]
    acker.connection.run(commands.report(ShardKeys(ns, 0), "shop", edges))
    found = scraped(any_server.url)
    for name, mill, none in (("in_flight", 3, 1), ("waiting", 2, 0)):
        assert of(found, f"acker_source_{name}", **shop, edge="mill") == mill
        assert of(found, f"acker_source_{name}", **shop, edge="(none)") == none
    assert of(found, "acker_source_window", **shop, edge="mill") == 7
    assert 90 <= of(found, "acker_source_down_seconds", **shop, edge="mill") < 150
    assert of(found, "acker_source_down_seconds", **shop, edge="(none)") == 0
    sizes = [labels for name, labels in found if name == "acker_source_window"]
    assert [dict(labels)["edge"] for labels in sizes if dict(labels)["namespace"] == ns] == ["mill"]


def test_metrics_by_edge(any_server: EmbeddedRedis, make_any_acker: MakeAcker) -> None:
    acker = make_any_acker(buckets=2, edges=("mill", "shop", "none"))
    idle, without = make_any_acker(edges=("mill",)), make_any_acker()
    ns, mill, shop = acker.namespace, 1 << 55, 1 << 56
    track(without, 1, 40)
    for anchor, residual in enumerate((mill | 1, mill | 2, mill | shop | 3, 4), 1):
        track(acker, anchor, residual)
    tick(acker, 2)
    for anchor, waits in ((1, shop | 1), (2, shop | 2), (3, shop | mill | 3)):
        track(acker, anchor, waits)
        advance(acker, 100_000)
    found = scraped(any_server.url)

    def by_edge(name: str, namespace: str = ns) -> dict[str, float]:
        return {
            dict(labels)["edge"]: value
            for (each, labels), value in found.items()
            if each == name and dict(labels)["namespace"] == namespace
        }

    expired = by_edge("acker_expired_by_edge_total")
    assert expired == {"mill": 3, "shop": 1, "none": 0, "(none)": 1}
    assert of(found, "acker_trees_sampled", namespace=ns) == 3
    waiting = by_edge("acker_waiting_trees_sampled")
    assert waiting == {"mill": 1, "shop": 3, "none": 0, "(none)": 0}
    seconds = by_edge("acker_waiting_idle_seconds_sampled")
    assert set(seconds) == {"mill", "shop"}
    assert 100 <= seconds["mill"] < 160
    assert 200 <= seconds["shop"] < 260

    assert of(found, "acker_trees_sampled", namespace=idle.namespace) == 0
    none = {"mill": 0, "(none)": 0}
    assert by_edge("acker_waiting_trees_sampled", idle.namespace) == none
    assert by_edge("acker_expired_by_edge_total", idle.namespace) == none
    for name in ("acker_expired_by_edge_total", "acker_waiting_trees_sampled"):
        assert not by_edge(name, without.namespace), "a namespace without edges has no such series"


def test_scrape_reads_a_bounded_sample(
    any_server: EmbeddedRedis, make_any_acker: MakeAcker
) -> None:
    acker, without = make_any_acker(shards=64, edges=("mill",)), make_any_acker(shards=64)
    for each in (acker, without):
        batch = Batch("shop")
        for anchor in range(1, 1001):
            batch.track(anchor, "s", [1 << 55 | anchor])
        each.apply(batch)

    async def talk(client: httpx.AsyncClient) -> None:
        async def calls() -> int:
            before = _scripts(acker)
            await client.get("/metrics")
            return _scripts(acker) - before

        both = await calls()
        without.drop()
        alone = await calls()
        # Of 4 shards, the only bucket with trees and one without blocks.
        assert alone - (both - alone) == 2 * 4

    asked(any_server.url, talk)


def test_unreadable_namespace_does_not_hide_others(
    any_server: EmbeddedRedis, make_any_acker: MakeAcker
) -> None:
    well, other, gone, torn = (make_any_acker(shards=2) for _ in range(4))
    client = well.connection.client
    client.hset(ShardKeys(other.namespace, 0).meta, "schema", 9)
    client.delete(ShardKeys(gone.namespace, 0).meta)
    client.hset(ShardKeys(torn.namespace, 1).meta, "tick_ms", "soon")
    found = scraped(any_server.url)
    up = {dict(labels)["namespace"]: v for (name, labels), v in found.items() if name == "acker_up"}
    assert up == {
        well.namespace: 1,
        other.namespace: 0,
        gone.namespace: 0,
        torn.namespace: 0,
    }
    told = {dict(labels).get("namespace") for name, labels in found if name != "acker_up"}
    assert told == {None, well.namespace}


def test_oldest_age_is_the_age_of_the_oldest_tree(
    any_server: EmbeddedRedis, make_any_acker: MakeAcker
) -> None:
    acker, idle = make_any_acker(), make_any_acker()
    name = "acker_oldest_pending_age_seconds"
    track(acker, 7, 40)
    key = ShardKeys(acker.namespace, 0).pending(0)
    client = acker.connection.client
    ((field, record),) = client.hgetall(key).items()
    began = int.from_bytes(record[9:15], "big") - 90_000
    client.hset(key, field, record[:9] + began.to_bytes(6, "big") + record[15:])
    found = scraped(any_server.url)
    assert 90 <= of(found, name, namespace=acker.namespace) < 150
    assert of(found, name, namespace=idle.namespace) == 0
    for _ in range(3):
        rotate(acker)  # it expires, and is not drained yet
    assert of(scraped(any_server.url), name, namespace=acker.namespace) >= 90


def test_openmetrics_is_served_on_request(
    any_server: EmbeddedRedis, make_any_acker: MakeAcker
) -> None:
    make_any_acker()
    accept = {"Accept": "application/openmetrics-text;version=1.0.0,text/plain;q=0.5"}
    response = get(any_server.url, "/metrics", accept)
    assert response.headers["content-type"].startswith("application/openmetrics-text")
    plain, open_ = scraped(any_server.url), samples(open_families(response.text))  # type: ignore[no-untyped-call]
    assert set(plain) == set(open_)


def test_concurrent_scrapes_share_one_survey(
    any_server: EmbeddedRedis, make_any_acker: MakeAcker
) -> None:
    acker = make_any_acker()

    async def talk(client: httpx.AsyncClient) -> None:
        await client.get("/metrics")
        begun = _scripts(acker)
        together = await asyncio.gather(*(client.get("/metrics") for _ in range(20)))
        assert {response.status_code for response in together} == {200}
        assert _scripts(acker) - begun < 20
        begun = _scripts(acker)
        await client.get("/metrics")
        assert _scripts(acker) > begun, "each new scrape reads again"

    asked(any_server.url, talk)


def _scripts(acker: Any) -> int:
    stats = acker.connection.client.info("commandstats")
    return int(stats.get("cmdstat_evalsha", {}).get("calls", 0))


def test_number_of_source_labels_is_bounded(
    any_server: EmbeddedRedis, make_any_acker: MakeAcker
) -> None:
    acker = make_any_acker(shards=2)
    for shard in range(2):
        backlogs = {f"backlog:source-{shard}-{n}": 1 for n in range(600)}
        acker.connection.client.hset(ShardKeys(acker.namespace, shard).meta, mapping=backlogs)
    found = scraped(any_server.url)
    backlog = [(labels, v) for (name, labels), v in found.items() if name.endswith("_backlog")]
    assert len(backlog) == 1001
    assert sum(count for _, count in backlog) == 1200


def test_metrics_can_be_switched_off(any_server: EmbeddedRedis) -> None:
    assert get(any_server.url, "/metrics", metrics=False).status_code == 404


def test_metrics_without_namespaces_are_valid() -> None:
    body, _ = encode(Survey(), "")
    assert "acker_redis_up 1.0" in body.decode()
    assert "# HELP acker_trees_total Verdicts on trees" in body.decode()


@pytest.mark.parametrize("what", ["acker_trees_total", "acker_up", "acker_high_water_ratio"])
def test_metric_has_a_help_text(what: str) -> None:
    body, _ = encode(Survey(), "")
    assert f"# HELP {what} " in body.decode()


def test_repeated_batch_is_counted(any_server: EmbeddedRedis, make_any_acker: MakeAcker) -> None:
    acker = make_any_acker()
    for _ in range(3):
        send(acker, columns_of([(7, 40, 1)], "t", ["s"]), Fence("p", 1, "aa"))
    found = scraped(any_server.url)
    assert of(found, "acker_batches_repeated_total", namespace=acker.namespace) == 2


def test_metrics_are_encoded_in_another_thread(
    any_server: EmbeddedRedis, make_any_acker: MakeAcker, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_any_acker()
    wrote: list[bool] = []

    def slow(survey: Survey, accept: str) -> tuple[bytes, str]:
        wrote.append(threading.current_thread() is threading.main_thread())
        return encode(survey, accept)

    monkeypatch.setattr("acker_api.http.routes.metrics.encode", slow)
    assert get(any_server.url, "/metrics").status_code == 200
    assert wrote == [False]


class Replica:
    """A client of a server that is promoted after so many questions; or that refuses INFO."""

    def __init__(self, after: int, refuses: bool = False) -> None:
        self.asked, self._after, self._refuses = 0, after, refuses

    async def info(self, section: str) -> dict[str, Any]:
        self.asked += 1
        if self._refuses:
            raise NoPermissionError
        return {"master_replid": "old" if self.asked <= self._after else "new"}


def test_dataset_is_another_after_a_failover() -> None:
    async def talk() -> None:
        servers = Servers(Replica(after=2))
        found = [await servers.dataset() for _ in range(4)]
        assert found[0] == found[1] != found[2] == found[3]
        assert all(re.fullmatch("[0-9a-f]{8}", each) for each in found)
        blind = Replica(0, refuses=True)
        servers = Servers(blind)
        assert [await servers.dataset() for _ in range(3)] == [""] * 3
        assert blind.asked == 1

    asyncio.run(talk())


def test_counters_have_the_dataset_and_are_left_out_while_it_changes(
    any_server: EmbeddedRedis, make_any_acker: MakeAcker, monkeypatch: pytest.MonkeyPatch
) -> None:
    acker = make_any_acker()
    track(acker, 7, 0)
    text = get(any_server.url, "/metrics").text
    replid = acker.connection.client.info("replication")["master_replid"]
    dataset = hashlib.sha256(replid.encode()).hexdigest()[:8]
    labels = f'dataset="{dataset}",namespace="{acker.namespace}"'
    assert f'acker_trees_total{{{labels},reason="completed",verdict="ack"}} 1.0' in text
    assert f"acker_trees_slow_total{{{labels}}} 0.0" in text

    read = iter(["old", "new"])

    async def dataset(self: Servers) -> str:
        return next(read)

    monkeypatch.setattr(Servers, "dataset", dataset)
    text = get(any_server.url, "/metrics").text
    assert "_total{" not in text.replace("script_seconds_total", "")
    assert f'acker_trees_open{{namespace="{acker.namespace}",shard="0"}} 0.0' in text
