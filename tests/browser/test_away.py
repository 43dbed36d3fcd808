"""Redis or the service fails and recovers; a failed panel does not affect others."""

import json
import os
import re
import signal
from collections.abc import Iterator

import pytest
from playwright.sync_api import Route, expect

from acker_redis.embedded import EmbeddedRedis
from acker_redis.protocol.keys import ShardKeys
from tests.browser.conftest import MakeLoad, OpenPage, keep
from tests.browser.look import card, figure, panel
from tests.browser.stack import Service


@pytest.fixture
def impatient(redis_server: EmbeddedRedis) -> Iterator[Service]:
    """Yield a service with the timeouts of production: a hanging Redis is reported soon."""
    with Service(redis_server.url, answer_within="1", scrape_within="5") as running:
        yield running


def test_hanging_redis_is_reported_and_recovers(
    redis_server: EmbeddedRedis, impatient: Service, make_load: MakeLoad, open_page: OpenPage
) -> None:
    load = make_load("orders")
    load.track(30)
    page = open_page("/#/ns/orders", at=impatient)
    banner = page.locator("#banner")
    expect(figure(page, "Pending")).to_have_text("30")
    expect(banner).to_be_hidden()
    overview = open_page("/", at=impatient, width=380)
    listed = card(overview, "orders")
    expect(listed).to_contain_text("Healthy")
    pid = redis_server.pid
    assert pid
    os.kill(pid, signal.SIGSTOP)
    try:
        expect(banner).to_contain_text("Redis does not answer")
        # The old figures stay, and the page does not show the namespace as healthy.
        expect(page.locator(".health")).to_have_text("State unknown")
        expect(page.locator("#connection")).to_have_text("No updates")
        expect(figure(page, "Pending")).to_have_text("30")
        expect(page.locator(".page.stale .figures")).to_have_css("opacity", "0.5")
        expect(listed).to_contain_text("Unknown")
        expect(listed).to_contain_text("30")
        expect(overview.locator(".page.stale .panel-body")).to_have_css("opacity", "0.5")
        expect(overview.locator(".page-note")).to_have_text(
            # "error" if Redis stopped while the service read it.
            re.compile(r"^At [\d:]+: 1 namespace: 1 (ok|error)")
        )
        # One outage is told once, and no text names a socket.
        for each in (page, overview):
            text = each.locator("body").inner_text()
            assert text.count("does not answer") == 1
            assert not re.search(r"127\.0\.0\.1|within 1 s|Error \d+", text)
        keep(page, "redis-away")
        page.get_by_role("link", name="Namespaces", exact=True).first.click()
        expect(page.locator(".overview .page-note")).to_have_text(
            # The answer of the service may be some seconds old, or from the moment of the stop.
            re.compile(r"^(Unknown$|At [\d:]+: 1 namespace: 1 (ok|error))")
        )
        expect(page.locator(".card").filter(has_not_text="Unknown")).to_have_count(0)
        assert page.locator("body").inner_text().count("does not answer") == 1
        page.go_back()
    finally:
        os.kill(pid, signal.SIGCONT)
    expect(banner).to_contain_text("Available again")
    expect(page.locator(".health")).to_contain_text("Healthy.")
    expect(listed).to_contain_text("Healthy")
    load.track(5)
    expect(figure(page, "Pending")).to_have_text("35")
    # No line bridges the outage: its path has two parts.
    expect(listed.locator(".spark-line")).to_have_attribute("d", re.compile("^M[^M]*M[^M]*$"))
    values = panel(page, "Pending by bucket")
    values.get_by_text("Values as a table").click()
    page.wait_for_function(GAP)


GAP = """() => JSON.parse(sessionStorage.getItem("acker.history.orders") || "{}").samples
    ?.some((each) => each.after)"""
"""Whether a stored reading of the namespace comes after an outage."""


