"""Locators of the parts of a page."""

from playwright.sync_api import Locator, Page


def panel(page: Page, title: str) -> Locator:
    """Return a panel by its title. A table in it may have the same name."""
    return page.get_by_role("region", name=title, exact=True).and_(page.locator("section"))


def card(page: Page, namespace: str) -> Locator:
    """Return the card of a namespace; the service may still list one of the test before."""
    link = page.get_by_role("link", name=namespace, exact=True)
    return page.locator(".card").filter(has=link)


def figure(page: Page, name: str) -> Locator:
    """Return the value of a figure."""
    tile = page.locator(".figure", has=page.get_by_text(name, exact=True))
    return tile.locator(".figure-value")
