"""Measure the dashboard in a real browser: the time until a page is usable, the load on Redis.

Chromium (Playwright's package, Debian's browser) runs without a window, with a new profile for each
page. ``admin.py`` uses this module.
"""

from __future__ import annotations

import os
import shutil
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import psutil
from events import spent

try:
    from playwright.sync_api import Browser, ConsoleMessage, Page, sync_playwright
except ImportError:
    NO_BROWSER = "Playwright's package is missing: pip install playwright"
else:
    NO_BROWSER = ""

LINGER = 12.0
"""Seconds until the service has no listeners left."""
SETTLE = 5.0
"""Seconds until an opened page has loaded all its data."""
PATIENCE = 120.0
"""Timeout of a page, in seconds."""

WATCH = """
const told = new Set();
const tell = (what) => {
  if (told.has(what)) return;
  told.add(what);
  console.debug(`bench ${what} ${performance.now()}`);
};
const look = () => {
  const figures = document.querySelectorAll(".figure");
  if (figures.length && !document.querySelector(".figure.loading")) tell("figures");
  const select = document.querySelector('select[aria-label="Verdicts shown"]');
  const rows = [...(select?.closest("section")?.querySelectorAll("tbody tr") || [])];
  const acked = rows.filter((row) => row.textContent.includes("acked")).length;
  if (rows.length && acked && !select.value) tell("verdicts");
  if (rows.length && !acked && select.value === "nack") tell("filtered");
};
new MutationObserver(look).observe(document, { subtree: true, childList: true, attributes: true });
"""
"""Script that logs the time of each stage of a page, in ms since the navigation."""


def opened(browser: Browser, url: str) -> tuple[Page, dict[str, float]]:
    """Return a page in a new profile that shows its figures, and the times of its stages."""
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    page, told = context.new_page(), dict[str, float]()

    def hear(message: ConsoleMessage) -> None:
        if message.text.startswith("bench "):
            _, what, at = message.text.split()
            told[what] = float(at)

    page.on("console", hear)
    page.add_init_script(WATCH)
    page.goto(url, wait_until="commit")
    wait(page, told, "figures")
    return page, told


def wait(page: Page, told: dict[str, float], what: str) -> None:
    """Wait until a page has reached a stage."""
    deadline = time.monotonic() + PATIENCE
    while what not in told:
        if time.monotonic() > deadline:
            raise RuntimeError(f"the page did not reach the stage {what!r} in {PATIENCE:.0f} s")
        page.wait_for_timeout(5)


def interactive(browser: Browser, url: str, times: int) -> None:
    """Print the seconds until a page is usable."""
    seen = []
    for _ in range(times):
        page, told = opened(browser, url)
        wait(page, told, "verdicts")
        page.get_by_label("Verdicts shown").select_option("nack")
        wait(page, told, "filtered")
        page.context.close()
        seen.append(told)
    print(f"  {'seconds, a new profile':32}{'times':>6}{'p50':>9}{'':9}{'max':>9}")
    for what, target in (("figures", ""), ("verdicts", ""), ("filtered", "< 1.5")):
        every = [told[what] / 1000 for told in seen]
        figures = f"{statistics.median(every):9.2f}{'':9}{max(every):9.2f}"
        print(f"  {what:32}{times:6}{figures}  {target}".rstrip(), flush=True)


@dataclass(frozen=True)
class Spent:
    """The load during a measurement: shares of a core in %, commands and rows a second."""

    redis: float
    service: float
    rows: float
    commands: dict[str, float]
    scripts: float
    """Share of a core that Redis spent on scripts, in %."""


def spend(client: Any, service: psutil.Process, rows: Callable[[], int], seconds: float) -> Spent:
    """Measure for ``seconds`` seconds."""

    def read() -> tuple[float, float, float, int, dict[str, Any]]:
        cpu, commands = client.info("cpu"), client.info("commandstats")
        redis = float(cpu["used_cpu_user"]) + float(cpu["used_cpu_sys"])
        return time.monotonic(), redis, spent(service), rows(), commands

    before = read()
    time.sleep(seconds)
    after = read()
    took = after[0] - before[0]
    commands = {
        name.removeprefix("cmdstat_"): (now["calls"] - before[4].get(name, {"calls": 0})["calls"])
        / took
        for name, now in after[4].items()
    }
    scripts = sum(
        after[4].get(f"cmdstat_{name}", {"usec": 0})["usec"]
        - before[4].get(f"cmdstat_{name}", {"usec": 0})["usec"]
        for name in ("evalsha", "eval")
    )
    return Spent(
        redis=100 * (after[1] - before[1]) / took,
        service=100 * (after[2] - before[2]) / took,
        rows=(after[3] - before[3]) / took,
        commands=commands,
        scripts=scripts / took / 1e4,
    )


def more(now: Spent, was: Spent) -> float:
    """Return the additional load of Redis with pages open.

    The load without pages is scaled by the applied rows before it is subtracted: with browsers on
    the same cores the producer may be slower than its rate.
    """
    return now.redis - was.redis * (now.rows / was.rows if was.rows else 1)


def costs(browser: Browser, url: str, look: Callable[[], Spent], rounds: int) -> None:
    """Print the cost of open pages, measured in turns."""
    seen: dict[int, list[Spent]] = {0: [], 1: [], 5: []}
    for _ in range(rounds):
        pages: list[Page] = []
        time.sleep(LINGER)
        for number, every in seen.items():
            while len(pages) < number:
                pages.append(opened(browser, url)[0])
                pages[-1].get_by_title("Updates arrive as events").wait_for()
            time.sleep(SETTLE)
            every.append(look())
        for page in pages:
            page.context.close()
    print(
        f"  {'% of a core, medians':32}{'Redis':>8}{'scripts':>9}{'service':>9}{'rows/s':>9}"
        f"{'more':>8}  by rounds"
    )
    for number, every in seen.items():
        words = "no dashboard" if not number else f"{number} dashboard{'s' * (number > 1)}"
        redis, scripts, service, rows = (
            statistics.median(getattr(each, name) for each in every)
            for name in ("redis", "scripts", "service", "rows")
        )
        line = f"  {words:32}{redis:8.2f}{scripts:9.2f}{service:9.1f}{rows:9,.0f}"
        if number:
            by_rounds = list(map(more, every, seen[0]))
            line += f"{statistics.median(by_rounds):8.2f}  "
            line += ", ".join(f"{each:.2f}" for each in by_rounds)
            line += "  target < 2" * (number == 1)
        print(line)
    for number in (1, 5):
        if any(each.rows for each in seen[number]):
            return  # most commands are those of the producer
        added = {
            name: statistics.median(
                now.commands[name] - was.commands.get(name, 0)
                for now, was in zip(seen[number], seen[0], strict=True)
            )
            for name in seen[number][0].commands
        }
        most = sorted(added.items(), key=lambda item: -item[1])[:8]
        told = ", ".join(f"{name} {each:.0f}" for name, each in most if each >= 0.5)
        print(f"  commands a second, {number} open: {told}", flush=True)


@contextmanager
def browsing() -> Iterator[Browser | None]:
    """Yield Chromium without a window; without Chromium print the reason and yield None."""
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if NO_BROWSER or not chromium:
        why = NO_BROWSER or "chromium is missing: apt-get install chromium"
        print(f"dashboard: skipped. {why}")
        yield None
        return
    arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=arguments)
        yield browser
        browser.close()
