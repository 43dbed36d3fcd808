"""A source that never loses a message, for asyncio: see :mod:`acker_redis.sync.source`.

Turns. One task at a time runs a step; it holds ``_turn``. It is the source's own task (``_pump``),
or a caller of ``step()``, ``run()``, ``verdicts()``, or of a waiting ``emit()`` or ``join()``.

A task may not wait for a step that waits for itself. Three cases, told apart by what runs:

* *In a callback*: ``_calling`` is the step that called it, also in tasks that the callback creates.
* *In a send*: ``_sending`` is the task of that ``send``, and is in ``self._sending`` until it ends.
* *Between two verdicts* of ``verdicts()``: the consumer's task is ``_stepper``. The loop closes a
  generator that was left some rounds later, so ``_check_may_wait`` waits for these.

In all of them ``emit()`` adds a record without waiting for room, and ``join()`` and ``step()``
raise.
"""

import asyncio
import contextlib
import contextvars
import inspect
import logging
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from typing import Any

from acker_redis.aio.client import AsyncAcker
from acker_redis.aio.connection import outcome_of
from acker_redis.aio.group import AsyncGroup
from acker_redis.aio.loops import LoopBound
from acker_redis.arguments import check_is
from acker_redis.batching.batch import Batch
from acker_redis.errors import AckerError, BufferFullError, ConfigError, RejectedError
from acker_redis.flows.misuse import report_when_forgotten, waits_for_itself, was_stopped
from acker_redis.flows.source import SourceFlows
from acker_redis.flows.steps import Hand, Send, Step
from acker_redis.protocol.reports import SourceEdge
from acker_redis.protocol.texts import words
from acker_redis.trees.group import GroupResult
from acker_redis.trees.processing import OpenTree
from acker_redis.trees.record import Backoff, Record, Verdict
from acker_redis.trees.source_settings import SourceSettings, check_ran, check_record

log = logging.getLogger(__name__)

_calling: contextvars.ContextVar["_Steps | None"] = contextvars.ContextVar("calling", default=None)
"""The step whose callback runs in this context; None outside of callbacks."""
_sending: contextvars.ContextVar[asyncio.Task[Any] | None] = contextvars.ContextVar(
    "sending", default=None
)
"""The task that runs a ``send``, in its own context and those that it creates."""


