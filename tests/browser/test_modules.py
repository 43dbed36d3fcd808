"""Computations of the page: formats, rates, and findings."""

import random
from collections.abc import Iterator
from typing import Any, get_args

import pytest
from playwright.sync_api import Browser, Page

from acker_redis.doctor.health import Rotation
from acker_redis.protocol.ids import block_anchor
from acker_redis.protocol.latency import Latency
from tests.browser.conftest import PATIENCE_MS
from tests.browser.stack import Service


@pytest.fixture(scope="module")
def page(browser: Browser, service: Service) -> Iterator[Page]:
    """Yield a page that may load the modules."""
    context = browser.new_context(base_url=service.url)
    context.set_default_timeout(PATIENCE_MS)
    page = context.new_page()
    page.goto("/login")
    yield page
    context.close()


def call(page: Page, module: str, body: str, argument: Any = None) -> Any:
    """Run the body of a function of ``m``, the module, and ``x``."""
    load = f"import('/static/latest/js/{module}.js')"
    return page.evaluate(f"async (x) => {{ const m = await {load}; {body} }}", argument)


def test_numbers_are_formatted(page: Page) -> None:
    cases = {
        "compact": [0, 4.25, 950, 999.4, 999.96, 12_345, 999_499, 999_500, 1_234_567, 2.5e9],
        "duration": [0, 999, 1000, 9949, 59_499, 59_500, 61_000, 3_600_000, 93_784_000],
        "percent": [0, 0.0001, 0.1234, 0.9999, 2.5],
        "rate": [0, 0.05, 0.5, 99.94, 829.3, 999.6, 1234],
        "ago": [-5, 1999, 2000, 61_000],
        "figure": [0, 4040, 99_999, 123_456],
        "about": [0, 0.7, 3.3, 512, 1024, 4096, 65_536, 131_072, 4_194_304, 172_800_000],
    }
    words = {
        "compact": "0, 4.3, 950, 999.4, 1 k, 12.3 k, 999 k, 1 M, 1.23 M, 2.5 G",
        "duration": "0 ms, 999 ms, 1.0 s, 9.9 s, 59 s, 1 min, 1 min 1 s, 1 h, 1 d 2 h",
        "percent": "0 %, < 0.1 %, 12.3 %, 100 %, 250 %",
        "rate": "0, < 0.1, 0.5, 99.9, 829, 1 k, 1.23 k",
        "ago": "just now, just now, 2.0 s ago, 1 min 1 s ago",
        "figure": "0, 4,040, 99,999, 123 k",
        "about": "0 ms, 0.7 ms, 3.3 ms, 512 ms, 1 s, 4.1 s, 66 s, 2.2 min, 70 min, 2 d",
    }
    for name, values in cases.items():
        found = call(page, "core/format", f"return x.map((value) => m.{name}(value));", values)
        assert ", ".join(found) == words[name]


def test_losses_of_a_healthy_namespace_name_share_beginning_and_edge(page: Page) -> None:
    def words(expired: Any, **changed: Any) -> str:
        losses = {
            "ended": 12_000, "nacked": 114, "over_ms": 900_000, "since_ms": 0, "since_known": True,
            "target_percent": 99.0,
        } | changed  # fmt: skip
        said: str = call(page, "data/losses", "return m.lossWords(x[0], x[1]);", [losses, expired])
        return said

    text = words({"price": 90, "ship": 4, "": 3})
    share = "114 of the 12,000 trees that ended in the last 15 min were nacked (0.95 %)"
    assert text.startswith(
        f"{share}: their sources replay them or give them up. There are nacks since "
    )
    edge = "Most expired trees lack an ack on edge price: look at the program that reads it."
    assert text.endswith(f" {edge} The target permits 1 %.")
    assert "at least since" in words(None, since_known=False)
    for unclear in (None, {}, {"price": 2, "ship": 2}, {"price": 1, "": 9}):
        assert "edge" not in words(unclear)
    assert words(None, nacked=121).endswith("The target permits only 1 %.")
    assert words(None, nacked=120).endswith("The target permits 1 %.")
    assert "There are nacks" not in words(None, since_ms=None)
    assert "(less than 0.01 %)" in words(None, nacked=1, ended=1_000_000)
    assert call(page, "data/losses", "return m.lossWords(null, null);") == ""


