"""A quick benchmark of one Redis: operations per second, and latency.

It runs in a separate namespace, which is deleted afterwards. Every rate is compared with a script
of only HINCRBY, by the same client in the same run: machines are noisy, ratios are less so. The
repository's ``benchmarks/`` measure more, and without the client.
"""

import random
import struct
import time
import uuid
from collections.abc import Callable, Generator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass

from acker_redis.batching.batch import Batch
from acker_redis.errors import NamespaceNotFoundError
from acker_redis.protocol import commands
from acker_redis.protocol.blocks import pack_deltas, pack_track
from acker_redis.protocol.config import AckerConfig
from acker_redis.protocol.ids import SLOTS, new_tuple_id
from acker_redis.protocol.keys import ShardKeys
from acker_redis.protocol.rows import TRACK, Columns
from acker_redis.sync.client import Acker

ROWS = 1000
"""Rows per call."""
HINCRBY = "for _, field in ipairs(ARGV) do redis.call('HINCRBY', KEYS[1], field, 1) end"
PREFIX = "acker-bench-"
SOURCE = "bench"


Steps = Generator[tuple[int, float], None, None]


@dataclass(frozen=True, slots=True)
class Rate:
    """Operations per second, also relative to plain HINCRBY."""

    name: str
    per_second: float
    of_hincrby: float


@dataclass(frozen=True, slots=True)
class Wait:
    """Latency of one call, in milliseconds, as percentiles."""

    name: str
    p50_ms: float
    p99_ms: float


@dataclass(frozen=True, slots=True)
class Measured:
    """The result of :func:`measure`."""

    rates: tuple[Rate, ...]
    waits: tuple[Wait, ...]
    """Latencies of sequential calls on one connection: PING, and a batch of one row."""


def measure(
    make: Callable[[str], Acker], seconds: float = 1.0, on_step: Callable[[str], None] = print
) -> Measured:
    """Measure each line for ``seconds`` seconds; ``make`` opens a namespace by its name.

    ``on_step`` is called with the name of each line before it is measured. One shard is measured,
    because a Redis has one core for scripts.
    """
    acker = make(f"{PREFIX}{uuid.uuid4().hex[:12]}")
    config = AckerConfig(tick_ms=10**11, high_water=10**11, outcomes_limit=10**11, publish=False)
    try:
        acker.create(config)
        return _Bench(acker, seconds, on_step).run()
    finally:
        with suppress(NamespaceNotFoundError):
            acker.drop()
        acker.close()


