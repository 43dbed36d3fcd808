"""The live page: figures, filters, failing a tree, and the audit log."""

import re
from typing import Any

from playwright.sync_api import Route, expect

from acker_redis.protocol.keys import ShardKeys
from tests.browser.conftest import MakeLoad, OpenPage, keep
from tests.browser.look import card, figure, panel


def test_figures_follow_redis(make_load: MakeLoad, open_page: OpenPage) -> None:
    load = make_load("orders", shards=4, high_water=1000)
    load.track(300)
    page = open_page("/")
    orders = card(page, "orders")
    expect(orders).to_contain_text("300")
    expect(orders).to_contain_text("Healthy")
    orders.get_by_role("link", name="orders").click()
    expect(page).to_have_url(re.compile("#/ns/orders$"))
    expect(page.get_by_role("heading", level=1)).to_have_text("orders")
    expect(page).to_have_title("orders · acker")

    expect(figure(page, "Pending")).to_have_text("300")
    load.tick()
    load.track(100)
    load.ack(40)
    load.fail(10, "no such address")
    pending = load.acker.status().pending
    expect(figure(page, "Pending")).to_have_text(str(pending))
    ratio = 100 * load.acker.status().high_water_ratio
    expect(figure(page, "High-water mark")).to_have_text(re.compile(rf"^{ratio:.0f}|{ratio:.1f} %"))
    expect(page.get_by_role("meter")).to_have_attribute("aria-valuenow", str(round(ratio)))
    newest = load.acker.status().pending_by_bucket[0]
    legend = panel(page, "Pending by bucket").locator(".legend")
    expect(legend).to_contain_text(f"newest{newest}")
    expect(panel(page, "Pending by bucket").locator("canvas")).to_be_visible()
    expect(panel(page, "Verdicts per second").locator("canvas")).to_have_count(2)
    expect(panel(page, "Shards").get_by_role("listitem")).to_have_count(4)
    failure = panel(page, "Recent failures").get_by_role("row", name="no such address")
    expect(failure).to_contain_text("10")
    expect(panel(page, "Untaken verdicts").get_by_role("row", name="shop")).to_contain_text("50")
    rows = panel(page, "Verdicts").get_by_role("row")
    expect(rows.filter(has_text="acked").first).to_be_visible()
    latency = panel(page, "Complete latency")
    expect(latency).to_contain_text("40 trees")
    expect(latency.get_by_role("definition").first).to_have_text(re.compile("≈ .* (ms|s|min)$"))
    panel(page, "Pending by bucket").get_by_text("Values as a table").click()
    values = panel(page, "Pending by bucket").get_by_role("table")
    expect(values.get_by_role("row").nth(1)).to_contain_text(str(newest))


def test_findings_are_shown_first(make_load: MakeLoad, open_page: OpenPage) -> None:
    load = make_load("orders", high_water=100, tick_ms=200_000)
    load.track(210)
    load.no_rotator_for(900_000)
    make_load("bills")
    page = open_page("/")
    expect(page.locator(".card")).to_have_count(2)
    expect(page.locator(".card").first).to_contain_text("Error")
    expect(page.locator(".card").first).to_contain_text("orders")
    page.get_by_role("link", name="orders").click()
    findings = page.locator(".finding")
    expect(findings.first).to_contain_text("No rotator runs: a tick is 11 min")
    expect(findings.nth(1)).to_contain_text("Over twice the high-water mark")
    expect(figure(page, "Rotator")).to_have_text("Missing")
    expect(panel(page, "Recent failures").get_by_role("row", name="overflow")).to_be_visible()
    keep(page, "over-high-water")
    expect(findings.nth(1)).to_contain_text("or longer")
    expect(findings.first).to_contain_text("acker-redis rotator orders")
    load.tick()
    expect(findings.filter(has_text="No rotator runs")).to_have_count(0)
    findings.first.get_by_role("link", name="Look at the oldest trees").click()
    expect(page).to_have_url(re.compile("/trees$"))


def test_reshard_is_shown(make_load: MakeLoad, open_page: OpenPage) -> None:
    load = make_load("orders")
    load.track(3)
    page = open_page("/#/ns/orders")
    expect(page.locator(".health")).to_contain_text("Healthy.")
    meta = ShardKeys("orders", 0).meta
    load.acker.connection.client.hset(meta, "reshard", "1:8")
    expect(page.locator(".page-head")).to_contain_text("resharding to 8 shards")
    finding = page.locator(".finding")
    expect(finding).to_contain_text("Resharding to 8 shards: no new tree is tracked until it ends")
    expect(finding).to_contain_text("the verdicts of 3 pending trees")
    page.get_by_role("link", name="Namespaces", exact=True).first.click()
    expect(card(page, "orders")).to_contain_text("Resharding")
    page.go_back()
    load.acker.connection.client.hdel(meta, "reshard")
    expect(page.locator(".page-head")).not_to_contain_text("resharding to")


