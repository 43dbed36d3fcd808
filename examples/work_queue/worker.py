"""The three services: ``worker.py split|count|join URL NAMESPACE`` runs one until SIGTERM.

::

    documents --> split --> pages --> count (several) --> counts --> join --> totals

Each service reads its queue, processes each entry as a bolt, and puts its results into the next
queue. When an entry is delivered twice, ``emit(key=...)`` derives the same ids for its children
both times, so ``join`` recognizes the duplicates.
"""

import json
import os
import signal
import sys
import time
from collections import Counter, defaultdict
from contextlib import suppress
from typing import Any

import redis
from streams import Entry, Queue

from acker_redis import Acker, Bolt, Producer

PAGE = 30
"""Lines in a page."""


class Services:
    """The services: each method is one of them, and never returns."""

    def __init__(self, client: "redis.Redis", bolt: Bolt, name: str) -> None:
        self.client, self.bolt, self.name = client, bolt, name
        self.documents = Queue(client, f"{name}:documents")
        self.pages = Queue(client, f"{name}:pages")
        self.counts = Queue(client, f"{name}:counts")

    def split(self) -> None:
        """Split documents into pages. A document that is not UTF-8 fails, with the reason."""
        for document in self.documents.entries():
            with suppress(UnicodeDecodeError), self.bolt.process(document.message) as t:
                lines = document["text"].decode().splitlines()
                pages = ["\n".join(lines[at : at + PAGE]) for at in range(0, len(lines), PAGE)]
                for number, text in enumerate(pages):
                    place: dict[str, Any] = {
                        "line": document["line"],
                        "page": number,
                        "pages": len(pages),
                    }
                    self.pages.put(t.emit(key=f"page {number}"), **place, text=text)
            self.documents.done(document)

    def count(self) -> None:
        """Count the words of pages."""
        for page in self.pages.entries():
            with self.bolt.process(page.message) as t:
                words = json.dumps(Counter(page["text"].decode().split()))
                place = {name: page[name] for name in ("line", "page", "pages")}
                self.counts.put(t.emit(key="count"), **place, words=words)
                if self.client.srem(f"{self.name}:traps", page["line"]):
                    self.client.rpush(f"{self.name}:trapped", os.getpid())
                    time.sleep(3600)  # killed here: the count was sent, its page is not acked
            self.pages.done(page)

    def join(self) -> None:
        """Add up the counts of each document when the counts of all its pages have arrived.

        Pages of two attempts are kept apart by their anchor.
        """
        waiting = defaultdict[bytes, dict[int, dict[bytes, Entry]]](dict)
        for count in self.counts.entries():
            (anchor,) = count.message
            joined = f"{self.name}:joined:{anchor}"
            pages = waiting[count["line"]].setdefault(anchor, {})
            if self.client.exists(joined):
                self.counts.done(count)  # a duplicate
                continue
            pages[count["page"]] = count
            if len(pages) == int(count["pages"]):
                words = sum(
                    (Counter(json.loads(one["words"])) for one in pages.values()), Counter()
                )
                with self.bolt.process(*(one.message for one in pages.values())):
                    self.client.hset(f"{self.name}:totals", count["line"], json.dumps(words))
                    self.client.set(joined, 1, ex=600)
                attempts = waiting.pop(count["line"])
                self.counts.done(*(one for pages in attempts.values() for one in pages.values()))


def main(service: str, url: str, namespace: str) -> None:
    """Run a service until SIGTERM, or until the connection to Redis is lost."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())
    client = redis.Redis.from_url(url)
    with (
        suppress(redis.ConnectionError),
        Acker.from_url(url, namespace) as acker,
        Producer(acker) as producer,
    ):
        getattr(Services(client, Bolt(producer), namespace), service)()


if __name__ == "__main__":
    main(*sys.argv[1:])
