"""The dashboard during the demo: it shows the flights, and at the end all have ended."""

import signal
from pathlib import Path

import pytest
from playwright.sync_api import Browser

from acker_flights import session
from tests.browser import flights
from tests.browser.conftest import keep
from tests.conftest import missing
from tests.demo.running import DASHBOARD, scratch, start, until

__all__ = ["scratch"]


@pytest.mark.nightly  # two minutes of CPU time; other tests have the demo and the pages
def test_the_dashboard_follows_the_demo(browser: Browser, scratch: Path) -> None:
    if advice := session.missing_java():
        missing(advice)
    demo = start(scratch, "--days", "3", "--serve")
    try:
        [dashboard] = DASHBOARD.findall(until(demo, "Server: "))
        with flights.watched(browser, f"{dashboard}/#/ns/flights") as page:
            until(demo, "stay until Ctrl-C")
            flights.all_ended(page)
            keep(page, "flights")
    finally:
        demo.send_signal(signal.SIGINT)
    said, _ = demo.communicate(timeout=150)
    assert demo.returncode == 0, said
