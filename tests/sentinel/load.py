"""A source and its bolts that continue through a failover, and records of their work."""

import contextlib
import threading
from collections import Counter
from types import TracebackType
from typing import Self

from acker_redis.batching.batch import Batch
from acker_redis.errors import RedisUnavailableError
from acker_redis.protocol.ids import new_anchor, new_tuple_id
from acker_redis.sync.client import Acker
from tests.waiting import LIMIT

TREES = 20
"""Trees of a round; in half of them one message is never acked."""


class Load:
    """A context in which a thread applies rounds of tracks and acks, and takes the verdicts."""

    def __init__(self, acker: Acker) -> None:
        self.acker = acker
        self.done: set[int] = set()
        """Trees whose messages are all acked, recorded before the acks are sent."""
        self.open: set[int] = set()
        """Trees with one message that is never acked."""
        self.verdicts: Counter[tuple[str, int]] = Counter()
        self.rounds = 0
        self._enough = threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)

    def check(self) -> None:
        """Check the verdicts so far: no tree with an open message was acked."""
        acked = {anchor for verdict, anchor in self.verdicts if verdict == "ack"}
        assert not acked & self.open
        assert acked <= self.done

    def note(self, acker: Acker) -> None:
        """Read and take the waiting verdicts."""
        outcomes = acker.outcomes("t")
        # Verdicts that were read but not taken are read again, or are lost.
        with contextlib.suppress(RedisUnavailableError):
            while entries := outcomes.read():
                self.verdicts.update((o.verdict, o.anchor) for entry in entries for o in entry)
                outcomes.take(entries)

    def ended(self) -> bool:
        """Return whether the thread has ended, with or without an error."""
        return not self._thread.is_alive()

    def _run(self) -> None:
        try:
            # Without a pause it would fill the server, and the replication backlog.
            while not self._enough.wait(0.005):
                self._round()
                self.rounds += 1
        except BaseException as error:
            self._failure = error

    def _round(self) -> None:
        source, first, second = Batch("t"), Batch(), Batch()
        for number in range(TREES):
            anchor, one, child, other = new_anchor(), *(new_tuple_id() for _ in range(3))
            source.track(anchor, f"s{anchor}", [one, other])
            first.ack(anchor, one, [child])
            second.ack(anchor, child)
            if number % 2:
                second.ack(anchor, other)
                self.done.add(anchor)
            else:
                self.open.add(anchor)
        for batch in (source, first, second):
            self.acker.apply(batch)
        self.note(self.acker)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._enough.set()
        self._thread.join(LIMIT)
        if error is None:
            assert not self._thread.is_alive()
            if self._failure:
                raise self._failure
