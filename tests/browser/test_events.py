"""Updates by server-sent events; without events the page polls."""

import json
from typing import Any

import httpx
from playwright.sync_api import APIResponse, Page, Route, expect

from acker_redis.batching.batch import Batch
from acker_redis.protocol.keys import channel
from tests.browser.conftest import MakeLoad, OpenPage
from tests.browser.look import card, figure, panel
from tests.browser.stack import Service
from tests.support import tick
from tests.waiting import LIMIT, wait_until

ORDERS = "/api/v1/namespaces/orders"


class Told:
    """Events for a page, sent again on each of its connections, twice per second.

    When a connection ends, the page polls; with ``asks`` it gets the same answer then.
    """

    def __init__(self, page: Page, asks: bool) -> None:
        self.events: list[tuple[str, Any]] = []
        # Requests of a worker cannot be answered by a test; without it each page has a stream.
        page.add_init_script("delete window.SharedWorker")
        if asks:
            page.route(f"**{ORDERS}", self._answer)
        page.route(f"**{ORDERS}/events", self._tell)

    def _answer(self, route: Route) -> None:
        data = next(data for event, data in self.events if event in ("status", "problem"))
        route.fulfill(status=data.get("status", 200), body=json.dumps(data))

    def _tell(self, route: Route) -> None:
        text = "".join(
            f"event: {event}\ndata: {json.dumps(data)}\n\n" for event, data in self.events
        )
        body = f"retry: 400\n\n{text}"
        route.fulfill(status=200, headers={"Content-Type": "text/event-stream"}, body=body)


def test_figures_and_verdicts_are_updated_by_events(
    service: Service, make_load: MakeLoad, open_page: OpenPage
) -> None:
    load = make_load("orders")
    load.track(3)
    status = httpx.get(f"{service.url}{ORDERS}", timeout=LIMIT).json()
    outcome = {
        "verdict": "nack",
        "reason": "failed",
        "source_id": "order-4711",
        "slot": None,
        "anchor": "4711",
        "age_ms": 5200,
        "why": "no such address",
        "at_ms": status["shards"][0]["now_ms"],
        "source": "shop",
        "entry": "0:1700000000000-0",
    }
    page = open_page("/login")
    told = Told(page, asks=True)
    told.events = [("status", {**status, "open": 77}), ("outcome", {"outcomes": [outcome]})]
    page.goto("/#/ns/orders")
    expect(page.locator("#connection")).to_have_text("Live")
    expect(figure(page, "Pending")).to_have_text("77")
    rows = panel(page, "Verdicts").get_by_role("row")
    expect(rows.filter(has_text="order-4711")).to_contain_text("no such address")
    # A repeated verdict is not a new one.
    told.events = [(each, data) for each, data in told.events if each != "status"]
    told.events += [("gap", {}), ("status", {**status, "open": 78})]
    expect(figure(page, "Pending")).to_have_text("78")
    expect(rows).to_have_count(2)
    expect(panel(page, "Verdicts")).to_contain_text("some may be missing")

    told.events = [
        ("problem", {"type": "urn:acker-redis:problem:redis-unavailable", "status": 503})
    ]
    expect(page.locator("#banner")).to_contain_text("Redis does not answer")
    told.events = [("status", {**status, "open": 79})]
    expect(page.locator("#banner")).to_contain_text("Available again")
    expect(figure(page, "Pending")).to_have_text("79")


def test_verdict_just_before_the_events_is_shown(make_load: MakeLoad, open_page: OpenPage) -> None:
    load = make_load("orders")
    load.track(3)
    page = open_page("/login")
    page.add_init_script("delete window.SharedWorker")
    held: list[Route] = []
    answers: list[tuple[Route, APIResponse]] = []
    page.route(f"**{ORDERS}/events", lambda each: held.append(each))
    page.route(f"**{ORDERS}/outcomes?limit=60", lambda each: answers.append((each, each.fetch())))
    page.goto("/#/ns/orders")
    wait_until(lambda: [page.wait_for_timeout(20), held and answers][1], "both requests")
    # The poll has seen no verdict. Now there is one, which no event will tell.
    load.fail(1, "torn")
    page.unroute(f"**{ORDERS}/outcomes?limit=60")
    held[0].continue_()
    expect(page.locator("#connection")).to_have_text("Live")
    route, answer = answers[0]
    route.fulfill(response=answer)
    expect(panel(page, "Verdicts").get_by_role("row").filter(has_text="torn")).to_be_visible()


def test_invalid_events_are_ignored(make_load: MakeLoad, open_page: OpenPage) -> None:
    make_load("orders").track(3)
    page = open_page("/login")
    told = Told(page, asks=False)
    told.events = [("status", None), ("outcome", {}), ("status", {"shards": []}), ("new", 1)]
    page.goto("/#/ns/orders")
    # These events have no figures, so the page polls.
    expect(figure(page, "Pending")).to_have_text("3")
    expect(page.locator("#banner")).to_be_hidden()


def test_page_polls_without_events(make_load: MakeLoad, open_page: OpenPage) -> None:
    load = make_load("orders")
    load.track(3)
    page = open_page("/login")
    page.add_init_script("delete window.SharedWorker")
    page.route(f"**{ORDERS}/events", lambda route: route.fulfill(status=404))
    page.goto("/#/ns/orders")
    expect(page.locator("#connection")).to_have_text("Connected")
    expect(figure(page, "Pending")).to_have_text("3")
    load.track(2)
    expect(figure(page, "Pending")).to_have_text("5")


