"""/docs in a browser: it renders under its strict policy, and contacts no other host."""

from playwright.sync_api import expect

from acker_api import ApiSettings
from acker_api.serving.server import in_background
from acker_redis.ops.settings import Settings
from tests.browser.conftest import OpenPage


def test_docs_page_renders_and_contacts_no_other_host(open_page: OpenPage) -> None:
    unreachable = Settings.read(url="redis://127.0.0.1:1/0")
    with in_background(unreachable, ApiSettings(port=0, docs=True)) as url:
        page = open_page(f"{url}/docs")
        page.locator(".opblock-tag", has_text="trees").click()
        row = page.locator(".opblock", has_text="Fail Trees")
        row.locator("button.opblock-summary-control").click()
        expect(row.get_by_role("button", name="Try it out")).to_be_visible()
        expect(row.locator(".body-param__example, .example")).to_contain_text(["dry_run"])
        asked = page.evaluate("performance.getEntriesByType('resource').map(each => each.name)")
        assert f"{url}/openapi.json" in asked
        assert all(each.startswith(url) for each in asked), asked
