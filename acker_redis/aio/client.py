"""The asyncio client of one namespace."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

from acker_redis.aio.connection import AsyncConnection
from acker_redis.aio.loops import LoopBound
from acker_redis.aio.outcomes import AsyncOutcomes
from acker_redis.batching.sent import Applied, Part, Sendable
from acker_redis.flows.browse import Found, OldestTree, PageCursor, TreePage
from acker_redis.flows.lane import Lane
from acker_redis.flows.lost import StoredVerdicts, find_lost
from acker_redis.flows.namespace import Flows
from acker_redis.flows.waits import Waits
from acker_redis.protocol.commands import Fence, ShardApplied
from acker_redis.protocol.config import AckerConfig
from acker_redis.protocol.id_maker import IdMaker
from acker_redis.protocol.status import Status
from acker_redis.protocol.tree import TreeState
from acker_redis.transport.connect import connect_async
from acker_redis.trees.lost import TrackedTree


class AsyncAcker(LoopBound):
    """A client of one namespace for asyncio: the methods of :class:`acker_redis.Acker`, awaited.

    It works in one event loop at a time. When that has ended, as after ``asyncio.run()``, it
    connects again in the next one. A call that changes something runs to its end, also when the
    caller is cancelled: no batch is left partially applied, and no reply unread. :meth:`close`, or
    the end of ``async with``, waits for these calls.

    Args:
        client: An asyncio client of redis-py, standalone or cluster, that returns bytes.
            :meth:`from_url` makes one.
        namespace: The name of the namespace.
        retry_for: Seconds for which a call is retried while Redis does not answer; see
            :class:`acker_redis.Acker`.

    Raises:
        ConfigError: ``client`` is no client of redis-py or decodes replies, or the name is invalid.
            A call raises it while another event loop, in which the client was used, is not closed.

    Examples:
        >>> async def track():
        ...     async with AsyncAcker.from_url(url, "orders") as acker:
        ...         batch = Batch("shop")
        ...         batch.track(7, "order-1", [])
        ...         return await acker.apply(batch)
        >>> asyncio.run(track()).acked
        1

    """

    def __init__(self, client: Any, namespace: str, *, retry_for: float = 10.0) -> None:
        self.flows = Flows(namespace, retry_for)
        self.connection = AsyncConnection(client)
        self._lane = Lane(asyncio.Lock)

    def _begin(self) -> None:
        self._lane.reset_after_fork()

    @classmethod
    def from_url(
        cls, url: str, namespace: str, *, timeout: float = 5.0, retry_for: float = 10.0
    ) -> "AsyncAcker":
        """Return a client for the Redis at ``url``; see :meth:`Acker.from_url`.

        Nothing is sent yet.
        """
        return cls(connect_async(url, timeout), namespace, retry_for=retry_for)

    @property
    def namespace(self) -> str:
        """The name of the namespace."""
        return self.flows.namespace

    async def create(self, config: AckerConfig | None = None) -> bool:
        """Create the namespace; see :meth:`Acker.create`."""
        flow = self.flows.create(config or AckerConfig())
        return await self.connection.whole(self.connection.drive(flow))

    async def config(self) -> AckerConfig:
        """Return the namespace's configuration, read once and cached; see :attr:`Acker.config`."""
        return await self.connection.drive(self.flows.config())

    async def ids(self) -> IdMaker:
        """Return what makes the ids of this namespace; see :attr:`Acker.ids`."""
        if not (await self.fresh_ids()).was_read:
            await self.connection.drive(self.flows.config(fresh=True))
        return self.flows.ids

    async def fresh_ids(self) -> IdMaker:
        """Return :meth:`ids`, or, while Redis does not answer, the last that is known."""
        if time.monotonic() < self.flows.ids_due:
            return self.flows.ids
        return await self.connection.drive(self.flows.fresh_ids())

    async def configure(
        self,
        *,
        high_water: int | None = None,
        tick_ms: int | None = None,
        outcomes_limit: int | None = None,
        deadline_ms: int | None = None,
        slo_target: float | None = None,
        slo_ms: int | None = None,
    ) -> AckerConfig:
        """Change settings of a namespace in use; see :meth:`Acker.configure`."""
        flow = self.flows.configure(
            high_water, tick_ms, outcomes_limit, deadline_ms, slo_target, slo_ms
        )
        return await self.connection.whole(self.connection.drive(flow))

    async def apply(self, batch: Sendable, lane: "Lane[asyncio.Lock] | None" = None) -> Applied:
        """Apply a batch exactly once; see :meth:`Acker.apply`."""
        self._enter()
        return await self.connection.whole(self._apply(batch, lane or self._lane))

    async def track_block(
        self,
        source: str,
        label: str,
        deltas: Iterable[int] | bytes,
        block: int | None = None,
        present: Iterable[int] | None = None,
    ) -> range:
        """Track a block of trees, and return their anchors by slot.

        See :meth:`Acker.track_block`.
        """
        self._enter()
        return await self.connection.whole(self._track_block(source, label, deltas, block, present))

    async def apply_part(self, part: Part, fence: Fence) -> ShardApplied:
        """Apply packed rows of one shard under a durable lane; see :meth:`Acker.apply_part`."""
        flow = self.flows.apply_part(part, fence)
        return await self.connection.whole(self.connection.drive(flow))

    async def lane(self, name: str) -> dict[int, tuple[int, str]]:
        """Return the last number and digest of a durable lane; see :meth:`Acker.lane`."""
        return await self.connection.drive(self.flows.lane(name))

    async def status(self) -> Status:
        """Return the status of all shards; see :meth:`Acker.status`."""
        return await self.connection.drive(self.flows.status())

    async def show(self, anchor: int) -> TreeState | None:
        """Return the state of a tree, or None; see :meth:`Acker.show`."""
        return await self.connection.drive(self.flows.show(anchor))

    async def show_block(self, block: int) -> TreeState | None:
        """Return the state of a block, by its first tree; see :meth:`Acker.show_block`."""
        return await self.connection.drive(self.flows.show_block(block))

    async def page(
        self,
        cursor: PageCursor | None = None,
        count: int = 100,
        source_id: str = "",
        source: str = "",
        *,
        prefix: bool = False,
    ) -> TreePage:
        """Return one page of pending trees and blocks; see :meth:`Acker.page`."""
        flow = self.flows.page(cursor, count, source_id, source, prefix)
        return await self.connection.drive(flow)

    async def find(
        self,
        source_id: str,
        source: str = "",
        limit: int = 10,
        most: int = 1_000_000,
        *,
        prefix: bool = False,
    ) -> Found:
        """Return the pending trees with a source id; see :meth:`Acker.find`."""
        return await self.connection.drive(self.flows.find(source_id, source, limit, most, prefix))

    async def oldest(self) -> OldestTree | None:
        """Return the oldest pending tree of a sample; see :meth:`Acker.oldest`."""
        return await self.connection.drive(self.flows.oldest())

    async def waits(self, sample: int = 1000) -> Waits:
        """Return on which edges pending trees wait, from a sample; see :meth:`Acker.waits`."""
        return await self.connection.drive(self.flows.waits(sample))

    async def drop(self) -> None:
        """Delete the namespace; see :meth:`Acker.drop`."""
        await self.connection.whole(self.connection.drive(self.flows.drop()))

    async def outcomes(self, source: str) -> AsyncOutcomes:
        """Return the reader of a source's verdicts; see :meth:`Acker.outcomes`."""
        config = await self.config()
        return AsyncOutcomes(self.connection, self.flows.shards(config), source, config.edges)

    async def lost(
        self,
        source: str,
        tracked: Iterable[TrackedTree],
        table: Callable[[list[int]], StoredVerdicts | Awaitable[StoredVerdicts]],
        *,
        within: float = 600.0,
    ) -> list[TrackedTree]:
        """Return the trees that Redis has lost; see :meth:`Acker.lost`."""
        return await self.connection.drive(
            find_lost(self.flows, source, tracked, table, round(within * 1000))
        )

    async def close(self) -> None:
        """Wait for the calls in flight that change something, then close the connections."""
        await self.connection.close()

    async def __aenter__(self) -> "AsyncAcker":
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()

    async def _apply(self, batch: Sendable, lane: "Lane[asyncio.Lock]") -> Applied:
        async with lane.lock:
            return await self.connection.drive(self.flows.apply(batch, lane))

    async def _track_block(
        self,
        source: str,
        label: str,
        deltas: Iterable[int] | bytes,
        block: int | None,
        present: Iterable[int] | None,
    ) -> range:
        async with self._lane.lock:
            flow = self.flows.track_block(source, label, deltas, block, present, self._lane)
            return await self.connection.drive(flow)
