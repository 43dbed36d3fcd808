"""Where things stand on a page."""

from playwright.sync_api import Locator, Page


def panel(page: Page, title: str) -> Locator:
    """A panel by its title."""
    return page.get_by_role("region", name=title, exact=True)


def figure(page: Page, name: str) -> Locator:
    """The value of a figure."""
    tile = page.locator(".figure", has=page.get_by_text(name, exact=True))
    return tile.locator(".figure-value")
