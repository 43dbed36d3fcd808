"""A producer that batches, for asyncio: see :mod:`acker_redis.sync.producer`.

It works in one event loop at a time. All shared state changes between two awaits, so there is no
lock.
"""

import asyncio
import contextlib
import logging
import math
import time
from collections.abc import Callable, Iterable

from acker_redis.aio.client import AsyncAcker
from acker_redis.aio.loops import LoopBound
from acker_redis.arguments import check_is
from acker_redis.batching.accumulator import Accumulator
from acker_redis.errors import AckerError, BufferFullError, ClosedError, RedisUnavailableError
from acker_redis.flows.delivery import MAX_SENDERS, Delivery, check_settings, tell_given_up
from acker_redis.flows.lane import Lane
from acker_redis.flows.namespace import Flows
from acker_redis.protocol.config import AckerConfig
from acker_redis.protocol.keys import check_name
from acker_redis.protocol.rows import Row, ack_row, check_rows, fail_row, touch_row, track_row

log = logging.getLogger(__name__)


class AsyncProducer(LoopBound):
    """Collects rows and sends them in batches, as :class:`acker_redis.Producer`, for asyncio.

    Its methods are those of :class:`acker_redis.Producer`, awaited, with the same back-pressure,
    retries and guarantees. A task that is cancelled while it waits for room has added no row. Rows
    that were added are sent even if the task is cancelled.

    End it with ``async with`` or :meth:`close`. If the event loop ends before, rows that were not
    sent are lost, and their trees expire. When the producer is used in another loop after that, it
    reports them, and begins again.

    Args:
        acker: The client of the namespace.
        source: The name of the source, needed to track.
        linger: Seconds that a row waits for others, 0 to 60.
        buffer: Rows that may wait before callers wait.
        max_block: Seconds that a caller waits for room.
        on_given_up: Called as ``on_given_up(error, rows)`` with the rows of a batch that was given
            up; by default they are logged as a warning. A plain function, not a coroutine function.

    Raises:
        ConfigError: An argument is invalid.

    Examples:
        >>> async def produce():
        ...     async with AsyncAcker.from_url(url, "orders") as acker:
        ...         async with AsyncProducer(acker, "shop") as producer:
        ...             await producer.track(7, "order-1", [40])
        ...             await producer.ack(7, 40)
        ...         return (await acker.status()).counters["acked"]
        >>> asyncio.run(produce())
        1

    """

    def __init__(
        self,
        acker: AsyncAcker,
        source: str = "",
        *,
        linger: float = 0.002,
        buffer: int = 65_536,
        max_block: float = 60.0,
        on_given_up: Callable[[AckerError, list[Row]], None] | None = None,
    ) -> None:
        check_is(acker, AsyncAcker, "an AsyncProducer")
        check_settings(linger, buffer, max_block)
        self.acker = acker
        self.source = check_name("source", source) if source else ""
        self._linger, self._buffer, self._max_block = linger, buffer, max_block
        self._on_given_up = on_given_up
        self._closed = False
        self._error: AckerError | None = None
        self._accumulator: Accumulator | None = None
        self._begin()

    def _begin(self) -> None:
        lost = list(self._accumulator.batches()) if self._accumulator else []
        self._accumulator = None
        self._routed = False
        """Whether the number of shards is known: rows wait in the queues of their shards."""
        # No retries here: a Delivery retries a batch, because it knows when to end.
        self._flows = Flows(self.acker.namespace, retry_for=0.0)
        self._lanes: dict[int, Lane[asyncio.Lock]] = {}
        self._deliveries: dict[int, Delivery] = {}
        """Of the batches in flight, by shard."""
        self._senders: list[asyncio.Task[None]] = []
        self._work = asyncio.Event()
        """Set when a shard may have become ready."""
        self._answered = asyncio.Event()
        """Set, and replaced, when a batch was applied or given up."""
        self._end = math.inf
        """When batches without a reply are given up, on the ``time.monotonic`` clock."""
        for batch in lost:
            error = AckerError("the event loop ended before these rows had a reply: use async with")
            self._error = self._error or error
            tell_given_up(self._on_given_up, error, batch.rows())

    async def add(self, rows: Iterable[Row], wait: bool = True) -> None:
        """Add rows to the buffer, all or none; see :meth:`Producer.add`.

        With ``wait=False`` no other task runs during the call. Otherwise the first call of a
        producer awaits one reply of Redis, to read the configuration.
        """
        rows = check_rows(rows, self.source)
        if not rows:
            return
        self._enter()
        self._check_open()
        accumulator = self._accumulator if self._routed else None
        if accumulator is None:
            config = await self._ask() if wait else self.acker.flows.known
            self._check_open()
            accumulator = self._start(config)
        if wait and accumulator.size >= self._buffer:
            await self._wait_for_room(accumulator)
        if accumulator.size >= 2 * self._buffer:
            error = BufferFullError("twice the buffer waits: Redis is too slow, or unreachable")
            tell_given_up(self._on_given_up, error, rows)
        elif accumulator.add(rows, time.monotonic()):
            self._work.set()

    async def add_acks(self, anchors: list[int], deltas: list[int]) -> None:
        """Add acks as columns, all or none; see :meth:`Producer.add_acks`."""
        if not anchors:
            return
        self._enter()
        self._check_open()
        accumulator = self._accumulator if self._routed else None
        if accumulator is None:
            config = await self._ask()
            self._check_open()
            accumulator = self._start(config)
        if accumulator.size >= self._buffer:
            await self._wait_for_room(accumulator)
        if accumulator.add_acks(anchors, deltas, time.monotonic()):
            self._work.set()

    async def track(self, anchor: int, source_id: str, emitted: Iterable[int]) -> None:
        """Track a tree; see :meth:`Batch.track`, and :meth:`add` for errors."""
        await self.add([track_row(anchor, source_id, emitted)])

    async def ack(self, anchor: int, tuple_id: int, emitted: Iterable[int] = ()) -> None:
        """Ack a message; see :meth:`Batch.ack`, and :meth:`add` for errors."""
        await self.add([ack_row(anchor, tuple_id, emitted)])

    async def fail(
        self,
        anchor: int,
        why: str = "",
        tuple_id: int | None = None,
        emitted: Iterable[int] = (),
    ) -> None:
        """Fail a tree; see :meth:`Batch.fail`, and :meth:`add` for errors."""
        await self.add([fail_row(anchor, why, tuple_id, emitted)])

    async def touch(self, anchor: int) -> None:
        """Restart the timeout of a tree; see :meth:`Batch.touch`, and :meth:`add` for errors."""
        await self.add([touch_row(anchor)])

    @property
    def waiting(self) -> int:
        """Number of rows, after folding, that have no reply yet."""
        return self._accumulator.size if self._accumulator else 0

    async def flush(self, timeout: float | None = None) -> None:
        """Send all rows added so far and wait for the replies; see :meth:`Producer.flush`."""
        self._enter()
        end = math.inf if timeout is None else time.monotonic() + timeout
        accumulator = self._accumulator
        if accumulator is not None:
            accumulator.hurry()
            self._work.set()
            # Keep the batches themselves: an id() may be reused for a later batch.
            waits_for = set(accumulator.batches())
            while waits_for.intersection(accumulator.batches()):
                if all(sender.done() for sender in self._senders):
                    raise AckerError(
                        f"{accumulator.size} rows are lost: the senders were cancelled, as at the "
                        "end of asyncio.run()"
                    )
                if not await self._answer_before(end):
                    raise BufferFullError(
                        f"{accumulator.size} rows got no reply within {timeout} s; they are still "
                        "being sent"
                    )
        error, self._error = self._error, None
        if error:
            raise error

    async def close(self, timeout: float = 30.0) -> None:
        """Flush, and end the senders; see :meth:`Producer.close`.

        It runs to its end, also when the caller is cancelled.
        """
        self._enter()
        if not self._closed:
            self._closed = True
            self._signal_answer()
            await self.acker.connection.whole(self._finish(timeout))

    async def __aenter__(self) -> "AsyncProducer":
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()

    async def _finish(self, timeout: float) -> None:
        try:
            await self.flush(timeout)
        finally:
            self._end = -math.inf
            self._work.set()
            await asyncio.gather(*self._senders, return_exceptions=True)

    async def _ask(self) -> AckerConfig | None:
        """Return the configuration; None if Redis does not answer, or a sender asks already."""
        config = self.acker.flows.known
        if config is None and not self.waiting:
            with contextlib.suppress(RedisUnavailableError):
                ask = self.acker.flows.read_config(patient=False)
                config = await self.acker.connection.drive(ask)
        return config

    def _start(self, config: AckerConfig | None) -> Accumulator:
        """Return the accumulator. Without a configuration all rows go into one queue, unrouted."""
        accumulator = self._accumulator
        if accumulator is None:
            accumulator = self._accumulator = Accumulator(self.source, 1, self._linger)
            self._send_by(accumulator, 1)
        if config is not None:
            self._flows.known = self._flows.known or config
            self._route(accumulator, config)
        return accumulator

    def _route(self, accumulator: Accumulator, config: AckerConfig) -> None:
        """Put rows into the queues of their shards from now on."""
        accumulator.shards = config.shards
        self._send_by(accumulator, min(config.shards, MAX_SENDERS))
        if not self._routed:
            self._routed = True
            self.acker.flows.may_read_ids()

    def _send_by(self, accumulator: Accumulator, senders: int) -> None:
        """Start senders until there are this many."""
        while len(self._senders) < senders and not self._closed:
            name = f"acker-producer-{len(self._senders)}"
            sender = asyncio.create_task(self._run(accumulator), name=name)
            sender.add_done_callback(lambda _: self._signal_answer())  # flush() waits no longer
            self._senders.append(sender)

    def _check_open(self) -> None:
        if self._closed:
            raise ClosedError("this producer is closed and takes no more rows")

    async def _wait_for_room(self, accumulator: Accumulator) -> None:
        end = time.monotonic() + self._max_block
        while accumulator.size >= self._buffer:
            if not await self._answer_before(end):
                raise BufferFullError(
                    f"{accumulator.size} rows wait for Redis, and there was no room within "
                    f"{self._max_block} s: Redis is too slow for this program, or unreachable"
                )
            self._check_open()

    async def _answer_before(self, end: float) -> bool:
        """Wait until a batch is applied or given up; return False if none is by ``end``."""
        timeout = None if end == math.inf else max(end - time.monotonic(), 0.0)
        try:
            async with asyncio.timeout(timeout):
                await self._answered.wait()
        except TimeoutError:
            return False
        return True

    def _signal_answer(self) -> None:
        self._answered.set()
        self._answered = asyncio.Event()

    async def _run(self, accumulator: Accumulator) -> None:
        """Run one sender: send ready batches until the producer is closed and all have replies."""
        while True:
            self._work.clear()
            while (ready := accumulator.take(self._now())) is None:
                if self._end == -math.inf:
                    self._work.set()  # wake the other senders, which end, too
                    return
                wait = accumulator.due() - time.monotonic()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(None if wait == math.inf else max(wait, 0.0)):
                        await self._work.wait()
                self._work.clear()
            shard, batch = ready
            self._work.set()  # another sender may take another shard
            delivery = self._deliveries.get(shard)
            if delivery is None:
                lane = self._lanes.setdefault(shard, Lane(asyncio.Lock))
                delivery = self._deliveries[shard] = Delivery(self._flows, batch, lane)
            again = await self._attempt(delivery)
            if again is not None:
                accumulator.later(shard, time.monotonic() + again)
                self._work.set()  # a sender may wait for longer than that
                continue
            error = delivery.error
            del self._deliveries[shard]
            accumulator.done(shard)
            if self._flows.known:  # for the first time, or a reshard may have changed it
                self._route(accumulator, self._flows.known)
            self._error = self._error or error
            self._signal_answer()
            if error:
                tell_given_up(self._on_given_up, error, batch.rows())

    def _now(self) -> float:
        """Return the time; at the end of the producer all batches are due, to be given up."""
        return math.inf if self._end == -math.inf else time.monotonic()

    async def _attempt(self, delivery: Delivery) -> float | None:
        try:
            return await self.acker.connection.drive(delivery.attempt(self._end))
        except Exception as error:
            # Catch everything: without its senders a producer waits for ever.
            log.exception("producer: cannot send a batch of %d rows", len(delivery.batch))
            delivery.error = AckerError(f"the batch cannot be sent: {error!r}")
            return None
