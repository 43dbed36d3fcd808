"""The flights demo, watched in a browser while it runs."""

import contextlib
import os
import re
import shutil
from collections.abc import Iterator

from playwright.sync_api import Page, expect, sync_playwright

from tests.browser.look import figure, panel

SPARK = 180_000
"""Milliseconds in which Spark has begun, on any machine."""


def chromium() -> str | None:
    """Debian's chromium, if it is here."""
    return shutil.which("chromium") or shutil.which("chromium-browser")


@contextlib.contextmanager
def watched(url: str) -> Iterator[Page]:
    """A page of the dashboard, on which flights are pending."""
    arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium(), args=arguments)
        page = browser.new_page(viewport={"width": 1280, "height": 900})
        page.goto(url)
        expect(figure(page, "Pending")).to_have_text(re.compile("[1-9]"), timeout=SPARK)
        expect(panel(page, "Oldest trees")).to_contain_text("2013-01-0", timeout=20_000)
        yield page
        browser.close()


def all_ended(page: Page) -> None:
    """Nothing is pending any more, and it is told what failed and why."""
    expect(figure(page, "Pending")).to_have_text("0", timeout=20_000)
    failures = panel(page, "Recent failures")
    expect(failures).to_contain_text("no weather at", timeout=20_000)
    expect(failures).to_contain_text("expired", timeout=20_000)
