"""Common parts of all runs: trees, threads, a reader of verdicts, and the final check."""

import contextlib
import threading
from collections import Counter
from collections.abc import Callable, Iterator

from acker_redis.batching.batch import Batch
from acker_redis.errors import LaneError, RedisUnavailableError
from acker_redis.sync.client import Acker
from tests.hazard.forest import Drawn, Forest
from tests.hazard.line import BadLine
from tests.producer.rig import InThread
from tests.support import tick
from tests.tiers import budget

TIMEOUT = 0.5
"""Timeout of a client in seconds, after which it retries; longer than a call takes."""
CONFIG = {"buckets": 4, "high_water": 10**9, "outcomes_limit": 10**9, "publish": False}


class Run:
    """Trees over bad lines; ``direct`` reaches the same namespace without a bad line."""

    def __init__(self, direct: Acker, lines: list[BadLine], seed: int, share: float = 1.0) -> None:
        """``share`` is the fraction of the budget of trees."""
        self.forest = Forest(round(budget().hazard_trees * share), seed)
        self.direct = direct
        self.lines = lines
        self.seed = seed

    @contextlib.contextmanager
    def reading(self) -> Iterator[None]:
        """Read verdicts in a thread, which also ticks once when half of the trees are planted."""
        enough = threading.Event()

        def read() -> None:
            ticked = False
            while not enough.wait(0.02):
                self.forest.note(self.direct.outcomes("t"))
                if not ticked and self.forest.half_planted:
                    # Calls from before the tick are retried after it: the fence holds for three.
                    tick(self.direct)
                    ticked = True

        reader = InThread(read)
        try:
            yield
        finally:
            enough.set()
            reader.join()

    def reckon(self) -> Counter[str]:
        """Let the remaining trees expire, read their verdicts, and return the errors."""
        for line in self.lines:
            line.settle()
        tick(self.direct, CONFIG["buckets"])
        self.forest.note(self.direct.outcomes("t"))
        return self.forest.wrong()

    def check(self) -> None:
        wrong = self.reckon()
        fates = sum((line.fates for line in self.lines), Counter())
        kinds = self.forest.kinds()
        report = f"seed {self.seed}: {dict(wrong)} of {dict(kinds)}; calls: {dict(fates)}"
        print(report)  # pytest shows it when a test fails, and with -rP
        assert not wrong, report
        assert kinds["complete"] > 0, report
        # If there are few trees, all such trees may be in doubt.
        assert len(self.forest.trees) < 500 or min(kinds["failed"], kinds["open"]) > 0, report
        assert fates["late"] > 0, report
        assert sum(fates.values()) > fates["answered"], report


def in_threads(count: int, work: Callable[[], None]) -> None:
    """Run ``work`` in ``count`` threads, and wait for all."""
    threads = [InThread(work) for _ in range(count)]
    for thread in threads:
        thread.join()


def rows() -> int:
    """Return the maximum size of a batch, so that also few trees take hundreds of calls."""
    return 200 if budget().hazard_trees > 1000 else 8


def apply_all(run: Run, acker: Acker, most: int | None = None, patience: int | None = None) -> None:
    """Apply batches until no row is left.

    With ``patience``, a batch is given up after that number of failed attempts, and the next batch
    follows in the lane.
    """
    while drawn := run.forest.draw(most or rows()):
        batch = folded(drawn)
        attempts = 0
        while True:
            try:
                acker.apply(batch)
            except (RedisUnavailableError, LaneError):
                attempts += 1
                if patience is not None and attempts >= patience:
                    run.forest.given_up(drawn)
                    break
            else:
                break


def folded(drawn: list[Drawn]) -> Batch:
    batch = Batch("t")
    for each in drawn:
        assert batch.add(each.row)
    return batch