class AsyncSource(LoopBound):
    """Tracks, sends and replays records: the methods of :class:`acker_redis.Source`, awaited.

    Records, delivery, crashes, back-pressure and arguments are as in :class:`acker_redis.Source`,
    with these differences:

    - ``send``, the callbacks and ``reload`` may be coroutine functions.
    - ``send`` is called side by side for all records that are due.
    - It works in one event loop at a time. After that has ended, :meth:`start` it in the next one:
      its open records continue. Its own task runs the steps between :meth:`start` and
      :meth:`stop`, or in an ``async with`` block.
    - A task that is cancelled while it waits in :meth:`emit` has emitted nothing.
    - If the task that runs a step is cancelled, records that were tracked and not sent yet expire,
      and are replayed.

    Examples:
        >>> async def shop():
        ...     async def send(record, ids):  # or by HTTP, the id in a header
        ...         async with bolt.process(*ids):
        ...             print("packing", record.value)
        ...
        ...     async with AsyncAcker.from_url(url, "orders") as acker:
        ...         async with AsyncProducer(acker) as producer:
        ...             bolt = AsyncBolt(producer)
        ...             async with AsyncSource(acker, "shop", send) as source:
        ...                 await source.emit("order-1", "a hat")
        ...                 return await source.join()
        >>> asyncio.run(shop())
        packing a hat
        True

    """

    def __init__(
        self,
        acker: AsyncAcker,
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
        check_is(acker, AsyncAcker, "an AsyncSource")
        self.acker = acker
        self._settings = SourceSettings(
            send, on_ack, on_fail, dead_letter, reload, max_pending, attempts,
            backoff or Backoff(), timeout, poll, on_group,
            adaptive, give_up_after,
        )  # fmt: skip
        self.use(SourceFlows(acker.flows, name, self._settings))
        self._stopped = False
        """Whether its task was stopped, and nothing has run it since."""
        self._begin()

    def _begin(self) -> None:
        self._closed_some = asyncio.Event()
        """Set, and replaced, when records were closed."""
        self._wake = asyncio.Event()
        """Set when there is a record to emit, or the source stops."""
        self._stop = asyncio.Event()
        """Set while the source stops."""
        self._turn = asyncio.Lock()
        """Held by the task that runs a step."""
        self._sending: set[asyncio.Task[Any] | None] = set()
        """The tasks whose ``send`` has not returned."""
        self._pump: asyncio.Task[None] | None = None
        self._stepper: asyncio.Task[Any] | None = None
        """The task that runs a step; None if none does."""
        self._steps: _Steps | None = None
        """The current step."""

    def use(self, flows: SourceFlows) -> None:
        """Use these flows, before the first record."""
        self._flows = flows
        self._forgotten = report_when_forgotten(self, flows)

    @property
    def name(self) -> str:
        """The name of the source, under which it tracks."""
        return self._flows.name

    @property
    def pending(self) -> int:
        """Number of open records: queued, tracked, or waiting for a replay."""
        return self._flows.live()

    def status(self) -> list[SourceEdge]:
        """Return the state of each edge; see :meth:`Source.status`."""
        return self._flows.edge_states()

    async def emit(
        self,
        source_id: str,
        value: Any = None,
        messages: int | None = 1,
        *,
        edge: str = "",
        timeout: float | None = None,
    ) -> None:
        """Queue a record, to be tracked and sent soon; see :meth:`Source.emit`."""
        await self.emit_record(Record(source_id, value, messages, edge=edge), timeout)

    async def emit_record(self, record: Record, timeout: float | None) -> None:
        """Queue a new record: see :meth:`emit`."""
        if self._settings.send is None:
            raise ConfigError("emit() needs a source with send=; use track() instead")
        check_record(record)
        self._enter()
        await self._wait_for_room(record.edge, timeout)
        self._flows.admit(record, None)
        self._wake.set()

    @contextlib.asynccontextmanager
    async def track(
        self, source_id: str, value: Any = None, *, timeout: float | None = None
    ) -> AsyncIterator[OpenTree]:
        """Track a record whose messages the ``async with`` block sends; see :meth:`Source.track`.

        ``tree.emit()`` itself is not awaited.
        """
        record = check_record(Record(source_id, value, None))
        self._enter()
        ids = await self.acker.ids()
        await self._wait_for_room(record.edge, timeout)
        tree = OpenTree(source_id, ids=ids, anchor=self._flows.anchor())
        opening = Batch(self.name)
        opening.add(tree.opening)
        self._flows.admit(record, tree.anchor)
        try:
            applied = await self.acker.apply(opening)
            gone = applied.repeated and not await self.acker.show(tree.anchor)
        except BaseException:
            self._flows.withdrawn.append((record, tree.anchor))
            raise
        if applied.rejected or gone:
            raise RejectedError(
                f"{source_id!r} was nacked, because too much is pending: send none of its messages"
            )
        try:
            yield tree
        except BaseException as error:
            await self._close(tree, words(error))
            raise
        await self._close(tree)

    @contextlib.asynccontextmanager
    async def group(self, name: str) -> AsyncIterator[AsyncGroup]:
        """Emit records as one completion group; see :meth:`Source.group`."""
        self._enter()
        groups = self._flows.groups
        block = groups.enter(name)
        try:
            yield AsyncGroup(self.emit_record, block)
        except BaseException:
            groups.leave(block, seal=False)
            raise
        groups.leave(block, seal=True)
        self._wake.set()
        if not self._called_back():  # a callback would wait for its own step
            await self._wait_until(block.check_sealed, None, self._settings.calls_back)

    async def start(self) -> "AsyncSource":
        """Start a task that runs steps until :meth:`stop`; return the source."""
        self._enter()
        if not self._pumped():
            self._stop.clear()
            self._stopped = False
            self._pump = asyncio.create_task(self._run_task(), name="acker-source")
        return self

    async def stop(self) -> None:
        """Finish the current step and stop. Open records stay pending: see :class:`Source`."""
        self._enter()
        self._stopped = self._stopped or self._pump is not None
        self._stop.set()
        self._wake.set()
        self._signal()
        pump = self._pump
        if pump and not self._called_back():  # its task waits for the callback
            await asyncio.wait([pump])
            self._stop.clear()
        self._pump = None
        if not self._turn.locked():  # else the task that runs a step sends it
            async with self._turn:
                with contextlib.suppress(AckerError):  # trees that are not closed expire
                    await self._sent()
                self._stop.clear()

    async def run(self) -> None:
        """Run steps in this task until :meth:`stop` is called; see :meth:`Source.run`."""
        async with contextlib.aclosing(self.verdicts()) as verdicts:
            async for verdict in verdicts:
                await self._call_back(verdict)

    async def verdicts(self, *, until_closed: bool = False) -> AsyncGenerator[Verdict, None]:
        """Run steps in this task, and yield each verdict; see :meth:`Source.verdicts`.

        Use it as ``async for verdict in source.verdicts()``.
        """
        self._enter()
        await self._check_may_wait("verdicts")
        own = self._pump is asyncio.current_task()
        while self._turn.locked():
            # The source's own task waits for a step in join() or emit() to end.
            if not own:
                raise ConfigError(f"another task runs source {self.name}; run it in one task only")
            if self._stop.is_set():
                return
            await asyncio.sleep(0.01)
        async with self._turn:
            if not own:
                self._stopped = False
            try:
                async with contextlib.aclosing(self._loop(until_closed)) as verdicts:
                    async for verdict in verdicts:
                        yield verdict
                with contextlib.suppress(AckerError):
                    await self._sent()
            finally:
                if not own:
                    self._stop.clear()

    async def step(self) -> float:
        """Run one step, and wait until ``send`` has returned; see :meth:`Source.step`."""
        self._enter()
        await self._check_may_wait("step")
        if self._pumped():
            raise ConfigError(f"source {self.name} runs in its own task; call stop() before step()")
        async with self._turn:
            self._stopped = False
            wait = await self._step()
            await self._sent()
            return wait

    async def join(self, timeout: float | None = None) -> bool:
        """Wait until every record is closed; see :meth:`Source.join`."""
        self._enter()
        await self._check_may_wait("join")
        return await self._wait_until(lambda: not self.pending, timeout)

    async def __aenter__(self) -> "AsyncSource":
        return await self.start()

    async def __aexit__(self, *error: object) -> None:
        await self.stop()

    async def _loop(self, until_closed: bool) -> AsyncGenerator[Verdict, None]:
        idle, away = 0.0, 0
        while not self._stop.is_set():
            self._wake.clear()
            try:
                steps = _Steps(self)
                async with contextlib.aclosing(steps.run()) as verdicts:
                    async for verdict in verdicts:
                        yield verdict
                wait = steps.wait
            except AckerError as error:
                away += 1
                wait = self._flows.pause_after(away)
                log.warning("source %s (next attempt in %.1f s): %s", self.name, wait, error)
                await _within(wait, self._stop)  # a new record does not end this pause
                continue
            if until_closed and not self.pending:
                return
            away, idle = 0, min(max(2 * idle, 0.001), self._settings.poll) if wait else 0.0
            await self._sleep(min(wait, idle))

    async def _sleep(self, seconds: float) -> None:
        """Sleep for ``seconds`` or until woken; other tasks run in any case."""
        if not seconds or self._stop.is_set():
            await asyncio.sleep(0)
            return
        await _within(seconds, self._wake)

    def _send(self, step: Send) -> None:
        """Call ``send`` in one task per record, so that a slow call delays no other record."""
        for number, args in enumerate(step.calls):
            task = asyncio.create_task(self._send_one(step, number, args), name="acker-send")
            self._sending.add(task)
            task.add_done_callback(self._sending.discard)

    async def _sent(self) -> None:
        """Wait until all ``send`` calls have returned, and close or fail their trees."""
        if _sending.get() in self._sending:
            return
        if self._sending:
            await asyncio.wait([task for task in self._sending if task])
        await self.acker.connection.drive(self._flows.finish())

    async def _send_one(self, step: Send, number: int, args: tuple[Any, ...]) -> None:
        _sending.set(asyncio.current_task())
        result: Any = asyncio.CancelledError()
        try:
            result = await outcome_of(step.function, args)
        finally:
            step.on_result(number, result)
            self._wake.set()

    async def _step(self) -> float:
        steps = _Steps(self)
        async with contextlib.aclosing(steps.run()) as verdicts:
            async for verdict in verdicts:
                await self._call_back(verdict)
        return steps.wait

    async def _call_back(self, verdict: Verdict) -> None:
        calling = _calling.set(self._steps)
        try:
            for function, args in self._settings.callbacks(verdict):
                result = function(*args)
                check_ran(function, await result if inspect.isawaitable(result) else result)
        finally:
            _calling.reset(calling)

    async def _run_task(self) -> None:
        while True:
            try:
                return await self.run()
            except (Exception, asyncio.CancelledError):
                task = asyncio.current_task()
                if task and task.cancelling():
                    raise
                # Catch everything: without its task the source would wait for ever.
                log.exception("source %s: a callback failed, and will be called again", self.name)
                await asyncio.sleep(1.0)
                if self._stop.is_set() or self._pump is not task:
                    return  # also if the callback itself called stop()

    async def _close(self, tree: OpenTree, why: str | None = None) -> None:
        closing = Batch()
        for row in tree.close() if why is None else tree.fail(why):
            closing.add(row)
        await self.acker.apply(closing)

    def _pumped(self) -> bool:
        """Return whether the source has its own task."""
        return self._pump is not None and not self._pump.done()

    def _called_back(self) -> bool:
        """Return whether the caller is a callback: no record could be closed while it waits."""
        return self._in_callback() or (
            self._steps is not None and self._stepper is asyncio.current_task()
        )

    def _in_callback(self) -> bool:
        in_step = self._steps is not None and _calling.get() is self._steps
        return in_step or _sending.get() in self._sending

    async def _check_may_wait(self, method: str) -> None:
        rounds = 10
        while self._called_back():
            # The loop closes the generator of a consumer that has left verdicts() in a few rounds.
            if self._in_callback() or not rounds:
                raise waits_for_itself(self.name, method)
            rounds -= 1
            await asyncio.sleep(0)

    async def _wait_for_room(self, edge: str, timeout: float | None) -> None:
        def has_room() -> bool:
            if self._stopped:
                raise was_stopped(self.name)
            return self._flows.has_room(edge)

        most = self._settings.max_pending
        if self._called_back():
            return
        # A task that finds room continues at once, before any other task runs: so no more records
        # are added than there is room for.
        steps = self._settings.calls_back
        if not await self._wait_until(has_room, timeout, steps):
            raise BufferFullError(
                f"{self.pending} records of {self.name} are open, and max_pending is {most}; wait "
                "longer, or make sure that verdicts are read: use start(), verdicts() or callbacks"
            )

    async def _wait_until(
        self, happens: Callable[[], bool], timeout: float | None, steps: bool = True
    ) -> bool:
        end = None if timeout is None else time.monotonic() + timeout
        while not happens():
            left = 1.0 if end is None else end - time.monotonic()
            if left <= 0:
                return False
            if self._pumped() or self._turn.locked():
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(min(left, 1.0)):
                        await self._closed_some.wait()
            elif not steps:
                return False
            else:
                wait = await self.step()
                if not happens():
                    await self._sleep(min(wait, left, self._settings.poll))
                    self._wake.clear()
        return True

    def _signal(self) -> None:
        self._closed_some.set()
        self._closed_some = asyncio.Event()


async def _within(seconds: float, event: asyncio.Event) -> None:
    """Wait for an event, at most for ``seconds``."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()


class _Steps:
    """One step of a source: yields its verdicts, then holds the seconds until the next step."""

    def __init__(self, source: AsyncSource) -> None:
        self.wait = 0.0
        self._source = source

    async def run(self) -> AsyncGenerator[Verdict, None]:
        source = self._source
        flow, before = source._flows.step(), source.pending
        source._stepper, source._steps = asyncio.current_task(), self
        advance = source.acker.connection.advance
        try:
            with contextlib.closing(flow):
                while isinstance(found := await advance(flow, self._take), Hand):
                    yield found.what
            self.wait = found.value
        finally:
            source._stepper = source._steps = None
            if source.pending != before or not before or source._flows.groups.active:
                source._signal()

    async def _take(self, step: Step) -> Any:
        if isinstance(step, Send):
            return self._source._send(step)
        calling = _calling.set(self)
        try:
            return await self._source.acker.connection.take(step)
        finally:
            _calling.reset(calling)
