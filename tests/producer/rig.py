"""One interface for both producers: the asyncio one is called through its loop's thread."""

import asyncio
import contextlib
import threading
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator, Sequence
from typing import Any, Protocol, TypeVar

from acker_redis.aio.client import AsyncAcker
from acker_redis.aio.producer import AsyncProducer
from acker_redis.errors import AckerError
from acker_redis.protocol.commands import Call
from acker_redis.protocol.ids import new_anchor, new_tuple_id
from acker_redis.protocol.keys import ShardKeys
from acker_redis.protocol.rows import Row, ack_row, track_row
from acker_redis.sync.client import Acker
from acker_redis.sync.producer import Producer
from tests.waiting import LIMIT, wait_until

T = TypeVar("T")


class Calls:
    """Records the ``apply`` calls of a connection; holds them, or makes them fail."""

    def __init__(self) -> None:
        self.made: list[str] = []
        """Per call, the key prefix of its shard, in order of start."""
        self.rows: list[int] = []
        """Per call, its number of rows."""
        self.at_once: Counter[str] = Counter()
        """Maximum number of calls in flight, by shard and in total."""
        self.errors: list[Exception] = []
        """Exceptions that the next calls raise instead of being sent."""
        self._in_flight: Counter[str] = Counter()
        self._lock = threading.Lock()
        self._held = 0
        self._free = 0

    @property
    def in_flight(self) -> int:
        return sum(self._in_flight.values())

    def hold(self) -> None:
        """Hold all further calls until they are released, in order of arrival."""
        with self._lock:
            self._held, self._free = 1, len(self.made)

    def let_go(self, calls: int = 1) -> None:
        """Release ``calls`` more calls."""
        with self._lock:
            self._free += calls

    def let_all_go(self) -> None:
        self._held = 0

    def wait_for(self, calls: int) -> None:
        """Wait until ``calls`` calls have started."""
        wait_until(lambda: len(self.made) >= calls, f"{calls} calls, of {len(self.made)}")

    def wrap(self, run: Callable[[Call], Any]) -> Callable[[Call], Any]:
        def watched(call: Call) -> Any:
            if call.script != "apply":
                return run(call)
            with self._one(call) as number:
                while self._must_wait(number):
                    time.sleep(0.001)
                self._fail()
                return run(call)

        return watched

    def wrap_async(
        self, run: Callable[[Call], Coroutine[Any, Any, Any]]
    ) -> Callable[[Call], Coroutine[Any, Any, Any]]:
        async def watched(call: Call) -> Any:
            if call.script != "apply":
                return await run(call)
            with self._one(call) as number:
                while self._must_wait(number):
                    await asyncio.sleep(0.001)
                self._fail()
                return await run(call)

        return watched

    @contextlib.contextmanager
    def _one(self, call: Call) -> Iterator[int]:
        shard = call.keys[0]
        with self._lock:
            self.made.append(shard)
            self.rows.append(len(call.args[2]) if isinstance(call.args[2], bytes) else 0)
            number = len(self.made)
            self._in_flight[shard] += 1
            self.at_once[shard] = max(self.at_once[shard], self._in_flight[shard])
            self.at_once["all"] = max(self.at_once["all"], self.in_flight)
        try:
            yield number
        finally:
            with self._lock:
                self._in_flight[shard] -= 1

    def _must_wait(self, number: int) -> bool:
        return bool(self._held) and number > self._free

    def _fail(self) -> None:
        with self._lock:
            error = self.errors.pop(0) if self.errors else None
        if error:
            raise error


class AnyProducer(Protocol):
    """The methods of a producer of either kind."""

    @property
    def waiting(self) -> int: ...
    def add(self, rows: Sequence[Row], wait: bool = True) -> None: ...
    def track(self, anchor: int, source_id: str, emitted: Sequence[int]) -> None: ...
    def ack(self, anchor: int, tuple_id: int, emitted: Sequence[int] = ()) -> None: ...
    def fail(self, anchor: int, why: str = "", tuple_id: int | None = None) -> None: ...
    def touch(self, anchor: int) -> None: ...
    def flush(self, timeout: float | None = None) -> None: ...
    def close(self, timeout: float = 30.0) -> None: ...


