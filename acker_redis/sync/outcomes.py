"""Verdicts of a source task, from the durable stream: at least once, in no special order.

Read what waits, handle it, take it. What was not taken is read again, also after a
crash: no cursor is kept anywhere. One reader per task; others may read but never take.
"""

from collections.abc import Iterable, Iterator, Sequence

from acker_redis.flows.outcomes import OutcomeFlows
from acker_redis.protocol.keys import ShardKeys
from acker_redis.protocol.outcome import BlockOutcome, Entry, Outcome, Verdict
from acker_redis.sync.connection import Connection

__all__ = ["BlockOutcome", "Entry", "Outcome", "Outcomes", "Verdict"]


class Outcomes:
    """Reads and takes the outcomes of one task over all shards.

    >>> acker, batch = Acker.from_url(url, "orders"), Batch("shop")
    >>> batch.track(7, "order-1", [])
    >>> applied = acker.apply(batch)
    >>> outcomes = acker.outcomes("shop")
    >>> entries = outcomes.read()  # and handle them
    >>> outcomes.take(entries), outcomes.read()
    (1, [])
    """

    def __init__(self, connection: Connection, shards: Sequence[ShardKeys], task: str) -> None:
        self._flows = OutcomeFlows(shards, task)
        self._connection = connection

    @property
    def task(self) -> str:
        """The source's name."""
        return self._flows.task

    def read(self, count: int = 16) -> list[Entry]:
        """Up to ``count`` entries per shard, oldest first; [] if none waits.

        An entry holds up to 1024 outcomes, that of a block up to 4095. The same entries come
        again until they are taken.
        """
        return self._connection.drive(self._flows.read(count))

    def take(self, entries: Iterable[Entry]) -> int:
        """Delete entries that were handled; returns how many verdicts they held.

        Entries that are gone already are passed over.
        """
        return self._connection.drive(self._flows.take(entries))

    def __iter__(self) -> Iterator[Outcome]:
        """Each outcome that waits now; an entry is taken once all of it was handed out."""
        while entries := self.read(1):
            for entry in entries:
                yield from entry
                self.take([entry])
