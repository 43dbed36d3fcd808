"""A producer that batches, by asyncio: see :mod:`acker_redis.sync.producer`.

It belongs to one event loop. What a task adds it adds between two awaits, so there is no lock.
"""

import asyncio
import contextlib
import logging
import math
import time
from collections.abc import Callable, Iterable

from acker_redis.aio.client import AsyncAcker
from acker_redis.batching.accumulator import Accumulator
from acker_redis.batching.batch import Batch
from acker_redis.errors import AckerError, BufferFullError, ClosedError
from acker_redis.flows.delivery import MAX_SENDERS, check_settings, deliver, tell_given_up
from acker_redis.flows.lane import Lane
from acker_redis.flows.namespace import Flows
from acker_redis.kinds import check_is
from acker_redis.protocol.config import AckerConfig
from acker_redis.protocol.keys import check_name
from acker_redis.protocol.rows import Row, ack_row, check_rows, fail_row, touch_row, track_row

log = logging.getLogger(__name__)


class AsyncProducer:
    """The twin of :class:`acker_redis.Producer`: the same methods, to be awaited.

    A task that is cancelled while it waits for room has added nothing; what was added is sent
    whatever becomes of the task. End it with ``async with``, or :meth:`close`: when its event loop
    ends before, what was not sent is gone, and its trees expire.

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
        task: str = "",
        *,
        linger: float = 0.002,
        buffer: int = 65_536,
        max_block: float = 60.0,
        on_given_up: Callable[[AckerError, list[Row]], None] | None = None,
    ) -> None:
        check_is(acker, AsyncAcker, "an AsyncProducer")
        check_settings(linger, buffer, max_block)
        self.acker = acker
        self.task = check_name("task", task) if task else ""
        self._linger, self._buffer, self._max_block = linger, buffer, max_block
        self._on_given_up = on_given_up
        self._accumulator: Accumulator | None = None
        # What is not answered is tried again by deliver(), which knows when to end.
        self._flows = Flows(acker.namespace, retry_for=0.0)
        self._lanes: dict[int, Lane[asyncio.Lock]] = {}
        self._senders: list[asyncio.Task[None]] = []
        self._work = asyncio.Event()
        """Set when a shard may have become ready."""
        self._answered = asyncio.Event()
        """Set, and replaced, when a batch was answered, or given up."""
        self._closed = False
        self._end = math.inf
        """When what was not answered is given up."""
        self._error: AckerError | None = None

    async def add(self, rows: Iterable[Row], wait: bool = True) -> None:
        """As :meth:`Producer.add`; with ``wait=False`` no other task runs, but the first time."""
        rows = check_rows(rows, self.task)
        if not rows:
            return
        self._check_open()
        accumulator = self._accumulator
        if accumulator is None:
            # Nobody knows yet how many shards there are.
            config = await self.acker.config()
            self._check_open()
            accumulator = self._start(config)
        if wait and accumulator.size >= self._buffer:
            await self._wait_for_room(accumulator)
        if accumulator.size >= 2 * self._buffer:
            error = BufferFullError("Redis is too slow, or away")
            tell_given_up(self._on_given_up, error, rows)
        elif accumulator.add(rows, time.monotonic()):
            self._work.set()

    async def track(self, anchor: int, source_id: str, emitted: Iterable[int]) -> None:
        """As :meth:`Batch.track`."""
        await self.add([track_row(anchor, source_id, emitted)])

    async def ack(self, anchor: int, tuple_id: int, emitted: Iterable[int] = ()) -> None:
        """As :meth:`Batch.ack`."""
        await self.add([ack_row(anchor, tuple_id, emitted)])

    async def fail(
        self,
        anchor: int,
        why: str = "",
        tuple_id: int | None = None,
        emitted: Iterable[int] = (),
    ) -> None:
        """As :meth:`Batch.fail`."""
        await self.add([fail_row(anchor, why, tuple_id, emitted)])

    async def touch(self, anchor: int) -> None:
        """As :meth:`Batch.touch`."""
        await self.add([touch_row(anchor)])

    @property
    def waiting(self) -> int:
        """As :attr:`Producer.waiting`."""
        return self._accumulator.size if self._accumulator else 0

    async def flush(self, timeout: float | None = None) -> None:
        """As :meth:`Producer.flush`."""
        end = math.inf if timeout is None else time.monotonic() + timeout
        accumulator = self._accumulator
        if accumulator is not None:
            accumulator.hurry()
            self._work.set()
            # The batches, not their ids: another may come to stand where one was.
            waits_for = set(accumulator.batches())
            while waits_for.intersection(accumulator.batches()):
                if not await self._answer_before(end):
                    raise BufferFullError(
                        f"{accumulator.size} rows were not answered within {timeout} s"
                    )
        error, self._error = self._error, None
        if error:
            raise error

    async def close(self, timeout: float = 30.0) -> None:
        """As :meth:`Producer.close`; it is done to its end also when the caller is cancelled."""
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
            await asyncio.gather(*self._senders)

    def _start(self, config: AckerConfig) -> Accumulator:
        if self._accumulator is None:
            self._flows.known = config
            self._accumulator = Accumulator(self.task, config.shards, self._linger)
            self._senders = [
                asyncio.create_task(self._run(self._accumulator), name=f"acker-producer-{number}")
                for number in range(min(config.shards, MAX_SENDERS))
            ]
        return self._accumulator

    def _check_open(self) -> None:
        if self._closed:
            raise ClosedError("this producer was closed; nothing is taken in any more")

    async def _wait_for_room(self, accumulator: Accumulator) -> None:
        end = time.monotonic() + self._max_block
        while accumulator.size >= self._buffer:
            if not await self._answer_before(end):
                raise BufferFullError(
                    f"{accumulator.size} rows wait for Redis, and too few were answered within "
                    f"{self._max_block} s; it is too slow for this program, or away"
                )
            self._check_open()

    async def _answer_before(self, end: float) -> bool:
        """Wait for the next answer; False if there was none in time."""
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
        """One sender: send what is ready, until the producer is closed and all is answered."""
        while True:
            self._work.clear()
            while (ready := accumulator.take(time.monotonic())) is None:
                if self._end == -math.inf:
                    self._work.set()  # the other senders end, too
                    return
                wait = accumulator.due() - time.monotonic()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(None if wait == math.inf else max(wait, 0.0)):
                        await self._work.wait()
                self._work.clear()
            shard, batch = ready
            self._work.set()  # another shard may be ready, for another sender
            error = await self._deliver(shard, batch)
            accumulator.done(shard)
            if self._flows.known:
                # Others than before, when the namespace was created anew.
                accumulator.shards = self._flows.known.shards
            self._error = self._error or error
            self._signal_answer()
            if error:
                tell_given_up(self._on_given_up, error, batch.rows())

    async def _deliver(self, shard: int, batch: Batch) -> AckerError | None:
        lane = self._lanes.setdefault(shard, Lane(asyncio.Lock))
        flow = deliver(self._flows, batch, lane, lambda: self._end)
        try:
            return await self.acker.connection.drive(flow)
        except Exception as error:
            # Whatever it is: a sender that ends is a producer that waits for ever.
            log.exception("a batch of %d rows cannot be sent", len(batch))
            return AckerError(f"cannot be sent: {error!r}")
