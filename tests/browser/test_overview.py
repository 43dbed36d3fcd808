"""The overview: all namespaces are judged, the worst first; search, cards and table."""

import re

from playwright.sync_api import Page, Route, expect

from acker_redis.protocol.config import AckerConfig
from acker_redis.protocol.keys import ShardKeys
from acker_redis.sync.client import Acker
from tests.browser.conftest import MakeLoad, OpenPage, keep
from tests.browser.load import Load
from tests.browser.look import card, figure
from tests.browser.test_accessible import blameless
from tests.support import let_wait

MANY = 40


def many(load: Load) -> None:
    """Create 40 more namespaces, whose names come before any other."""
    for number in range(MANY):
        with Acker(load.acker.connection.client, f"a-{number:02}") as acker:
            acker.create(AckerConfig())


def note(page: Page) -> str:
    return page.locator(".page-note").inner_text()


def test_overview_without_events_is_polled(make_load: MakeLoad, open_page: OpenPage) -> None:
    load = make_load("orders")
    load.track(3)
    page = open_page("/login")
    page.add_init_script("delete window.SharedWorker")
    page.route("**/api/v1/events*", lambda route: route.fulfill(status=404))
    page.goto("/")
    expect(page.locator("#connection")).to_have_text("Connected")
    orders = card(page, "orders")
    expect(orders.locator(".card-figure")).to_have_text("3")
    load.track(2)
    expect(orders.locator(".card-figure")).to_have_text("5")


def test_all_namespaces_are_judged_worst_first(make_load: MakeLoad, open_page: OpenPage) -> None:
    over = make_load("zz-last", high_water=10)
    many(over)
    over.track(15)
    lost = make_load("mm-lost")
    lost.track(12)
    lost.fail(12, "torn")
    late = make_load("nn-late", tick_ms=30_000)
    late.track(1)
    late.ack(1)
    let_wait(late.acker, "shop", 34 * 60_000)
    page = open_page("/")
    # With so many, the table is shown first.
    rows = page.get_by_role("table").get_by_role("row")
    expect(rows).to_have_count(MANY + 4)
    expect(page.locator(".page-note")).to_have_text(
        re.compile(f"^{MANY + 3} namespaces: 1 error, 2 warnings, {MANY} ok")
    )
    expect(rows.nth(1)).to_contain_text(re.compile("mm-lost.*Error.*Nothing was ever acked"))
    expect(rows.nth(2)).to_contain_text("Source shop has not taken a verdict for 34 min")
    expect(rows.nth(3)).to_contain_text(re.compile("zz-last.*Warning.*Above the high-water mark"))
    expect(rows.nth(4)).to_contain_text(re.compile("a-00.*Healthy"))
    blameless(page)
    keep(page, "overview-table")

    # An improvement changes the order without a reload.
    over.ack(10)
    expect(rows.nth(3)).to_contain_text("a-00")
    expect(page.locator(".page-note")).to_contain_text(f"1 error, 1 warning, {MANY + 1} ok")

    search = page.get_by_label("Filter namespaces by name")
    search.fill("A-3")
    expect(rows).to_have_count(11)
    expect(page.locator(".page-note")).to_contain_text("10 matches")
    page.reload()
    expect(search).to_have_value("A-3")
    expect(rows).to_have_count(11)
    page.get_by_role("button", name="Cards").click()
    cards = page.locator(".card")
    expect(cards).to_have_count(10)
    search.fill("no such")
    expect(page.get_by_text("No match")).to_be_visible()
    search.fill("")
    expect(cards).to_have_count(MANY + 3)
    expect(cards.first).to_contain_text("mm-lost")
    page.reload()
    # The choice of the user stays.
    expect(cards).to_have_count(MANY + 3)
    search.fill("late")
    page.get_by_role("link", name="nn-late").click()
    expect(figure(page, "Untaken verdicts")).to_have_text("1")
    expect(page.locator(".finding")).to_contain_text("has not taken a verdict for 34 min")
    page.go_back()
    expect(search).to_have_value("late")


def test_search_reaches_namespaces_that_are_not_listed(
    make_load: MakeLoad, open_page: OpenPage
) -> None:
    make_load("orders")
    make_load("bills")

    def cut(route: Route) -> None:
        """Answer as a service with more namespaces than it lists."""
        answer = route.fetch()
        body = answer.json()
        if "search=" not in route.request.url:
            body["namespaces"] = [each for each in body["namespaces"] if each["name"] == "bills"]
        route.fulfill(response=answer, json=body)

    page = open_page("/login")
    page.add_init_script("delete window.SharedWorker")
    page.route("**/api/v1/events*", lambda route: route.fulfill(status=404))
    page.route("**/api/v1/overview*", cut)
    page.goto("/")
    expect(page.locator(".card")).to_have_count(1)
    page.get_by_label("Filter namespaces by name").fill("ORD")
    expect(page.get_by_role("link", name="orders")).to_be_visible()


def test_unreadable_namespace_shows_no_text_of_a_script(
    make_load: MakeLoad, open_page: OpenPage
) -> None:
    load = make_load("orders")
    page = open_page("/")
    orders = card(page, "orders")
    expect(orders).to_contain_text("Healthy")
    client, meta = load.acker.connection.client, ShardKeys("orders", 0).meta
    client.delete(meta)
    client.set(meta, "x")
    expect(orders).to_contain_text("Unreadable")
    expect(orders).to_contain_text("Command refused by Redis")
    expect(orders).to_have_class(re.compile(r"\bstale\b"))
    page.get_by_role("link", name="orders").click()
    health = page.locator(".health")
    expect(health).to_contain_text("a script failed in Redis")
    expect(health).not_to_contain_text(re.compile(r"WRONGTYPE|\.lua|user_script"))


def test_forbidden_namespace_is_one_sentence(make_load: MakeLoad, open_page: OpenPage) -> None:
    make_load("orders")
    page = open_page("/login")
    page.add_init_script("delete window.SharedWorker")
    problem = {
        "type": "urn:acker-redis:problem:forbidden",
        "title": "Forbidden",
        "status": 403,
        "detail": "the token is for other namespaces",
    }
    page.route("**/namespaces/orders**", lambda route: route.fulfill(status=403, json=problem))
    page.route("**/api/v1/overview*", lambda route: route.fulfill(status=403, json=problem))
    page.route("**/api/v1/events*", lambda route: route.fulfill(status=403, json=problem))
    page.goto("/#/ns/orders")
    expect(page.locator(".content")).to_contain_text("The token is for other namespaces.")
    assert page.locator("main").inner_text().lower().count("the token is for") == 1
    page.goto("/#/")
    trouble = page.locator(".trouble")
    expect(trouble).to_have_text("Not permitted: the token is for other namespaces")