class _Bench:
    def __init__(self, acker: Acker, seconds: float, on_step: Callable[[str], None]) -> None:
        self._acker, self._seconds, self._on_step = acker, seconds, on_step
        self._keys = ShardKeys(acker.namespace, 0)
        self._plain = f"{self._keys.prefix}:bench"
        self._run = acker.connection.run
        self._numbers = random.Random(1)  # noqa: S311 - ids of a measurement

    def run(self) -> Measured:
        plain = self._rate("HINCRBY", self._hincrby)
        named = {
            "rows without a verdict": self._deltas,
            "trees, tracked and acked": self._trees,
            f"deltas in blocks of {SLOTS}": self._blocks,
            "trees expired": self._expired,
        }
        rates = [Rate("HINCRBY", plain, 1.0)]
        for name, calls in named.items():
            rate = self._rate(name, calls)
            rates.append(Rate(name, rate, rate / plain))
        waits = (self._wait("PING", self._ping), self._wait("a batch of one row", self._one))
        return Measured(tuple(rates), waits)

    def _rate(self, name: str, calls: Callable[[], Steps]) -> float:
        """Return operations per second; each step of ``calls`` yields a count and its seconds."""
        self._on_step(name)
        end, done, took = time.perf_counter() + self._seconds, 0, 0.0
        with closing(calls()) as steps:
            for count, seconds in steps:
                done, took = done + count, took + seconds
                if time.perf_counter() > end:
                    break
        return done / took

    def _timed(self, *calls: commands.Call) -> float:
        began = time.perf_counter()
        for call in calls:
            self._run(call)
        return time.perf_counter() - began

    def _hincrby(self) -> Steps:
        command = self._acker.connection.command
        try:
            while True:
                fields = [self._numbers.randrange(100_000) for _ in range(ROWS)]
                began = time.perf_counter()
                command("EVAL", HINCRBY, 1, self._plain, *fields)
                yield ROWS, time.perf_counter() - began
        finally:
            command("UNLINK", self._plain)

    def _deltas(self) -> Steps:
        anchors = self._tracked(10_000)
        while True:
            rows = [(a, new_tuple_id()) for a in self._numbers.sample(anchors, ROWS)]
            yield ROWS, self._timed(self._apply(rows))

    def _trees(self) -> Steps:
        while True:
            ids = [(self._anchor(), new_tuple_id()) for _ in range(ROWS)]
            yield ROWS, self._timed(self._apply(ids, track=True), self._apply(ids))
            self._forget()

    def _blocks(self) -> Steps:
        number = self._numbers.getrandbits(40)
        column = [new_tuple_id()] * SLOTS
        whole = pack_track(number, SOURCE, "bench", [7] * SLOTS, {}, False)
        self._run(commands.apply_blocks(self._keys, [whole], None))
        part = pack_deltas(number, dict(enumerate(column)), {}, False, dense=True)
        call = commands.apply_blocks(self._keys, [part], None)
        while True:
            yield SLOTS, self._timed(call)

    def _expired(self) -> Steps:
        while True:
            self._tracked(20 * ROWS)
            for _ in range(self._acker.config.buckets):
                self._run(commands.rotate(self._keys, force=True))
            left, count, took = 1, 0, 0.0
            while left:
                began = time.perf_counter()
                drained = commands.parse_expire(self._run(commands.expire(self._keys, ROWS)))
                took += time.perf_counter() - began
                count, left = count + drained.nacked, drained.left
            yield count, took
            self._forget()

    def _ping(self) -> None:
        self._acker.connection.command("PING")

    def _one(self) -> None:
        batch = Batch()
        batch.ack(self._anchor(), new_tuple_id())
        self._acker.apply(batch)

    def _wait(self, name: str, call: Callable[[], None]) -> Wait:
        self._on_step(name)
        end, times = time.perf_counter() + self._seconds, list[float]()
        while time.perf_counter() < end or len(times) < 100:
            began = time.perf_counter()
            call()
            times.append(time.perf_counter() - began)
        times.sort()
        p50, p99 = (times[int(len(times) * share)] * 1000 for share in (0.5, 0.99))
        return Wait(name, p50, p99)

    def _tracked(self, count: int) -> list[int]:
        anchors = [self._anchor() for _ in range(count)]
        for start in range(0, count, ROWS):
            rows = [(anchor, 5) for anchor in anchors[start : start + ROWS]]
            self._run(self._apply(rows, track=True))
        return anchors

    def _apply(self, rows: Sequence[tuple[int, int]], track: bool = False) -> commands.Call:
        """Return the call for rows of anchor and delta."""
        form = f">{len(rows)}Q"
        columns = Columns(
            flags=bytes([TRACK if track else 0]) * len(rows),
            anchors=struct.pack(form, *(anchor for anchor, _ in rows)),
            deltas=struct.pack(form, *(delta for _, delta in rows)),
            task=SOURCE if track else "",
            texts=tuple(b"record-%d" % anchor for anchor, _ in rows) if track else (),
        )
        return commands.apply(self._keys, columns, None)

    def _anchor(self) -> int:
        return self._numbers.randrange(1, 1 << 62)

    def _forget(self) -> None:
        """Take the verdicts, which would fill the server otherwise."""
        outcomes = self._acker.outcomes(SOURCE)
        while entries := outcomes.read(64):
            outcomes.take(entries)
