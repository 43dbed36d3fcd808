"""Measure the processor time of a message in Python: a source and a worker in two processes.

    python benchmarks/messages.py [--records 20000] [--rounds 5] [--only 'one by one']

A record has one first message, which causes three: four messages a record. The source sends texts
to the worker through a pipe, 500 at a time; the worker processes them and what they cause. The
sides take turns on the same server:

- ``untracked``: the same programs without acker-redis.
- ``one by one``: ``Source``, and ``bolt.process()`` for each message.
- ``batches``: ``Source``, and ``bolt.process_batch()`` for what the pipe gives.
- ``asyncio``: ``AsyncSource``, and ``async with bolt.process()`` for each message.
- ``celery``: a task for each message, which publishes the others to a broker in memory. ``celery
  plain`` is the same untracked.
- ``http``: an ASGI application, called for each message without a socket, which sends the others
  with httpx, without a socket, too. ``http plain`` is the same untracked.

It prints microseconds a message: of the source, of the worker, of Redis, and of all three above
those of the untracked programs. Celery and HTTP have a tenth of the records.
"""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing
import statistics
import time
from collections.abc import Callable, Iterator
from functools import partial
from multiprocessing.connection import Connection
from typing import Any

import httpx
from celery import Celery, signals
from celery.app.trace import trace_task

from acker_redis import Acker, AckerConfig, Bolt, Producer, Source
from acker_redis.aio import AsyncAcker, AsyncBolt, AsyncProducer, AsyncSource
from acker_redis.embedded import EmbeddedRedis
from acker_redis.integrations.celery import TaskTracker
from acker_redis.integrations.http import TrackedAsyncTransport, TrackedRequests
from acker_redis.trees import processing_batch as processing_batch  # numpy, before the clock runs

CONFIG = AckerConfig(tick_ms=3_600_000, high_water=10**9, outcomes_limit=10**9)
CAUSED = 3
POLLED = 500
"""Messages that the pipe gives at once, at most."""
OPEN = 5_000
"""Records that a source has open, at most."""


class Sender:
    """The source's end of the pipe."""

    def __init__(self, pipe: Connection) -> None:
        self._pipe = pipe
        self._texts: list[str] = []

    def __call__(self, _: Any, ids: Any) -> None:
        """Send the first message of a record."""
        self._texts.append(str(ids[0]))

    def flush(self) -> None:
        """Send what waits to the worker."""
        for at in range(0, len(self._texts), POLLED):
            self._pipe.send(self._texts[at : at + POLLED])
        self._texts.clear()


class Acked:
    """Counts the records that are acked."""

    count = 0

    def __call__(self, _: Any) -> None:
        """Note one."""
        self.count += 1


def send_untracked(url: str, pipe: Connection, records: int) -> None:
    """Send the first messages of the records; their text is as long as an id."""
    send = Sender(pipe)
    for number in range(records):
        send(None, (f"{number:018}:{number:018}",))
        if number % POLLED == 0:
            send.flush()
    send.flush()


def send_tracked(url: str, pipe: Connection, records: int) -> None:
    """Track the records, send their first messages, and read their verdicts."""
    send, acked, emitted = Sender(pipe), Acked(), 0
    with Acker.from_url(url, "bench") as acker:
        source = Source(acker, "shop", send, on_ack=acked, max_pending=OPEN)
        while acked.count < records:
            more = min(records - emitted, OPEN - source.pending)
            for number in range(emitted, emitted + more):
                source.emit(str(number))
            emitted += more
            wait = source.step()
            send.flush()
            time.sleep(min(wait, 0.002))


def send_by_asyncio(url: str, pipe: Connection, records: int) -> None:
    """Do the same with asyncio."""

    async def run() -> None:
        send, acked, emitted = Sender(pipe), Acked(), 0

        async def sent(record: Any, ids: Any) -> None:
            send(record, ids)

        async with AsyncAcker.from_url(url, "bench") as acker:
            source = AsyncSource(acker, "shop", sent, on_ack=acked, max_pending=OPEN)
            while acked.count < records:
                more = min(records - emitted, OPEN - source.pending)
                for number in range(emitted, emitted + more):
                    await source.emit(str(number))
                emitted += more
                wait = await source.step()
                send.flush()
                await asyncio.sleep(min(wait, 0.002))

    asyncio.run(run())


