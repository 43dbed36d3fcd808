"""A namespace with edges: where trees wait, and where a message of an expired tree is missing."""

import re

import pytest
from playwright.sync_api import Route, expect

from acker_redis.batching.batch import Batch
from acker_redis.embedded import EmbeddedRedis
from acker_redis.protocol.keys import ShardKeys
from acker_redis.sync.client import Acker
from tests.browser.conftest import MakeLoad, OpenPage, keep
from tests.browser.look import panel
from tests.browser.stack import Service
from tests.browser.test_accessible import blameless
from tests.support import advance, tick

EDGES = ("mill", "shop", "till")
WAITS = re.compile("^Where trees wait")


def test_waiting_trees_are_shown_by_edge(
    redis_server: EmbeddedRedis, make_load: MakeLoad, open_page: OpenPage
) -> None:
    load = make_load("mills", edges=EDGES, shards=4)
    load.track_on("till", 20)
    for _ in range(3):
        load.tick()
    load.track_on("mill", 30)
    load.track_on("shop", 10)
    # Pages of other tests may have left the common service watching, so this one begins only now.
    with Service(redis_server.url) as own:
        page = open_page("/#/ns/mills", at=own)
        waits = page.get_by_role("region", name=WAITS)
        expect(waits.get_by_role("heading")).to_have_text("Where trees wait (sample of 40)")
        rows = waits.get_by_role("row")
        # In the order of the configuration; no tree is on no edge, so there is no line for them.
        expect(rows).to_have_text(
            [
                re.compile("^EdgeWaiting trees"),
                re.compile("^mill30 \\(75 %\\).*s00$"),
                re.compile("^shop10 \\(25 %\\).*s00$"),
                # The service began after these trees expired.
                re.compile("^till0 \\(0 %\\)\u2013\u2013020$"),
            ]
        )
        wide, narrow = (
            rows.nth(line)
            .locator(".share-bar")
            .evaluate("bar => bar.getBoundingClientRect().width")
            for line in (1, 2)
        )
        assert 2.5 < wide / narrow < 3.5
        load.track_on("", 5)
        expect(rows.nth(4)).to_have_text(re.compile("^no edge or an even number5 "))
        expect(waits).to_contain_text(
            re.compile("Expired lately: none since [0-9:]+, when the service")
        )
        load.track_on("till", 7)
        for _ in range(3):
            load.tick()
        expect(rows.nth(3)).to_have_text(re.compile("^till0 \\(0 %\\)\u2013\u2013727$"))
        expect(waits).to_contain_text(re.compile("Expired lately: counted since [0-9:]+, when"))


@pytest.mark.parametrize(("width", "theme"), [(1440, "light"), (380, "dark")])
def test_pages_with_edges_are_accessible(
    make_load: MakeLoad, open_page: OpenPage, width: int, theme: str
) -> None:
    load = make_load("orders", edges=("mill", "shop", "e" * 64))
    for edge, count in (("mill", 3), ("shop", 1), ("", 2)):
        load.track_on(edge, count)
    page = open_page("/login", width=width, theme=theme)
    page.goto("/#/ns/orders")
    waits = page.get_by_role("region", name=WAITS)
    if width < 640:
        waits.get_by_role("button", name="Show all").click()
    expect(waits.get_by_role("row")).to_have_count(5)
    bar = waits.locator(".share-bar").first
    assert bar.evaluate("bar => bar.getBoundingClientRect().width") > 20
    blameless(page)
    tick(load.acker, 3)
    if width < 640:
        panel(page, "Verdicts").get_by_role("button", name="Show").click()
    expect(panel(page, "Verdicts").get_by_role("row", name="shop-1")).to_contain_text("its id is")
    expect(waits.get_by_role("row").nth(1)).to_contain_text("mill0 (0 %)")
    blameless(page)
    keep(page, f"edges-{width}-{theme}")
    load.track_on("shop")
    page.goto("/#/ns/orders/trees")
    panel(page, "Pending trees").get_by_role("link", name="shop-1").click()
    expect(panel(page, "Where it waits")).to_contain_text("It waits on edge shop")
    blameless(page)
    keep(page, f"edges-tree-{width}-{theme}")
    page.goto("/")
    page.get_by_role("button", name="New namespace").click()
    expect(page.get_by_role("dialog").get_by_label("Edges")).to_be_visible()
    blameless(page)