def test_unreadable_namespace_is_not_shown_as_healthy(
    make_load: MakeLoad, open_page: OpenPage
) -> None:
    """Redis and the service answer, and the answer is an error."""
    load = make_load("orders")
    load.track(3)
    page = open_page("/#/ns/orders")
    health = page.locator(".health")
    expect(health).to_contain_text("Healthy.")
    client, meta = load.acker.connection.client, ShardKeys("orders", 0).meta
    client.hset(meta, "acked", "many")
    expect(health).to_contain_text("State unknown")
    expect(health).to_contain_text("tampered")
    expect(health).not_to_contain_text("Healthy.")
    expect(page.locator(".page.stale")).to_be_visible()
    expect(page.locator("#connection")).to_have_text("No updates")
    client.hset(meta, "acked", 0)
    expect(health).to_contain_text("Healthy.")
    expect(page.locator(".page.stale")).to_have_count(0)
    expect(page.locator("#connection")).to_have_text("Live")


def test_dashboard_recovers_when_the_service_is_back(
    redis_server: EmbeddedRedis, make_load: MakeLoad, open_page: OpenPage
) -> None:
    load = make_load("orders")
    load.track(30)
    with Service(redis_server.url) as own:
        page = open_page("/#/ns/orders", at=own)
        expect(figure(page, "Pending")).to_have_text("30")
        own.stop()
        expect(page.locator("#banner")).to_contain_text("The service does not answer")
        expect(page.get_by_role("alert").first).to_be_visible()
        load.track(5)
        own.start()
        expect(page.locator("#banner")).to_contain_text("Available again")
        expect(figure(page, "Pending")).to_have_text("35")


def test_failed_panel_does_not_affect_others(make_load: MakeLoad, open_page: OpenPage) -> None:
    load = make_load("orders")
    load.track(30)
    broken = ["trees", "backlog", "outcomes"]
    page = open_page("/login")

    def break_off(route: Route) -> None:
        if any(f"/{part}" in route.request.url for part in broken):
            # The page repeats no request that was refused, so the button stays until it is clicked.
            status = 400 if "/trees" in route.request.url else 500
            problem = {"title": "It broke", "detail": "a bug, say", "status": status}
            route.fulfill(status=status, body=json.dumps(problem))
        else:
            route.continue_()

    page.route("**/api/v1/namespaces/orders/*", break_off)
    page.goto("/#/ns/orders")
    for title in ("Oldest trees", "Untaken verdicts", "Recent failures", "Verdicts"):
        expect(panel(page, title)).to_contain_text("It broke")
    expect(figure(page, "Pending")).to_have_text("30")
    expect(panel(page, "Rotator")).to_contain_text("No tick yet")
    expect(page.locator("#banner")).to_be_hidden()
    load.track(5)
    expect(figure(page, "Pending")).to_have_text("35")
    # Other updates do not clear the error.
    assert "It broke" in panel(page, "Recent failures").inner_text()
    broken.clear()
    panel(page, "Oldest trees").get_by_role("button", name="Try again").click()
    expect(panel(page, "Oldest trees").get_by_role("row")).to_have_count(9)
    for title in ("Oldest trees", "Untaken verdicts", "Recent failures", "Verdicts"):
        expect(panel(page, title)).not_to_contain_text("It broke")


def test_dropped_namespace_is_reported_on_its_page(
    make_load: MakeLoad, open_page: OpenPage
) -> None:
    load = make_load("orders")
    page = open_page("/#/ns/orders")
    expect(figure(page, "Pending")).to_have_text("0")
    overview = open_page("/")
    listed = card(overview, "orders")
    expect(listed).to_contain_text("Healthy")
    load.track(3)
    expect(listed).to_contain_text("3pending")
    load.acker.drop()
    expect(page.get_by_text("No such namespace")).to_be_visible()
    gone = re.compile(r"Gone since [\d:]{8}; Redis lost data, or it was dropped")
    expect(page.locator(".content")).to_have_text(gone)
    expect(listed).to_contain_text(gone)
    expect(listed).to_contain_text("Gone")
    # The service may have listed a namespace of the test before.
    expect(overview.locator(".page-note")).to_have_text(re.compile(r"^0 namespaces: \d gone$"))
    forget = overview.get_by_role("button", name=re.compile("^Forget "))
    while forget.count():
        forget.first.click()
    expect(overview.get_by_text("No namespace yet")).to_be_visible()
    page.reload()
    expect(page.locator(".content")).to_contain_text(re.compile("It was there until [\\d:]{8};"))
    load.acker.create()
    expect(figure(page, "Pending")).to_have_text("0")
    expect(page.get_by_text("No such namespace")).to_have_count(0)