class Loop:
    """An event loop in a separate thread."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(LIMIT)

    def stop(self) -> None:
        self.run(self._end_tasks())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self.loop.close()

    async def _end_tasks(self) -> None:
        """Cancel the tasks that a failed test has left."""
        left = asyncio.all_tasks() - {asyncio.current_task()}
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)


class Awaited:
    """An AsyncProducer with the interface of a Producer."""

    def __init__(self, loop: Loop, producer: AsyncProducer) -> None:
        self.producer = producer
        self._loop = loop

    @property
    def waiting(self) -> int:
        return self.producer.waiting

    def add(self, rows: Sequence[Row], wait: bool = True) -> None:
        self._loop.run(self.producer.add(rows, wait))

    def track(self, anchor: int, source_id: str, emitted: Sequence[int]) -> None:
        self._loop.run(self.producer.track(anchor, source_id, emitted))

    def ack(self, anchor: int, tuple_id: int, emitted: Sequence[int] = ()) -> None:
        self._loop.run(self.producer.ack(anchor, tuple_id, emitted))

    def fail(self, anchor: int, why: str = "", tuple_id: int | None = None) -> None:
        self._loop.run(self.producer.fail(anchor, why, tuple_id))

    def touch(self, anchor: int) -> None:
        self._loop.run(self.producer.touch(anchor))

    def flush(self, timeout: float | None = None) -> None:
        self._loop.run(self.producer.flush(timeout))

    def close(self, timeout: float = 30.0) -> None:
        self._loop.run(self.producer.close(timeout))


class Rig:
    """Makes producers of one kind, and records the calls that they send."""

    def __init__(self, kind: str, direct: Acker, url: str) -> None:
        self.kind = kind
        self.direct = direct
        """A client of the same namespace that uses neither the producer nor its connection."""
        self.url = url
        self.calls = Calls()
        self.given_up: list[tuple[AckerError, int]] = []
        self._closing: list[Callable[[], object]] = []

    def producer(
        self, source: str = "t", *, retry_for: float = 0.1, **settings: Any
    ) -> AnyProducer:
        settings.setdefault(
            "on_given_up", lambda error, rows: self.given_up.append((error, len(rows)))
        )
        if self.kind == "sync":
            acker = Acker.from_url(
                self.url, self.direct.namespace, timeout=LIMIT, retry_for=retry_for
            )
            acker.connection.run = self.calls.wrap(acker.connection.run)  # type: ignore[method-assign]
            producer = Producer(acker, source, **settings)
            # First the producer: its senders use the acker.
            self._closing += [acker.close, lambda: _close_sync(producer)]
            return producer
        loop = Loop()
        return Awaited(loop, loop.run(self._make_async(loop, source, retry_for, settings)))

    async def _make_async(
        self, loop: Loop, source: str, retry_for: float, settings: dict[str, Any]
    ) -> AsyncProducer:
        acker = AsyncAcker.from_url(
            self.url, self.direct.namespace, timeout=LIMIT, retry_for=retry_for
        )
        acker.connection.run = self.calls.wrap_async(acker.connection.run)  # type: ignore[method-assign]
        producer = AsyncProducer(acker, source, **settings)
        self._closing += [
            loop.stop,
            lambda: loop.run(acker.close()),
            lambda: loop.run(_close_async(producer)),
        ]
        return producer

    def close(self) -> None:
        self.calls.let_all_go()
        for close in reversed(self._closing):
            close()


def _close_sync(producer: Producer) -> None:
    with contextlib.suppress(AckerError):
        producer.close(0.1)


async def _close_async(producer: AsyncProducer) -> None:
    with contextlib.suppress(AckerError):
        await producer.close(0.1)


class InThread:
    """Runs a function in a thread; ``join`` raises its exception."""

    def __init__(self, work: Callable[[], object]) -> None:
        self.error: BaseException | None = None
        self._work = work
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    @property
    def ended(self) -> bool:
        return not self._thread.is_alive()

    def join(self) -> None:
        self._thread.join(LIMIT)
        assert self.ended
        if self.error:
            raise self.error

    def _run(self) -> None:
        try:
            self._work()
        except BaseException as error:
            self.error = error


def tracks(count: int, shards: int = 1, shard: int | None = None) -> list[Row]:
    """Return rows that each track a tree of one message, all on ``shard`` if it is given."""
    rows = []
    for _ in range(count):
        anchor = new_anchor()
        if shard is not None:
            anchor = (anchor & ~(shards - 1) | shard) or shards
        rows.append(track_row(anchor, f"s{anchor}", [new_tuple_id()]))
    return rows


def acks_of(rows: Sequence[Row]) -> list[Row]:
    """Return the rows that complete the trees of ``tracks``."""
    return [ack_row(row.anchor, row.delta) for row in rows]


def prefix(acker: Acker, shard: int) -> str:
    return ShardKeys(acker.namespace, shard).prefix
