"""Crawl some sites, and know of each when all of it was crawled; nobody knew its size before."""

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
"""Pages that do not answer in time, at first."""


@dataclass(frozen=True)
class Page:
    """A page to be fetched."""

    name: str
    id: MessageId
    seen: set[str]
    """Pages that were queued in this attempt at the site; shared by all of them."""


Pages = asyncio.Queue[Page]


async def fetch(name: str) -> tuple[str, ...]:
    """Fetch a page from far away; its links."""
    await asyncio.sleep(random.uniform(0.005, 0.050))  # noqa: S311
    if name in BUSY:
        BUSY.remove(name)
        raise TimeoutError(f"{name} did not answer")
    return links(name)


async def crawl(pages: Pages, bolt: AsyncBolt) -> None:
    """Fetch one page after the other, and queue what it links to and nobody has seen."""
    while True:
        page = await pages.get()
        with contextlib.suppress(ModuleNotFoundError, TimeoutError):  # the source hears of it
            async with bolt.process(page.id) as t:
                for link in await fetch(page.name):
                    if link not in page.seen:
                        page.seen.add(link)
                        pages.put_nowait(Page(link, t.emit(), page.seen))


@contextlib.asynccontextmanager
async def meanwhile(*work: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """Do some work that does not end by itself, until the block ends."""
    tasks = [asyncio.create_task(each) for each in work]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)


class Sites:
    """What was crawled of each site, and what the source was told of it."""

    def __init__(self, pages: Pages) -> None:
        self.pages = pages
        self.seen: dict[str, set[str]] = {}
        self.given_up: dict[str, str] = {}

    async def send(self, site: Record, tree: OpenTree) -> None:
        """Queue the pages that a site lists; the first are crawled while the others are listed."""
        seen = self.seen[site.source_id] = set()
        for name in listing(site.source_id):
            if name not in seen:
                seen.add(name)
                self.pages.put_nowait(Page(name, tree.emit(), seen))
            await asyncio.sleep(0)

    def ack(self, site: Record) -> None:
        """The last page was crawled."""
        count = len(self.seen[site.source_id])
        print(f"{site.source_id:15} complete: {count} pages, attempt {site.attempt}")

    def fail(self, site: Record, reason: str, why: str) -> None:
        """A page could not be crawled."""
        print(f"{site.source_id:15} {reason}: {why}, attempt {site.attempt}")

    def give_up(self, site: Record, reason: str, why: str) -> None:
        """It was the last attempt."""
        print(f"{site.source_id:15} given up")
        self.given_up[site.source_id] = why

    def is_right(self, site: str) -> bool:
        """Whether a plain search finds the same pages, or the same link to be dead."""
        found, dead = reachable(site)
        if site in self.given_up:
            return any(self.given_up[site].endswith(f" {name}") for name in dead)
        return not dead and self.seen[site] == found


async def run(url: str) -> bool:
    """Crawl all sites; whether the source was told right of each."""
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
            async with meanwhile(*crawlers), source:
                for site in SITES:
                    await source.emit(site, edges=None)  # nobody knows how many
                await source.join()
    return all(sites.is_right(site) for site in SITES)


def main() -> int:
    """Run the example; the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--redis", metavar="URL", help="default: one of its own")
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