def test_panel_of_edges_is_for_namespaces_with_edges(
    make_load: MakeLoad, open_page: OpenPage
) -> None:
    make_load("orders").track(3)
    asked = list[str]()
    page = open_page("/login")
    page.on("request", lambda request: asked.append(request.url))
    page.goto("/#/ns/orders")
    expect(panel(page, "Oldest trees").get_by_role("row").nth(1)).to_be_visible()
    expect(page.get_by_role("region", name=WAITS)).to_have_count(0)
    assert not [url for url in asked if "/waits?" in url]
    idle = make_load("idle", edges=EDGES)
    page.goto("/#/ns/idle")
    waits = page.get_by_role("region", name=WAITS)
    expect(waits).to_contain_text("Nothing is pending")
    idle.track_on("shop")
    expect(waits.get_by_role("row")).to_have_count(4)


def test_failed_request_for_waits_is_shown_in_its_panel(
    make_load: MakeLoad, open_page: OpenPage
) -> None:
    load = make_load("orders", edges=EDGES)
    load.track_on("mill", 3)
    broken = [True]

    def answer(route: Route) -> None:
        if broken:
            # The page repeats no request that was refused, so the button stays until it is clicked.
            route.fulfill(status=403, json={"title": "Forbidden", "detail": "no rights"})
        else:
            route.continue_()

    page = open_page("/login")
    page.route("**/waits?*", answer)
    page.goto("/#/ns/orders")
    waits = page.get_by_role("region", name=WAITS)
    expect(waits).to_contain_text("no rights")
    expect(panel(page, "Oldest trees").get_by_role("row")).to_have_count(4)
    broken.clear()
    waits.get_by_role("button", name="Try again").click()
    expect(waits.get_by_role("row").nth(1)).to_contain_text("mill")
    expect(waits).not_to_contain_text("no rights")


def test_pending_tree_shows_its_edge_and_the_id_of_its_message(
    make_load: MakeLoad, open_page: OpenPage
) -> None:
    load = make_load("orders", edges=EDGES)
    (message,) = load.track_on("shop")
    advance(load.acker, 600_000)
    ids = [load.acker.ids.code(edge) | 5 for edge in ("mill", "till")]
    batch = Batch("shop")
    batch.track(7, "several", ids)
    load.acker.apply(batch)
    page = open_page("/#/ns/orders/trees")
    panel(page, "Pending trees").get_by_role("link", name="shop-1").click()
    known = panel(page, "Details")
    waits = panel(page, "Where it waits")
    anchor = page.url.rpartition("/")[2]
    words = f"If one message is missing, its id is {message:016x}, in logs {anchor}:{message}."
    expect(waits).to_contain_text(words)
    expect(waits).to_contain_text("It waits on edge shop: an odd number of its messages")
    expect(waits).to_contain_text(re.compile("No row has arrived for 10 min( [0-9]+ s)?."))
    expect(known).to_contain_text(re.compile("Last row10 min( [0-9]+ s)? ago"))
    expect(known).to_contain_text(re.compile("Expires at the latest.*with tick 3 from now"))
    page.goto("/#/ns/orders/trees/7")
    expect(waits).to_contain_text("It waits on edges mill, till: ")
    expect(waits).to_contain_text("Several messages are outstanding, so no single id is known")
    batch = Batch()
    batch.ack(7, ids[0])
    load.acker.apply(batch)
    expect(waits).to_contain_text("It waits on edge till: ")
    expect(panel(page, "Timeline").get_by_role("listitem").first).to_contain_text("First row")


