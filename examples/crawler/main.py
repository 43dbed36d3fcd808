"""Crawl sites of unknown size, and notice when the last page of each was crawled."""

import argparse
import asyncio
import contextlib
import random
import secrets
import sys
from collections.abc import AsyncIterator, Coroutine
from dataclasses import dataclass
from typing import Any

from pages import links, listing, reachable

from acker_redis import Acker, AckerConfig, Backoff, MessageId, OpenTree, Record, Rotator
from acker_redis.aio import AsyncAcker, AsyncBolt, AsyncProducer, AsyncSource
from acker_redis.embedded import EmbeddedRedis

SITES = "json", "html", "http", "email", "urllib", "logging", "asyncio", "multiprocessing"
CRAWLERS = 20
BUSY = {"json.tool"}
"""Pages whose first request times out."""


@dataclass(frozen=True)
class Page:
    """A page to be fetched."""

    name: str
    id: MessageId
    seen: set[str]
    """Names of the pages queued in this attempt; all pages of the attempt share this set."""


Pages = asyncio.Queue[Page]


async def fetch(name: str) -> tuple[str, ...]:
    """Fetch a page with some delay, and return its links."""
    await asyncio.sleep(random.uniform(0.005, 0.050))  # noqa: S311
    if name in BUSY:
        BUSY.remove(name)
        raise TimeoutError(f"{name} did not answer")
    return links(name)


async def crawl(pages: Pages, bolt: AsyncBolt) -> None:
    """Fetch pages one after the other, and queue each link that was not seen before."""
    while True:
        page = await pages.get()
        with contextlib.suppress(ModuleNotFoundError, TimeoutError):  # reported to the source
            async with bolt.process(page.id) as t:
                for link in await fetch(page.name):
                    if link not in page.seen:
                        page.seen.add(link)
                        pages.put_nowait(Page(link, t.emit(), page.seen))


@contextlib.asynccontextmanager
async def in_background(*work: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """Run endless coroutines until the block ends, then cancel them."""
    tasks = [asyncio.create_task(each) for each in work]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)


class Sites:
    """The pages that were crawled of each site, and the verdicts that the source received."""

    def __init__(self, pages: Pages) -> None:
        self.pages = pages
        self.seen: dict[str, set[str]] = {}
        self.given_up: dict[str, str] = {}

    async def send(self, site: Record, tree: OpenTree) -> None:
        """Queue the pages that a site lists; crawlers begin while the listing goes on."""
        seen = self.seen[site.source_id] = set()
        for name in listing(site.source_id):
            if name not in seen:
                seen.add(name)
                self.pages.put_nowait(Page(name, tree.emit(), seen))
            await asyncio.sleep(0)

    def ack(self, site: Record) -> None:
        """Print that all pages were crawled."""
        count = len(self.seen[site.source_id])
        print(f"{site.source_id:15} complete: {count} pages, attempt {site.attempt}")

    def fail(self, site: Record, reason: str, why: str) -> None:
        """Print the failure of a page."""
        print(f"{site.source_id:15} {reason}: {why}, attempt {site.attempt}")

    def give_up(self, site: Record, reason: str, why: str) -> None:
        """Print that the last attempt failed."""
        print(f"{site.source_id:15} given up")
        self.given_up[site.source_id] = why

    def is_right(self, site: str) -> bool:
        """Return whether a plain search finds the same pages, or the same dead link."""
        found, dead = reachable(site)
        if site in self.given_up:
            return any(self.given_up[site].endswith(f" {name}") for name in dead)
        return not dead and self.seen[site] == found


async def run(url: str) -> bool:
    """Crawl all sites; return whether the source received the right verdict for each."""
    print(f"{len(SITES)} sites, {CRAWLERS} crawlers", flush=True)
    namespace, pages = f"crawler-{secrets.token_hex(4)}", Pages()
    sites = Sites(pages)
    async with AsyncAcker.from_url(url, namespace) as acker, AsyncProducer(acker) as producer:
        await acker.create(AckerConfig())
        crawlers = [crawl(pages, AsyncBolt(producer)) for _ in range(CRAWLERS)]
        source = AsyncSource(
            acker,
            "sites",
            sites.send,
            on_ack=sites.ack,
            on_fail=sites.fail,
            dead_letter=sites.give_up,
            attempts=2,
            backoff=Backoff(0.1),
        )
        with Acker.from_url(url, namespace) as other, Rotator([other]):
            async with in_background(*crawlers), source:
                for site in SITES:
                    await source.emit(site, messages=None)  # their number is unknown
                await source.join()
    return all(sites.is_right(site) for site in SITES)


def main() -> int:
    """Run the example and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--redis", metavar="URL", help="default: an embedded server")
    url = parser.parse_args().redis
    with contextlib.nullcontext() if url else EmbeddedRedis() as own:
        right = asyncio.run(run(own.url if own else url))
    print("Each site is accounted for." if right else "Some site is NOT accounted for.")
    return not right


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
