"""An outage is seen at a glance: a band in the charts, and the edges that get no answer."""

import re

import pytest
from playwright.sync_api import expect

from acker_redis import SourceEdge
from acker_redis.protocol import commands
from acker_redis.protocol.history import MINUTE_MS, Point
from acker_redis.protocol.keys import ShardKeys
from tests.browser.conftest import MakeLoad, OpenPage, keep
from tests.browser.load import Load
from tests.browser.look import panel
from tests.browser.test_accessible import blameless
from tests.browser.test_history import rows
from tests.rotator.test_history import put

PIXELS = """(canvas, name) => {
  const probe = document.createElement("i");
  probe.style.color = getComputedStyle(document.documentElement).getPropertyValue(name);
  document.body.append(probe);
  const [r, g, b] = getComputedStyle(probe).color.match(/[0-9]+/g).map(Number);
  probe.remove();
  const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
  let found = 0;
  for (let at = 0; at < data.length; at += 4)
    found += data[at] === r && data[at + 1] === g && data[at + 2] === b && data[at + 3] === 255;
  return found / (canvas.width * canvas.height);
}"""
"""Returns the part of a canvas that has a colour of the theme."""


def fill(load: Load) -> None:
    """Write an hour: an outage of six minutes, useless work after it, and a source that is down."""
    load.track(100)
    load.ack(96)
    now = Point.of(load.acker.status())
    for minutes in range(60, 0, -1):
        out, after = 7 <= minutes <= 12, max(0, 7 - minutes)
        fewer = min(minutes, 6) + max(0, minutes - 12)
        put(
            load.acker,
            minutes * MINUTE_MS,
            now,
            tracked=now.tracked - fewer,
            acked=now.acked - fewer,
            useless=300 if minutes < 7 else 0 if minutes > 12 else 50 * (13 - minutes),
            window=2 if out else min(1000, 1000 if minutes > 12 else 100 * after),
            in_flight=2 if out else 60 + 3 * (minutes % 4),
            held=1400 - 100 * minutes if out else 150 * (6 - min(after, 6)) if after else 0,
            down=int(out),
        )


@pytest.mark.parametrize(("width", "theme"), [(1280, "light"), (1280, "dark"), (390, "light")])
def test_outage_is_a_band_in_the_charts(
    make_load: MakeLoad, open_page: OpenPage, width: int, theme: str
) -> None:
    load = make_load("orders", edges=("parts", "paint"))
    fill(load)
    page = open_page("/#/ns/orders", width=width, theme=theme)
    shown = panel(page, "Sources and outages")
    expect(shown).to_be_visible()
    expect(shown).to_contain_text("No source has reported within three minutes.")
    edges = [SourceEdge("parts", 600, 61, 0, None), SourceEdge("paint", 1, 1, 900, 125.0)]
    load.acker.connection.run(commands.report(ShardKeys("orders", 0), "shop", edges))
    if width < 600:
        for title in ("Sources and outages", "Verdicts per second"):
            panel(page, title).get_by_role("button", name="Show").click()
    first = shown.get_by_role("region", name="Edges of sources").locator("tbody tr").first
    expect(first).to_contain_text("paint")
    expect(first.locator(".down")).to_contain_text("2 min")
    marked = page.get_by_role("list", name="Marked in the charts")
    expect(marked).to_contain_text("Sources got no answer for 6 min")
    canvases = [
        each.locator("canvas").first for each in (shown, panel(page, "Verdicts per second"))
    ]
    for canvas in canvases:
        assert canvas.evaluate(PIXELS, "--over-soft") > 0.2, "an outage of 6 of 15 minutes"
    keep(page, f"outage-band-{width}-{theme}")
    blameless(page)
    waiting = rows(page, "Records of sources").locator("td:nth-of-type(3)")
    expect(waiting.filter(has_text=re.compile("^[2-7]00$"))).not_to_have_count(0)
    if width > 600:
        page.get_by_role("button", name="1 h").click()
        expect(marked).to_contain_text("Sources got no answer for 6 min")


def test_without_reports_there_is_no_panel(make_load: MakeLoad, open_page: OpenPage) -> None:
    make_load("orders").track(3)
    page = open_page("/#/ns/orders")
    expect(page.locator(".figure:not(.loading)").first).to_be_visible()
    expect(panel(page, "Sources and outages")).to_be_hidden()
