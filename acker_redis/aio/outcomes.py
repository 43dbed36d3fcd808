"""Verdicts of a source task by asyncio; see :mod:`acker_redis.sync.outcomes`."""

from collections.abc import AsyncIterator, Iterable, Sequence

from acker_redis.aio.connection import AsyncConnection
from acker_redis.flows.outcomes import OutcomeFlows
from acker_redis.protocol.keys import ShardKeys
from acker_redis.protocol.outcome import Entry, Outcome


class AsyncOutcomes:
    """Reads and takes the outcomes of one task over all shards; the twin of ``Outcomes``.

    >>> async def verdicts():
    ...     async with AsyncAcker.from_url(url, "orders") as acker:
    ...         batch = Batch("shop")
    ...         batch.track(7, "order-1", [])
    ...         await acker.apply(batch)
    ...         return [outcome.verdict async for outcome in await acker.outcomes("shop")]
    >>> asyncio.run(verdicts())
    ['ack']
    """

    def __init__(self, connection: AsyncConnection, shards: Sequence[ShardKeys], task: str) -> None:
        self._flows = OutcomeFlows(shards, task)
        self._connection = connection

    @property
    def task(self) -> str:
        """The source's name."""
        return self._flows.task

    async def read(self, count: int = 16) -> list[Entry]:
        """As :meth:`Outcomes.read`."""
        return await self._connection.drive(self._flows.read(count))

    async def take(self, entries: Iterable[Entry]) -> int:
        """As :meth:`Outcomes.take`; it is done to its end also when the caller is cancelled."""
        flow = self._flows.take(list(entries))
        return await self._connection.whole(self._connection.drive(flow))

    async def __aiter__(self) -> AsyncIterator[Outcome]:
        """Each outcome that waits now; an entry is taken once all of it was handed out."""
        while entries := await self.read(1):
            for entry in entries:
                for outcome in entry:
                    yield outcome
                await self.take([entry])
