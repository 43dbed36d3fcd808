"""The steps of a micro-batch: how long each takes, and the names of its jobs in the Spark UI."""

import contextlib
import time
from collections.abc import Callable, Iterator
from typing import Literal, NamedTuple

Step = Literal["write", "read_ids", "fold", "apply"]
_WORDS: dict[Step, str] = {
    "write": "write rows of",
    "read_ids": "read ids of",
    "fold": "fold",
    "apply": "apply",
}


class Timings(NamedTuple):
    """Milliseconds that a micro-batch took, by step."""

    write: int = 0
    """Rows written once with their ids, and to sinks, ledgers and ``bad_rows``, before the report
    was made. Includes Spark's evaluation of the job's own plan. A later ``hand_on`` is not in it.
    """
    read_ids: int = 0
    """Ids read from the rows, and packed."""
    fold: int = 0
    """Ids combined to one row a tree."""
    apply: int = 0
    """Calls to Redis. With one shard, the executors read and fold in the same job."""


NO_TIME = Timings()


class Steps:
    """The clock of one batch. A step inside of another one counts as the outer one.

    ``describe`` returns a context in which Spark shows the words for its jobs.
    """

    def __init__(
        self, describe: Callable[[str], contextlib.AbstractContextManager[None]] | None = None
    ) -> None:
        self._describe = describe
        self._seconds: dict[Step, float] = dict.fromkeys(_WORDS, 0.0)
        self._inside = False

    @contextlib.contextmanager
    def __call__(self, step: Step) -> Iterator[None]:
        """Count the time of the block for a step."""
        if self._inside:
            yield
            return
        self._inside, began = True, time.monotonic()
        try:
            with self._describe(_WORDS[step]) if self._describe else contextlib.nullcontext():
                yield
        finally:
            self._inside = False
            self._seconds[step] += time.monotonic() - began

    @property
    def timings(self) -> Timings:
        """The time of each step so far."""
        return Timings(**{step: round(1000 * each) for step, each in self._seconds.items()})
