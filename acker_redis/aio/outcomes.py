"""The verdicts of a source for asyncio; see :mod:`acker_redis.sync.outcomes`."""

from collections.abc import AsyncIterator, Iterable, Sequence

from acker_redis.aio.connection import AsyncConnection
from acker_redis.flows.outcomes import OutcomeFlows
from acker_redis.protocol.keys import ShardKeys
from acker_redis.protocol.outcome import Entry, Outcome


class AsyncOutcomes:
    """Reads and takes the outcomes of one source over all shards; asyncio twin of ``Outcomes``.

    Use :meth:`AsyncAcker.outcomes` to get one.

    Examples:
        >>> async def verdicts():
        ...     async with AsyncAcker.from_url(url, "orders") as acker:
        ...         batch = Batch("shop")
        ...         batch.track(7, "order-1", [])
        ...         await acker.apply(batch)
        ...         return [outcome.verdict async for outcome in await acker.outcomes("shop")]
        >>> asyncio.run(verdicts())
        ['ack']

    """

    def __init__(
        self,
        connection: AsyncConnection,
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

    async def read(self, count: int = 16) -> list[Entry]:
        """Return up to ``count`` entries per shard, oldest first; see :meth:`Outcomes.read`."""
        return await self._connection.drive(self._flows.read(count))

    async def take(self, entries: Iterable[Entry]) -> int:
        """Delete entries that were handled; return how many verdicts they held.

        It runs to its end, also when the caller is cancelled. See :meth:`Outcomes.take`.
        """
        flow = self._flows.take(list(entries))
        return await self._connection.whole(self._connection.drive(flow))

    async def __aiter__(self) -> AsyncIterator[Outcome]:
        """Iterate over the outcomes that wait.

        An entry is taken after all its outcomes were returned.
        """
        while entries := await self.read(1):
            for entry in entries:
                for outcome in entry:
                    yield outcome
                await self.take([entry])
