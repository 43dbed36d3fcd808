"""Charts and the objective from the history that Redis keeps, from before the page was opened."""

import re

from playwright.sync_api import Locator, Page, expect

from acker_redis.protocol.history import HOUR_MS, MINUTE_MS, Point, Settings
from tests.browser.conftest import MakeLoad, OpenPage, keep
from tests.browser.load import Load
from tests.browser.look import card, figure, panel
from tests.rotator.test_history import put
from tests.support import rotate


def fill(load: Load) -> None:
    """Write points of a month: a gap of 20 minutes, a restart, and another high-water mark."""
    load.track(100)
    load.ack(96)
    load.fail(4)
    now = Point.of(load.acker.status())
    old = Settings.of(load.acker.config)
    mark = Settings(**{name: getattr(old, name) for name in Settings.__slots__} | {"high_water": 5})
    for hours in range(700, 2, -50):
        put(load.acker, hours * HOUR_MS, now, tracked=0, acked=0, failed=0, sources={}, ticks=0)
    for minutes in range(120, 0, -1):
        if 31 <= minutes <= 49:
            continue
        done = max(0, 100 - minutes)
        put(
            load.acker,
            minutes * MINUTE_MS,
            now,
            tracked=done,
            acked=done - done // 25,
            failed=done // 25,
            pending=40,
            waiting=7,
            ticks=200 - minutes,
            run=b"aa" if minutes > 20 else b"bb",
            settings=mark if minutes > 10 else old,
            mark=mark.mark if minutes > 10 else old.mark,
            sources={"shop": (done, done - done // 25)},
        )


def rows(page: Page, title: str) -> Locator:
    """Return the rows of the table of a chart, and open it. The page may still fill it."""
    label = f'[aria-label="{title}, values"]'
    page.locator("details", has=page.locator(label)).locator("summary").click()
    return page.locator(f"{label} tbody tr")


def test_new_tab_opens_with_charts_from_history(make_load: MakeLoad, open_page: OpenPage) -> None:
    load = make_load("orders", slo_target=95.0)
    fill(load)
    page = open_page("/#/ns/orders")
    span = page.get_by_role("group", name="Time shown")
    expect(span.get_by_role("button", name="15 min")).to_have_attribute("aria-pressed", "true")
    verdicts = panel(page, "Verdicts per second")
    marked = verdicts.get_by_role("list", name="Marked in the charts")
    # The last quarter of an hour has the changed setting, and not yet the restart.
    expect(marked).to_contain_text("high_water: 5 became 100,000")
    expect(marked).not_to_contain_text("Redis started again")
    all_buckets = rows(page, "Pending trees by bucket").locator("td:first-of-type")
    # From before the page was opened.
    expect(all_buckets.filter(has_text=re.compile("^40$"))).not_to_have_count(0)
    keep(page, "history-15-minutes")

    with page.expect_response(re.compile("range=1h")) as hour:
        span.get_by_role("button", name="1 h").click()
    buckets = hour.value.json()["buckets"]
    assert sum(bucket["gap"] for bucket in buckets) == 1
    expect(marked).to_contain_text("Redis started again")
    expect(page.get_by_role("link", name="History as CSV")).to_have_attribute(
        "href", "/api/v1/namespaces/orders/history?range=1h&format=csv"
    )
    with page.expect_response(re.compile("range=30d")) as month:
        span.get_by_role("button", name="30 d").click()
    assert sum(bucket["gap"] for bucket in month.value.json()["buckets"]) >= 14
    with page.expect_download() as saved:
        page.get_by_role("link", name="History as CSV").click()
    assert saved.value.suggested_filename == "orders-30d.csv"
    keep(page, "history-30-days")


def test_objective_is_shown_by_source(make_load: MakeLoad, open_page: OpenPage) -> None:
    load = make_load("orders", slo_target=95.0, slo_ms=60_000)
    fill(load)
    page = open_page("/#/ns/orders", width=390)
    objective = panel(page, "Completeness")
    objective.get_by_role("button", name="Show").click()  # on a phone it is folded
    expect(objective).to_contain_text("96 % complete within 60 s, 29 days, budget left 20 %.")
    lines = objective.get_by_role("row")
    expect(lines.nth(1)).to_have_text(re.compile(r"^all sources96 %420 %.*0\.8"))
    expect(lines.nth(2)).to_have_text(re.compile("^shop96 %420 %"))
    # The share of nacks is permitted. The page says all the same that trees are lost.
    health = page.locator(".health")
    words = re.compile(
        "Healthy, but some trees are nacked.*1 of the 1[0-9] trees that ended in the last 1[0-9] "
        "min were nacked \\(.*There are nacks .*The target permits (only )?5 %"
    )
    expect(health).to_contain_text(words)
    expect(health.get_by_role("link", name="What to do")).to_have_attribute(
        "href", "#/runbook/nacks"
    )
    expect(figure(page, "Nacked")).to_have_text("1")
    with page.expect_download() as saved:
        page.get_by_role("link", name="Completeness as CSV").click()
    assert saved.value.suggested_filename == "orders-slo.csv"
    wide = page.evaluate("document.documentElement.scrollWidth - innerWidth")
    assert wide <= 0
    # More nacks than permitted: the finding tells since when, from history, not since it was seen.
    load.track(40)
    load.fail(20, "no such address")
    finding = health.locator(".finding", has_text=re.compile("trees that ended.* were nacked"))
    expect(finding).to_contain_text(
        re.compile("were nacked.*: their .* There are nacks (at least )?since ")
    )


def test_all_views_of_a_namespace_say_the_same_of_its_health(
    make_load: MakeLoad, open_page: OpenPage
) -> None:
    load = make_load("orders")
    load.track(100)
    load.ack(99)
    load.fail(1)
    now = Point.of(load.acker.status())
    put(load.acker, 10 * MINUTE_MS, now, tracked=0, acked=0, failed=0, sources={})
    page = open_page("/")
    health = page.locator(".health")
    for failed, words in ((1, "Healthy, but some trees are nacked."), (31, "were nacked")):
        load.track(failed - 1)
        load.fail(failed - 1)
        for view in ("", "/trees", "/config"):
            page.goto(f"/#/ns/orders{view}")
            expect(health).to_contain_text(words)
            expect(health).to_contain_text(f"{failed} of the {99 + failed} trees that ended")
            expect(page.locator(".finding.high, .finding.over")).to_have_count(int(failed > 1))
    page.goto("/")
    expect(card(page, "orders")).to_contain_text("Warning")


def test_namespace_without_history_says_so(make_load: MakeLoad, open_page: OpenPage) -> None:
    load = make_load("orders")
    rotate(load.acker)
    page = open_page("/#/ns/orders")
    expect(panel(page, "Completeness")).to_contain_text("No tree has ended yet")
    # Without any point, a long range has what this page has seen.
    page.get_by_role("button", name="24 h").click()
    load.track(3)
    page.wait_for_function("() => document.querySelector('.plot canvas')")
    expect(rows(page, "Pending trees by bucket")).not_to_have_count(0)