def test_ages_are_parsed(page: Page) -> None:
    texts = ["90", "1.5s", " 5 min ", "2h", "250ms", "1d", "", "soon", "-5s", "5 s 3"]
    found = call(page, "views/trees", "return x.map((text) => m.milliseconds(text));", texts)
    assert found == [90_000, 1500, 300_000, 7_200_000, 250, 86_400_000, None, None, None, None]


def status(*findings: tuple[str, str], **fields: Any) -> dict[str, Any]:
    """Return a healthy namespace with these findings: id and level."""
    told = [
        {"id": id_, "level": level, "headline": f"no {id_}", "detail": "5 of 6", "fix": "wait"}
        for id_, level in findings
    ]
    shards = [{"now_ms": 100_000}]
    return {"findings": told, "lag_ms": 0, "rotator": "on_time", "shards": shards, **fields}


def test_findings_of_the_service_are_shown(page: Page) -> None:
    late = status(("rotator", "error"), ("high-water", "warning"), lag_ms=30_000)
    found = call(page, "data/health", "return m.findings(x);", late)
    assert [(each["key"], each["level"], each["title"]) for each in found] == [
        ("rotator", "over", "no rotator"),
        ("high-water", "high", "no high-water"),
    ]
    assert found[0]["since"] == 70_000
    assert found[1]["link"]["tab"] == "trees"
    body = "return x.map((each) => m.worst(m.findings(each)));"
    cases = [late, status(("nacks", "warning")), status()]
    assert call(page, "data/health", body, cases) == ["over", "high", "ok"]
    body = "return ['rotator', 'high-water', 'nacks'].map((id) => m.levelOf(x, id));"
    assert call(page, "data/health", body, late) == ["over", "high", "ok"]


def test_each_rotator_state_has_a_label(page: Page) -> None:
    body = "return x.map((rotator) => m.rotator({rotator}).words);"
    states = list(get_args(Rotation))
    words = call(page, "data/health", body, states)
    assert dict(zip(states, words, strict=True)) == {
        "on_time": "On time",
        "late": "Late",
        "away": "Missing",
        "unknown": "No tick yet",
    }


def test_commands_in_a_fix_are_separated(page: Page) -> None:
    body = "return m.inParts(x).map(({text, typed}) => [text, typed]);"
    fix = "run one: acker-redis rotator orders; and look at its log"
    assert call(page, "data/health", body, fix) == [
        ["run one: ", False],
        ["acker-redis rotator orders", True],
        ["; and look at its log", False],
    ]
    assert call(page, "data/health", body, "wait") == [["wait", False]]


def readings(*samples: tuple[int, int]) -> list[dict[str, Any]]:
    """Return readings of a status: seconds, and trees acked so far."""
    rest = dict.fromkeys(("tracked", "failed", "expired", "overflow", "conflict"), 0)
    return [
        {
            "shards": [{"now_ms": 1_000_000 + 1000 * second}],
            "pending_by_bucket": [acked, 0],
            "counters": {**rest, "acked": acked},
        }
        for second, acked in samples
    ]


ADD = "const h = new m.History('n' + Math.random()); x.forEach((each) => h.add(each));"


def test_rates_use_two_readings(page: Page) -> None:
    body = f"{ADD} return h.samples.map((_, at) => h.rates(at)?.acked ?? null);"
    steady = readings((0, 0), (1, 10), (2, 20), (3, 30), (4, 40), (5, 50))
    assert call(page, "data/history", body, steady) == [None, 10, 10, 10, 10, 10]
    # No reading for a minute: the rate is unknown, and the chart has a gap.
    gap = readings((0, 0), (1, 10), (61, 5000), (62, 5010))
    assert call(page, "data/history", body, gap) == [None, 10, None, 10]
    body = f"""const {{ moments, RANGES }} = await import('/static/latest/js/data/past.js'); {ADD}
    const past = {{ range: RANGES[1], buckets: {{ value: [] }} }};
    return moments(h, past).map((each) => !each.sample);"""
    assert call(page, "data/history", body, gap) == [False, False, True, False, False]


