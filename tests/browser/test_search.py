"""The search box: one for pending trees, verdicts that wait, and verdicts that passed lately."""

import re
from typing import Any

from playwright.sync_api import Page, Route, expect

from acker_redis.batching.batch import Batch
from tests.browser.conftest import MakeLoad, OpenPage, keep
from tests.browser.look import panel
from tests.browser.test_accessible import blameless

PLACEHOLDER = "Source id, anchor or message id"


def seek(page: Page, text: str) -> None:
    """Search by keyboard only."""
    page.locator("h1").first.focus()
    page.keyboard.press("/")
    box = page.get_by_placeholder(PLACEHOLDER)
    expect(box).to_be_focused()
    box.fill(text)
    box.press("Enter")
    expect(page.get_by_role("heading", level=1)).to_have_text("Search")


def test_search_finds_ids_that_are_pending_waiting_or_gone(
    make_load: MakeLoad, open_page: OpenPage
) -> None:
    # Another namespace than in other tests: the service keeps verdicts of the last ten seconds.
    load = make_load("parcels", shards=2, edges=("mill", "shop"))
    other = make_load("bills")
    anchor = load.track_as("order-4711")
    failed = load.track_as("order-4712")
    other.track_as("order-bill")
    load.acker.track_block("shop", "order-page", [0, 40], 815)
    batch = Batch()
    batch.fail(failed, "torn")
    load.acker.apply(batch)
    page = open_page("/")
    expect(page.locator(".card")).to_have_count(2)
    seek(page, "order-")
    expect(page).to_have_url(re.compile(r"#/search\?q=order-$"))
    rows = panel(page, "Matches").get_by_role("row")
    expect(rows).to_have_count(5)
    expect(rows.filter(has_text="order-bill")).to_contain_text("bills")
    # The verdict waits: the source has not taken it.
    expect(rows.filter(has_text="order-4712")).to_contain_text(re.compile("verdict waits.*torn"))
    expect(page.get_by_text("4 matches. Everything was read.")).to_be_visible()
    looked = panel(page, "Where it looked")
    expect(looked).to_contain_text("parcelsall pending trees (2); all verdicts that wait (1)")
    rows.get_by_role("link", name="order-page").click()
    expect(page).to_have_url(re.compile("blocks/815$"))
    page.go_back()
    rows.get_by_role("link", name="order-4711").click()
    expect(page).to_have_url(re.compile(f"trees/{anchor}$"))

    # On the page of a namespace, the search is for this namespace.
    message = load.acker.show(anchor).checksum  # type: ignore[union-attr]
    seek(page, f"{anchor}:{message}")
    expect(rows).to_have_count(2)
    expect(rows.nth(1)).to_contain_text("Only this message is outstanding.")
    expect(looked).not_to_contain_text("bills")
    seek(page, str(failed))
    expect(rows.nth(1)).to_contain_text("torn")
    seek(page, "orders-")
    expect(panel(page, "Matches")).to_contain_text("No match")

    # The source takes its verdicts: those that passed while a page was open are still found.
    batch = Batch()
    batch.fail(anchor, "wet")
    load.acker.apply(batch)
    page.goto("/#/ns/parcels")
    expect(panel(page, "Recent failures")).to_contain_text("wet")
    outcomes = load.acker.outcomes("shop")
    outcomes.take(outcomes.read())
    seek(page, "order-47")
    expect(rows).to_have_count(2)
    expect(rows.nth(1)).to_contain_text(re.compile("order-4711.*passed lately.*wet"))
    blameless(page)
    page.get_by_role("link", name="In all namespaces").click()
    expect(looked).to_contain_text("bills")
    seek(page, "bill")
    expect(page.get_by_role("link", name="bills", exact=True).first).to_be_visible()


def test_search_tells_how_far_it_looked_and_continues(
    make_load: MakeLoad, open_page: OpenPage
) -> None:
    load = make_load("orders")
    load.track(3)
    page = open_page("/login", width=390, theme="dark")
    asked = list[str]()

    def answer(route: Route) -> None:
        asked.append(route.request.url)
        last = len(asked) > 21
        found: dict[str, Any] = {"trees": [], "blocks": [], "verdicts": [], "recent": []}
        places = {
            "pending": {"looked": 600, "total": 40_000, "complete": last},
            "verdicts": {"looked": 0, "total": 0, "complete": True},
            "recent": {"looked": 0, "since_ms": None, "complete": True},
        }
        route.fulfill(json={**found, "places": places, "next": None if last else "0.pending.1.2,-"})

    page.route("**/search?*", answer)
    page.goto("/#/search?q=order-9&ns=orders")
    progress = page.get_by_text(re.compile("^0 matches"))
    expect(progress).to_have_text(
        "0 matches. Looked through 12,000 of 40,000 pending trees. There is more: continue."
    )
    expect(panel(page, "Matches")).to_contain_text("No match so far")
    assert len(asked) == 20
    assert "cursor=0.pending.1.2" in asked[1]
    blameless(page)
    keep(page, "search-390-dark")
    page.get_by_role("button", name="Continue").click()
    expect(progress).to_have_text("0 matches. Everything was read.")
    expect(panel(page, "Where it looked")).to_contain_text("no page showed this namespace")
    page.unroute("**/search?*")
    page.route("**/search?*", lambda route: route.fulfill(status=403, json={"detail": "no right"}))
    page.goto("/#/search?q=order-8&ns=orders")
    expect(panel(page, "Where it looked")).to_contain_text("no right")
    page.goto("/#/search")
    expect(panel(page, "Matches")).to_contain_text("Nothing to search for")
