"""A source that never loses a message (a spout, in Storm's words)."""

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Generator, Iterator
from typing import Any

from acker_redis.batching.batch import Batch
from acker_redis.errors import AckerError, BufferFullError, ConfigError, RejectedError
from acker_redis.flows.source import SourceFlows
from acker_redis.flows.steps import Flow, Hand
from acker_redis.forks import begins_in_children
from acker_redis.kinds import check_blocking, check_is
from acker_redis.protocol.texts import words
from acker_redis.sync.client import Acker
from acker_redis.trees.pending import Backoff, Record, Verdict
from acker_redis.trees.processing import OpenTree
from acker_redis.trees.source_settings import SourceSettings, check_ran, check_record

log = logging.getLogger(__name__)


class Source:
    """Tracks records, sends their messages, and replays what was not processed.

    >>> acker = Acker.from_url(url, "orders")
    >>> def send(record, ids):
    ...     with bolt.process(*ids):  # or put it into a queue, the id in a header
    ...         print("packing", record.value)
    >>> bolt = Bolt(Producer(acker, linger=0))
    >>> with Source(acker, "shop", send, on_ack=lambda r: print(r.source_id, "is done")) as source:
    ...     source.emit("order-1", "a hat")
    ...     source.join()
    packing a hat
    order-1 is done
    True

    ``send(record, ids)`` sends the messages of a record: one for each of ``ids``, which go along in
    a header (:meth:`MessageId.to_headers`). It is called when the record's tree is tracked, and
    again for each replay, with other ids; a tree that the acker rejected is not sent. When it
    raises, the attempt has failed.

    ``on_ack(record)``: all that followed from the record was processed. Note it where the source
    keeps its records, or commit: until then it is yours. ``on_fail(record, reason, why)``: it was
    not, and is replayed after a while (``backoff``), for up to ``attempts`` attempts; those that
    were rejected for overflow do not count. Then ``dead_letter(record, reason, why)`` is called,
    too. What a callback raises goes through ``step()`` or ``run()``, and it is called again.

    **When the program dies**, begin as after a restart: emit whatever is not known to be done.
    Verdicts are confirmed when the callbacks have returned, and a nack when its record is tracked
    anew (at a full backlog right before), so they come again. Those on records of an earlier
    program have ``record.attempt == 0`` and no value. They are told (``on_ack``, ``on_fail``); and
    replayed where ``reload(source_id)`` gives the record, ``Record(source_id, value, edges)``, and
    not None, as it is done or unknown.

    Records that were not closed are ``max_pending`` at most (Storm's ``max.spout.pending``); then
    :meth:`emit` waits. When the acker has too much pending, the source pauses and tries again.
    ``timeout`` is for how many seconds it waits for a verdict itself, in case that Redis has lost
    all: more than the trees live, 1.5 times that and 5 s by default; a touch starts it anew.

    Callbacks are called by one thread: the source's own, between :meth:`start` and :meth:`stop`
    (or in a ``with`` block), or whoever calls :meth:`run`, :meth:`verdicts` or :meth:`step`. One
    source reads the verdicts of a task. Verdicts come at least once: ``on_ack`` may be called
    twice for a record, in rare cases.
    """

    def __init__(
        self,
        acker: Acker,
        task: str,
        send: Callable[[Record, Any], object] | None = None,
        *,
        on_ack: Callable[[Record], object] | None = None,
        on_fail: Callable[[Record, str, str], object] | None = None,
        dead_letter: Callable[[Record, str, str], object] | None = None,
        reload: Callable[[str], Any] | None = None,
        max_pending: int = 1000,
        attempts: int = 5,
        backoff: Backoff | None = None,
        timeout: float | None = None,
        poll: float = 0.05,
    ) -> None:
        check_is(acker, Acker, "a Source")
        check_blocking(
            "a Source",
            send=send,
            on_ack=on_ack,
            on_fail=on_fail,
            dead_letter=dead_letter,
            reload=reload,
        )
        self.acker = acker
        settings = SourceSettings(
            send, on_ack, on_fail, dead_letter, reload, max_pending, attempts,
            backoff or Backoff(), timeout, poll,
        )  # fmt: skip
        self._settings = settings
        self._flows = SourceFlows(acker.flows, task, settings)
        self.begin()
        begins_in_children(self)

    def begin(self) -> None:
        """Begin anew, empty: as in a forked child, where the records are the parent's."""
        self._flows = SourceFlows(self.acker.flows, self._flows.task, self._settings)
        self._admission = threading.Lock()
        """Held while there is room and a record takes it."""
        self._changed = threading.Condition()
        """Notified when records were closed."""
        self._wake = threading.Event()
        """Set when there is something to emit."""
        self._stop = threading.Event()
        self._turn = threading.Lock()
        """Held by who steps."""
        self._pump: threading.Thread | None = None
        self._pumping = 0
        """The thread that steps."""

    @property
    def task(self) -> str:
        """The source's name, under which it tracks."""
        return self._flows.task

    @property
    def pending(self) -> int:
        """Records that are not closed: queued, tracked, or waiting for a replay."""
        return self._flows.live()

    def emit(
        self,
        source_id: str,
        value: Any = None,
        edges: int | None = 1,
        *,
        timeout: float | None = None,
    ) -> None:
        """Take a record, to be tracked and sent soon; any thread may call it.

        ``edges`` is how many first messages it has; with None ``send`` gets an open tree instead of
        ids, ``send(record, tree)``, and takes an id for each message from ``tree.emit()``.

        Waits while ``max_pending`` records are not closed, for up to ``timeout`` seconds:
        BufferFullError then. Called by a callback it does not wait. Where nobody steps, it steps
        itself; without callbacks, which would miss verdicts, BufferFullError comes at once. Raises
        InvalidBatchError for a source id that cannot be.
        """
        if self._settings.send is None:
            raise ConfigError("a source without send= has no way to emit; use track()")
        self._admit(check_record(Record(source_id, value, edges)), None, timeout)
        if not self._wake.is_set():  # which is cleared before the inbox is looked into
            self._wake.set()

    @contextlib.contextmanager
    def track(
        self, source_id: str, value: Any = None, *, timeout: float | None = None
    ) -> Iterator[OpenTree]:
        """Track a record whose messages are sent here and now: ``tree.emit()`` for each.

        >>> acker = Acker.from_url(url, "orders")
        >>> source = Source(acker, "crawler")
        >>> with source.track("start page") as tree:
        ...     ids = [tree.emit(), tree.emit()]
        >>> acker.status().pending
        1

        Tracked before the block begins, closed behind it; a message of its own holds the tree open
        between. An exception fails it, and goes on. A nack is told as of any record; it is replayed
        by ``send(record, tree)``, if there is a ``send``.

        Raises RejectedError when too much is pending: nothing was emitted, and it is replayed too;
        and whatever :meth:`Acker.apply` raises: then it is not known to this source.
        """
        record = check_record(Record(source_id, value, None))
        tree, opening = OpenTree(source_id), Batch(self.task)
        opening.add(tree.opening)
        self._admit(record, tree.anchor, timeout)
        try:
            applied = self.acker.apply(opening)
            rejected = applied.rejected or (applied.repeated and not self.acker.show(tree.anchor))
        except BaseException:
            self._flows.withdrawn.append((record, tree.anchor))
            raise
        if rejected:
            raise RejectedError(
                f"{source_id!r} was nacked: too much is pending; emit nothing of it"
            )
        try:
            yield tree
        except BaseException as error:
            self._close(tree, words(error))
            raise
        self._close(tree)

    def start(self) -> "Source":
        """Step in a thread of its own, until :meth:`stop`."""
        if not self._pumped():
            self._stop.clear()
            self._pump = threading.Thread(target=self._run_thread, name="acker-source", daemon=True)
            self._pump.start()
        return self

    def stop(self) -> None:
        """Finish the step in hand and leave. What is pending stays so: see the class."""
        self._stop.set()
        self._wake.set()
        with self._changed:
            self._changed.notify_all()
        if self._pump and self._pump is not threading.current_thread():
            self._pump.join()
            self._stop.clear()
        self._pump = None
        if self._turn.acquire(blocking=False):  # else whoever steps says it
            try:
                with contextlib.suppress(AckerError):  # what is not said expires
                    self.acker.connection.drive(self._flows.finish())
            finally:
                self._stop.clear()
                self._turn.release()

    def run(self) -> None:
        """Step in this thread until another one, or a callback, calls :meth:`stop`.

        What a callback raises ends it; when Redis is away it says so and goes on trying.
        """
        with contextlib.closing(self.verdicts()) as verdicts:
            for verdict in verdicts:
                self._call_back(verdict)

    def verdicts(self, *, until_closed: bool = False) -> Generator[Verdict, None, None]:
        """Step in this thread, and hand out each verdict instead of calling back.

        A verdict counts when the next one is asked for. Ends when :meth:`stop` is called, or with
        ``until_closed`` when each record is closed.

        >>> acker = Acker.from_url(url, "orders")
        >>> source = Source(acker, "shop", lambda record, ids: bolt.process(*ids).ack())
        >>> bolt = Bolt(Producer(acker, linger=0))
        >>> source.emit("order-1")
        >>> for verdict in source.verdicts(until_closed=True):
        ...     print(verdict.verdict, verdict.record.source_id)
        ack order-1
        """
        own = self._pump is threading.current_thread()
        while not self._turn.acquire(timeout=0.1 if own else 0):
            # Its own thread waits for one that steps in join() or emit(), which then leaves.
            if not own:
                raise ConfigError(f"source {self.task} is stepped by another thread already")
            if self._stop.is_set():
                return
        try:
            yield from self._loop(until_closed)
        finally:
            if not own:
                self._stop.clear()
            self._turn.release()

    def step(self) -> float:
        """One step: hear what waits, replay and emit what is due; seconds until the next is due.

        Raises what a callback raises, RedisUnavailableError and its like; the next step goes on.
        """
        if self._pumped():
            raise ConfigError(f"source {self.task} is stepped by a thread of its own")
        with self._turn:
            return self._step()

    def join(self, timeout: float | None = None) -> bool:
        """Wait until each record is closed; False if not within ``timeout`` seconds.

        Where nobody steps, it steps itself.
        """
        return self._wait_until(lambda: not self.pending, timeout)

    def __enter__(self) -> "Source":
        return self.start()

    def __exit__(self, *error: object) -> None:
        self.stop()

    def _loop(self, until_closed: bool) -> Generator[Verdict, None, None]:
        idle, away = 0.0, 0
        while not self._stop.is_set():
            self._wake.clear()
            try:
                wait = yield from self._steps(self._flows.step())
            except AckerError as error:
                away += 1
                wait = min(0.1 * 2 ** min(away, 6), 5.0)
                log.warning("source %s (next attempt in %.1f s): %s", self.task, wait, error)
                self._stop.wait(wait)
                continue
            if until_closed and not self.pending:
                return
            away, idle = 0, min(max(2 * idle, 0.001), self._settings.poll) if wait else 0.0
            if wait and not self._stop.is_set():
                self._wake.wait(min(wait, idle))

    def _step(self) -> float:
        steps = self._steps(self._flows.step())
        with contextlib.closing(steps):
            while True:
                try:
                    verdict = next(steps)
                except StopIteration as end:
                    wait: float = end.value
                    return wait
                self._call_back(verdict)

    def _steps(self, flow: Flow[float]) -> Generator[Verdict, None, float]:
        """Run a flow, and hand out its verdicts."""
        before = self.pending
        self._pumping = threading.get_ident()
        try:
            with contextlib.closing(flow):
                while isinstance(found := self.acker.connection.advance(flow), Hand):
                    yield found.what
            return found.value
        finally:
            self._pumping = 0
            if self.pending != before or not before:
                with self._changed:
                    self._changed.notify_all()

    def _call_back(self, verdict: Verdict) -> None:
        for function, args in self._settings.callbacks(verdict):
            check_ran(function, function(*args))

    def _run_thread(self) -> None:
        while True:
            try:
                return self.run()
            except Exception:
                # Whatever it is: a source that ends is a source that waits for ever.
                log.exception("source %s: a callback failed, and will be called again", self.task)
                if self._stop.wait(1.0) or self._pump is not threading.current_thread():
                    return  # also when it was stopped by the callback itself

    def _close(self, tree: OpenTree, why: str | None = None) -> None:
        closing = Batch()
        for row in tree.close() if why is None else tree.fail(why):
            closing.add(row)
        self.acker.apply(closing)

    def _pumped(self) -> bool:
        """Whether the source has a thread of its own."""
        return self._pump is not None and self._pump.is_alive()

    def _admit(self, record: Record, anchor: int | None, timeout: float | None) -> None:
        if self._admitted(record, anchor):
            return
        admitted = False

        def admits() -> bool:
            nonlocal admitted
            admitted = admitted or self._admitted(record, anchor)
            return admitted

        if self._wait_until(admits, timeout, steps=self._settings.calls_back):
            return
        raise BufferFullError(
            f"{self.pending} records of {self.task} are not closed, and may be "
            f"{self._settings.max_pending}; give them more time, or, if nobody does, "
            "hear verdicts meanwhile: start(), verdicts(), or callbacks"
        )

    def _admitted(self, record: Record, anchor: int | None) -> bool:
        """Take a record in, if there is room; a callback's in any case.

        Nothing would be closed while a callback waits.
        """
        with self._admission:
            room = self._flows.live() < self._settings.max_pending
            if room or self._pumping == threading.get_ident():
                self._flows.inbox.append((record, anchor))
                return True
            return False

    def _wait_until(
        self, happens: Callable[[], bool], timeout: float | None, steps: bool = True
    ) -> bool:
        end = None if timeout is None else time.monotonic() + timeout
        while not happens():
            left = 1.0 if end is None else end - time.monotonic()
            if left <= 0:
                return False
            if not self._pumped() and self._turn.acquire(blocking=False):
                try:
                    if not steps:
                        return False
                    wait = self._step()
                finally:
                    self._turn.release()
                if not happens():
                    self._wake.wait(min(wait, left, self._settings.poll))
                    self._wake.clear()
            else:
                with self._changed:
                    if not happens():
                        self._changed.wait(min(left, 1.0))
        return True
