"""The flights demo, in a browser while it runs."""

import contextlib
import re
from collections.abc import Iterator

from playwright.sync_api import Browser, Page, expect

from tests.browser.look import figure, panel
from tests.waiting import LIMIT

SPARK = 600_000
"""Timeout for the start of Spark, in ms."""
SOON = 1000 * LIMIT
"""Timeout for a change of a page, in ms."""


@contextlib.contextmanager
def watched(browser: Browser, url: str) -> Iterator[Page]:
    """Yield a page of the dashboard with pending flights."""
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    page.set_default_timeout(SOON)
    page.goto(url)
    expect(figure(page, "Pending")).to_have_text(re.compile("[1-9]"), timeout=SPARK)
    expect(panel(page, "Oldest trees")).to_contain_text("2013-01-0", timeout=SOON)
    yield page
    page.close()


def all_ended(page: Page) -> None:
    """Check that nothing is pending, and that the page shows the failures with their reasons."""
    expect(figure(page, "Pending")).to_have_text("0", timeout=SOON)
    failures = panel(page, "Recent failures")
    expect(failures).to_contain_text("no weather at", timeout=SOON)
    expect(failures).to_contain_text("expired", timeout=SOON)
