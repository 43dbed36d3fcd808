"""Pictures of the dashboard for the documentation: ``python -m tests.browser.screenshots``.

Five scenes, each in light colours, in dark ones, and on a phone of 390 px: all namespaces, one
namespace in which a bolt loses messages, a tree, a block, and an outage of Redis. The data is the
same each time; ages and the times of charts are not.
"""

import argparse
import os
import shutil
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import Browser, Page, expect, sync_playwright

from acker_redis.batching.batch import Batch
from acker_redis.embedded import EmbeddedRedis
from tests.browser.load import Load
from tests.browser.stack import Service

FOLDER = Path(__file__).parents[2] / "docs" / "images"
EDGES = ("paid", "packed", "sent")
SIZES = (("light", "light", 1280, 860), ("dark", "dark", 1280, 860), ("390", "light", 390, 844))
"""Name, theme, width and height of each picture."""
READY = {
    "overview": ".card.over",
    "namespace": ".figure:not(.loading)",
    "tree": ".step",
    "block": ".slot-map .slot",
}
"""A part of each page that appears with its data."""
SCENES = ("overview", "namespace", "tree", "block", "outage")
PATIENCE_MS = 120_000
LOST = 60
"""In each turn, one message in so many is lost between packing and sending."""


def main(folder: Path, seconds: float) -> None:
    """Write the pictures of all scenes; let the pipeline run for so many seconds before them."""
    expect.set_options(timeout=PATIENCE_MS)
    with (
        EmbeddedRedis() as server,
        Service(server.url, answer_within="2") as service,
        sync_playwright() as playwright,
    ):
        path = shutil.which("chromium") or shutil.which("chromium-browser")
        arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
        browser = playwright.chromium.launch(executable_path=path, args=arguments)
        with _pages(browser, service) as pages:
            _draw(pages, server, folder, seconds)
        browser.close()


@contextmanager
def _pages(browser: Browser, service: Service) -> Iterator[list[Page]]:
    """Yield a page for each size."""
    contexts = [
        browser.new_context(
            base_url=service.url,
            color_scheme="dark" if theme == "dark" else "light",
            viewport={"width": width, "height": height},
            reduced_motion="reduce",
        )
        for _, theme, width, height in SIZES
    ]
    for context in contexts:
        context.set_default_timeout(PATIENCE_MS)
    yield [context.new_page() for context in contexts]
    for context in contexts:
        context.close()


def _draw(pages: list[Page], server: EmbeddedRedis, folder: Path, seconds: float) -> None:
    load = _orders(server.url)
    quiet = _others(server.url)
    shown = {"overview": "/", "namespace": "/#/ns/orders"}
    stuck = load.acker.show(load.track_as("order-2026-11-23-0004711"))
    assert stuck
    message = load.acker.ids.code("sent") | 40
    _move(load, stuck.anchor, stuck.checksum ^ message)
    label, block = "page 7 of products.csv", 815
    anchors = load.acker.track_block("catalogue", label, _slots(load), block, range(3, 400))
    batch = Batch()
    for slot in (40, 41, 187):
        batch.fail(anchors[slot], "the image is missing")
    load.acker.apply(batch)
    shown["tree"] = f"/#/ns/orders/trees/{stuck.anchor}"
    shown["block"] = f"/#/ns/orders/blocks/{block}"
    for scene, path in shown.items():
        for page in pages:
            page.goto(path)
        if scene == "namespace":
            _run(load, pages, seconds)
        for page in pages:
            expect(page.locator(READY[scene]).first).to_be_visible()
            if scene != "namespace":  # its rates fall with the time
                page.wait_for_timeout(1500)  # so that all panels have their first answer
        _keep(pages, folder, scene)
    for page in pages:
        page.goto(shown["namespace"])
        expect(page.locator(".figure-value").first).not_to_have_text("\u2013")
    pid = server.pid
    assert pid
    os.kill(pid, signal.SIGSTOP)
    try:
        for page in pages:
            expect(page.locator("#banner")).to_contain_text("does not answer")
            expect(page.locator(".health")).to_contain_text("State unknown")
        _keep(pages, folder, "outage")
    finally:
        os.kill(pid, signal.SIGCONT)
    for each in (load, *quiet):
        each.close()


def _orders(url: str) -> Load:
    """Return a namespace whose bolt that packs loses a message now and then."""
    load = Load(
        url,
        "orders",
        shards=4,
        high_water=8_000,
        edges=EDGES,
        refresh="update",
        tick_ms=60_000,
        deadline_ms=600_000,
    )
    load.track(200, prefix="order-2026-11-23-000")
    load.fail(3, "card was declined")
    load.track_on("sent", 12)
    for _ in range(3):
        load.tick()
    load.waiting.clear()  # these trees have expired
    load.track(300, prefix="order-2026-11-23-001")
    load.tick()
    return load


def _others(url: str) -> list[Load]:
    """Return namespaces in other states: above the mark, without a rotator, and healthy."""
    made = []
    for name, mark, trees, late_ms in (
        ("bills", 10_000, 420, 0),
        ("emails", 400, 610, 0),
        ("imports", 10_000, 80, 900_000),
        ("stock", 10_000, 1_950, 0),
    ):
        load = Load(url, name, high_water=mark, tick_ms=120_000)
        load.track(trees)
        load.ack(trees // 5)
        if late_ms:
            load.no_rotator_for(late_ms)
        made.append(load)
    return made


def _slots(load: Load) -> list[int]:
    """Return the ids of the first messages of a block: a third of its trees is done."""
    code = load.acker.ids.code("packed")
    return [0 if slot % 3 == 0 or slot < 90 else code | slot for slot in range(400)]


def _move(load: Load, anchor: int, delta: int) -> None:
    batch = Batch()
    batch.ack(anchor, delta)
    load.acker.apply(batch)


def _run(load: Load, pages: list[Page], seconds: float) -> None:
    """Let trees begin and end for a while."""
    end, turn = time.monotonic() + seconds, 0
    while time.monotonic() < end:
        turn += 1
        load.track(LOST, prefix=f"order-2026-11-23-{turn:04}")
        load.ack(LOST - 1)
        load.track_on("sent", 1)
        if turn % 7 == 0:
            load.fail(1)
        pages[0].wait_for_timeout(200)


def _keep(pages: list[Page], folder: Path, scene: str) -> None:
    for page, (name, _, _, _) in zip(pages, SIZES, strict=True):
        page.evaluate("document.activeElement?.blur()")
        page.screenshot(path=folder / f"dashboard-{scene}-{name}.png", animations="disabled")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("folder", type=Path, nargs="?", default=FOLDER)
    parser.add_argument("--seconds", type=float, default=25, help="before the first picture")
    options = parser.parse_args()
    main(options.folder, options.seconds)
