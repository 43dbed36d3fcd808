"""The flights demo, watched while it runs."""

import re
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, expect

from tests.browser.conftest import keep
from tests.browser.look import figure, panel
from tests.conftest import missing

session = pytest.importorskip("acker_flights.session")
SPARK = 180_000
"""Milliseconds in which Spark has begun, on any machine."""


@pytest.fixture
def demo() -> Iterator["subprocess.Popen[str]"]:
    """Two days of flights, which stay in the end."""
    advice = session.missing_java()
    if advice:
        missing(advice)
    running = subprocess.Popen(
        [sys.executable, "-m", "acker_redis", "demo", "--days", "2", "--serve"],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        yield running
    finally:
        running.send_signal(signal.SIGINT)
        running.communicate(timeout=60)


def until(demo: "subprocess.Popen[str]", words: str) -> "re.Match[str]":
    """The line that says it."""
    assert demo.stdout
    said = ""
    while not (found := re.search(words, said)):
        line = demo.stdout.readline()
        assert line, said
        said += line
    return found


def test_the_flights_are_watched(browser: Browser, demo: "subprocess.Popen[str]") -> None:
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    page.goto(until(demo, r"Dashboard: (\S+)")[1])
    expect(figure(page, "Pending")).to_have_text(re.compile("[1-9]"), timeout=SPARK)
    expect(panel(page, "Oldest trees")).to_contain_text("2013-01-0")
    until(demo, "stay until Ctrl-C")
    expect(figure(page, "Pending")).to_have_text("0")
    failures = panel(page, "Recent failures")
    expect(failures).to_contain_text("no weather at")
    expect(failures).to_contain_text("expired")
    keep(page, "flights")
    page.close()
