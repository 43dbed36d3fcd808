"""A producer that batches: many small operations, few calls.

Threads and locks:

- Any thread may add rows. They go into the :class:`~acker_redis.batching.accumulator.Accumulator`.
- The senders are threads of the producer. A sender takes the next batch of a shard and applies it
  under that shard's lane. A shard has at most one batch in flight, so its numbers stay in order.
  After an attempt without an answer the batch waits, and the sender serves other shards.
- One lock guards all shared state. No thread holds it during a call to Redis.

**Before the configuration is known** a producer does not know the number of shards. If Redis is
away at that time, all rows go into one queue: a batch is divided among the shards when it is sent
(``flows/apply.py``), and its sender waits until Redis names the shards.

A forked child begins with an empty producer: rows that the parent has not sent yet belong to the
parent, and would count twice.
"""

import logging
import math
import multiprocessing.util
import threading
import time
import weakref
from collections.abc import Callable, Iterable
from contextlib import suppress

from acker_redis.arguments import check_is
from acker_redis.batching.accumulator import Accumulator
from acker_redis.batching.batch import Batch
from acker_redis.errors import AckerError, BufferFullError, ClosedError, RedisUnavailableError
from acker_redis.flows.delivery import MAX_SENDERS, Delivery, check_settings, tell_given_up
from acker_redis.flows.forks import reset_in_children
from acker_redis.flows.lane import Lane
from acker_redis.flows.namespace import Flows
from acker_redis.protocol.config import AckerConfig
from acker_redis.protocol.keys import check_name
from acker_redis.protocol.rows import Row, ack_row, check_rows, fail_row, touch_row, track_row
from acker_redis.sync.client import Acker

log = logging.getLogger(__name__)


