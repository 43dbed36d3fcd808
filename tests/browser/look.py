"""Locators of the parts of a page."""

from playwright.sync_api import Locator, Page


def panel(page: Page, title: str) -> Locator:
    """Return a panel by its title."""
    return page.get_by_role("region", name=title, exact=True)


def figure(page: Page, name: str) -> Locator:
    """Return the value of a figure."""
    tile = page.locator(".figure", has=page.get_by_text(name, exact=True))
    return tile.locator(".figure-value")
