"""The page of a block: a map of its slots, and what Fail and Touch reach."""

import re

from playwright.sync_api import Page, expect

from acker_redis.batching.batch import Batch
from acker_redis.protocol.ids import block_anchor
from tests.browser.conftest import MakeLoad, OpenPage, keep
from tests.browser.look import panel
from tests.browser.test_accessible import blameless


def states(page: Page) -> list[str]:
    """Return the states of the slots, by their colours' names."""
    cells = page.locator(".slot-map .slot")
    found: list[str] = cells.evaluate_all("cells => cells.map((each) => each.classList[1])")
    return found


def test_map_shows_the_state_of_each_slot(make_load: MakeLoad, open_page: OpenPage) -> None:
    load = make_load("orders")
    anchors = load.acker.track_block("shop", "page 7", [0, 40, 0, 41, 42, 0], 815, [0, 1, 3, 4])
    batch = Batch()
    batch.fail(anchors[3], "torn")
    load.acker.apply(batch)
    page = open_page("/#/ns/orders/trees?kind=block", width=390)
    row = panel(page, "Pending trees").get_by_role("row").filter(has_text="page 7")
    expect(row).to_contain_text("block of up to 6")
    row.get_by_role("link", name="page 7").click()
    expect(page).to_have_url(re.compile("blocks/815$"))
    parts = page.get_by_role("navigation", name="Views of the namespace")
    expect(parts.get_by_role("link", name="Trees")).to_have_attribute("aria-current", "page")
    slots = panel(page, "Slots")
    expect(slots.get_by_role("img")).to_have_attribute(
        "aria-label", "6 slots: 2 open, 1 done, 1 failed, 2 without a tree"
    )
    assert states(page) == ["done", "open", "absent", "failed", "open", "absent"]
    known = panel(page, "Block")
    expect(known).to_contain_text("Trees4: 2 open, 1 failed, 1 done")
    expect(known).to_contain_text("Touch resets the timeout of all 4 trees of the block.")
    expect(known).to_contain_text("Expires at the latest")
    expect(page.get_by_role("button", name="Fail", exact=True)).to_have_count(0)
    blameless(page)
    keep(page, "block-390")
    page.get_by_role("button", name="Touch the block").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("the timeout of all its 4 trees")
    dialog.get_by_role("button", name="Touch").click()
    expect(page.get_by_text("The timeout was reset", exact=True)).to_be_visible()
    # The map follows the block, and each of its trees has a page.
    batch = Batch()
    batch.ack(anchors[4], 42)
    load.acker.apply(batch)
    expect(slots.locator(".legend")).to_contain_text("done 2")
    slots.locator(".slot-map .absent").first.click()
    expect(page).to_have_url(re.compile("blocks/815$"))
    slots.locator(".slot-map .open").click()
    expect(page).to_have_url(re.compile(f"trees/{block_anchor(815, 1)}$"))
    its = panel(page, "Its block")
    expect(its).to_contain_text("Fail is for this tree only, slot 1.")
    expect(its.locator(".here")).to_have_attribute("title", "Slot 1: open")
    page.get_by_role("button", name="Fail", exact=True).click()
    expect(dialog).to_contain_text("Only this tree of the block, slot 1, fails.")
    dialog.get_by_role("button", name="Cancel").click()
    its.get_by_role("link", name="3", exact=True).click()
    expect(page).to_have_url(re.compile(f"trees/{anchors[3]}$"))
    # Redis does not keep why a tree in a block has failed.
    expect(panel(page, "Details")).to_contain_text("Whyits verdict has the reason")
    expect(panel(page, "Timeline")).to_contain_text("its verdict has the reason")
    panel(page, "Details").get_by_role("link", name="815").click()
    expect(page).to_have_url(re.compile("blocks/815$"))
    # A slot without a tree is not pending, and a block that has ended is not either.
    page.goto(f"/#/ns/orders/trees/{anchors[2]}")
    expect(panel(page, "Details")).to_contain_text("Not pending")
    page.goto("/#/ns/orders/blocks/816")
    expect(known).to_contain_text("Not pending")
    expect(slots).to_have_count(0)


def test_map_of_the_largest_block_fits_a_phone(make_load: MakeLoad, open_page: OpenPage) -> None:
    load = make_load("orders")
    load.acker.track_block("shop", "large", [each % 2 for each in range(4095)], 9)
    page = open_page("/#/ns/orders/blocks/9", width=390)
    slots = panel(page, "Slots")
    expect(slots.locator(".legend")).to_contain_text("open 2,047")
    expect(slots).to_contain_text("and 1,847 more")
    assert len(states(page)) == 4095
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert page.evaluate("document.documentElement.scrollHeight < 3000")
