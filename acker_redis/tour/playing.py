"""Runs source, bolts and rotator in turn, and notifies a narrator."""

import time
from collections.abc import Iterable

from acker_redis.rotator.rotator import Rotator
from acker_redis.sync.client import Acker
from acker_redis.tour.book import Book
from acker_redis.tour.narrators import Narrator
from acker_redis.tour.orders import Order
from acker_redis.tour.pipeline import Pipeline
from acker_redis.tour.screen import LOOK_EVERY, Screen

SOON = 0.02
"""Seconds between two looks for a verdict or a replay that is about to come."""


class Player:
    """Runs source, bolts and rotator in turn, with pauses in which the reader can follow."""

    def __init__(self, screen: Screen, acker: Acker, book: Book, pipeline: Pipeline) -> None:
        self._screen, self._acker = screen, acker
        self._book, self._pipeline = book, pipeline

    def emit(self, orders: Iterable[Order]) -> None:
        """Give orders to the source."""
        for order in orders:
            self._pipeline.source.emit(order.id, order)

    def settle(self, narrator: Narrator) -> None:
        """Play until each order has its last verdict, or is open with no message under way."""
        source = self._pipeline.source
        while True:
            tracked = len(self._book.trees)
            wait = source.step()
            self._tell(narrator, tracked)
            if self._pipeline.queue:
                done = self._pipeline.process()
                self._screen.refresh()
                narrator.done(done)
                self._screen.pause(narrator.pace)
            elif len(self._book.pending()) == source.pending:
                return
            else:
                time.sleep(min(wait, SOON))

    def expire(self, narrator: Narrator) -> None:
        """Run a rotator until no tree is pending."""
        waiting, told = self._book.pending(), dict[int, int]()
        for tree in waiting:
            narrator.stuck(tree)
        if not waiting:
            return
        narrator.starts(self._acker.config)
        with Rotator(self._acker):
            while waiting := self._book.pending():
                for tree in waiting:
                    if tree.bucket > told.get(tree.anchor, 0):
                        told[tree.anchor] = tree.bucket
                        narrator.ticked(tree)
                self._screen.refresh()
                time.sleep(LOOK_EVERY)

    def _tell(self, narrator: Narrator, tracked: int) -> None:
        """Notify the narrator of new verdicts, and of trees that were tracked after them."""
        heard, self._book.heard = self._book.heard, []
        trees = self._book.trees[tracked:]
        if heard or trees:
            self._screen.refresh()
        for tree in heard:
            narrator.ended(tree)
            self._screen.pause(narrator.reading)
        if trees:
            narrator.tracked(trees)
            self._screen.pause(narrator.pace)