def test_no_line_and_no_rate_bridges_an_outage(page: Page) -> None:
    # The outage is shorter than the pause after which any reading begins a new line.
    body = """const { moments, RANGES } = await import('/static/latest/js/data/past.js');
        const h = new m.History('n' + Math.random());
        x.forEach((each, at) => { if (at === 2) h.interrupt(); h.add(each); });
        const past = { range: RANGES[1], buckets: { value: [] } };
        return [moments(h, past).map((each) => !each.sample),
            h.samples.map((_, at) => h.rates(at)?.acked ?? null)];"""
    seen = readings((0, 0), (1, 10), (4, 40), (5, 50))
    assert call(page, "data/history", body, seen) == [
        [False, False, True, False, False],
        [None, 10, None, 10],
    ]


def test_start_of_a_finding_is_stored(page: Page) -> None:
    body = """const h = new m.History('n' + Math.random());
        return x[0].map((each, at) => {
            h.add(each);
            h.note(x[1][at], each.shards[0].now_ms);
            return [...h.wrong].map(([key, { t, first }]) => [key, t / 1000 - 1000, first]);
        });"""
    seen = readings((0, 0), (1, 0), (2, 0), (3, 0), (90, 0))
    keys = [["high"], ["high", "rotator"], ["rotator"], [], ["over"]]
    assert call(page, "data/history", body, [seen, keys]) == [
        [["high", 0, True]],
        [["high", 0, True], ["rotator", 1, False]],
        [["rotator", 1, False]],
        [],
        # Its start was not observed.
        [["over", 90, True]],
    ]


def test_latency_equals_that_of_the_python_client(page: Page) -> None:
    chance = random.Random(5)
    ages = [0, 0, 1, 2**30, *(int(chance.lognormvariate(6, 3)) for _ in range(200))]
    latency = Latency()
    for age in ages:
        latency = latency.plus(age)
    parts = [0.001, 0.3, 0.5, 0.95, 0.99, 1]
    body = """const l = new m.Latencies(); l.add(1000, x.told);
        return [m.ofAges(x.ages).counts, x.parts.map((part) => m.quantile(l.ever, part)),
            l.ever.mean, l.ever.total];"""
    told = {"counts": latency.counts, "sum_ms": latency.sum_ms}
    argument = {"told": told, "ages": ages, "parts": parts}
    counts, quantiles, mean, total = call(page, "data/latency", body, argument)
    assert (tuple(counts), total) == (latency.counts, len(ages))
    assert quantiles == pytest.approx([latency.quantile_ms(part) for part in parts])
    assert mean == pytest.approx(latency.mean_ms)


def test_recent_latency_uses_two_readings(page: Page) -> None:
    body = """const l = new m.Latencies(); return x.map(([second, ...counts]) => {
        l.add(1000 * second, {counts, sum_ms: 10 * counts.length});
        const found = l.over(20);
        return found && [found.ms / 1000, found.counts, found.total]; });"""
    steps = [(0, 1), (2, 1, 3), (10, 1, 3, 2), (30, 2, 3, 2), (31, 2, 2), (36, 2, 4)]
    assert call(page, "data/latency", body, steps) == [
        None,
        [2, [0, 3], 3],
        [10, [0, 3, 2], 5],
        [20, [1, 0, 0], 1],
        # A count has fallen: the namespace was created again, or shards were removed.
        None,
        [5, [0, 2], 2],
    ]


