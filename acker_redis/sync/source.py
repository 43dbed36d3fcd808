"""A source that never loses a message (in Storm: a spout)."""

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Generator, Iterator
from typing import Any

from acker_redis.arguments import check_blocking, check_is
from acker_redis.batching.batch import Batch
from acker_redis.errors import (
    AckerError,
    BufferFullError,
    ConfigError,
    RejectedError,
)
from acker_redis.flows.forks import reset_in_children
from acker_redis.flows.misuse import report_when_forgotten, waits_for_itself, was_stopped
from acker_redis.flows.source import SourceFlows
from acker_redis.flows.steps import Flow, Hand
from acker_redis.protocol.reports import SourceEdge
from acker_redis.protocol.texts import words
from acker_redis.sync.client import Acker
from acker_redis.sync.group import Group
from acker_redis.trees.group import GroupResult
from acker_redis.trees.processing import OpenTree
from acker_redis.trees.record import Backoff, Record, Verdict
from acker_redis.trees.source_settings import SourceSettings, check_ran, check_record

log = logging.getLogger(__name__)


class Source:
    """Tracks records, sends their messages, and replays records that were not processed.

    **Life of a record.** :meth:`emit` queues a record. The source tracks a tree for it, then calls
    ``send``. When all messages of the tree are acked, it calls ``on_ack``. When the tree is nacked,
    it calls ``on_fail`` and tracks the record again after a back-off, as a new tree. After the last
    attempt it calls ``dead_letter``, too. A record is *open* until an ack or its last nack closes
    it.

    **Delivery is at least once.** A message may be sent again in a later attempt, and ``on_ack``
    may, in rare cases, be called twice for a record. A verdict is confirmed to Redis when its
    callbacks have returned, and a nack when its record is tracked again (with a full backlog right
    before that). A callback that raises ends :meth:`step` or :meth:`run` with its exception, and is
    called again.

    **After a crash or restart** emit every record that is not known to be done. Unconfirmed
    verdicts are delivered again. For a record of an earlier program the callbacks get
    ``record.attempt == 0`` and no value; such a record is replayed only if ``reload`` returns it.

    **Back-pressure.** At most ``max_pending`` records may be open (Storm's ``max.spout.pending``);
    then :meth:`emit` waits. While too much is pending in the acker, the source pauses and tries
    again.

    **Outages.** A window per edge says how many records may be in flight. It begins at 100, is at
    most ``max_pending``, shrinks when trees expire, and grows with answers. While nothing is
    answered, only probes are sent, so that a consumer that comes back finds a short queue. A probe
    that expires untouched is a *free* attempt: it does not count. :meth:`status` shows the windows.
    Edges share ``max_pending``, and half of an equal share is kept for each, if need be on top.

    **Threads.** One thread calls the callbacks: the source's own between :meth:`start` and
    :meth:`stop` (or in a ``with`` block), or the caller of :meth:`run`, :meth:`verdicts`,
    :meth:`step`, or of a waiting :meth:`emit` or :meth:`join`. Only one ``Source`` at a time may
    use a name, because it takes the verdicts of that name.

    Args:
        acker: The client of the namespace.
        name: The name of the source, under which it tracks.
        send: ``send(record, ids)`` sends the messages of a record: one message per id, with the id
            in a header (:meth:`MessageId.to_headers`). It is called after the tree is tracked, and
            again for each replay, with other ids. It is not called for a tree that the acker
            rejected. If it raises, the attempt has failed.
        on_ack: ``on_ack(record)``: everything that the record caused was processed. Mark the record
            as done, or commit, here; until then keep the record.
        on_fail: ``on_fail(record, reason, why)``: the attempt failed.
        dead_letter: ``dead_letter(record, reason, why)``: the last attempt failed.
        reload: ``reload(source_id)`` returns the ``Record(source_id, value, messages)`` that an
            earlier program tracked, to replay it; or None if the record is done or unknown.
        on_group: ``on_group(result)``: each record of a completion group has its verdict, see
            :meth:`group`. At least once: ``result.key`` is the same in each call for the same seal.
            Called again, also after a restart, until it returns.
        max_pending: Maximum number of open records.
        attempts: Maximum number of attempts per record. An attempt that was rejected for overflow
            does not count.
        backoff: The wait before a replay, by default 1, 2, 4, .. up to 60 seconds.
        timeout: Seconds for which the source itself waits for a verdict, in case Redis has lost the
            tree. Must be longer than trees live; by default 1.5 times that plus 5 s. A touch
            restarts it.
        poll: Longest pause between two reads of the stream, in seconds.
        adaptive: Whether windows limit the records in flight; without, only ``max_pending`` does.
        give_up_after: Seconds from this program's first attempt of a record after which a free
            attempt is its last: it is dead with reason ``outage``. A restart begins again.

    Raises:
        ConfigError: An argument is invalid, or a callback is a coroutine function.

    Examples:
        >>> acker = Acker.from_url(url, "orders")
        >>> def send(record, ids):
        ...     with bolt.process(*ids):  # or put it into a queue, the id in a header
        ...         print("packing", record.value)
        >>> bolt = Bolt(Producer(acker, linger=0))
        >>> def on_ack(record):
        ...     print(record.source_id, "is done")
        >>> with Source(acker, "shop", send, on_ack=on_ack) as source:
        ...     source.emit("order-1", "a hat")
        ...     source.join()
        packing a hat
        order-1 is done
        True

    """

    def __init__(
        self,
        acker: Acker,
        name: str,
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
        on_group: Callable[[GroupResult], object] | None = None,
        adaptive: bool = True,
        give_up_after: float = 86_400.0,
    ) -> None:
        check_is(acker, Acker, "a Source")
        check_blocking(
            "a Source",
            send=send,
            on_ack=on_ack,
            on_fail=on_fail,
            dead_letter=dead_letter,
            reload=reload,
            on_group=on_group,
        )
        self.acker = acker
        settings = SourceSettings(
            send, on_ack, on_fail, dead_letter, reload, max_pending, attempts,
            backoff or Backoff(), timeout, poll, on_group,
            adaptive, give_up_after,
        )  # fmt: skip
        self._settings = settings
        self.use(SourceFlows(acker.flows, name, settings))
        self.reset_after_fork()
        reset_in_children(self)

    def use(self, flows: SourceFlows) -> None:
        """Use these flows, before the first record."""
        self._flows = flows
        self._forgotten = report_when_forgotten(self, flows)

    def reset_after_fork(self) -> None:
        """Begin without records.

        A forked child calls this, because the records are the parent's.
        """
        self._forgotten.detach()
        self.use(self._flows.fresh())
        self._admission = threading.Lock()
        """Held while a thread checks for room and adds a record."""
        self._changed = threading.Condition()
        """Notified when records were closed."""
        self._wake = threading.Event()
        """Set when there is something to emit."""
        self._stop = threading.Event()
        self._stopped = False
        """Whether its thread was stopped, and nothing has run it since."""
        self._turn = threading.Lock()
        """Held by the thread that runs a step."""
        self._pump: threading.Thread | None = None
        self._pumping = 0
        """Identity of the thread that runs a step; 0 if none does."""

    @property
    def name(self) -> str:
        """The name of the source, under which it tracks."""
        return self._flows.name

    @property
    def pending(self) -> int:
        """Number of open records: queued, tracked, or waiting for a replay."""
        return self._flows.live()

    def status(self) -> list[SourceEdge]:
        """Return for each edge its window, and the records in flight and waiting. Thread-safe.

        ``down_for`` is set while nothing is answered: then only probes are sent. Why one record
        waits: :attr:`Record.delivery`.

        Examples:
            >>> source = Source(Acker.from_url(url, "orders"), "shop", lambda record, ids: None)
            >>> source.emit("order-1")
            >>> wait = source.step()
            >>> source.status()
            [SourceEdge(edge='', window=100, in_flight=1, waiting=0, down_for=None)]

        """
        return self._flows.edge_states()

    def emit(
        self,
        source_id: str,
        value: Any = None,
        messages: int | None = 1,
        *,
        edge: str = "",
        timeout: float | None = None,
    ) -> None:
        """Queue a record, to be tracked and sent soon. Thread-safe.

        Waits while ``max_pending`` records are open; a call from a callback never waits. If no
        thread runs the source, this call runs steps itself while it waits. Without callbacks it
        does not, because verdicts would be lost: BufferFullError is raised at once.

        Args:
            source_id: The source's own id of the record, 1 to 255 bytes; comes back with the
                verdict.
            value: What ``send`` needs to send the record; kept in this process only.
            messages: Number of first messages. With None ``send(record, tree)`` gets an open tree
                instead of ids, and takes an id per message from ``tree.emit()``.
            edge: The name of the edge that the first messages travel on, mostly that of their
                queue. The namespace must list it: see :attr:`AckerConfig.edges`.
            timeout: Seconds to wait for room; None waits without a limit.

        Raises:
            BufferFullError: There was no room in time.
            ClosedError: The source was stopped, and nothing has run it since.
            InvalidBatchError: ``source_id`` or ``messages`` is invalid.
            ConfigError: The source has no ``send``.

        """
        self.emit_record(Record(source_id, value, messages, edge=edge), timeout)

    def emit_record(self, record: Record, timeout: float | None) -> None:
        """Queue a new record: see :meth:`emit`."""
        if self._settings.send is None:
            raise ConfigError("emit() needs a source with send=; use track() instead")
        self._admit(check_record(record), None, timeout)
        if not self._wake.is_set():  # a step clears it before it reads the inbox
            self._wake.set()

    @contextlib.contextmanager
    def track(
        self, source_id: str, value: Any = None, *, timeout: float | None = None
    ) -> Iterator[OpenTree]:
        """Track a record whose messages the ``with`` block sends: call ``tree.emit()`` for each.

        The record is tracked before the block begins, and its tree is closed after the block. In
        between, an additional message holds the tree open. An exception in the block fails the
        tree, and propagates. A nack is delivered as for any record; the record is replayed by
        ``send(record, tree)``, if the source has ``send``.

        Args:
            source_id: The source's own id of the record, 1 to 255 bytes; comes back with the
                verdict.
            value: What ``send`` needs for a replay.
            timeout: Seconds to wait for room, as in :meth:`emit`.

        Raises:
            RejectedError: Too much is pending: nothing was emitted. The record is replayed, too.
            BufferFullError: There was no room in time.
            ClosedError: The source was stopped, and nothing has run it since.
            AckerError: As :meth:`Acker.apply`. The source does not know this record then.

        Examples:
            >>> acker = Acker.from_url(url, "orders")
            >>> source = Source(acker, "crawler")
            >>> with source.track("start page") as tree:
            ...     ids = [tree.emit(), tree.emit()]
            >>> acker.status().pending
            1

        """
        record = check_record(Record(source_id, value, None))
        tree = OpenTree(source_id, ids=self.acker.ids, anchor=self._flows.anchor())
        opening = Batch(self.name)
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
                f"{source_id!r} was nacked, because too much is pending: send none of its messages"
            )
        try:
            yield tree
        except BaseException as error:
            self._close(tree, words(error))
            raise
        self._close(tree)

    @contextlib.contextmanager
    def group(self, name: str) -> Iterator[Group]:
        """Emit records as one completion group: ``on_group`` is called when all have a verdict.

        The end of the block seals the group: it waits until Redis has the names of all its
        records. (Without callbacks and without a thread, the next step seals it.) An exception in
        the block leaves the group open, so that it never completes. The group survives a restart:
        see the how-to page about groups. Entering a block with the name of an earlier group
        continues that group, up to 7 days after it was reported: a name is for one set of records.

        Args:
            name: 1 to 64 characters of A-Z a-z 0-9 _ . - ; unique among the groups of this source.

        Raises:
            ConfigError: The name is invalid or in use by another block, or there is no
                ``on_group``.
            ClosedError: Redis does not know the group any more: it is not sealed.

        Examples:
            >>> acker = Acker.from_url(url, "orders")
            >>> bolt = Bolt(Producer(acker, linger=0))
            >>> def send(record, ids):
            ...     bolt.process(*ids).ack()
            >>> done = threading.Event()
            >>> def on_group(result):
            ...     print(result.name, result.acked, "of", result.records)
            ...     done.set()
            >>> with Source(acker, "shop", send, on_group=on_group) as source:
            ...     with source.group("import-2026-11") as group:
            ...         group.emit("order-1")
            ...         group.emit("order-2")
            ...     done.wait()
            import-2026-11 2 of 2
            True

        """
        groups = self._flows.groups
        block = groups.enter(name)
        try:
            yield Group(self.emit_record, block)
        except BaseException:
            groups.leave(block, seal=False)
            raise
        groups.leave(block, seal=True)
        self._wake.set()
        if not self._called_back():  # a callback would wait for its own step
            self._wait_until(block.check_sealed, None, steps=self._settings.calls_back)

    def start(self) -> "Source":
        """Start a thread that runs steps until :meth:`stop`; return the source."""
        if not self._pumped():
            self._stop.clear()
            self._stopped = False
            self._pump = threading.Thread(target=self._run_thread, name="acker-source", daemon=True)
            self._pump.start()
        return self

    def stop(self) -> None:
        """Finish the current step and stop. Open records stay pending: see the class.

        After that :meth:`emit` and :meth:`track` raise ClosedError, also calls that wait for room,
        until the source is run again.
        """
        self._stopped = self._stopped or self._pump is not None
        self._stop.set()
        self._wake.set()
        with self._changed:
            self._changed.notify_all()
        if self._pump and self._pump is not threading.current_thread():
            self._pump.join()
            self._stop.clear()
        self._pump = None
        if self._turn.acquire(blocking=False):  # else the thread that runs a step sends it
            try:
                with contextlib.suppress(AckerError):  # trees that are not closed expire
                    self.acker.connection.drive(self._flows.finish())
            finally:
                self._stop.clear()
                self._turn.release()

    def run(self) -> None:
        """Run steps in this thread until another thread, or a callback, calls :meth:`stop`.

        An exception of a callback ends it. While Redis is unreachable it logs that and tries again.
        """
        with contextlib.closing(self.verdicts()) as verdicts:
            for verdict in verdicts:
                self._call_back(verdict)

    def verdicts(self, *, until_closed: bool = False) -> Generator[Verdict, None, None]:
        """Run steps in this thread, and yield each verdict instead of calling the callbacks.

        A verdict is confirmed when the next one is requested.

        Args:
            until_closed: Whether to end when no record is open. It always ends after :meth:`stop`.

        Raises:
            ConfigError: Another thread runs this source.
            AckerError: A callback calls this method.

        Examples:
            >>> acker = Acker.from_url(url, "orders")
            >>> source = Source(acker, "shop", lambda record, ids: bolt.process(*ids).ack())
            >>> bolt = Bolt(Producer(acker, linger=0))
            >>> source.emit("order-1")
            >>> for verdict in source.verdicts(until_closed=True):
            ...     print(verdict.verdict, verdict.record.source_id)
            ack order-1

        """
        self._check_may_wait("verdicts")
        own = self._pump is threading.current_thread()
        while not self._turn.acquire(timeout=0.1 if own else 0):
            # The source's own thread waits for a step in join() or emit() to end.
            if not own:
                raise ConfigError(
                    f"another thread runs source {self.name}; run it in one thread only"
                )
            if self._stop.is_set():
                return
        try:
            if not own:
                self._stopped = False
            yield from self._loop(until_closed)
        finally:
            if not own:
                self._stop.clear()
            self._turn.release()

    def step(self) -> float:
        """Run one step: read verdicts, replay and emit due records; return seconds until the next.

        Raises:
            ConfigError: The source has its own thread.
            AckerError: Such as RedisUnavailableError; the next step continues. Or a callback calls
                this method: its step would wait for itself.
            Exception: What a callback raises; the next step continues.

        """
        self._check_may_wait("step")
        if self._pumped():
            raise ConfigError(
                f"source {self.name} runs in its own thread; call stop() before step()"
            )
        with self._turn:
            self._stopped = False
            return self._step()

    def join(self, timeout: float | None = None) -> bool:
        """Wait until every record is closed; return False after ``timeout`` seconds.

        If no thread runs the source, this call runs the steps. ``on_group`` may still run then, or
        be called by a later step.

        Raises:
            AckerError: A callback calls this method: no record is closed while the callback waits.

        """
        self._check_may_wait("join")
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
                wait = self._flows.pause_after(away)
                log.warning("source %s (next attempt in %.1f s): %s", self.name, wait, error)
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
        """Run a flow, and yield its verdicts."""
        before = self.pending
        self._pumping = threading.get_ident()
        try:
            with contextlib.closing(flow):
                while isinstance(found := self.acker.connection.advance(flow), Hand):
                    yield found.what
            return found.value
        finally:
            self._pumping = 0
            if self.pending != before or not before or self._flows.groups.active:
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
                # Catch everything: without its thread the source would wait for ever.
                log.exception("source %s: a callback failed, and will be called again", self.name)
                if self._stop.wait(1.0) or self._pump is not threading.current_thread():
                    return  # also if the callback itself called stop()

    def _close(self, tree: OpenTree, why: str | None = None) -> None:
        closing = Batch()
        for row in tree.close() if why is None else tree.fail(why):
            closing.add(row)
        self.acker.apply(closing)

    def _pumped(self) -> bool:
        """Return whether the source has its own thread."""
        return self._pump is not None and self._pump.is_alive()

    def _called_back(self) -> bool:
        """Return whether the caller is a callback: no record could be closed while it waits."""
        return self._pumping == threading.get_ident()

    def _check_may_wait(self, method: str) -> None:
        if self._called_back():
            raise waits_for_itself(self.name, method)

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
            f"{self.pending} records of {self.name} are open, and max_pending is "
            f"{self._settings.max_pending}; wait longer, or make sure that verdicts are read: "
            "use start(), verdicts() or callbacks"
        )

    def _admitted(self, record: Record, anchor: int | None) -> bool:
        """Add a record if there is room; a record from a callback in any case.

        No record could be closed while a callback waits.
        """
        with self._admission:
            has_room = self._flows.has_room(record.edge)
            if (self._stopped or not has_room) and not self._called_back():
                if self._stopped:
                    raise was_stopped(self.name)
                return False
            self._flows.admit(record, anchor)
            return True

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
