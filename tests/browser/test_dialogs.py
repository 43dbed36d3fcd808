"""Dialogs close on Back; keyboard shortcuts; what a shorter tick does; the runbook."""

import re

from playwright.sync_api import Page, Route, expect

from tests.browser.conftest import MakeLoad, OpenPage
from tests.browser.look import panel
from tests.browser.test_accessible import blameless


def test_back_closes_a_dialog_and_stays_on_the_page(
    make_load: MakeLoad, open_page: OpenPage
) -> None:
    load = make_load("orders")
    load.track(3)
    page = open_page("/#/ns/orders")
    expect(panel(page, "Oldest trees").get_by_role("row").nth(1)).to_be_visible()
    page.get_by_role("link", name="Configuration").click()
    tick = page.get_by_role("button", name="Force a tick")
    dialog = page.get_by_role("dialog")
    for close in (page.go_back, lambda: page.keyboard.press("Escape")):
        tick.click()
        expect(dialog).to_be_visible()
        close()
        expect(dialog).to_have_count(0)
        expect(page).to_have_url(re.compile("orders/config$"))
        expect(tick).to_be_focused()
    assert load.acker.status().ticks == 0
    page.go_back()
    expect(page).to_have_url(re.compile("#/ns/orders$"))
    page.go_back()
    expect(page).not_to_have_url(re.compile("#/ns/orders"))


def test_back_stops_a_long_action_before_its_dialog_closes(
    make_load: MakeLoad, open_page: OpenPage
) -> None:
    load = make_load("orders")
    load.track(3)
    page = open_page("/#/ns/orders/trees?source=shop")
    held = list[Route]()
    page.route("**/trees/fail", lambda route: held.append(route))
    page.get_by_role("button", name="Fail all that match").click()
    dialog = page.get_by_role("dialog")
    # Nothing runs yet, and nothing says so.
    expect(dialog).to_contain_text("Not started")
    with page.expect_request("**/trees/fail"):
        dialog.get_by_role("button", name="Count them").click()
    page.go_back()
    expect(dialog).to_be_visible()
    expect(dialog.get_by_role("button", name="Stop")).to_be_disabled()
    found = {"matched": 1, "failed": 0, "looked": 3, "sample": [], "dry_run": True, "next": "more"}
    held[0].fulfill(json=found)
    expect(
        page.get_by_text("Stopped; 1 tree found so far, and nothing was changed")
    ).to_be_visible()
    expect(dialog).to_have_count(0)
    expect(page).to_have_url(re.compile("trees\\?source=shop$"))
    assert len(held) == 1


def test_shorter_tick_says_what_expires(make_load: MakeLoad, open_page: OpenPage) -> None:
    load = make_load("orders", tick_ms=600_000)
    load.track(30)
    load.tick()
    load.tick()
    load.track(12)
    load.no_rotator_for(60_000)
    page = open_page("/#/ns/orders/config")
    tick = page.get_by_label("Tick", exact=False).first
    effect = page.locator(".effect")
    tick.fill("700000")
    expect(effect).to_have_count(1)
    expect(effect).to_be_empty()
    tick.fill("500000")
    expect(effect).to_contain_text("A tree then expires 16 min 40 s to 25 min after its first row")
    expect(effect).to_contain_text("now it is 20 min to 30 min. No tree expires at once.")
    tick.fill("30,000")
    words = (
        "The next tick is then due at once: up to 30 trees in the oldest bucket expire with it. "
        "Without acks, all 42 pending trees expire within 1 min 30 s."
    )
    expect(effect).to_contain_text(words)
    page.get_by_role("button", name="Save").click()
    dialog = page.get_by_role("dialog")
    for part in words.split(". "):
        expect(dialog).to_contain_text(part)
    blameless(page)
    dialog.get_by_role("button", name="Cancel").click()
    expect(dialog).to_have_count(0)


def pressed(page: Page, key: str) -> None:
    page.locator("h1").first.focus()
    page.keyboard.press(key)


def test_shortcuts_are_listed_and_can_be_switched_off(
    make_load: MakeLoad, open_page: OpenPage
) -> None:
    make_load("orders").track(3)
    page = open_page("/#/ns/orders")
    expect(panel(page, "Oldest trees").get_by_role("row").nth(1)).to_be_visible()
    for key, place in (("t", "trees$"), ("c", "config$"), ("l", "orders$"), ("a", "audit$")):
        pressed(page, key)
        expect(page).to_have_url(re.compile(place))
    page.go_back()
    expect(panel(page, "Oldest trees").get_by_role("row").nth(2)).to_be_visible()
    pressed(page, "j")
    expect(page.get_by_role("link", name="order-").first).to_be_focused()
    page.keyboard.press("j")
    page.keyboard.press("k")
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile("trees/[0-9]+$"))
    pressed(page, "?")
    sheet = page.get_by_role("dialog", name="Keyboard shortcuts")
    expect(sheet).to_contain_text("Search for a source id")
    blameless(page)
    # In a dialog, a letter is no shortcut.
    page.keyboard.press("n")
    sheet.get_by_label("Shortcuts of one letter are on").uncheck()
    page.go_back()
    expect(sheet).to_have_count(0)
    for key in ("n", "/"):
        pressed(page, key)
    expect(page).to_have_url(re.compile("trees/[0-9]+$"))
    page.get_by_role("button", name="Keyboard shortcuts").click()
    sheet.get_by_label("Shortcuts of one letter are on").check()
    sheet.get_by_role("button", name="Close").click()
    expect(sheet).to_have_count(0)
    box = page.get_by_placeholder("Source id, anchor or message id")
    box.press("n")
    expect(box).to_have_value("n")
    pressed(page, "n")
    expect(page.get_by_role("heading", level=1)).to_have_text("Namespaces")


def test_finding_links_to_its_runbook(make_load: MakeLoad, open_page: OpenPage) -> None:
    load = make_load("orders", high_water=10)
    load.track(12)
    page = open_page("/#/ns/orders")
    finding = page.locator(".finding").first
    finding.get_by_role("link", name="Runbook").click()
    expect(page).to_have_url(re.compile("#/runbook/high-water$"))
    first = page.get_by_role("region").first
    expect(first.get_by_role("heading")).to_have_text("high-water")
    expect(first).to_contain_text("sources that wait; bolts that ack")
    assert page.locator(".panel").count() > 30
    blameless(page)
    page.goto("/#/runbook/nothing")
    expect(page.locator(".page-note")).to_contain_text("There is no finding named nothing")


def test_audit_entries_have_dates(make_load: MakeLoad, open_page: OpenPage) -> None:
    make_load("orders").track(1)
    page = open_page("/#/ns/orders/config")
    page.get_by_role("button", name="Force a tick").click()
    page.get_by_role("dialog").get_by_role("button", name="Force a tick").click()
    expect(page.get_by_text(re.compile("^Ticked"))).to_be_visible()
    page.goto("/#/audit")
    when = page.locator("time").first
    expect(when).to_have_text(re.compile(r"^\d+ [A-Z][a-z]+ 20\d\d \d\d:\d\d:\d\d$"))
    expect(when).to_have_attribute("datetime", re.compile(r"^20\d\d-\d\d-\d\dT.*Z$"))
