"""A producer that batches: many small operations, few calls.

Any thread may call it. Senders, threads of its own, take the batches of one shard after the other
from the :class:`~acker_redis.batching.accumulator.Accumulator` and apply each under a lane of that
shard; one lock guards all that changes; nobody holds it while Redis is asked.

In a forked child all of it begins anew: what the parent has not sent yet is the parent's, and
would count twice.
"""

import logging
import math
import multiprocessing.util
import threading
import time
import weakref
from collections.abc import Callable, Iterable

from acker_redis.batching.accumulator import Accumulator
from acker_redis.batching.batch import Batch
from acker_redis.errors import (
    AckerError,
    BufferFullError,
    ClosedError,
)
from acker_redis.flows.delivery import MAX_SENDERS, check_settings, deliver, tell_given_up
from acker_redis.flows.lane import Lane
from acker_redis.flows.namespace import Flows
from acker_redis.forks import begins_in_children
from acker_redis.kinds import check_is
from acker_redis.protocol.keys import check_name
from acker_redis.protocol.rows import Row, ack_row, check_rows, fail_row, touch_row, track_row
from acker_redis.sync.client import Acker

log = logging.getLogger(__name__)


class Producer:
    """Folds rows per anchor and sends them by the batch, as a Kafka producer does.

    >>> acker = Acker.from_url(url, "orders")
    >>> with Producer(acker, "shop") as producer:
    ...     producer.track(7, "order-1", [40])
    ...     producer.ack(7, 40)
    >>> [(outcome.source_id, outcome.verdict) for outcome in acker.outcomes("shop")]
    [('order-1', 'ack')]

    A call comes back when its row is in the buffer, not when it was applied: see :meth:`flush`.
    Rows wait for ``linger`` seconds that others may join them, and for the call before them.
    With 0 they wait for that call alone.

    When ``buffer`` rows wait, because Redis is slow or away, callers wait too, for up to
    ``max_block`` seconds, and then get a BufferFullError. A batch that is not answered is sent
    again, under its number, for as long as its fence holds (N-1 ticks of the namespace); then, or
    when Redis refuses it, it is given up: its trees expire, and their sources replay them.
    ``on_given_up(error, rows)`` is told which, by a sender's thread, where nothing can wait:
    ``add`` does not, and ``flush`` and ``close`` refuse. Without it a warning is logged. Of a TRACK
    that was given up there may be no tree, and no verdict: a Source knows what to do then.

    ``close()``, or the end of ``with``, or of the process unless it is killed, sends what is there.
    """

    def __init__(
        self,
        acker: Acker,
        task: str = "",
        *,
        linger: float = 0.002,
        buffer: int = 65_536,
        max_block: float = 60.0,
        on_given_up: Callable[[AckerError, list[Row]], None] | None = None,
    ) -> None:
        check_is(acker, Acker, "a Producer")
        check_settings(linger, buffer, max_block)
        self.acker = acker
        self.task = check_name("task", task) if task else ""
        self._linger, self._buffer, self._max_block = linger, buffer, max_block
        self._on_given_up = on_given_up
        self.begin()
        begins_in_children(self)

    def begin(self) -> None:
        """Begin anew, empty: as in a forked child."""
        self._lock = threading.Lock()
        self._work = threading.Condition(self._lock)
        """Notified when a shard may have become ready."""
        self._room = threading.Condition(self._lock)
        """Notified when a batch was answered, or given up."""
        self._accumulator: Accumulator | None = None
        # What is not answered is tried again by deliver(), which knows when to end.
        self._flows = Flows(self.acker.namespace, retry_for=0.0)
        self._lanes: dict[int, Lane[threading.Lock]] = {}
        self._senders: list[threading.Thread] = []
        self._closed = False
        self._end = math.inf
        """When what was not answered is given up."""
        self._error: AckerError | None = None

    def add(self, rows: Iterable[Row], wait: bool = True) -> None:
        """Take rows in, all of them or, with an error, none.

        With ``wait=False`` it never waits for room: up to twice the buffer is taken in, and what is
        too much even for that is dropped, whose trees expire. (The very first rows make it ask for
        the configuration.)
        """
        rows = check_rows(rows, self.task)
        if not rows:
            return
        accumulator = self._accumulator or self._start()
        with self._lock:
            if self._closed:
                self._check_open()
            if wait and accumulator.size >= self._buffer and not self._in_sender():
                self._wait_for_room(accumulator)
            dropped = accumulator.size >= 2 * self._buffer
            if not dropped and accumulator.add(rows, time.monotonic()):
                self._work.notify()
        if dropped:
            tell_given_up(self._on_given_up, BufferFullError("Redis is too slow, or away"), rows)

    def track(self, anchor: int, source_id: str, emitted: Iterable[int]) -> None:
        """As :meth:`Batch.track`."""
        self.add([track_row(anchor, source_id, emitted)])

    def ack(self, anchor: int, tuple_id: int, emitted: Iterable[int] = ()) -> None:
        """As :meth:`Batch.ack`."""
        self.add([ack_row(anchor, tuple_id, emitted)])

    def fail(
        self,
        anchor: int,
        why: str = "",
        tuple_id: int | None = None,
        emitted: Iterable[int] = (),
    ) -> None:
        """As :meth:`Batch.fail`."""
        self.add([fail_row(anchor, why, tuple_id, emitted)])

    def touch(self, anchor: int) -> None:
        """As :meth:`Batch.touch`."""
        self.add([touch_row(anchor)])

    @property
    def waiting(self) -> int:
        """Rows, folded, that were not answered yet."""
        accumulator = self._accumulator
        return accumulator.size if accumulator else 0

    def flush(self, timeout: float | None = None) -> None:
        """Send what was taken in before, without lingering, and wait until all is answered.

        Raises the error of the first batch that was given up since the last flush, if any was,
        and BufferFullError when rows are left after ``timeout`` seconds; they are still sent.
        """
        self._check_may_wait()
        end = math.inf if timeout is None else time.monotonic() + timeout
        with self._lock:
            accumulator = self._accumulator
            if accumulator is not None:
                # What comes in later may go along, or linger.
                accumulator.hurry()
                self._work.notify_all()
                # The batches, not their ids: another may come to stand where one was.
                waits_for = set(accumulator.batches())
                while waits_for.intersection(accumulator.batches()):
                    left = end - time.monotonic()
                    if left <= 0:
                        raise BufferFullError(
                            f"{accumulator.size} rows were not answered within {timeout} s"
                        )
                    self._room.wait(min(left, 60.0))
            error, self._error = self._error, None
        if error:
            raise error

    def close(self, timeout: float = 30.0) -> None:
        """Flush and end the senders; the same again does nothing.

        What is not answered after ``timeout`` seconds is given up: its trees expire. Raises what
        flush raises.
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

    def _start(self) -> Accumulator:
        config = self.acker.config
        shards = config.shards
        with self._lock:
            self._check_open()
            if self._accumulator is None:
                self._flows.known = config
                self._accumulator = Accumulator(self.task, shards, self._linger)
                for number in range(min(shards, MAX_SENDERS)):
                    name = f"acker-producer-{number}"
                    sender = threading.Thread(target=self._run, name=name, daemon=True)
                    self._senders.append(sender)
                    sender.start()
                # Not atexit, which a child of multiprocessing does not come to.
                closing = weakref.WeakMethod(self.close)
                multiprocessing.util.Finalize(None, _close, (closing,), exitpriority=100)
            return self._accumulator

    def _check_open(self) -> None:
        if self._closed:
            raise ClosedError("this producer was closed; nothing is taken in any more")

    def _in_sender(self) -> bool:
        return threading.current_thread() in self._senders

    def _check_may_wait(self) -> None:
        if self._in_sender():
            raise AckerError("on_given_up is called by who sends, and cannot wait for that")

    def _wait_for_room(self, accumulator: Accumulator) -> None:
        end = time.monotonic() + self._max_block
        while accumulator.size >= self._buffer:
            left = end - time.monotonic()
            if left <= 0:
                raise BufferFullError(
                    f"{accumulator.size} rows wait for Redis, and too few were answered within "
                    f"{self._max_block} s; it is too slow for this program, or away"
                )
            self._room.wait(left)
            self._check_open()

    def _run(self) -> None:
        """One sender: send what is ready, until the producer is closed and all is answered."""
        accumulator, ready = self._accumulator, None
        if accumulator is None:
            return  # only just forked
        while True:
            with self._lock:
                while (ready := accumulator.take(time.monotonic())) is None:
                    if self._end == -math.inf:
                        return
                    wait = accumulator.due() - time.monotonic()
                    self._work.wait(None if wait == math.inf else max(wait, 0.0))
                shard, batch = ready
                if accumulator.due() < math.inf:
                    self._work.notify()  # another shard has something, for another sender
                lane = self._lanes.setdefault(shard, Lane(threading.Lock))
            error = self._deliver(batch, lane)
            with self._lock:
                accumulator.done(shard)
                known = self._flows.known  # another sender may forget it at any time
                if known:
                    # Others than before, when the namespace was created anew.
                    accumulator.shards = known.shards
                if error:
                    self._error = self._error or error
                self._room.notify_all()
            if error:
                tell_given_up(self._on_given_up, error, batch.rows())

    def _deliver(self, batch: Batch, lane: "Lane[threading.Lock]") -> AckerError | None:
        # The lane's lock is not needed: a shard has one batch in flight.
        flow = deliver(self._flows, batch, lane, lambda: self._end)
        try:
            return self.acker.connection.drive(flow)
        except Exception as error:
            # Whatever it is: a sender that ends is a producer that waits for ever.
            log.exception("a batch of %d rows cannot be sent", len(batch))
            return AckerError(f"cannot be sent: {error!r}")


def _close(close: "weakref.WeakMethod[Callable[[], None]]") -> None:
    """At the end of the process."""
    function = close()
    if function is not None:
        try:
            function()
        except AckerError as error:
            log.warning("not all rows were answered when the program ended: %s", error)