def test_expired_tree_shows_where_its_message_is_missing(
    make_load: MakeLoad, open_page: OpenPage
) -> None:
    load = make_load("orders", edges=EDGES)
    (message,) = load.track_on("shop")
    load.track_on("mill", 4)
    page = open_page("/#/ns/orders")
    expect(page.get_by_role("region", name=WAITS).get_by_role("row")).to_have_count(4)
    advance(load.acker, 600_000)
    tick(load.acker, 3)
    row = panel(page, "Verdicts").get_by_role("row", name="shop-1")
    expect(row).to_contain_text(re.compile("no ack on edge shop; last row 10 min.* before"))
    expect(row).to_contain_text(f"If one message is missing, its id is {message:016x}")
    failures = panel(page, "Recent failures").get_by_role("row")
    expect(failures).to_have_count(3)
    expect(failures.filter(has_text="no ack on edge mill")).to_contain_text("4")
    # A message id of a log leads to its tree.
    feed = panel(page, "Verdicts")
    feed.get_by_label("Filter verdicts").fill(f"{message:016x}")
    expect(feed.get_by_role("row")).to_have_count(2)
    feed.get_by_label("Filter verdicts").fill("mill")
    expect(feed.get_by_role("row")).to_have_count(5)


def test_expired_block_shows_its_edges(make_load: MakeLoad, open_page: OpenPage) -> None:
    load = make_load("orders", edges=EDGES)
    page = open_page("/#/ns/orders")
    expect(page.get_by_role("region", name=WAITS)).to_contain_text("Nothing is pending")
    expect(page.locator("#connection")).to_have_text("Live")
    load.acker.track_block("shop", "page 7", [load.acker.ids.code("till") | 1, 0, 3])
    tick(load.acker, 3)
    row = panel(page, "Verdicts").get_by_role("row", name="page 7").filter(has_text="expired")
    expect(row).to_contain_text("no ack on edge till; last row")


def test_namespace_with_edges_and_deadline_is_created_and_changed(
    make_load: MakeLoad, open_page: OpenPage
) -> None:
    load = make_load("first")  # at its end all namespaces are deleted
    page = open_page("/")
    page.get_by_role("button", name="New namespace").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Name").fill("orders")
    dialog.get_by_label("Edges").fill("mill, shop,")
    dialog.get_by_label("Deadline").fill("soon")
    create = dialog.get_by_role("button", name="Create")
    create.click()
    expect(dialog.get_by_role("alert")).to_have_text("soon is not a time: write 90s, 10min or 2h.")
    dialog.get_by_label("Deadline").fill("60s")
    create.click()
    expect(dialog.get_by_role("alert")).to_contain_text("at least buckets * tick_ms = 90000")
    dialog.get_by_label("Deadline").fill("10min")
    create.click()
    expect(page.get_by_role("heading", level=1)).to_have_text("orders")
    with Acker(load.acker.connection.client, "orders") as acker:
        config = acker.config
    assert (config.edges, config.refresh, config.deadline_ms) == (
        ("mill", "shop"),
        "update",
        600_000,
    )
    parts = page.get_by_role("navigation", name="Views of the namespace")
    parts.get_by_role("link", name="Configuration").click()
    configuration = panel(page, "Configuration")
    expect(configuration).to_contain_text("Edgesmill, shop")
    expect(configuration).to_contain_text("Maximum lifetime10 min 30 s")
    deadline = configuration.get_by_label("Deadline")
    expect(deadline).to_have_value("600000")
    deadline.fill("1,200,000")
    configuration.get_by_role("button", name="Save").click()
    expect(dialog).to_contain_text("Deadline: 600,000 becomes 1,200,000.")
    dialog.get_by_role("button", name="Change it").click()
    expect(deadline).to_have_value("1200000")
    meta = load.acker.connection.client.hgetall(ShardKeys("orders", 0).meta)
    assert meta[b"deadline_ms"] == b"1200000"
    salt = meta[b"salt"].decode()
    assert salt not in page.content()
    page.goto("/#/ns/first/config")
    expect(configuration).to_contain_text("Edgesnone")
    expect(configuration.get_by_label("Deadline")).to_have_count(0)
