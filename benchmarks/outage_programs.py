"""The programs of the outage benchmark: a source and a worker, over Redis Streams or Kafka.

Each prints a line of JSON four times a second. ``outage.py`` starts, stops and reads them.
"""

import argparse
import json
import signal
import statistics
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import redis

from acker_redis import Acker, Record, Source
from acker_redis.integrations.kafka import TrackedConsumer, TrackedProducer
from acker_redis.integrations.streams import StreamSender, StreamWorker

EVERY = 0.25
"""Seconds between two lines."""
STREAM, GROUP = "orders", "packing"


def stream(args: argparse.Namespace) -> Any:
    """Return a client of the server with the stream."""
    return redis.Redis.from_url(args.queue, protocol=2, socket_timeout=5)


def kafka(args: argparse.Namespace) -> dict[str, Any]:
    """Return the configuration of a Kafka client."""
    return {"bootstrap.servers": args.queue.removeprefix("kafka://"), "log_level": 0}


def sender(acker: Acker, args: argparse.Namespace) -> Any:
    """Return the ``send`` of a source."""
    if not args.queue.startswith("kafka://"):
        return StreamSender(acker, stream(args), STREAM)
    send = TrackedProducer(acker, {**kafka(args), "linger.ms": 5}).sender(STREAM)
    return lambda record, ids: send(replace(record, value=record.source_id), ids)


def tell(**words: Any) -> None:
    """Print a line."""
    sys.stdout.write(json.dumps({"at": time.time(), **words}) + "\n")
    sys.stdout.flush()


class Shop:
    """Sources to which records arrive at an even rate, from ``since`` on.

    A record that has arrived waits here until ``emit()`` takes it. ``done`` is the file of the
    numbers that are done, from which a shop that is started again continues: the table of orders of
    a real shop.
    """

    def __init__(self, args: argparse.Namespace) -> None:
        self._rate, self._done = args.rate, Path(args.done)
        self._lock, self._took = threading.Lock(), list[float]()
        self._acked, self._dead = [0] * args.sources, 0
        acker = Acker.from_url(args.url, args.namespace)
        self._file = self._done.open("a", buffering=1)
        self._sources = [
            Source(
                acker, f"shop-{number}", sender(acker, args),
                on_ack=self._on_ack, dead_letter=self._on_dead, adaptive=args.adaptive,
                reload=lambda source_id: Record(source_id, {"order": source_id}),
            )
            for number in range(args.sources)
        ]  # fmt: skip
        self._since = args.since or time.time()

    def run(self) -> None:
        """Emit what arrives, until the process ends."""
        done = set(self._done.read_text().split())
        tell(since=self._since)
        for source in self._sources:
            source.start()
        threading.Thread(target=self._report, daemon=True).start()
        number = 0
        while True:
            if self._since + number / self._rate > time.time():
                time.sleep(0.005)
                continue
            if str(number) not in done:
                name = str(number)
                self._sources[number % len(self._sources)].emit(name, {"order": name})
            number += 1

    def _on_ack(self, record: Record) -> None:
        number = int(record.source_id)
        self._file.write(f"{number}\n")
        with self._lock:
            self._took.append(time.time() - self._since - number / self._rate)
            self._acked[number % len(self._sources)] += 1

    def _on_dead(self, record: Record, reason: str, why: str) -> None:
        self._file.write(f"{record.source_id}\n")
        self._dead += 1

    def _report(self) -> None:
        while True:
            time.sleep(EVERY)
            with self._lock:
                took, self._took = self._took, []
            edges = [edge for source in self._sources for edge in source.status()]
            tell(
                arrived=int((time.time() - self._since) * self._rate),
                acked=list(self._acked),
                dead=self._dead,
                latency=statistics.median(took) if took else None,
                window=sum(edge.window or 0 for edge in edges),
                in_flight=sum(edge.in_flight for edge in edges),
            )


class Packer:
    """A worker that processes ``rate`` orders a second at most; signals make it slow or fast."""

    def __init__(self, args: argparse.Namespace) -> None:
        self._pause, self._factor, self._next, self._calls = 1 / args.rate, 1.0, 0.0, 0
        acker = Acker.from_url(args.url, args.namespace)
        self._worker: Any
        self._kafka = args.queue.startswith("kafka://")
        if self._kafka:
            group = {"group.id": GROUP, "auto.offset.reset": "earliest"}
            self._worker = TrackedConsumer(acker, {**kafka(args), **group})
            self._worker.subscribe([STREAM])
        else:
            self._worker = StreamWorker(
                acker, stream(args), STREAM, GROUP,
                idle=1.0, deliveries=100, skip_ended=args.skip_ended,
            )  # fmt: skip
        signal.signal(signal.SIGUSR1, lambda *_: self._set(3.0))
        signal.signal(signal.SIGUSR2, lambda *_: self._set(0.1))
        signal.signal(signal.SIGHUP, lambda *_: self._set(1.0))

    def run(self) -> None:
        """Process orders until the process ends."""
        threading.Thread(target=self._report, daemon=True).start()
        while self._kafka:
            self._worker.run(self._pack, batch=10)
        while True:
            for _, entries in self._read():
                for entry, fields in entries:
                    self._worker.handle(entry, fields, self._pack)

    def _read(self) -> Any:
        try:
            return self._worker.read(count=10, block=0.1)
        except Exception as error:
            tell(error=str(error))
            time.sleep(0.2)
            return []

    def _set(self, factor: float) -> None:
        self._factor = factor

    def _pack(self, fields: Any) -> None:
        now = time.monotonic()
        self._next = max(self._next, now - 0.05) + self._pause * self._factor
        time.sleep(max(0.0, self._next - now))
        self._calls += 1

    def _report(self) -> None:
        while True:
            time.sleep(EVERY)
            tell(calls=self._calls, skipped=getattr(self._worker, "skipped", 0))


def main() -> None:
    """Read the arguments and run a program."""
    parser = argparse.ArgumentParser()
    parser.add_argument("program", choices=["shop", "packer"])
    parser.add_argument("url")
    parser.add_argument("queue", help="the URL of the Redis with the stream, or kafka://BROKER")
    parser.add_argument("namespace")
    parser.add_argument("--rate", type=float, required=True)
    parser.add_argument("--sources", type=int, default=1)
    parser.add_argument("--since", type=float, default=0.0)
    parser.add_argument("--done", default="")
    parser.add_argument("--adaptive", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--skip-ended", action="store_true")
    args = parser.parse_args()
    (Shop if args.program == "shop" else Packer)(args).run()


if __name__ == "__main__":
    main()
