"""The login page, and the actions that each role is offered."""

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import expect

from acker_redis.embedded import EmbeddedRedis
from tests.browser.conftest import MakeLoad, OpenPage
from tests.browser.look import panel
from tests.browser.stack import Service

TOKENS = {"viewer": "v" * 24, "operator": "o" * 24, "admin": "a" * 24}


@pytest.fixture(scope="module")
def closed(redis_server: EmbeddedRedis) -> Iterator[Service]:
    """Yield a service with tokens; the operator's is for one namespace."""
    text = "".join(
        f'[[tokens]]\nname = "ann-{role}"\nrole = "{role}"\ntoken = "{token}"\n'
        + ('namespaces = ["orders"]\n' if role == "operator" else "")
        for role, token in TOKENS.items()
    )
    with Service(redis_server.url, tokens=text) as running:
        yield running


@pytest.mark.parametrize("role", TOKENS)
def test_page_offers_only_allowed_actions(
    role: str, closed: Service, make_load: MakeLoad, open_page: OpenPage
) -> None:
    anchor = make_load("orders").track_as("order-1")
    page = open_page(f"/#/ns/orders/trees/{anchor}", at=closed)
    if role == "viewer":
        page.get_by_label("Token").fill("x" * 24)
        page.get_by_role("button", name="Sign in").click()
        expect(page.get_by_role("alert")).to_have_text("This token is not valid here.")
    page.get_by_label("Token").fill(TOKENS[role])
    page.get_by_role("button", name="Sign in").click()
    # The login returns to the requested page.
    expect(panel(page, "Details")).to_contain_text("order-1")
    assert page.evaluate("document.cookie") == ""
    assert TOKENS[role] not in page.evaluate("JSON.stringify([localStorage, sessionStorage])")
    for width in (380, 1280):
        page.set_viewport_size({"width": width, "height": 900})
        expect(page.get_by_role("button", name="Sign out")).to_be_in_viewport(ratio=1)
        expect(page.locator(".session-who")).to_have_text(f"ann-{role}{role}")
        for part in (f"ann-{role}", role):
            expect(page.locator("#session").get_by_text(part, exact=True)).to_be_in_viewport()
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    acts = role != "viewer"
    expect(page.get_by_role("button", name="Fail", exact=True)).to_have_count(int(acts))
    page.get_by_role("link", name="Configuration").click()
    tick = page.get_by_role("button", name="Force a tick")
    drop = page.get_by_role("button", name="Drop the namespace")
    expect(tick).to_be_enabled(enabled=acts)
    expect(drop).to_be_enabled(enabled=role == "admin")
    expect(page.get_by_role("button", name="Save")).to_have_count(int(acts))
    page.get_by_role("button", name="Sign out").click()
    expect(page.get_by_role("heading", name="Sign in to acker")).to_be_visible()
    page.goto("/")
    expect(page.get_by_role("heading", name="Sign in to acker")).to_be_visible()


@pytest.mark.parametrize("role", ["viewer", "operator"])
def test_only_operators_are_shown_ids_of_messages(
    role: str, closed: Service, make_load: MakeLoad, open_page: OpenPage
) -> None:
    # The service still has the verdicts that passed in the other test.
    name = "orders" if role == "operator" else "bills"
    load = make_load(name, edges=("paid",))
    (lost,) = load.track_on("paid")
    (tree,) = load.acker.page().trees
    page = open_page(f"/#/ns/{name}/trees/{tree.anchor}", at=closed)
    page.get_by_label("Token").fill(TOKENS[role])
    page.get_by_role("button", name="Sign in").click()
    texts = list[str]()

    def read(words: str) -> None:
        expect(page.get_by_role("main")).to_contain_text(words)
        texts.append(page.get_by_role("main").inner_text())

    read("It waits on edge paid")
    page.goto(f"/#/search?q={tree.anchor}&ns={name}")
    read("waits on paid")
    for _ in range(3):
        load.tick()
    page.goto(f"/#/ns/{name}")
    expect(panel(page, "Verdicts")).to_contain_text("no ack on edge paid")
    read("no ack on edge paid")
    page.goto(f"/#/ns/{name}/trees/{tree.anchor}")
    read("no ack on edge paid")
    shown = [f"{lost:016x}" in text or str(lost) in text for text in texts]
    assert shown == [role == "operator", False, *2 * [role == "operator"]]
    assert ("Operators also see the ids" in texts[0]) == (role == "viewer")
    assert not re.search(r"\b(undefined|null|NaN)\b", "\n".join(texts))


def test_login_redirects_to_no_other_site(
    service: Service, make_load: MakeLoad, open_page: OpenPage
) -> None:
    page = open_page("/login")
    for elsewhere in ("https://example.org/", "//example.org", "/..//example.org"):
        page.goto(f"/login?next={elsewhere}")
        page.get_by_label("Token").fill("any-token-0123456789")
        # Without tokens, any token is accepted.
        page.get_by_role("button", name="Sign in").click()
        page.wait_for_url(lambda url: "/login" not in url)
        assert page.url == f"{service.url}/"


def test_login_form_sends_nothing_without_its_script(open_page: OpenPage) -> None:
    page = open_page("/")
    page.route("**/js/login.js", lambda route: route.abort())
    page.goto("/login")
    page.get_by_label("Token").fill("t" * 24)
    expect(page.get_by_role("button", name="Sign in")).to_be_disabled()
    page.get_by_label("Token").press("Enter")
    assert "tttt" not in page.evaluate("location.href")