def test_tree_is_found_and_failed_and_its_verdict_shown(
    make_load: MakeLoad, open_page: OpenPage
) -> None:
    load = make_load("orders", shards=2)
    load.track(120)
    anchor = load.track_as("order-4711", source="imports")
    page = open_page("/#/ns/orders/trees")
    trees = panel(page, "Pending trees")
    page.get_by_role("link", name="Next page").click()
    expect(page).to_have_url(re.compile(r"cursor=\d"))
    page.get_by_role("link", name="First page").click()
    expect(page).to_have_url(re.compile("/trees$"))
    expect(page.get_by_role("link", name="First page")).to_have_count(0)

    page.get_by_label("Source id").fill("order-4711")
    page.get_by_label("Source", exact=True).fill("imports")
    page.get_by_label("Older than").fill("soon")
    page.get_by_role("button", name="Filter").click()
    expect(page.get_by_text("Write 30s, 5min or 2h.")).to_be_visible()
    page.get_by_label("Older than").fill("0s")
    page.get_by_role("button", name="Filter").click()
    expect(page).to_have_url(re.compile(r"source_id=order-4711&source=imports&min_age=0s"))
    expect(trees.get_by_role("row")).to_have_count(2)
    expect(page.get_by_text("A filter is a scan")).to_be_visible()
    page.reload()
    expect(page.get_by_label("Source id")).to_have_value("order-4711")
    expect(trees.get_by_role("row")).to_have_count(2)

    trees.get_by_role("link", name="order-4711").click()
    expect(page).to_have_url(re.compile(f"trees/{anchor}$"))
    known = panel(page, "Details")
    tree = load.acker.show(anchor)
    assert tree
    expect(known).to_contain_text(f"{tree.checksum:016x}")
    expect(panel(page, "Timeline")).to_contain_text("Expiry at the latest")
    page.get_by_role("button", name="Touch").click()
    page.get_by_role("dialog").get_by_role("button", name="Touch").click()
    expect(page.get_by_text("The timeout was reset", exact=True)).to_be_visible()

    page.get_by_role("button", name="Fail", exact=True).click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_role("button", name="Cancel").click()
    shown = load.acker.show(anchor)
    assert shown
    assert not shown.failed
    page.get_by_role("button", name="Fail", exact=True).click()
    dialog.get_by_label("Why").fill("it hangs since three")
    dialog.get_by_role("button", name="Fail it").click()
    expect(page.get_by_text("The tree has failed")).to_be_visible()
    expect(known).to_contain_text("Not pending")
    expect(known).to_contain_text("it hangs since three")
    expect(page.locator(".tree-title")).to_have_text("order-4711")
    timeline = panel(page, "Timeline").get_by_role("listitem")
    expect(timeline.first).to_contain_text("First rowtracked by imports")
    expect(timeline.last).to_contain_text("failedit hangs since three")
    parts = page.get_by_role("navigation", name="Views of the namespace")
    parts.get_by_role("link", name="Live").click()
    feed = panel(page, "Verdicts")
    row = feed.get_by_role("row", name="order-4711").filter(has_text="failed")
    expect(row).to_contain_text("it hangs since three")

    page.get_by_role("link", name="Audit").click()
    for action in ("fail_tree", "touch_tree"):
        done = page.get_by_role("row").filter(has_text=action).filter(has_text=str(anchor))
        expect(done).to_contain_text("done")


def test_all_matching_trees_are_failed(make_load: MakeLoad, open_page: OpenPage) -> None:
    load = make_load("orders")
    load.track(30)
    load.track(150, source="imports", prefix="batch")
    page = open_page("/#/ns/orders/trees?source=imports")
    page.get_by_role("button", name="Fail all that match").click()
    page.get_by_role("button", name="Count them").click()
    dialog = page.get_by_role("dialog", name="Fail 150 trees?")
    expect(dialog.get_by_role("listitem")).to_have_count(5)
    assert load.acker.status().counters["failed"] == 0
    dialog.get_by_label("Why").fill("the file was wrong")
    dialog.get_by_role("button", name="Fail 150 trees").click()
    expect(page.get_by_text("150 trees failed")).to_be_visible()
    assert load.acker.status().counters["failed"] == 150

    # A long action can be stopped between two calls, and shows its progress.
    def endless(route: Route) -> None:
        dry = route.request.post_data_json["dry_run"]
        found = {"matched": 10, "failed": 10, "looked": 10, "sample": [], "dry_run": dry}
        route.fulfill(json={**found, "next": None if dry else "more"})

    page.route("**/trees/fail", endless)
    page.get_by_role("button", name="Fail all that match").click()
    page.get_by_role("button", name="Count them").click()
    page.get_by_role("button", name="Fail 10 trees").click()
    expect(page.get_by_role("dialog")).to_contain_text(re.compile(r"0 trees of about 10 failed"))
    page.get_by_role("button", name="Stop").click()
    expect(page.get_by_text(re.compile("Stopped; .* failed so far"))).to_be_visible()


