"""The synchronous client of one namespace."""

import threading
from collections.abc import Iterable
from typing import Any

from acker_redis.batching.sent import Applied, Part, Sendable
from acker_redis.flows.browse import Found, OldestTree, PageCursor, TreePage
from acker_redis.flows.lane import Lane
from acker_redis.flows.namespace import Flows
from acker_redis.protocol.commands import Fence, ShardApplied
from acker_redis.protocol.config import AckerConfig
from acker_redis.protocol.status import Status
from acker_redis.protocol.tree import TreeState
from acker_redis.sync.connection import Connection
from acker_redis.sync.outcomes import Outcomes
from acker_redis.transport.connect import connect


class Acker:
    """Client of one namespace: track, ack, fail, and ask how things stand.

    Thread-safe; after a fork the child gets a producer lane of its own. Batches of one
    Acker are applied one after the other: a lane has one call in flight on each shard.

    ``retry_for`` is for how many seconds a batch is sent again when Redis does not
    answer; it ends earlier where the fence would not hold any longer.

    >>> with Acker.from_url(url, "orders") as acker:
    ...     batch = Batch("shop")
    ...     batch.track(7, "order-1", [40])
    ...     batch.ack(7, 40)
    ...     acker.apply(batch).acked
    1
    """

    def __init__(self, client: Any, namespace: str, *, retry_for: float = 10.0) -> None:
        self.flows = Flows(namespace, retry_for)
        self.connection = Connection(client)
        self._lane = Lane(threading.Lock)

    @classmethod
    def from_url(
        cls, url: str, namespace: str, *, timeout: float = 5.0, retry_for: float = 10.0
    ) -> "Acker":
        """Client for the Redis at ``url``; ``timeout`` per connect and reply, in seconds.

        Nothing is sent yet, but to a cluster, which is asked for its nodes. Raises ConfigError for
        a URL or namespace that cannot be; the forms are those of :mod:`acker_redis.transport.urls`.
        """
        return cls(connect(url, timeout), namespace, retry_for=retry_for)

    @property
    def namespace(self) -> str:
        """The namespace's name."""
        return self.flows.namespace

    @property
    def retry_for(self) -> float:
        """Seconds for which a batch is sent again when Redis does not answer."""
        return self.flows.retry_for

    def create(self, config: AckerConfig | None = None) -> bool:
        """Create the namespace; False if it exists with this very configuration.

        Raises NamespaceExistsError if it exists with another one, ConfigError if the
        server is older than Redis 6.2.
        """
        return self.connection.drive(self.flows.create(config or AckerConfig()))

    @property
    def config(self) -> AckerConfig:
        """The namespace's configuration, read from Redis once.

        Raises NamespaceNotFoundError if it was never created.
        """
        return self.flows.known or self.connection.drive(self.flows.config())

    def configure(
        self,
        *,
        high_water: int | None = None,
        tick_ms: int | None = None,
        outcomes_limit: int | None = None,
    ) -> AckerConfig:
        """Change settings of the living namespace, shard by shard; what it is now.

        The units are those of :class:`AckerConfig`; what is None stays. ``high_water`` and
        ``outcomes_limit`` count from the next call of any producer on. ``tick_ms`` counts at once,
        also for trees that are pending: with a shorter one they may expire earlier, as was asked
        for, and a batch may be sent again for less long; with a longer one they live longer, and
        sources notice before they give anything up. An error in the middle leaves some shards as
        they were: the same again completes it.

        >>> acker = Acker.from_url(url, "orders")
        >>> acker.configure(high_water=50_000).high_water
        50000

        Raises ConfigError for a value out of its range, NamespaceNotFoundError, and ReshardError
        while the namespace moves to another number of shards, which is done by
        :func:`acker_redis.ops.reshard.reshard`.
        """
        return self.connection.drive(self.flows.configure(high_water, tick_ms, outcomes_limit))

    def apply(self, batch: Sendable, lane: "Lane[threading.Lock] | None" = None) -> Applied:
        """Apply a Batch or a ColumnBatch, once, whatever happens to the replies.

        Loose rows and blocks of one batch go to each shard in parts, to the shards side by side; a
        part is all or nothing, and after an error some may have been applied. The same batch may
        then be applied again: what was applied is not applied twice, and parts that were answered
        are not sent again. Raises RedisUnavailableError when Redis did not answer for
        ``retry_for`` seconds; LaneError when other batches of the lane came between (the batch's
        trees then expire); and whatever the scripts refuse: InvalidBatchError, BacklogError,
        NamespaceNotFoundError, ...

        ``lane`` is the Acker's own, unless the caller keeps some.
        """
        lane = lane or self._lane
        with lane.lock:
            return self.connection.drive(self.flows.apply(batch, lane))

    def track_block(
        self, task: str, label: str, deltas: Iterable[int] | bytes, block: int | None = None
    ) -> range:
        """Track a block of trees and return their anchors by slot; see :meth:`Batch.track_block`.

        Emit their messages when it has returned. Raises RejectedError if the block was nacked
        at once, and whatever :meth:`apply` raises.
        """
        with self._lane.lock:
            return self.connection.drive(
                self.flows.track_block(task, label, deltas, block, self._lane)
            )

    def apply_part(self, part: Part, fence: Fence) -> ShardApplied:
        """Apply packed rows or blocks of one shard under a durable lane of the caller's own.

        The caller keeps the lane's rules: one call in flight, numbers that grow, the same
        rows under the same number. A repeat is not an error here: see ``highest``.
        Raises ConfigError if the lane is not durable (its name begins with ``@``).
        """
        return self.connection.drive(self.flows.apply_part(part, fence))

    def lane(self, name: str) -> dict[int, tuple[int, str]]:
        """Last number and digest of a durable lane, per shard that has heard of it.

        Raises ConfigError if the lane is not durable (its name begins with ``@``).
        """
        return self.connection.drive(self.flows.lane(name))

    def status(self) -> Status:
        """Pending trees, counters and backlog of all shards."""
        return self.connection.drive(self.flows.status())

    def show(self, anchor: int) -> TreeState | None:
        """What is known of a tree, loose or in a block; None if it is not pending.

        A tree that is not pending was told of, or was never tracked.
        """
        return self.connection.drive(self.flows.show(anchor))

    def page(
        self,
        cursor: PageCursor | None = None,
        count: int = 100,
        source_id: str = "",
        task: str = "",
        *,
        prefix: bool = False,
    ) -> TreePage:
        """Some of what is pending: about ``count`` (1 .. 1000) trees and blocks.

        It goes on at ``page.next``, which is None when all was looked at. With ``source_id`` (of a
        block: its label) or ``task`` only what was tracked under just these; with ``prefix`` the
        source id or label only has to begin with ``source_id``. A page takes at most
        16 short calls, so it may hold fewer, and none; a small bucket comes whole, so it may hold
        more. Whoever walks sees all that stays pending meanwhile, some of it twice perhaps: see
        :mod:`acker_redis.flows.browse`.
        """
        return self.connection.drive(self.flows.page(cursor, count, source_id, task, prefix))

    def find(
        self,
        source_id: str,
        task: str = "",
        limit: int = 10,
        most: int = 1_000_000,
        *,
        prefix: bool = False,
    ) -> Found:
        """Trees with this source id, and blocks with this label; or with this ``prefix`` of one.

        It is a scan over all that is pending, in calls of some thousand records or 128 KiB; each
        keeps its shard busy for 1 or 2 ms, and some 500,000 records are looked at a second. It ends
        when ``limit`` were found or ``most`` records looked at, and is then not ``complete``. Trees
        in a block have no source id of their own. Whoever has the anchor asks :meth:`show`.
        """
        return self.connection.drive(self.flows.find(source_id, task, limit, most, prefix))

    def oldest(self) -> OldestTree | None:
        """The oldest pending tree, of a sample: some 500 of the oldest bucket of each shard.

        None if nothing is pending. Its age is the time since its first row. ``exact`` says whether
        these buckets were seen whole; else another may be older, by what lies between two ticks.
        After a TOUCH, and with ``refresh=update``, a tree that was first seen earlier may stand in
        a newer bucket, and is not looked for. A record whose TRACK has not come counts as well; it
        has no task.
        """
        return self.connection.drive(self.flows.oldest())

    def drop(self) -> None:
        """End the namespace: its trees, its verdicts that wait, and its configuration.

        All shards are closed first: whoever calls then gets NamespaceNotFoundError. All is removed
        in short calls. If it is interrupted, run it again; until it is done the namespace cannot be
        created. No verdict is told of what was pending: sources that still run replay what they
        have. Raises NamespaceNotFoundError if there is no such namespace.
        """
        self.connection.drive(self.flows.drop())

    def outcomes(self, task: str) -> Outcomes:
        """Verdicts of a task, to be read and taken by the one source that tracked."""
        return Outcomes(self.connection, self.flows.shards(self.config), task)

    def close(self) -> None:
        """Close the connections."""
        self.connection.close()

    def __enter__(self) -> "Acker":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()
