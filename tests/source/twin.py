"""An AsyncSource with the interface of a Source: its loop runs in a separate thread."""

import asyncio
import contextlib
import inspect
import threading
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from typing import Any

from acker_redis import OpenTree, SourceEdge
from acker_redis.aio import AsyncAcker, AsyncSource
from acker_redis.aio.group import AsyncGroup
from acker_redis.trees.record import Record, Verdict
from tests.waiting import LIMIT


class Loop:
    """An event loop in a thread."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

    @property
    def here(self) -> bool:
        """Whether the caller runs in this loop."""
        return threading.current_thread() is self._thread

    def call(self, work: Coroutine[Any, Any, Any]) -> Any:
        """Run a coroutine in the loop and wait; a caller inside the loop gets it to await."""
        if self.here:
            return work
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(LIMIT)

    def close(self) -> None:
        """Cancel all tasks, and stop the loop."""
        self.call(self._cancel_all())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(LIMIT)
        self._loop.close()

    async def _cancel_all(self) -> None:
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def coroutine_function(function: Callable[..., Any] | None) -> Callable[..., Awaitable[Any]] | None:
    """Wrap a function as a coroutine function; an awaitable result is awaited."""
    if function is None:
        return None

    async def call(*args: Any) -> Any:
        result = function(*args)
        return await result if inspect.isawaitable(result) else result

    return call


class Twin:
    """The methods of a Source that the tests call; its callbacks are coroutine functions."""

    def __init__(
        self, loop: Loop, acker: AsyncAcker, name: str, send: Any = None, **options: Any
    ) -> None:
        for option in ("on_ack", "on_fail", "dead_letter", "reload", "on_group"):
            options[option] = coroutine_function(options.get(option))
        self._loop = loop
        self.acker = acker
        self.source: AsyncSource = loop.call(
            self._make(acker, name, coroutine_function(send), options)
        )
        self._flows = self.source._flows

    async def _make(self, acker: AsyncAcker, name: str, send: Any, options: Any) -> AsyncSource:
        return AsyncSource(acker, name, send, **options)

    @property
    def pending(self) -> int:
        return self.source.pending

    def status(self) -> list[SourceEdge]:
        return self.source.status()

    def emit(self, *args: Any, **options: Any) -> Any:
        return self._loop.call(self.source.emit(*args, **options))

    def step(self) -> float:
        seconds: float = self._loop.call(self.source.step())
        return seconds

    def join(self, timeout: float | None = None) -> bool:
        done: bool = self._loop.call(self.source.join(timeout))
        return done

    def start(self) -> "Twin":
        self._loop.call(self.source.start())
        return self

    def stop(self) -> Any:
        return self._loop.call(self.source.stop())

    def run(self) -> Any:
        return self._loop.call(self.source.run())

    def verdicts(self) -> Iterator[Verdict]:
        verdicts, end = self.source.verdicts(), object()

        async def following() -> Any:
            return await anext(verdicts, end)

        try:
            while (verdict := self._loop.call(following())) is not end:
                yield verdict
        finally:
            self._loop.call(verdicts.aclose())

    @contextlib.contextmanager
    def track(self, source_id: str, value: Any = None, **options: Any) -> Iterator[OpenTree]:
        tracking = self.source.track(source_id, value, **options)
        tree = self._loop.call(self._enter(tracking))
        try:
            yield tree
        except BaseException as error:
            if not self._loop.call(self._leave(tracking, error)):
                raise
        else:
            self._loop.call(self._leave(tracking, None))

    @contextlib.contextmanager
    def group(self, name: str) -> Iterator["TwinGroup"]:
        opening = self.source.group(name)
        group = TwinGroup(self._loop, self._loop.call(self._enter(opening)))
        try:
            yield group
        except BaseException as error:
            if not self._loop.call(self._leave(opening, error)):
                raise
        else:
            self._loop.call(self._leave(opening, None))

    async def _enter(self, block: Any) -> Any:
        return await block.__aenter__()

    async def _leave(self, tracking: Any, error: BaseException | None) -> Any:
        return await tracking.__aexit__(type(error) if error else None, error, None)

    def __enter__(self) -> "Twin":
        return self.start()

    def __exit__(self, *error: object) -> None:
        self.stop()


def called(record: Record) -> tuple[str, Any]:
    """Return the id and the value of a record."""
    return record.source_id, record.value


class TwinGroup:
    """An AsyncGroup with the interface of a Group."""

    def __init__(self, loop: Loop, group: AsyncGroup) -> None:
        self._loop, self._group = loop, group

    def emit(self, *args: Any, **options: Any) -> Any:
        return self._loop.call(self._group.emit(*args, **options))