def test_history_restarts_for_a_recreated_namespace(page: Page) -> None:
    body = f"{ADD} return h.samples.map((each) => each.counters.acked);"
    assert call(page, "data/history", body, readings((0, 50), (1, 60), (2, 3))) == [3]
    assert call(page, "data/history", body, readings((50, 50), (3, 60))) == [60]
    # One answer has overtaken another: the history stays.
    overtaken = readings((0, 0), (2, 10), (1, 5), (3, 20))
    assert call(page, "data/history", body, overtaken) == [0, 10, 20]
    assert call(page, "data/history", body, readings((0, 1), (0, 1), (1, 2))) == [1, 2]


def test_verdicts_are_deduplicated_and_failures_grouped(page: Page) -> None:
    outcomes = [
        {"verdict": verdict, "reason": reason, "why": why, "anchor": str(anchor), "source": "shop"}
        | {"entry": f"0:{anchor}-0", "at_ms": anchor, "source_id": f"order-{anchor}"}
        for anchor, verdict, reason, why in (
            (1, "nack", "failed", "torn"),
            (2, "ack", "completed", ""),
            (3, "nack", "failed", "torn"),
            (4, "nack", "expired", ""),
        )
    ]
    body = """const v = new m.Verdicts(); const news = [];
        v.news.listeners.add((fresh) => news.push(fresh.length));
        v.add(x.slice(0, 3)); v.add(x); v.add(x);
        return [news, v.list.map((each) => each.anchor),
            v.failures().map((each) => [each.why, each.count, each.last.source_id])];"""
    assert call(page, "data/verdicts", body, outcomes) == [
        [3, 1],
        ["4", "3", "2", "1"],
        [["", 1, "order-4"], ["torn", 2, "order-3"]],
    ]


@pytest.mark.parametrize("order", ["poll first", "event first"])
def test_block_of_a_poll_and_of_an_event_counts_once(page: Page, order: str) -> None:
    base = {"verdict": "nack", "reason": "expired", "source": "shop", "why": "", "source_id": "p"}
    polled = [
        {**base, "anchor": str(block_anchor(9, slot)), "slot": slot, "at_ms": at_ms, "entry": "0:1"}
        for slot, at_ms in [(0, 1000), (1, 1000), (2, 900_000)]
    ]
    failed = {**base, "reason": "failed", "anchor": str(block_anchor(9, 3)), "slot": 3, "entry": ""}
    whole = {**base, "anchor": "block 9", "slot": None, "at_ms": 1100, "count": 4094}
    told = [[polled, [whole]], [[whole], polled]][order == "event first"]
    body = """const v = new m.Verdicts();
        for (const each of x) v.add(each);
        return [v.list.map((e) => `${e.anchor} ${e.slot}`), v.failures().map((e) => e.count)];"""
    shown, counts = call(page, "data/verdicts", body, [[{**failed, "at_ms": 1000}], *told])
    # The tree with its own failure stays, and so does one whose verdict came much later.
    later, early = f"{block_anchor(9, 2)} 2", f"{block_anchor(9, 3)} 3"
    assert shown == [later, "block 9 null", early]
    assert sorted(counts) == [1, 4095]


def test_acks_do_not_push_out_failures(page: Page) -> None:
    body = """const v = new m.Verdicts();
        const made = (at, verdict) => ({verdict, reason: "", why: "", anchor: String(at),
            source: "shop", entry: "0:" + at, at_ms: at, source_id: ""});
        v.add([made(1, "nack")]);
        for (let at = 2; at < 1202; at += 1) v.add([made(at, "ack")]);
        const found = [v.list.length, v.known.size, v.failures().length, v.list[0].anchor];
        for (let at = 2000; at < 2600; at += 1) v.add([{...made(at, "nack"), why: "torn"}]);
        return [...found, v.list.length, v.failures().map(({ why, count }) => [why, count])];"""
    # Other failures do not push out failures either.
    failures = [["torn", 600], ["", 1]]
    assert call(page, "data/verdicts", body) == [501, 501, 1, "1201", 1000, failures]
