"""The dashboard is accessible: by keyboard, by screen reader, on a phone, in the dark theme."""

from functools import cache
from pathlib import Path

import axe_playwright_python
import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import MakeLoad, OpenPage, keep
from tests.browser.load import Load
from tests.browser.look import card, panel


@cache
def _axe() -> str:
    return (Path(axe_playwright_python.__file__).parent / "axe.min.js").read_text()


def blameless(page: Page) -> None:
    """Check that axe finds nothing serious, and that the page needs no sideways scrolling."""
    page.evaluate(_axe())
    found = page.evaluate("axe.run(document, {resultTypes: ['violations']})")
    bad = [
        (each["id"], [node["html"][:200] for node in each["nodes"][:3]])
        for each in found["violations"]
        if each["impact"] in ("serious", "critical")
    ]
    assert not bad
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def busy(make_load: MakeLoad) -> tuple[Load, int]:
    """Return a namespace with trees of all kinds, above its mark."""
    load = make_load("orders", shards=4, high_water=40)
    load.track(50)
    load.tick()
    anchor = load.track_as("order-4711")
    load.ack(3)
    load.fail(2, "no such address")
    return load, anchor


@pytest.mark.parametrize(("width", "theme"), [(1440, "light"), (380, "dark")])
def test_axe_finds_nothing_serious(
    make_load: MakeLoad, open_page: OpenPage, width: int, theme: str
) -> None:
    _, anchor = busy(make_load)
    page = open_page("/login", width=width, theme=theme)
    blameless(page)
    page.goto("/")
    expect(card(page, "orders")).to_contain_text("Warning")
    blameless(page)
    keep(page, f"namespaces-{width}-{theme}")
    page.goto("/#/ns/orders")
    expect(panel(page, "Recent failures").get_by_role("row")).to_have_count(2)
    expect(panel(page, "Oldest trees").get_by_role("row").nth(1)).to_be_visible()
    blameless(page)
    keep(page, f"live-{width}-{theme}")
    page.goto("/#/ns/orders/trees")
    expect(panel(page, "Pending trees").get_by_role("row").nth(1)).to_be_visible()
    blameless(page)
    page.goto(f"/#/ns/orders/trees/{anchor}")
    expect(panel(page, "Details")).to_contain_text("order-4711")
    blameless(page)
    page.goto("/#/ns/orders/config")
    expect(page.get_by_label("High-water mark")).to_be_visible()
    page.get_by_role("button", name="Drop the namespace").click()
    blameless(page)
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)
    page.goto("/#/audit")
    expect(panel(page, "Changes")).not_to_be_empty()
    blameless(page)


def test_pages_work_by_keyboard(make_load: MakeLoad, open_page: OpenPage) -> None:
    busy(make_load)
    page = open_page("/")
    expect(card(page, "orders")).to_be_visible()
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Skip to content")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator("#main")).to_be_focused()
    assert page.evaluate("location.hash") == ""
    page.keyboard.press("Tab")
    expect(page.get_by_label("Filter namespaces by name")).to_be_focused()
    for _ in ("Cards", "Table", "New namespace", "orders"):
        page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="orders")).to_be_focused()
    page.keyboard.press("Enter")
    # A screen reader starts at the heading of the new page.
    expect(page.get_by_role("heading", level=1)).to_be_focused()
    pause = page.get_by_role("button", name="Pause")
    pause.focus()
    page.keyboard.press("Space")
    expect(page.get_by_role("button", name="Resume")).to_be_focused()
    outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
    assert outline == "solid"


def test_only_alarms_are_read_aloud(make_load: MakeLoad, open_page: OpenPage) -> None:
    load, _ = busy(make_load)
    page = open_page("/#/ns/orders")
    expect(page.locator("#alarms")).to_have_text("Above the high-water mark: sources wait")
    live = page.evaluate(
        """[...document.querySelectorAll("[aria-live], [role=alert], [role=status], [role=log]")]
            .map((each) => each.id || each.className)"""
    )
    assert set(live) == {"banner", "toasts", "alarms"}
    chart = panel(page, "Pending by bucket").get_by_role("img")
    expect(chart).to_have_attribute(
        "aria-label", "Pending trees by bucket: 1 newest, 45 bucket 1, 0 oldest"
    )
    load.no_rotator_for(2 * 3_600_000)
    expect(page.locator("#alarms")).to_contain_text("No rotator runs")


def test_theme_is_chosen_and_stored(make_load: MakeLoad, open_page: OpenPage) -> None:
    busy(make_load)
    page = open_page("/#/ns/orders", theme="dark")
    root = page.locator("html")
    expect(root).to_have_attribute("data-theme", "dark")
    page.get_by_role("button", name="Use light colours").click()
    expect(root).to_have_attribute("data-theme", "light")
    page.reload()
    expect(root).to_have_attribute("data-theme", "light")
    page.get_by_role("button", name="Use dark colours").click()
    assert page.evaluate("localStorage.length") == 0


def test_layout_does_not_shift_while_loading(make_load: MakeLoad, open_page: OpenPage) -> None:
    busy(make_load)
    page = open_page("/login", width=380)
    page.add_init_script(
        """window.shifts = [];
        new PerformanceObserver((list) => window.shifts.push(...list.getEntries()
            .filter((each) => !each.hadRecentInput).map((each) => each.value)))
            .observe({type: "layout-shift", buffered: true});"""
    )
    page.goto("/#/ns/orders")
    expect(panel(page, "Recent failures").get_by_role("row")).to_have_count(2)
    expect(panel(page, "Oldest trees").get_by_role("row").nth(1)).to_be_visible()
    # A good value is below 0.1. The findings take half a screen here.
    expect(page.locator(".finding").first).to_be_visible()
    assert sum(page.evaluate("window.shifts")) < 0.1