class Producer:
    """Collects rows, folds them per anchor, and sends them in batches, as a Kafka producer does.

    A call returns when its rows are in the buffer, not when they are applied: see :meth:`flush`.
    Rows wait up to ``linger`` seconds for other rows, and for the call in flight before them; with
    ``linger=0`` only for that call. Thread-safe.

    **Back-pressure.** When ``buffer`` rows wait, because Redis is slow or unreachable, callers wait
    too, for up to ``max_block`` seconds. Then they get BufferFullError. The first rows of a process
    wait in the buffer as all others do; only a refusal, such as a wrong password or a missing
    namespace, is raised.

    **Retries.** A batch without a reply is sent again under its number, so it is applied once, for
    as long as its fence holds (N-1 ticks of the namespace). After that, or if Redis refuses the
    batch, the producer gives the batch up: its trees expire, and their sources replay them. A TRACK
    that was given up may have no tree and no verdict; a :class:`Source` handles that case.

    **End.** :meth:`close`, the end of the ``with`` block, and the end of the process send all rows.
    If the process is killed, its unsent rows are lost, and their trees expire.

    Args:
        acker: The client of the namespace.
        source: The name of the source, needed to track.
        linger: Seconds that a row waits for others, 0 to 60.
        buffer: Rows that may wait before callers wait.
        max_block: Seconds that a caller waits for room.
        on_given_up: Called as ``on_given_up(error, rows)`` with the rows of a batch that was given
            up; by default they are logged as a warning. A sender thread calls it, so it must not
            wait: ``add`` does not wait there, and ``flush`` and ``close`` raise AckerError.

    Raises:
        ConfigError: An argument is invalid.

    Examples:
        >>> acker = Acker.from_url(url, "orders")
        >>> with Producer(acker, "shop") as producer:
        ...     producer.track(7, "order-1", [40])
        ...     producer.ack(7, 40)
        >>> [(outcome.source_id, outcome.verdict) for outcome in acker.outcomes("shop")]
        [('order-1', 'ack')]

    """

    def __init__(
        self,
        acker: Acker,
        source: str = "",
        *,
        linger: float = 0.002,
        buffer: int = 65_536,
        max_block: float = 60.0,
        on_given_up: Callable[[AckerError, list[Row]], None] | None = None,
    ) -> None:
        check_is(acker, Acker, "a Producer")
        check_settings(linger, buffer, max_block)
        self.acker = acker
        self.source = check_name("source", source) if source else ""
        self._linger, self._buffer, self._max_block = linger, buffer, max_block
        self._on_given_up = on_given_up
        self.reset_after_fork()
        reset_in_children(self)

    def reset_after_fork(self) -> None:
        """Begin with an empty buffer; a forked child calls this."""
        self._lock = threading.Lock()
        self._work = threading.Condition(self._lock)
        """Notified when a shard may have become ready."""
        self._room = threading.Condition(self._lock)
        """Notified when a batch was applied, or given up and reported."""
        self._reporting = set[Batch]()
        """Batches that were given up, and of which ``on_given_up`` has not returned."""
        self._accumulator: Accumulator | None = None
        self._routed = False
        """Whether the number of shards is known: rows wait in the queues of their shards."""
        # No retries here: a Delivery retries a batch, because it knows when to end.
        self._flows = Flows(self.acker.namespace, retry_for=0.0)
        self._lanes: dict[int, Lane[threading.Lock]] = {}
        self._deliveries: dict[int, Delivery] = {}
        """Of the batches in flight, by shard."""
        self._senders: list[threading.Thread] = []
        self._closed = False
        self._end = math.inf
        """When batches without a reply are given up, on the ``time.monotonic`` clock."""
        self._error: AckerError | None = None

    def add(self, rows: Iterable[Row], wait: bool = True) -> None:
        """Add rows to the buffer, all or none.

        Args:
            rows: Rows, as :mod:`acker_redis.trees.processing` makes them.
            wait: Whether to wait for room, and, in the first call of a producer, for one reply of
                Redis. With False the call never waits: up to twice ``buffer`` rows are taken. Rows
                beyond that are given up, and their trees expire.

        Raises:
            BufferFullError: There was no room within ``max_block`` seconds. No row was added.
            ClosedError: The producer was closed.
            InvalidBatchError: A row is invalid, or tracks although the producer has no ``source``.
            NamespaceNotFoundError, RedisRefusedError, SchemaError: Redis refuses to tell the
                configuration, which the producer does not know yet. No row was added.

        """
        rows = check_rows(rows, self.source)
        if not rows:
            return
        accumulator = self._accumulator if self._routed else None
        if accumulator is None:
            accumulator = self._start(wait)
        with self._lock:
            if self._closed:
                self._check_open()
            if wait and accumulator.size >= self._buffer and not self._in_sender():
                self._wait_for_room(accumulator)
            dropped = accumulator.size >= 2 * self._buffer
            if not dropped and accumulator.add(rows, time.monotonic()):
                self._work.notify()
        if dropped:
            tell_given_up(
                self._on_given_up,
                BufferFullError("twice the buffer waits: Redis is too slow, or unreachable"),
                rows,
            )

    def add_acks(self, anchors: list[int], deltas: list[int]) -> None:
        """Add acks as columns, all or none; see :meth:`add`.

        Args:
            anchors: The anchors.
            deltas: The whole delta of each row. They are not validated: an id, and the XOR of ids.

        """
        if not anchors:
            return
        accumulator = self._accumulator if self._routed else None
        if accumulator is None:
            accumulator = self._start(ask=True)
        with self._lock:
            self._check_open()
            if accumulator.size >= self._buffer and not self._in_sender():
                self._wait_for_room(accumulator)
            if accumulator.add_acks(anchors, deltas, time.monotonic()):
                self._work.notify()

    def track(self, anchor: int, source_id: str, emitted: Iterable[int]) -> None:
        """Track a tree; see :meth:`Batch.track`, and :meth:`add` for errors."""
        self.add([track_row(anchor, source_id, emitted)])

    def ack(self, anchor: int, tuple_id: int, emitted: Iterable[int] = ()) -> None:
        """Ack a message; see :meth:`Batch.ack`, and :meth:`add` for errors."""
        self.add([ack_row(anchor, tuple_id, emitted)])

    def fail(
        self,
        anchor: int,
        why: str = "",
        tuple_id: int | None = None,
        emitted: Iterable[int] = (),
    ) -> None:
        """Fail a tree; see :meth:`Batch.fail`, and :meth:`add` for errors."""
        self.add([fail_row(anchor, why, tuple_id, emitted)])

    def touch(self, anchor: int) -> None:
        """Restart the timeout of a tree; see :meth:`Batch.touch`, and :meth:`add` for errors."""
        self.add([touch_row(anchor)])

    @property
    def waiting(self) -> int:
        """Number of rows, after folding, that have no reply yet."""
        accumulator = self._accumulator
        return accumulator.size if accumulator else 0

    def flush(self, timeout: float | None = None) -> None:
        """Send all rows added so far, without lingering, and wait for the replies.

        ``on_given_up`` has then returned for each of their batches that was given up. So a caller
        must not hold a lock that ``on_given_up`` takes.

        Args:
            timeout: Seconds to wait; None waits without a limit.

        Raises:
            AckerError: The error of the first batch that was given up since the last flush.
            BufferFullError: Rows are left after ``timeout`` seconds, and are still being sent, or
                ``on_given_up`` has not returned by then.

        """
        self._check_may_wait()
        end = math.inf if timeout is None else time.monotonic() + timeout
        with self._lock:
            accumulator = self._accumulator
            if accumulator is not None:
                # Rows that are added later may go with these, or linger.
                accumulator.hurry()
                self._work.notify_all()
                # Keep the batches themselves: an id() may be reused for a later batch.
                waits_for = {*accumulator.batches(), *self._reporting}
                while waits_for.intersection([*accumulator.batches(), *self._reporting]):
                    left = end - time.monotonic()
                    if left <= 0:
                        raise BufferFullError(
                            f"{accumulator.size} rows got no reply within {timeout} s; they are "
                            "still being sent"
                            if waits_for.intersection(accumulator.batches())
                            else f"on_given_up has not returned within {timeout} s"
                        )
                    self._room.wait(min(left, 60.0))
            error, self._error = self._error, None
        if error:
            raise error

    def close(self, timeout: float = 30.0) -> None:
        """Flush, and end the sender threads. A second call is a no-op.

        Args:
            timeout: Seconds to wait for replies. Rows without a reply after that are given up, and
                their trees expire. Calls of ``on_given_up`` are waited for without a limit.

        Raises:
            AckerError: As :meth:`flush`.

        """
        self._check_may_wait()
        with self._lock:
            if self._closed:
                return
            self._closed = True
            self._room.notify_all()
        try:
            self.flush(timeout)
        finally:
            with self._lock:
                self._end = -math.inf
                self._work.notify_all()
            for sender in self._senders:
                sender.join()

    def __enter__(self) -> "Producer":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _start(self, ask: bool) -> Accumulator:
        """Return the accumulator of a producer that does not know the number of shards yet.

        With ``ask`` Redis is asked for it, unless rows wait: then a sender asks.
        """
        self._check_open()
        config = self.acker.flows.known
        if config is None and ask and not self.waiting:
            with suppress(RedisUnavailableError):
                config = self.acker.connection.drive(self.acker.flows.read_config(patient=False))
        with self._lock:
            self._check_open()
            accumulator = self._accumulator
            if accumulator is None:
                accumulator = self._accumulator = Accumulator(self.source, 1, self._linger)
                # Not atexit: a child process of multiprocessing does not run its handlers.
                closing = weakref.WeakMethod(self.close)
                multiprocessing.util.Finalize(None, _close, (closing,), exitpriority=100)
                self._send_by(1)
            if config is not None:
                self._flows.known = self._flows.known or config
                self._route(accumulator, config)
            return accumulator

    def _route(self, accumulator: Accumulator, config: AckerConfig) -> None:
        """Put rows into the queues of their shards from now on; the caller holds the lock."""
        accumulator.shards = config.shards
        self._send_by(min(config.shards, MAX_SENDERS))
        if not self._routed:
            self._routed = True
            self.acker.flows.may_read_ids()

    def _send_by(self, senders: int) -> None:
        """Start senders until there are this many; the caller holds the lock."""
        while len(self._senders) < senders and not self._closed:
            name = f"acker-producer-{len(self._senders)}"
            sender = threading.Thread(target=self._run, name=name, daemon=True)
            try:
                sender.start()
            except RuntimeError:
                if not self._senders:
                    self._accumulator = None
                    raise
                return  # the program ends, or has too many threads: one sender is enough
            self._senders.append(sender)

    def _check_open(self) -> None:
        if self._closed:
            raise ClosedError("this producer is closed and takes no more rows")

    def _in_sender(self) -> bool:
        return threading.current_thread() in self._senders

    def _check_may_wait(self) -> None:
        if self._in_sender():
            raise AckerError(
                "on_given_up runs in a sender thread and must not call flush() or close()"
            )

    def _wait_for_room(self, accumulator: Accumulator) -> None:
        end = time.monotonic() + self._max_block
        while accumulator.size >= self._buffer:
            left = end - time.monotonic()
            if left <= 0:
                raise BufferFullError(
                    f"{accumulator.size} rows wait for Redis, and there was no room within "
                    f"{self._max_block} s: Redis is too slow for this program, or unreachable"
                )
            self._room.wait(left)
            self._check_open()

    def _run(self) -> None:
        """Run one sender: send ready batches until the producer is closed and all have replies."""
        accumulator, ready = self._accumulator, None
        if accumulator is None:
            return  # this process is a fork that has not added rows
        while True:
            with self._lock:
                while (ready := accumulator.take(self._now())) is None:
                    if self._end == -math.inf:
                        return
                    wait = accumulator.due() - time.monotonic()
                    self._work.wait(None if wait == math.inf else max(wait, 0.0))
                shard, batch = ready
                if accumulator.due() < math.inf:
                    self._work.notify()  # another sender may take another shard
                delivery = self._deliveries.get(shard)
                if delivery is None:
                    lane = self._lanes.setdefault(shard, Lane(threading.Lock))
                    delivery = Delivery(self._flows, batch, lane)
                    self._deliveries[shard] = delivery
            again = self._attempt(delivery)
            error = delivery.error
            with self._lock:
                if again is not None:
                    accumulator.later(shard, time.monotonic() + again)
                    self._work.notify()  # a sender may wait for longer than that
                    continue
                del self._deliveries[shard]
                accumulator.done(shard)
                known = self._flows.known  # another sender may set it to None at any time
                if known:  # for the first time, or a reshard may have changed it
                    self._route(accumulator, known)
                if error:
                    self._reporting.add(batch)
                self._room.notify_all()
            if error and not self._report(batch, error):
                return

    def _now(self) -> float:
        """Return the time; at the end of the producer all batches are due, to be given up."""
        return math.inf if self._end == -math.inf else time.monotonic()

    def _report(self, batch: Batch, error: AckerError) -> bool:
        """Call ``on_given_up``; return False in a child that it has forked, which sends nothing."""
        try:
            tell_given_up(self._on_given_up, error, batch.rows())
        except BaseException:
            # For example a SystemExit. Without its senders a producer waits for ever.
            log.exception("producer: on_given_up raised an exception")
        finally:
            with self._lock:
                here = batch in self._reporting
                if here:
                    self._reporting.remove(batch)
                    self._error = self._error or error
                    self._room.notify_all()
        return here

    def _attempt(self, delivery: Delivery) -> float | None:
        # The lane's lock is not needed: a shard has one batch in flight.
        try:
            return self.acker.connection.drive(delivery.attempt(self._end))
        except Exception as error:
            # Catch everything: without its senders a producer waits for ever.
            log.exception("producer: cannot send a batch of %d rows", len(delivery.batch))
            delivery.error = AckerError(f"the batch cannot be sent: {error!r}")
            return None


def _close(close: "weakref.WeakMethod[Callable[[], None]]") -> None:
    """Close a producer at the end of the process."""
    function = close()
    if function is not None:
        try:
            function()
        except AckerError as error:
            log.warning("producer: rows had no reply when the program ended: %s", error)
