"""Texts of other programs are shown unchanged: they are never markup, code or direction."""

import json
import re

import httpx
import pytest
from playwright.sync_api import Page, Route, expect

from acker_redis.batching.batch import Batch
from tests.browser.conftest import PATIENCE_MS, MakeLoad, OpenPage
from tests.browser.load import HOSTILE
from tests.browser.look import panel
from tests.browser.stack import Service
from tests.waiting import LIMIT

LONG = {
    "newlines": "one\ntwo\r\nthree\ttab\u0000\u0007",
    "emoji": "\U0001f468\u200d\U0001f469\u200d\U0001f467" * 57,
    "script": "</script><script>window.hacked=1</script>",
    "style": '"><style>*{display:none}</style><svg onload=window.hacked=1>',
}
"""Texts that our clients do not send, and that a record may contain nevertheless."""


def shown(page: Page, text: str) -> None:
    """Check that a text is shown completely, in a separate element that isolates it.

    The element of a long id has two parts, so that its end stays visible.
    """
    found = page.evaluate(
        """(text) => [...document.querySelectorAll("bdi.foreign")]
            .filter((each) => each.textContent === text)
            .map((each) => [each.querySelectorAll(":not(.id-head, .id-tail)").length,
                getComputedStyle(each).unicodeBidi])""",
        text,
    )
    assert found, f"not shown: {text!r}"
    assert {tuple(each) for each in found} <= {(0, "isolate"), (0, "plaintext")}, found


def unharmed(page: Page) -> None:
    """Check that no script ran, and that no element was created from a text."""
    assert page.evaluate("window.hacked") is None
    assert page.locator("main img, main script, main style, main iframe").count() == 0
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_ids_and_reasons_are_text_everywhere(make_load: MakeLoad, open_page: OpenPage) -> None:
    load = make_load("orders")
    anchors = {name: load.track_as(text) for name, text in HOSTILE.items()}
    page = open_page("/#/ns/orders/trees", width=900)
    rows = panel(page, "Pending trees").get_by_role("row")
    expect(rows).to_have_count(1 + len(HOSTILE))
    for text in HOSTILE.values():
        shown(page, text)
    unharmed(page)
    for name in ("html", "rtl", "url"):
        page.goto(f"/#/ns/orders/trees/{anchors[name]}")
        expect(panel(page, "Details")).to_contain_text("Checksum")
        expect(page.locator(".tree-title bdi")).to_have_text(HOSTILE[name])
        shown(page, HOSTILE[name])
        unharmed(page)

    batch = Batch()
    for name, text in HOSTILE.items():
        batch.fail(anchors[name], text)
    load.acker.apply(batch)
    page.goto("/#/ns/orders")
    expect(panel(page, "Verdicts").get_by_role("row")).to_have_count(1 + len(HOSTILE))
    expect(panel(page, "Recent failures").get_by_role("row")).to_have_count(1 + len(HOSTILE))
    for text in HOSTILE.values():
        shown(page, text)
    unharmed(page)
    page.get_by_label("Filter verdicts").fill(HOSTILE["html"])
    expect(panel(page, "Verdicts").get_by_role("row")).to_have_count(2)
    unharmed(page)


def test_labels_are_text(make_load: MakeLoad, open_page: OpenPage) -> None:
    load = make_load("orders")
    batch = Batch("shop", ids=load.acker.ids)
    for text in HOSTILE.values():
        batch.track_block(text, [7, 8])
    load.acker.apply(batch)
    page = open_page("/#/ns/orders/trees?kind=block")
    rows = panel(page, "Pending trees").get_by_role("row")
    expect(rows).to_have_count(1 + len(HOSTILE))
    for text in HOSTILE.values():
        shown(page, text)
    unharmed(page)
    rows.filter(has_text="onerror").get_by_role("link").click()
    expect(page.locator(".tree-title bdi")).to_have_text(HOSTILE["html"])
    unharmed(page)