def test_rates_of_the_service_are_shown_until_two_readings(
    service: Service, make_load: MakeLoad, open_page: OpenPage
) -> None:
    make_load("orders").track(3)
    status = httpx.get(f"{service.url}{ORDERS}", timeout=LIMIT).json()
    rates = {"over_ms": 9000, "tracked": 9.5, "acked": 12.5, "failed": 0.5, "expired": 3}
    page = open_page("/login")
    told = Told(page, asks=True)
    told.events = [("status", {**status, "rates": rates, "latency": None})]
    page.goto("/#/ns/orders")
    expect(figure(page, "Acked")).to_have_text("12.5 /s")
    expect(figure(page, "Nacked")).to_have_text("3.5 /s")
    # The service reports no latencies: those of received acks are shown.
    expect(panel(page, "Complete latency")).to_contain_text("that this page has received")


def test_verdicts_taken_at_once_are_shown(make_load: MakeLoad, open_page: OpenPage) -> None:
    load = make_load("orders")
    load.track(40)
    batch = Batch("shop", ids=load.acker.ids)
    anchors = batch.track_block("page 7", [40, 41])
    load.acker.apply(batch)
    page = open_page("/#/ns/orders")
    expect(page.locator("#connection")).to_have_text("Live")
    expect(figure(page, "Pending")).to_have_text("42")
    load.fail(3, "torn")
    done = Batch()
    done.ack(anchors[0], 40)
    done.ack(anchors[1], 41)
    load.acker.apply(done)
    outcomes = load.acker.outcomes("shop")
    outcomes.take(outcomes.read())
    failures = panel(page, "Recent failures").get_by_role("row")
    expect(failures.filter(has_text="torn")).to_contain_text("3")
    row = panel(page, "Verdicts").get_by_role("row").filter(has_text="page 7")
    expect(row).to_contain_text("2 trees")
    expect(row).to_contain_text("acked")


def test_verdicts_of_a_block_with_absent_slots_count_its_trees(
    make_load: MakeLoad, open_page: OpenPage
) -> None:
    load = make_load("orders")
    page = open_page("/#/ns/orders")
    expect(page.locator("#connection")).to_have_text("Live")
    expect(figure(page, "Pending")).to_have_text("0")
    load.acker.track_block("shop", "page 7", [0] * 30, present=range(3, 12))
    done = panel(page, "Verdicts").get_by_role("row").filter(has_text="page 7")
    expect(done).to_contain_text("9 trees")
    expect(done).to_contain_text("acked")
    load.acker.track_block("shop", "page 8", [0, 5, 6, 7, 0, 0, 0], present=[1, 2, 3, 4])
    tick(load.acker, 3)
    rows = panel(page, "Verdicts").get_by_role("row").filter(has_text="page 8")
    expect(rows.filter(has_text="3 trees")).to_contain_text("no ack")
    expect(rows.filter(has_text="acked")).to_have_count(1)
    expect(rows).to_have_count(2)
    outcomes = load.acker.outcomes("shop")
    outcomes.take(outcomes.read())
    # Another program publishes an ack of a block without the bitmap of its failed trees.
    told = {"verdict": "ack", "reason": "completed", "n": 3, "block": "5", "label": "page 9"}
    client, name = load.acker.connection.client, channel("orders", "ack", "shop")
    client.publish(name, json.dumps({**told, "age": 5, "slots": 3}, separators=(",", ":")))
    load.acker.track_block("shop", "page 10", [0])
    expect(panel(page, "Verdicts").get_by_role("row", name="page 10")).to_contain_text("acked")
    expect(panel(page, "Verdicts").get_by_role("row", name="page 9")).to_have_count(0)


def test_list_is_updated_by_events(make_load: MakeLoad, open_page: OpenPage) -> None:
    load = make_load("orders")
    load.track(3)
    page = open_page("/")
    expect(page.locator("#connection")).to_have_text("Live")
    # A poll would fail.
    page.route("**/overview*", lambda route: route.fulfill(status=500))
    load.track(4)
    expect(card(page, "orders").locator(".card-figure")).to_have_text("7")
    load.track(4)
    expect(card(page, "orders").locator(".card-figure")).to_have_text("11")
    make_load("bills")
    expect(page.locator(".card")).to_have_count(2)


FOUR = """url => new Promise(done => {
  const source = new EventSource(url), came = [];
  source.addEventListener("status", () => {
    if (came.push(Date.now()) < 4) return;
    source.close();
    done(Math.max(...came.slice(1).map((at, n) => at - came[n])));
  });
})"""
"""The longest time between two of four events."""
LATE_MS = 1200
"""The page polls when an event is later than this."""


def test_page_with_events_does_not_poll(make_load: MakeLoad, open_page: OpenPage) -> None:
    make_load("orders").track(3)
    page = open_page("/#/ns/orders")
    expect(page.locator("#connection")).to_have_text("Live")
    asked: list[str] = []
    page.on("request", lambda each: asked.append(each.url))

    def in_time() -> bool:
        asked.clear()
        latest: int = page.evaluate(FOUR, f"{ORDERS}/events")
        return latest < LATE_MS

    wait_until(in_time, "four events in time")
    # At most one poll, for an event that was late before; otherwise there is one per second.
    assert sum(url.endswith(ORDERS) for url in asked) <= 1
