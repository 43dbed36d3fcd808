"""Compares the counts at the end of the tour with those that its script calls for."""

from dataclasses import dataclass

from acker_redis.sync.client import Acker
from acker_redis.tour.book import Book
from acker_redis.tour.orders import ORDERS, UNKNOWN_ADDRESS
from acker_redis.tour.pipeline import ATTEMPTS, Pipeline

EXPIRED = 1
"""Trees that expire: the tree of the message that is lost."""


@dataclass(frozen=True, slots=True)
class Count:
    """A number of things at the end of the tour."""

    what: str
    found: int
    wanted: int

    @property
    def right(self) -> bool:
        """Whether it is the number that the script calls for."""
        return self.found == self.wanted


def trees(acker: Acker) -> list[Count]:
    """Return the counters of Redis: trees tracked, by verdict, and pending."""
    status = acker.status()
    dead = sum(order.address == UNKNOWN_ADDRESS for order in ORDERS)
    wanted = {"acked": len(ORDERS) - dead, "failed": ATTEMPTS * dead, "expired": EXPIRED}
    counts = [Count("tracked", status.counters["tracked"], sum(wanted.values()))]
    counts += [Count(name, status.counters[name], count) for name, count in wanted.items()]
    return [*counts, Count("pending", status.pending, 0)]


def effects(book: Book, pipeline: Pipeline) -> list[Count]:
    """Return the counts of the pipeline and the book: items, dead letters, wrong checksums."""
    dead = [order for order in ORDERS if order.address == UNKNOWN_ADDRESS]
    parcels = sum(len(order.items) for order in ORDERS if order not in dead)
    return [
        Count("items shipped", len(set(pipeline.shipped)), parcels),
        Count("items shipped twice", len(pipeline.shipped) - len(set(pipeline.shipped)), 0),
        Count("dead letters", len(pipeline.dead_letters), len(dead)),
        Count("wrong checksums", len(book.wrong), 0),
    ]