def test_sources_reasons_and_audit_entries_are_text(
    service: Service, make_load: MakeLoad, open_page: OpenPage
) -> None:
    make_load("orders").track(3)
    status = httpx.get(f"{service.url}/api/v1/namespaces/orders", timeout=LIMIT).json()
    texts = [*HOSTILE.values(), *LONG.values()]
    status["backlog"] = dict.fromkeys(texts, 2 * status["config"]["outcomes_limit"])
    status["config"]["edges"] = texts
    waiting = {"trees": 1, "idle_ms": 5, "max_idle_ms": 5}
    finding = {"id": "outcomes", "title": "Verdicts", "level": "error", "where": "orders"}
    status["findings"] = [
        finding | dict.fromkeys(("headline", "detail", "fix"), text) for text in texts
    ]
    outcome = {"verdict": "nack", "slot": None, "age_ms": 5, "at_ms": 1, "entry": ""}
    answers = {
        "/outcomes": {
            "outcomes": [
                {**outcome, "anchor": str(at), "source": text, "source_id": text, "why": text}
                | {"reason": text}
                for at, text in enumerate(texts)
            ]
        },
        "/waits": {
            "sampled": len(texts),
            "pending": len(texts),
            "edges": [{"edge": text, **waiting} for text in texts],
        },
        "/backlog": {
            "sources": [
                {"source": text, "waiting": 5, "oldest_at_ms": None, "limit": 9} for text in texts
            ]
        },
        "/audit": {
            "entries": [
                {"at_ms": 1, "before": {text: text}, "after": {"why": [text]}, "namespace": text}
                | dict.fromkeys(("who", "action", "target", "result", "why"), text)
                for text in texts
            ],
            "next": None,
        },
        "/namespaces/orders": status,
    }

    def answer(route: Route) -> None:
        path = route.request.url.partition("?")[0]
        known = [found for end, found in answers.items() if path.endswith(end)]
        if path.endswith("/events"):
            route.fulfill(status=404)
        elif known:
            route.fulfill(json=known[0])
        else:
            route.continue_()

    page = open_page("/login", width=380)
    page.add_init_script("delete window.SharedWorker")  # no test can answer its requests
    page.route("**/api/v1/**", answer)
    page.goto("/#/ns/orders")
    for title in ("Untaken verdicts", "Verdicts"):
        panel(page, title).get_by_role("button", name="Show").click()
    panel(page, "Recent failures").get_by_role("button", name="Show all").click()
    expect(panel(page, "Untaken verdicts").get_by_role("row")).to_have_count(1 + len(texts))
    expect(panel(page, "Verdicts").get_by_role("row")).to_have_count(1 + len(texts))
    expect(page.locator(".finding")).to_have_count(len(texts))
    waits = page.get_by_role("region", name=re.compile("^Where trees wait"))
    waits.get_by_role("button", name="Show all").click()
    expect(waits.get_by_role("row")).to_have_count(1 + len(texts))
    for text in texts:
        expect(waits.locator("bdi.foreign").filter(has_text=text)).not_to_have_count(0)
    for text in texts:
        shown(page, text)
    unharmed(page)
    page.goto("/#/audit")
    expect(panel(page, "Changes").get_by_role("row")).to_have_count(1 + len(texts))
    for text in texts:
        shown(page, text)
    unharmed(page)


@pytest.mark.parametrize("width", [1280, 380])
def test_texts_of_foreign_clients_are_text(
    make_load: MakeLoad, open_page: OpenPage, width: int
) -> None:
    make_load("orders")

    def answer(route: Route) -> None:
        response = route.fetch(timeout=PATIENCE_MS)
        body = response.json()
        body["trees"] = [
            {
                "anchor": str(number),
                "checksum": "0" * 16,
                "source": "shop",
                "source_id": text,
                "state": text if number == 2 else "open",
                "why": text,
                "age_ms": 5,
                "bucket": 0,
                "block": None,
            }
            for number, text in enumerate(LONG.values())
        ]
        route.fulfill(response=response, body=json.dumps(body))

    page = open_page("/login", width=width)
    page.route("**/trees?*", answer)
    page.goto("/#/ns/orders/trees")
    expect(panel(page, "Pending trees").get_by_role("row")).to_have_count(1 + len(LONG))
    for text in LONG.values():
        shown(page, text)
    unharmed(page)


def test_error_messages_are_text(make_load: MakeLoad, open_page: OpenPage) -> None:
    make_load("orders")
    problem = {"title": LONG["script"], "detail": LONG["style"], "status": 400}
    page = open_page("/login")
    page.route("**/trees?*", lambda route: route.fulfill(status=400, body=json.dumps(problem)))
    page.goto("/#/ns/orders/trees")
    expect(panel(page, "Pending trees")).to_contain_text(LONG["script"])
    unharmed(page)
    for place in ("#/ns/%3Cimg%20src=x%20onerror=window.hacked=1%3E", "#/<b>", "#/ns/a%zz"):
        page.goto(f"/{place}")
        expect(page.get_by_role("link", name="acker, all namespaces")).to_be_visible()
        expect(page.locator("main")).not_to_be_empty()
        unharmed(page)