def test_invalid_filter_in_the_url_fails_nothing(make_load: MakeLoad, open_page: OpenPage) -> None:
    """The page reports an invalid filter; without it, the page would show, and fail, more trees."""
    make_load("orders").track(3)
    for wrong, words in (
        ("min_age=5minutes", "5minutes is not an age"),
        ("bucket=x", "x is not a bucket"),
        ("sources=shop", "sources is not a filter"),
    ):
        page = open_page(f"/#/ns/orders/trees?source=shop&{wrong}")
        expect(page.get_by_text(words)).to_be_visible()
        expect(page.get_by_role("button", name="Reload")).to_be_visible()
        expect(page.get_by_role("button", name="Fail all that match")).to_have_count(0)

    asked: list[Any] = []

    def none(route: Route) -> None:
        asked.append(route.request.post_data_json["filter"])
        found = {"matched": 0, "failed": 0, "looked": 0, "sample": [], "dry_run": True}
        route.fulfill(json={**found, "next": None})

    page = open_page("/#/ns/orders/trees?kind=block&bucket=1&min_age=2s")
    page.route("**/trees/fail", none)
    page.get_by_role("button", name="Fail all that match").click()
    page.get_by_role("button", name="Count them").click()
    expect(page.get_by_text("No tree matches").first).to_be_visible()
    assert asked == [{"kind": "block", "bucket": 1, "min_age_ms": 2000}]


def test_verdicts_are_paused_and_filtered(make_load: MakeLoad, open_page: OpenPage) -> None:
    load = make_load("orders")
    load.track(20)
    load.ack(3)
    page = open_page("/#/ns/orders")
    feed = panel(page, "Verdicts")
    rows = feed.get_by_role("row")
    expect(rows).to_have_count(4)
    feed.get_by_role("button", name="Pause").click()
    load.fail(2, "torn")
    expect(feed).to_contain_text("Paused; 2 new verdicts since")
    expect(rows).to_have_count(4)
    feed.get_by_role("button", name="Resume").click()
    expect(rows).to_have_count(6)
    feed.get_by_label("Verdicts shown").select_option("nack")
    expect(rows).to_have_count(3)
    feed.get_by_label("Filter verdicts").fill("nothing like it")
    expect(feed).to_contain_text("No match")
    feed.get_by_label("Filter verdicts").fill("TORN")
    expect(rows).to_have_count(3)
    # The source takes them; the dashboard still has them after a change of the page.
    outcomes = load.acker.outcomes("shop")
    outcomes.take(outcomes.read())
    parts = page.get_by_role("navigation", name="Views of the namespace")
    parts.get_by_role("link", name="Trees").click()
    expect(panel(page, "Pending trees").get_by_role("row").nth(1)).to_be_visible()
    parts.get_by_role("link", name="Live").click()
    expect(rows).to_have_count(6)


def test_configuration_is_changed_and_namespace_dropped(
    make_load: MakeLoad, open_page: OpenPage
) -> None:
    load = make_load("orders", buckets=2)
    load.track(10)
    page = open_page("/#/ns/orders/config")
    mark = page.get_by_label("High-water mark")
    save = page.get_by_role("button", name="Save")
    expect(save).to_be_disabled()
    mark.fill("many")
    save.click()
    expect(page.get_by_text("must be a whole number of 1 or more")).to_be_visible()
    mark.fill("250,000")
    save.click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("High-water mark: 100,000 becomes 250,000.")
    dialog.get_by_role("button", name="Change it").click()
    expect(mark).to_have_value("250000")
    assert load.acker.status().config.high_water == 250_000
    page.get_by_label("Objective").fill("100")
    save.click()
    expect(page.get_by_text("must be 50 or more, and below 100")).to_be_visible()
    page.get_by_label("Objective").fill("99.95")
    page.get_by_label("Complete within").fill("60,000")
    save.click()
    expect(dialog).to_contain_text("Objective: 99 becomes 99.95.")
    dialog.get_by_role("button", name="Change it").click()
    expect(page.get_by_label("Complete within")).to_have_value("60000")
    config = load.acker.status().config
    assert (config.slo_target, config.slo_ms) == (99.95, 60_000)

    for expired in ("0", "10"):
        page.get_by_role("button", name="Force a tick").click()
        page.get_by_role("dialog").get_by_role("button", name="Force a tick").click()
        expect(page.get_by_text(f"Ticked; {expired} trees expired")).to_be_visible()

    page.get_by_role("button", name="Drop the namespace").click()
    drop = page.get_by_role("dialog").get_by_role("button", name="Drop it")
    typed = page.get_by_role("dialog").get_by_role("textbox")
    typed.fill("order")
    expect(drop).to_be_disabled()
    typed.fill("orders")
    drop.click()
    expect(page.get_by_text("No namespace yet")).to_be_visible()

    page.get_by_role("button", name="New namespace").click()
    page.get_by_role("dialog").get_by_label("Name").fill("a b")
    page.get_by_role("button", name="Create").click()
    expect(page.get_by_role("dialog").get_by_role("alert")).not_to_be_empty()
    page.get_by_role("dialog").get_by_label("Name").fill("second")
    page.get_by_role("button", name="Create").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("second")
