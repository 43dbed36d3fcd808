"""Behind a proxy at a sub path: pages, login, events and actions work, whether it strips or not."""

import pytest
from playwright.sync_api import expect

from acker_redis.embedded import EmbeddedRedis
from tests.browser.conftest import MakeLoad, OpenPage
from tests.browser.look import figure, panel
from tests.browser.proxy import proxied
from tests.browser.stack import Service

TOKEN = "a" * 24
PATH = "/tools/acker"


@pytest.mark.parametrize(
    ("root_path", "strips", "begin"),
    [(PATH, True, PATH), (PATH, False, f"{PATH}/"), ("", True, f"{PATH}/")],
    ids=["stripped", "kept", "stripped-without-setting"],
)
def test_dashboard_works_at_a_sub_path(
    redis_server: EmbeddedRedis,
    make_load: MakeLoad,
    open_page: OpenPage,
    root_path: str,
    strips: bool,
    begin: str,
) -> None:
    load = make_load("orders")
    anchor = load.track_as("order-1")
    with (
        Service(redis_server.url, token=TOKEN, root_path=root_path) as service,
        proxied(service.url, PATH, strips) as (proxy, url),
    ):
        page = open_page(f"{url}{begin}#/ns/orders", at=service)
        page.get_by_label("Token").fill(TOKEN)
        assert page.url == f"{url}{PATH}/login"
        page.get_by_role("button", name="Sign in").click()
        # The login returns to the requested page.
        expect(figure(page, "Pending")).to_have_text("1")
        (cookie,) = page.context.cookies()
        assert cookie["path"] == (root_path or "/")
        expect(page.locator("#connection")).to_have_text("Live")
        load.track(9)
        expect(figure(page, "Pending")).to_have_text("10")
        page.goto(f"{url}{begin}#/ns/orders/trees/{anchor}")
        expect(panel(page, "Details")).to_contain_text("order-1")
        page.get_by_role("button", name="Touch").click()
        page.get_by_role("dialog").get_by_role("button", name="Touch").click()
        expect(page.locator("#toasts")).to_contain_text("timeout")

        asked = page.evaluate("performance.getEntriesByType('resource').map(each => each.name)")
        assert asked
        assert not [each for each in asked if not each.startswith(f"{url}{PATH}/")]

        docs = page.context.new_page()
        docs.goto(f"{url}{PATH}/docs")
        docs.locator(".opblock-tag", has_text="session").click()
        row = docs.locator(".opblock", has_text="Get Session")
        if root_path:  # otherwise the description of the API does not name the path
            row.locator("button.opblock-summary-control").click()
            row.get_by_role("button", name="Try it out").click()
            row.get_by_role("button", name="Execute").click()
            expect(row.locator(".live-responses-table")).to_contain_text('"who": "admin"')

        page.get_by_role("button", name="Sign out").click()
        expect(page.get_by_role("heading", name="Sign in to acker")).to_be_visible()
        assert page.url == f"{url}{PATH}/login"
        assert page.context.cookies() == []
        assert proxy.refused == []
