"""The verdicts of a source, from a durable stream: at least once, in no guaranteed order.

Read the waiting entries, handle them, take them. Entries that were not taken are read again, also
after a crash: no cursor is stored anywhere. One reader per source takes entries; others may only
read.
"""

from collections.abc import Iterable, Iterator, Sequence

from acker_redis.flows.outcomes import OutcomeFlows
from acker_redis.protocol.keys import ShardKeys
from acker_redis.protocol.outcome import BlockOutcome, Entry, Outcome, VerdictKind
from acker_redis.sync.connection import Connection

__all__ = ["BlockOutcome", "Entry", "Outcome", "Outcomes", "VerdictKind"]


class Outcomes:
    """Reads and takes the outcomes of one source, over all shards.

    Use :meth:`Acker.outcomes` to get one.

    Examples:
        >>> acker, batch = Acker.from_url(url, "orders"), Batch("shop")
        >>> batch.track(7, "order-1", [])
        >>> applied = acker.apply(batch)
        >>> outcomes = acker.outcomes("shop")
        >>> entries = outcomes.read()  # and handle them
        >>> outcomes.take(entries), outcomes.read()
        (1, [])

    """

    def __init__(
        self,
        connection: Connection,
        shards: Sequence[ShardKeys],
        source: str,
        edges: tuple[str, ...] = (),
    ) -> None:
        self._flows = OutcomeFlows(shards, source, edges)
        self._connection = connection

    @property
    def source(self) -> str:
        """The name of the source."""
        return self._flows.source

    def read(self, count: int = 16) -> list[Entry]:
        """Return up to ``count`` entries per shard, oldest first; [] if none waits.

        An entry holds up to 1024 outcomes, and that of a block up to 4095. The same entries are
        returned again until they are taken. While some shards do not answer, the entries of the
        others are returned.

        Raises:
            RedisUnavailableError: A shard does not answer, and no entry of another was found.

        """
        return self._connection.drive(self._flows.read(count))

    def take(self, entries: Iterable[Entry]) -> int:
        """Delete entries that were handled; return how many verdicts they held.

        Entries that were deleted before are skipped.
        """
        return self._connection.drive(self._flows.take(entries))

    def __iter__(self) -> Iterator[Outcome]:
        """Iterate over the outcomes that wait.

        An entry is taken after all its outcomes were returned.
        """
        while entries := self.read(1):
            for entry in entries:
                yield from entry
                self.take([entry])
