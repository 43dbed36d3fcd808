"""The flights demo, watched in a browser while it runs."""

import contextlib
import re
from collections.abc import Iterator

from playwright.sync_api import Browser, Page, expect

from tests.browser.look import figure, panel
from tests.waiting import LIMIT

SPARK = 600_000
"""Milliseconds in which Spark has begun, on any machine."""
SOON = 1000 * LIMIT
"""Milliseconds in which a page has changed, on any machine."""


@contextlib.contextmanager
def watched(browser: Browser, url: str) -> Iterator[Page]:
    """A page of the dashboard, on which flights are pending."""
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    page.set_default_timeout(SOON)
    page.goto(url)
    expect(figure(page, "Pending")).to_have_text(re.compile("[1-9]"), timeout=SPARK)
    expect(panel(page, "Oldest trees")).to_contain_text("2013-01-0", timeout=SOON)
    yield page
    page.close()


def all_ended(page: Page) -> None:
    """Nothing is pending any more, and it is told what failed and why."""
    expect(figure(page, "Pending")).to_have_text("0", timeout=SOON)
    failures = panel(page, "Recent failures")
    expect(failures).to_contain_text("no weather at", timeout=SOON)
    expect(failures).to_contain_text("expired", timeout=SOON)