def polled(pipe: Connection) -> Iterator[list[str]]:
    """Yield what the pipe gives until it is closed."""
    while texts := pipe.recv():
        yield texts


def work_untracked(url: str, pipe: Connection) -> None:
    """Handle the messages and what they cause."""
    for texts in polled(pipe):
        caused = [str(text) for text in texts for _ in range(CAUSED)]
        for _ in caused:
            pass


def work_one_by_one(url: str, pipe: Connection) -> None:
    """Process each message on its own."""
    with Acker.from_url(url, "bench") as acker, Producer(acker) as producer:
        bolt = Bolt(producer)
        for texts in polled(pipe):
            caused: list[str] = []
            for text in texts:
                with bolt.process(text) as t:
                    caused += [str(t.emit()) for _ in range(CAUSED)]
            for text in caused:
                with bolt.process(text):
                    pass


def work_in_batches(url: str, pipe: Connection) -> None:
    """Process what the pipe gives as columns."""
    with Acker.from_url(url, "bench") as acker, Producer(acker) as producer:
        bolt = Bolt(producer)
        for texts in polled(pipe):
            with bolt.process_batch(texts) as batch:
                caused = batch.emit(CAUSED).texts
            with bolt.process_batch(caused):
                pass


def work_by_asyncio(url: str, pipe: Connection) -> None:
    """Process each message on its own, with asyncio."""

    async def run() -> None:
        async with (
            AsyncAcker.from_url(url, "bench") as acker,
            AsyncProducer(acker) as producer,
        ):
            bolt = AsyncBolt(producer)
            while texts := await asyncio.to_thread(pipe.recv):  # the loop sends rows meanwhile
                caused: list[str] = []
                for text in texts:
                    async with bolt.process(text) as t:
                        caused += [str(t.emit()) for _ in range(CAUSED)]
                for text in caused:
                    async with bolt.process(text):
                        pass

    asyncio.run(run())


def work_by_celery(url: str, pipe: Connection, tracked: bool) -> None:
    """Run a task for each message, as a worker does that has taken it from a broker."""
    app, caused = Celery("bench", broker="memory://", set_as_current=False), list[str]()

    @app.task(name="first", shared=False)
    def first() -> None:
        for _ in range(CAUSED):
            other.apply_async()

    @app.task(name="other", shared=False)
    def other() -> None:
        pass

    def published(headers: Any, **_: object) -> None:
        caused.append(headers.get("acker-tuple", ""))

    def run(task: Any, text: str) -> None:
        request = {"id": text, "acker-tuple": text, "is_eager": False}
        trace_task(task, text, (), {}, request, app=app)

    signals.after_task_publish.connect(published)
    with Acker.from_url(url, "bench") as acker:
        tracker = TaskTracker(app, acker) if tracked else None
        for texts in polled(pipe):
            for text in texts:
                run(app.tasks["first"], text)
            for text in caused:
                run(app.tasks["other"], text)
            caused.clear()
            app.control.purge()
        if tracker:
            tracker.close()


def work_by_http(url: str, pipe: Connection, tracked: bool) -> None:
    """Let an application handle a request for each message."""
    caused = list[str]()

    def answered(request: httpx.Request) -> httpx.Response:
        caused.append(request.headers.get("acker-tuple", ""))
        return httpx.Response(204, headers={"acker-tracked": "1"} if tracked else None)

    async def run() -> None:
        transport: Any = httpx.MockTransport(answered)
        if tracked:
            transport = TrackedAsyncTransport(transport, hosts=["*"])
        client = httpx.AsyncClient(base_url="http://bench", transport=transport)

        async def handle(scope: Any, receive: Any, send: Any) -> None:
            for _ in range(CAUSED if scope["path"] == "/first" else 0):
                await client.post("/other")
            await send({"type": "http.response.start", "status": 204, "headers": []})
            await send({"type": "http.response.body"})

        async def nothing(*_: object) -> None:
            pass

        async with AsyncAcker.from_url(url, "bench") as acker:
            app: Any = TrackedRequests(handle, acker) if tracked else handle

            async def request(path: str, text: str) -> None:
                headers = [(b"acker-tuple", text.encode())]
                scope = {"type": "http", "method": "POST", "path": path, "headers": headers}
                await app(scope, nothing, nothing)

            while texts := await asyncio.to_thread(pipe.recv):
                for text in texts:
                    await request("/first", text)
                for text in caused:
                    await request("/other", text)
                caused.clear()

    asyncio.run(run())


