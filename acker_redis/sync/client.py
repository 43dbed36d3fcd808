"""The synchronous client of one namespace."""

import threading
import time
from collections.abc import Callable, Iterable
from typing import Any

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
from acker_redis.sync.connection import Connection
from acker_redis.sync.outcomes import Outcomes
from acker_redis.transport.connect import connect
from acker_redis.trees.lost import TrackedTree


class Acker:
    """A client of one namespace: tracks, acks and fails trees, and reads their state.

    Thread-safe. An Acker applies one batch at a time: its producer lane has one call in flight per
    shard. After a fork the child gets its own lane.

    Args:
        client: A client of redis-py, standalone or cluster, that returns bytes. :meth:`from_url`
            makes one.
        namespace: The name of the namespace.
        retry_for: Seconds for which a call is retried while Redis does not answer. A batch is
            retried for less if its fence would not hold any longer.

    Raises:
        ConfigError: ``client`` is no client of redis-py or decodes replies, or the name is invalid.

    Examples:
        >>> with Acker.from_url(url, "orders") as acker:
        ...     batch = Batch("shop")
        ...     batch.track(7, "order-1", [40])
        ...     batch.ack(7, 40)
        ...     acker.apply(batch).acked
        1

    """

    def __init__(self, client: Any, namespace: str, *, retry_for: float = 10.0) -> None:
        self.flows = Flows(namespace, retry_for)
        self.flows.ids = IdMaker(was_read=False, read=lambda: self.ids)
        self.connection = Connection(client)
        self._lane = Lane(threading.Lock)

    @classmethod
    def from_url(
        cls, url: str, namespace: str, *, timeout: float = 5.0, retry_for: float = 10.0
    ) -> "Acker":
        """Return a client for the Redis at ``url``.

        Nothing is sent yet, except to a cluster, which is asked for its nodes.

        Args:
            url: The URL of a server, cluster or Sentinel, in a form of
                :mod:`acker_redis.transport.urls`.
            namespace: The name of the namespace.
            timeout: Seconds for each connection attempt and each reply.
            retry_for: See the class.

        Raises:
            ConfigError: The URL or the name is invalid.

        """
        return cls(connect(url, timeout), namespace, retry_for=retry_for)

    @property
    def namespace(self) -> str:
        """The name of the namespace."""
        return self.flows.namespace

    @property
    def retry_for(self) -> float:
        """Seconds for which a call is retried while Redis does not answer."""
        return self.flows.retry_for

    def create(self, config: AckerConfig | None = None) -> bool:
        """Create the namespace; return False if it exists with the same configuration.

        Args:
            config: The configuration; by default that of ``AckerConfig()``.

        Raises:
            NamespaceExistsError: The namespace exists with another configuration.
            ConfigError: A setting or the name is invalid, or the server is older than Redis 6.2.

        """
        return self.connection.drive(self.flows.create(config or AckerConfig()))

    @property
    def config(self) -> AckerConfig:
        """The namespace's configuration, read from Redis once and cached.

        Raises:
            NamespaceNotFoundError: The namespace does not exist.

        """
        return self.flows.known or self.connection.drive(self.flows.config())

    @property
    def ids(self) -> IdMaker:
        """What makes the ids of this namespace: its edges, and the secret for derived ids.

        They are read from Redis, and again after ten seconds, because the namespace may have been
        dropped and created again.

        Raises:
            NamespaceNotFoundError: The namespace does not exist.

        Examples:
            >>> acker = Acker.from_url(url, "orders")
            >>> Processing("7:40", ids=acker.ids).emit(key="mill") == Processing(
            ...     "7:40", ids=acker.ids
            ... ).emit(key="mill")
            True

        """
        if self.flows.ids.was_read:
            return self.fresh_ids()
        self.connection.drive(self.flows.config(fresh=True))
        return self.flows.ids

    def fresh_ids(self) -> IdMaker:
        """Return :attr:`ids`, or, while Redis does not answer, the last that is known.

        It raises nothing and waits for one reply at most, so that bolts work on.
        """
        if time.monotonic() < self.flows.ids_due:
            return self.flows.ids
        return self.connection.drive(self.flows.fresh_ids())

    def configure(
        self,
        *,
        high_water: int | None = None,
        tick_ms: int | None = None,
        outcomes_limit: int | None = None,
        deadline_ms: int | None = None,
        slo_target: float | None = None,
        slo_ms: int | None = None,
    ) -> AckerConfig:
        """Change settings of a namespace in use, shard by shard; return the new configuration.

        An error in the middle leaves some shards with the old settings: repeat the call to complete
        it. To change the number of shards see :func:`acker_redis.ops.reshard.reshard`.

        Args:
            high_water: Pending trees from which sources pause; takes effect with the next call of
                any producer. None keeps the value.
            tick_ms: Milliseconds per tick; takes effect at once, also for pending trees. With a
                shorter tick they may expire earlier, and a batch may be retried for less time. With
                a longer one they live longer, and sources read it before they give any attempt up.
                None keeps the value.
            outcomes_limit: Verdicts that may wait to be taken; takes effect as ``high_water`` does.
                None keeps the value.
            deadline_ms: Longest life of a tree with ``refresh="update"``; takes effect with the
                next row of each tree. None keeps the value.
            slo_target: Percentage of trees that must complete in time, 50 <= target < 100. While
                more than the other trees are nacked, the namespace is unhealthy. None keeps the
                value.
            slo_ms: Milliseconds within which a tree must complete to count as good, for trees that
                end from now on; 0: before it expires. None keeps the value.

        Raises:
            ConfigError: A value is out of its range.
            NamespaceNotFoundError: The namespace does not exist.
            ReshardError: The namespace is resharding.

        Examples:
            >>> acker = Acker.from_url(url, "orders")
            >>> acker.configure(high_water=50_000).high_water
            50000

        """
        return self.connection.drive(
            self.flows.configure(
                high_water, tick_ms, outcomes_limit, deadline_ms, slo_target, slo_ms
            )
        )

    def apply(self, batch: Sendable, lane: "Lane[threading.Lock] | None" = None) -> Applied:
        """Apply a batch exactly once, also when replies are lost; return what it did.

        The batch is sent to each shard in parts, and to all shards side by side. Each part is all
        or nothing. After an error some parts may have been applied. Then apply the same batch
        object again: parts with a reply are not sent again, and no part is applied twice.

        Args:
            batch: A :class:`Batch` or ColumnBatch.
            lane: The producer lane to send under; by default the Acker's own.

        Raises:
            RedisUnavailableError: Redis did not answer for ``retry_for`` seconds. The batch is in
                doubt.
            LaneError: Other batches of the lane were applied in between, or the batch is too old to
                be sent again. Its trees expire.
            InvalidBatchError: The batch breaks a rule of the protocol.
            BacklogError: Too many verdicts of the source wait to be taken, or the namespace is
                resharding.
            NamespaceNotFoundError: The namespace does not exist.
            AckerError: Any other refusal, see :mod:`acker_redis.errors`.

        """
        lane = lane or self._lane
        with lane.lock:
            return self.connection.drive(self.flows.apply(batch, lane))

    def track_block(
        self,
        source: str,
        label: str,
        deltas: Iterable[int] | bytes,
        block: int | None = None,
        present: Iterable[int] | None = None,
    ) -> range:
        """Track a block of trees; return their anchors, by slot. Emit their messages after that.

        Args:
            source: The name of the source.
            label: The label of the block, which comes back with its verdicts.
            deltas: Per slot, the XOR of the ids of the first messages of its tree; 0 for a tree
                without messages, and for a slot that is not ``present``. See
                :meth:`Batch.track_block`.
            block: The number of the block; by default derived from the source and the label.
            present: The slots that hold a tree; None for all. The others get no verdict.

        Raises:
            RejectedError: The block was nacked at once. Emit none of its messages.
            AckerError: As :meth:`apply`.

        """
        with self._lane.lock:
            return self.connection.drive(
                self.flows.track_block(source, label, deltas, block, present, self._lane)
            )

    def apply_part(self, part: Part, fence: Fence) -> ShardApplied:
        """Apply packed rows or blocks of one shard, under a durable lane of the caller.

        The caller keeps the rules of the lane: one call in flight, increasing numbers, and the same
        rows under the same number. A repeat is no error: the reply's ``highest`` is set then.

        Args:
            part: The rows or blocks, and their shard.
            fence: The lane's name, which begins with ``@``, the number, and the digest of the rows.

        Raises:
            ConfigError: The lane is not durable.
            AckerError: As :meth:`apply`.

        """
        return self.connection.drive(self.flows.apply_part(part, fence))

    def lane(self, name: str) -> dict[int, tuple[int, str]]:
        """Return the last number and digest of a durable lane, per shard that knows the lane.

        Args:
            name: The name of the lane, which begins with ``@``.

        Raises:
            ConfigError: The lane is not durable: its name does not begin with ``@``.

        """
        return self.connection.drive(self.flows.lane(name))

    def status(self) -> Status:
        """Return the pending trees, counters and backlog of all shards."""
        return self.connection.drive(self.flows.status())

    def show(self, anchor: int) -> TreeState | None:
        """Return the state of a tree, loose or in a block; None if it is not pending.

        A tree that is not pending has got its verdict, or was never tracked.
        A slot of a block that holds no tree is not pending.

        Args:
            anchor: The anchor of the tree.

        """
        return self.connection.drive(self.flows.show(anchor))

    def show_block(self, block: int) -> TreeState | None:
        """Return the state of a block, by its first tree; None if the block is not pending.

        Args:
            block: The number of the block, as :meth:`page` and :meth:`find` return it.

        Examples:
            >>> acker = Acker.from_url(url, "orders")
            >>> anchors = acker.track_block("shop", "page 1", [0, 40, 41], present=[1, 2])
            >>> (entry,) = acker.page().blocks
            >>> first = acker.show_block(entry.block)
            >>> first.anchor == anchors[1], first.block.open, first.block.absent
            (True, (1, 2), (0,))

        """
        return self.connection.drive(self.flows.show_block(block))

    def page(
        self,
        cursor: PageCursor | None = None,
        count: int = 100,
        source_id: str = "",
        source: str = "",
        *,
        prefix: bool = False,
    ) -> TreePage:
        """Return one page of pending trees and blocks.

        Pagination returns every tree that stays pending for the whole scan, possibly twice; see
        :mod:`acker_redis.flows.browse` for the exact guarantee. A page takes at most 16 short
        calls, so it may hold fewer entries than ``count``, or none. A small bucket is read whole,
        so a page may hold more.

        Args:
            cursor: Where to begin: ``page.next`` of the page before, which is None after the last
                page.
            count: Entries per page, approximately, 1 to 1000.
            source_id: Only trees with this source id, and blocks with this label.
            source: Only trees and blocks of this source.
            prefix: Whether ``source_id`` is a prefix.

        Raises:
            ConfigError: ``count`` or ``source`` is invalid.

        """
        return self.connection.drive(self.flows.page(cursor, count, source_id, source, prefix))

    def find(
        self,
        source_id: str,
        source: str = "",
        limit: int = 10,
        most: int = 1_000_000,
        *,
        prefix: bool = False,
    ) -> Found:
        """Return the pending trees with this source id, and the blocks with this label.

        This scans all pending trees, about 500,000 records a second, in calls of some thousand
        records or 128 KiB that keep a shard busy for 1 to 2 ms each. With the anchor of a tree use
        :meth:`show` instead. Trees in a block have no separate source id.

        Args:
            source_id: The source id or label.
            source: Only trees and blocks of this source.
            limit: Maximum number of results.
            most: Maximum number of records to examine. A search that ends at ``limit`` or ``most``
                is not ``complete``.
            prefix: Whether ``source_id`` is a prefix.

        Raises:
            ConfigError: A limit is less than 1, or ``source`` is invalid.

        """
        return self.connection.drive(self.flows.find(source_id, source, limit, most, prefix))

    def oldest(self) -> OldestTree | None:
        """Return the oldest pending tree of a sample; None if nothing is pending.

        The sample is about 500 records of the oldest bucket of each shard. The age of a tree is the
        time since its first row. If ``exact`` is False, these buckets were not read whole, and
        another tree may be older, by at most the time between two ticks.

        After a TOUCH, and with ``refresh=update``, a tree with an older first row may be in a newer
        bucket, which is not read. Records whose TRACK has not come count as well; they have no
        source.
        """
        return self.connection.drive(self.flows.oldest())

    def waits(self, sample: int = 1000) -> Waits:
        """Return on which edges pending trees wait now, and for how long, from a sample of them.

        The sample is spread over up to 16 shards and all buckets: about as many trees of each, so
        an edge may be over- or under-represented where buckets differ in size. In a small sample
        there are fewer shards, each with about 50 trees. Of blocks, a few of each bucket are read.

        Args:
            sample: Records to read, approximately, 1 to 10,000.

        Raises:
            ConfigError: ``sample`` is out of range.

        """
        return self.connection.drive(self.flows.waits(sample))

    def drop(self) -> None:
        """Delete the namespace: its pending trees, its waiting verdicts and its configuration.

        All shards are closed first; from then on other clients get NamespaceNotFoundError. Then all
        keys are removed in short calls. If the call is interrupted, repeat it: until it is
        completed, the namespace cannot be created again. Pending trees get no verdict; sources that
        still run replay their records.

        Raises:
            NamespaceNotFoundError: The namespace does not exist.

        """
        self.connection.drive(self.flows.drop())

    def outcomes(self, source: str) -> Outcomes:
        """Return the reader of a source's verdicts. Only that source may take them.

        Args:
            source: The name of the source.

        """
        config = self.config
        return Outcomes(self.connection, self.flows.shards(config), source, config.edges)

    def lost(
        self,
        source: str,
        tracked: Iterable[TrackedTree],
        table: Callable[[list[int]], StoredVerdicts],
        *,
        within: float = 600.0,
    ) -> list[TrackedTree]:
        """Return the trees that Redis has lost: neither pending, nor with a verdict.

        A failover or a cut log can lose trees that were tracked. A :class:`Source` has a clock of
        its own and sends their records again. A program that reads verdicts itself calls this from
        time to time, replays the records of the trees that it returns, and stores them as verdicts,
        so that the next call does not return them again.

        Args:
            source: The source that tracked the trees.
            tracked: The trees that were tracked. An anchor that was tracked several times is given
                several times, and each of its trees needs a verdict.
            table: ``table([anchor, ..])`` reads the verdicts of these anchors that the program has
                stored, without touches, and the time of the latest verdict that it has stored. It
                is called once, and must read when it is called. Verdicts must be stored before they
                are taken.
            within: By how many seconds ``at_ms`` of a tree may differ from the time of its TRACK on
                Redis's clock. A tree that is younger is not returned.

        Raises:
            BacklogError: The table lacks a verdict that was taken. Call this again later.
            RedisUnavailableError: A shard does not answer.
            AckerError: As :meth:`show`.

        Examples:
            >>> acker = Acker.from_url(url, "orders")
            >>> trees, stored = [TrackedTree(7, "order-1", 1_000)], StoredVerdicts(0, [])
            >>> acker.lost("shop", trees, lambda anchors: stored)
            [TrackedTree(anchor=7, source_id='order-1', at_ms=1000)]

        """
        return self.connection.drive(
            find_lost(self.flows, source, tracked, table, round(within * 1000))
        )

    def close(self) -> None:
        """Close the connections."""
        self.connection.close()

    def __enter__(self) -> "Acker":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()
