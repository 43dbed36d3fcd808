"""A phone: the whole page is short, ids keep their end, and rows are links."""

import re

from playwright.sync_api import expect

from acker_redis.batching.batch import Batch
from tests.browser.conftest import MakeLoad, OpenPage, keep
from tests.browser.look import panel
from tests.browser.test_accessible import blameless

PREFIX = "customer-eu-west-2026-11-23-import-of-the-night-order"


def test_page_is_short_and_its_rows_are_links(make_load: MakeLoad, open_page: OpenPage) -> None:
    load = make_load("orders", shards=4, high_water=100, edges=("paid", "packed", "sent"))
    load.track(230, prefix=PREFIX)
    for each in range(9):
        load.fail(2, f"no such address, or the warehouse did not answer in time: {each}")
    load.ack(40)
    load.no_rotator_for(3 * 3_600_000)
    page = open_page("/login", width=390)
    page.goto("/#/ns/orders")
    expect(page.locator(".finding")).not_to_have_count(0)
    oldest, failures = panel(page, "Oldest trees"), panel(page, "Recent failures")
    expect(oldest.get_by_role("row")).to_have_count(4)
    # At first the service may still show the trees of an earlier namespace with this name.
    expect(oldest.locator("tbody a").first).to_have_text(re.compile(PREFIX))
    expect(failures.get_by_role("row").nth(1)).to_be_visible()
    waits = page.get_by_role("region", name=re.compile("^Where trees wait"))
    expect(waits.get_by_role("row").nth(1)).to_be_visible()
    keep(page, "phone")
    assert page.evaluate("document.documentElement.scrollHeight") < 3000
    blameless(page)

    # A folded panel opens, and a chart gets its size.
    expect(panel(page, "Verdicts").get_by_role("row")).to_have_count(0)
    for title in ("Verdicts", "Pending by bucket"):
        panel(page, title).get_by_role("button", name="Show").click()
    expect(panel(page, "Verdicts").get_by_role("row").nth(1)).to_be_visible()
    chart = panel(page, "Pending by bucket").locator("canvas")
    assert chart.evaluate("each => each.getBoundingClientRect().width") > 200
    oldest.get_by_role("button", name="Show all").click()
    expect(oldest.get_by_role("row")).to_have_count(9)

    # The beginning of an id is cut, its end is not; the text in the page is complete.
    link = oldest.locator("tbody a").first
    text = link.inner_text()
    head, tail = link.locator(".id-head"), link.locator(".id-tail")
    assert re.fullmatch(f"{PREFIX}-[0-9]+", text)
    assert text.endswith(tail.inner_text())
    assert len(tail.inner_text()) > 10
    assert head.evaluate("each => each.scrollWidth > each.clientWidth")
    right = tail.evaluate("each => each.getBoundingClientRect().right")
    assert right <= link.evaluate("each => each.getBoundingClientRect().right") + 1
    # The whole row leads to the tree, also its last cell.
    its = page.locator("th", has_text=re.compile(f"^{text}$"))
    row = oldest.get_by_role("row").filter(has=its)
    row.get_by_role("cell").last.click(force=True)  # the link covers the row
    expect(page.locator(".tree-title bdi")).to_have_text(text)


def test_late_and_early_rows_are_hidden_at_first(make_load: MakeLoad, open_page: OpenPage) -> None:
    load = make_load("orders")
    batch = Batch()
    for anchor in range(1, 151):
        batch.ack(anchor, 40)
    load.acker.apply(batch)
    page = open_page("/#/ns/orders")
    oldest = panel(page, "Oldest trees")
    expect(oldest).to_contain_text("No tracked tree is pending")
    load.tick()
    anchor = load.track_as("order-1")
    expect(oldest.get_by_role("row")).to_have_count(2)
    expect(oldest.get_by_role("row").nth(1)).to_contain_text("order-1")
    oldest.get_by_role("button", name="Late or early rows").click()
    expect(oldest.get_by_role("row")).to_have_count(9)
    expect(oldest.get_by_role("row").nth(1)).to_contain_text("late or early rows")
    oldest.get_by_role("link", name="All trees").click()
    trees = panel(page, "Pending trees")
    expect(trees.get_by_role("row")).to_have_count(2)
    switch = trees.get_by_role("button", name="Late or early rows")
    expect(switch).to_have_attribute("aria-pressed", "false")
    switch.click()
    expect(page).to_have_url(re.compile("late=1"))
    expect(trees.get_by_role("row").nth(2)).to_contain_text("late or early rows")
    page.get_by_label("State").select_option("untracked")
    page.get_by_role("button", name="Filter").click()
    expect(trees.get_by_role("link", name="order-1")).to_have_count(0)
    expect(trees.get_by_role("row").nth(1)).to_contain_text("late or early")
    page.goto("/#/ns/orders/trees/7")
    expect(panel(page, "Details")).to_contain_text("Late rows of a tree that has its verdict")
    expect(panel(page, "Where it waits")).to_have_count(0)
    page.goto(f"/#/ns/orders/trees/{anchor}")
    expect(panel(page, "Where it waits")).to_be_visible()
