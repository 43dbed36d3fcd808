"""The three services: ``worker.py split|count|join URL NAMESPACE`` runs one until SIGTERM.

::

    documents --> split --> pages --> count (several) --> counts --> join --> totals

Each service is a worker of one stream, and adds its results to the next stream. When an entry is
delivered twice, ``child=`` derives the same ids for its children both times, so ``join`` recognizes
the duplicates.
"""

import json
import logging
import os
import signal
import sys
import time
from collections import Counter
from typing import Any

import redis

from acker_redis import Acker, MessageId
from acker_redis.integrations.streams import StreamWorker

PAGE = 30
"""Lines in a page."""
IDLE = 1.5
"""Seconds after which an unfinished entry goes to another worker."""
STREAMS = {"split": "documents", "count": "pages", "join": "counts"}
"""The stream that each service reads."""

Fields = dict[bytes, bytes]


class Services:
    """The services: each method is the handler of one of them."""

    def __init__(self, client: "redis.Redis", worker: StreamWorker, name: str) -> None:
        self.client, self.worker, self.name = client, worker, name

    def split(self, document: Fields) -> None:
        """Split a document into pages. A document that is not UTF-8 fails, with the reason."""
        lines = document[b"text"].decode().splitlines()
        pages = ["\n".join(lines[at : at + PAGE]) for at in range(0, len(lines), PAGE)]
        for number, text in enumerate(pages):
            page: dict[str, Any] = {"page": number, "pages": len(pages), "text": text}
            page["line"] = document[b"line"]
            self.worker.xadd(f"{self.name}:pages", page, child=f"page {number}")

    def count(self, page: Fields) -> None:
        """Count the words of a page."""
        words = json.dumps(Counter(page.pop(b"text").decode().split()))
        self.worker.xadd(f"{self.name}:counts", {**page, b"words": words}, child="count")
        if self.client.srem(f"{self.name}:traps", page[b"line"]):
            self.worker.flush()
            self.client.rpush(f"{self.name}:trapped", os.getpid())
            signal.signal(signal.SIGTERM, signal.SIG_DFL)  # if the example is interrupted here
            time.sleep(60)  # killed here: the count was sent, its page is not acked

    def join(self, count: Fields) -> None:
        """Note a count, and add up all counts of a document when those of its pages are there.

        The pages of two attempts are kept apart by their anchor.
        """
        (anchor,) = MessageId.from_headers(count)
        counts, keys = f"{self.name}:counts:{anchor}", f"{self.name}:keys:{anchor}"
        self.client.hsetnx(keys, count[b"page"], self.worker.key)
        if self.client.hget(keys, count[b"page"]) != self.worker.key:
            self.worker.drop()  # a duplicate: another entry had this count
            return
        self.client.hset(counts, count[b"page"], count[b"words"])
        pages: Any = self.client.hvals(counts)
        if len(pages) == int(count[b"pages"]):
            words = sum((Counter(json.loads(each)) for each in pages), Counter[str]())
            self.client.hset(f"{self.name}:totals", count[b"line"], json.dumps(words))


def main(service: str, url: str, namespace: str) -> None:
    """Run a service until SIGTERM."""
    logging.getLogger("acker_redis").setLevel(logging.ERROR)
    client = redis.Redis.from_url(url)
    stream = f"{namespace}:{STREAMS[service]}"
    options: dict[str, Any] = {"idle": IDLE, "delete": True}
    with Acker.from_url(url, namespace) as acker:
        worker = StreamWorker(acker, client, stream, "workers", **options)
        # One entry at a time: a worker that is killed delays one page only.
        worker.run(getattr(Services(client, worker, namespace), service), count=1)


if __name__ == "__main__":
    main(*sys.argv[1:])