SIDES: dict[str, tuple[Callable[[str, Connection, int], None], Callable[[str, Connection], None]]]
SIDES = {
    "untracked": (send_untracked, work_untracked),
    "one by one": (send_tracked, work_one_by_one),
    "batches": (send_tracked, work_in_batches),
    "asyncio": (send_by_asyncio, work_by_asyncio),
    "celery plain": (send_untracked, partial(work_by_celery, tracked=False)),
    "celery": (send_tracked, partial(work_by_celery, tracked=True)),
    "http plain": (send_untracked, partial(work_by_http, tracked=False)),
    "http": (send_tracked, partial(work_by_http, tracked=True)),
}


def plain_of(side: str) -> str:
    """Return the untracked side that a side is compared with."""
    return f"{side} plain" if f"{side} plain" in SIDES else side if "plain" in side else "untracked"


def count_of(side: str, records: int) -> int:
    """Return the number of records of a side."""
    return records if plain_of(side) == "untracked" else -(-records // 10)


def work(side: str, url: str, pipe: Connection) -> None:
    """Run the worker of a side in its process, and send the seconds that it took."""
    began = time.process_time()
    SIDES[side][1](url, pipe)
    pipe.send(time.process_time() - began)


def measure(side: str, url: str, records: int) -> tuple[float, float, float]:
    """Return the microseconds a message of the source, the worker and Redis."""
    records = count_of(side, records)
    with Acker.from_url(url, "bench") as acker:
        info = acker.connection.client.info
        mine, its = multiprocessing.Pipe()
        worker = multiprocessing.get_context("spawn").Process(target=work, args=(side, url, its))
        worker.start()
        before, began = info("cpu"), time.process_time()
        SIDES[side][0](url, mine, records)
        source, after = time.process_time() - began, info("cpu")
        mine.send([])
        in_worker = mine.recv()
        worker.join()
    redis = sum(after[name] - before[name] for name in ("used_cpu_user", "used_cpu_sys"))
    scale = 1e6 / (records * (1 + CAUSED))
    return source * scale, in_worker * scale, redis * scale


def main() -> None:
    """Read the arguments, measure, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--records", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", choices=SIDES, action="append")
    args = parser.parse_args()
    found: dict[str, list[tuple[float, float, float]]] = {
        side: []
        for side in SIDES
        if not args.only or side in {*args.only, *map(plain_of, args.only)}
    }
    with EmbeddedRedis(tcp=True) as server, Acker.from_url(server.url, "bench") as acker:
        acker.create(CONFIG)
        for number in range(args.rounds):
            for side in found if number % 2 else reversed(found):
                found[side].append(measure(side, server.url, args.records))
        print(f"{acker.connection.version()}, {args.records:,} records, us a message")
    print(f"{'':12}{'source':>8}{'worker':>8}{'Redis':>8}{'above untracked':>17}   least to most")
    for side, rounds in found.items():
        plain = statistics.median([sum(each) for each in found[plain_of(side)]])
        columns = [statistics.median(column) for column in zip(*rounds, strict=True)]
        above = sorted(sum(each) - plain for each in rounds)
        print(
            f"{side:12}" + "".join(f"{each:8.2f}" for each in columns)
            + f"{statistics.median(above):17.2f}   {above[0]:.2f} to {above[-1]:.2f}"
        )  # fmt: skip


if __name__ == "__main__":
    main()
