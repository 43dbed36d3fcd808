"""A browser, and a service for it; both end with this package's tests."""

import os
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright

from acker_redis.embedded import EmbeddedRedis
from tests.browser.load import Load
from tests.browser.stack import Service
from tests.conftest import missing
from tests.waiting import LIMIT

SCREENSHOTS = Path(__file__).parents[2] / "screenshots"
# A generous timeout: machines differ in speed.
PATIENCE_MS = 1000 * LIMIT
expect.set_options(timeout=PATIENCE_MS)

PATIENT = r"""{
  const later = window.setTimeout, limit = AbortSignal.timeout;
  const passing = /\/js\/(shell|ui\/dialog)\.js/;
  window.setTimeout = (run, ms, ...rest) =>
    later(run, passing.test(new Error().stack) ? Math.max(ms, 60_000) : ms, ...rest);
  AbortSignal.timeout = (ms) => limit.call(AbortSignal, Math.max(ms, 120_000));
}"""
"""Messages that a page shows for some seconds stay for a minute, so a slow test still sees them.
The page has no short timeout for answers."""


@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    """Yield Debian's chromium, without a window."""
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if not chromium:
        missing("chromium")
    arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=chromium, args=arguments)
        yield running
        running.close()


@pytest.fixture(scope="package")
def redis_server() -> Iterator[EmbeddedRedis]:
    """Yield the Redis of the service."""
    with EmbeddedRedis() as server:
        yield server


@pytest.fixture(scope="package")
def service(redis_server: EmbeddedRedis) -> Iterator[Service]:
    """Yield the service, without tokens."""
    with Service(redis_server.url) as running:
        yield running


OpenPage = Callable[..., Page]


@pytest.fixture
def open_page(browser: Browser, service: Service) -> Iterator[OpenPage]:
    """Open a path of the service; at the end the page must have no refusals and no errors."""
    troubles: list[str] = []
    contexts = []

    def note(page: Page) -> None:
        page.on("pageerror", lambda error: troubles.append(str(error)))
        page.on(
            "console",
            lambda said: (
                troubles.append(said.text)
                if re.search("Content Security Policy|TrustedHTML|Uncaught", said.text)
                else None
            ),
        )

    def make(path: str, at: Service | None = None, width: int = 1280, theme: str = "light") -> Page:
        context = browser.new_context(
            viewport={"width": width, "height": 900},
            color_scheme="dark" if theme == "dark" else "light",
            base_url=(at or service).url,
        )
        context.set_default_timeout(PATIENCE_MS)
        context.add_init_script(PATIENT)
        contexts.append(context)
        page = context.new_page()
        note(page)
        page.goto(path)
        return page

    yield make
    for context in contexts:
        context.close()
    assert not troubles


MakeLoad = Callable[..., Load]


@pytest.fixture
def make_load(redis_server: EmbeddedRedis) -> Iterator[MakeLoad]:
    """Create namespaces, by fields of AckerConfig; the test deletes them at its end."""
    made: list[Load] = []

    def make(namespace: str, **fields: object) -> Load:
        made.append(Load(redis_server.url, namespace, **fields))
        return made[-1]

    yield make
    for load in made:
        load.acker.connection.client.flushall()
        load.close()


def keep(page: Page, name: str) -> None:
    """Save a picture of a page, for people; git ignores it."""
    SCREENSHOTS.mkdir(exist_ok=True)
    page.screenshot(path=SCREENSHOTS / f"{name}.png", full_page=True)
