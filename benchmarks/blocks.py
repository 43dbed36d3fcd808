"""Measure blocks and ``apply`` on one server in one run: rate, memory, expiry, dense or sparse.

    python benchmarks/blocks.py [--rounds 9] [--quick] [--url redis://...]

As in ``apply.py``, every command is packed before the clock starts and goes over a plain socket,
and the sides take turns. All calls have a fence with a digest. ``per core`` divides by the CPU time
of the server, from INFO, instead of the time of the clock.

- ``dense``: a block is tracked and gets four more columns, and the last one completes it: five
  deltas a tree. Calls have the maximum size, or one block.
- ``sparse``: named slots, of one block a call, compared with as many rows of ``apply``.
- ``apply``: rows of loose trees that stay pending.
- ``memory`` and ``expiry``: of a million trees in blocks.
- ``break-even``: a block of which some slots are named, evenly spread: sparse compared with dense.
"""

from __future__ import annotations

import argparse
import itertools
import random
import statistics
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import redis
from apply import Wire, pack

from acker_redis import Acker, AckerConfig
from acker_redis.embedded import EmbeddedRedis
from acker_redis.protocol import commands, scripts, server_version
from acker_redis.protocol.blocks import MAX_BLOCKS, BlockPart, calls, pack_deltas, pack_track
from acker_redis.protocol.commands import Fence
from acker_redis.protocol.ids import SLOTS
from acker_redis.protocol.keys import ShardKeys
from acker_redis.rotator.rotator import DRAIN_BLOCKS
from proof.reference.acker import TreeRow
from proof.reference.rows import pack as columns

NAMESPACE, TASK = "bench-blocks", "bench-source"
KEYS = ShardKeys(NAMESPACE, 0)
COLUMNS = 5
"""Deltas of a tree: that of its track, and four more."""


class Bench:
    """A separate namespace, with numbers for its batches, blocks and loose trees."""

    def __init__(self, url: str, quick: bool) -> None:
        self.acker = Acker.from_url(url, NAMESPACE, timeout=60)
        self.client: redis.Redis = self.acker.connection.client
        self.wire = Wire(url)
        self.scale = 50 if quick else 1
        self._numbers = itertools.count(1)
        self._times: dict[str, list[tuple[float, float]]] = {}
        self.begin()

    def begin(self) -> None:
        """Start again with an empty namespace."""
        self.end()
        huge = 10**9
        self.acker.create(AckerConfig(high_water=huge, outcomes_limit=huge, tick_ms=3_600_000))
        for name in scripts.NAMES:
            self.client.script_load(scripts.load(name).source)

    def end(self) -> None:
        """Delete all keys of the namespace."""
        for key in self.client.scan_iter("acker:{" + NAMESPACE + ":0}*"):
            self.client.delete(key)

    def call(self, call: commands.Call) -> bytes:
        """Return one call in RESP."""
        return pack("EVALSHA", scripts.load(call.script).sha, 2, *call.keys, *call.args)

    def blocks(self, parts: Iterable[BlockPart], per_call: int = MAX_BLOCKS) -> list[bytes]:
        """Return calls of apply_blocks with these parts, as large as possible."""
        parts, found = list(parts), []
        for start in range(0, len(parts), per_call):
            for call in calls(parts[start : start + per_call]):
                fence = Fence("lane", next(self._numbers), call.digest)
                found.append(self.call(commands.apply_blocks(KEYS, call.parts, fence)))
        return found

    def send(self, parts: Iterable[BlockPart]) -> None:
        """Apply these parts, in calls as large as possible."""
        self.wire.seconds(b"".join(self.blocks(parts)))

    def rows(self, anchors: Sequence[int], flags: int = 0) -> bytes:
        """Return one call of apply with a row for each anchor."""
        rows = [
            TreeRow(a, random.getrandbits(63), flags, "2013-01-01/UA0001" * flags) for a in anchors
        ]
        fence = Fence("lane", next(self._numbers), f"{random.getrandbits(64):016x}")
        return self.call(commands.apply(KEYS, columns(rows, TASK if flags else ""), fence))

    def track(self, slots: int, count: int, column: bytes = b"") -> list[BlockPart]:
        """Return the tracks of new blocks, with random deltas or these."""
        numbers = itertools.islice(self._numbers, count)
        return [
            pack_track(n, TASK, f"kafka/orders/3/{n}", column or deltas(slots)) for n in numbers
        ]

    def loose(self, count: int) -> list[int]:
        """Track loose trees and return their anchors."""
        anchors = [next(self._numbers) * 0x1D2F_93A1_77C5 % 2**62 for _ in range(count)]
        for start in range(0, count, 1000):
            self.wire.seconds(self.rows(anchors[start : start + 1000], flags=1))
        return anchors

    def clock(self, name: str, payload: Iterable[bytes], count: int) -> None:
        """Send; record the seconds per item of ``count``: of the clock, and of the server."""
        sent = b"".join(payload)
        before = self._cpu()
        seconds = self.wire.seconds(sent)
        self._times.setdefault(name, []).append((seconds / count, (self._cpu() - before) / count))
        self.client.unlink(KEYS.outcomes(TASK))

    def median(self, name: str, server: bool = False) -> float:
        """Return the median of the seconds per item."""
        return statistics.median(times[server] for times in self._times[name])

    def ratio(self, name: str, other: str) -> float:
        """Return the median factor by which one side is faster than the other, round by round."""
        pairs = zip(self._times[name], self._times[other], strict=True)
        return statistics.median(theirs[0] / own[0] for own, theirs in pairs)

    def slowest(self, send: Callable[[], Any]) -> float:
        """Return the milliseconds of the longest script that runs during ``send``, by SLOWLOG."""
        self.client.slowlog_reset()
        self.client.config_set("slowlog-log-slower-than", 0)
        send()
        self.client.config_set("slowlog-log-slower-than", 10_000)
        found = [e for e in self.client.slowlog_get(9999) if e["command"].startswith(b"EVAL")]
        return float(max(entry["duration"] for entry in found)) / 1000

    def _cpu(self) -> float:
        info = self.client.info("cpu")
        return float(info["used_cpu_user"]) + float(info["used_cpu_sys"])


def deltas(slots: int) -> bytes:
    """Return a column of random deltas."""
    mask = int.from_bytes((b"\x7f" + b"\xff" * 7) * slots, "big")
    return (random.getrandbits(64 * slots) & mask).to_bytes(8 * slots, "big")


def xor(columns: Iterable[bytes]) -> bytes:
    """Return the XOR of columns of one length."""
    result = 0
    for column in (columns := list(columns)):
        result ^= int.from_bytes(column, "big")
    return result.to_bytes(len(columns[0]), "big")


def life(bench: Bench, slots: int, count: int, per_call: int) -> list[bytes]:
    """Return calls that track blocks, and then complete them."""
    stages = [bench.track(slots, count)]
    for _ in range(COLUMNS - 2):
        stages.append([BlockPart(p.block, deltas=deltas(slots)) for p in stages[0]])
    ends = (xor(part.deltas for part in parts) for parts in zip(*stages, strict=True))
    stages.append([BlockPart(p.block, deltas=next(ends)) for p in stages[0]])
    return [call for stage in stages for call in bench.blocks(stage, per_call)]


DENSE = {4095: "30 M, 30 x apply", 1000: "20 M", 100: "8 M"}
SPARSE = {64: "1 x apply", 8: "0.5 x apply"}


def rates(bench: Bench, rounds: int) -> None:
    """Print the rates of dense and sparse, compared with apply."""
    loose, ended = bench.loose(20_000 // bench.scale), 0
    held = bench.track(SLOTS, 20)
    bench.send(held)
    for _ in range(rounds):
        bench.clock("apply", [bench.rows(loose[i::20]) for i in range(20)], len(loose))
        for slots, more in itertools.product(DENSE, ("", ", one a call")):
            count = max(2, min(1024, 500_000 // slots) // bench.scale)
            done = life(bench, slots, count, 1 if more else MAX_BLOCKS)
            bench.clock(f"dense, {slots}{more}", done, COLUMNS * slots * count)
            ended += slots * count
        for named in SPARSE:
            rows = [bench.rows(random.sample(loose, named)) for _ in range(200)]
            bench.clock(f"apply, {named} a call", rows, 200 * named)
            some = (dict.fromkeys(random.sample(range(SLOTS), named), 5) for _ in range(200))
            parts = [pack_deltas(p.block, next(some), dense=False) for p in held * 10]
            bench.clock(f"sparse, {named} a call", bench.blocks(parts, 1), 200 * named)
    counters = bench.acker.status().counters
    if counters["acked"] != ended or counters["repeated"] or counters["orphaned"]:
        raise RuntimeError(
            f"the calls had a wrong effect, so their times would be wrong: {counters}"
        )
    lines = [("apply", "apply", "")]
    lines += [(f"dense, {slots}", "apply", target) for slots, target in DENSE.items()]
    lines += [(f"dense, {slots}, one a call", "apply", "") for slots in DENSE]
    lines += [(f"apply, {named} a call", "apply", "") for named in SPARSE]
    lines += [(f"sparse, {n} a call", f"apply, {n} a call", t) for n, t in SPARSE.items()]
    print(f"{'':24} {'deltas/s':>12} {'per core':>12} {'of apply':>9}  target")
    for name, other, target in lines:
        wall, core = 1 / bench.median(name), 1 / bench.median(name, server=True)
        print(f"{name:24} {wall:12,.0f} {core:12,.0f} {bench.ratio(name, other):9.2f}  {target}")


def memory(bench: Bench, slots: int, target: int) -> None:
    """Print the bytes of a pending tree, all keys of the namespace included."""
    bench.begin()
    count, used = 1_000_000 // bench.scale // slots + 1, bench.client.info("memory")["used_memory"]
    for start in range(0, count, 50):
        bench.send(bench.track(slots, min(50, count - start)))
    used, trees = bench.client.info("memory")["used_memory"] - used, count * slots
    print(f"memory, {trees:,} trees in blocks of {slots}: {used / trees:.2f} bytes each ({target})")


def expiry(bench: Bench, name: str, column: bytes, why: str = "") -> None:
    """Print the drain of a million trees in blocks with these checksums; ``why``: some fail."""
    bench.begin()
    parts = bench.track(SLOTS, 1_000_000 // bench.scale // SLOTS + 1, column[: 8 * SLOTS])
    for start in range(0, len(parts), 31):
        bench.send(parts[start : start + 31])
    starts = range(0, 1000, 250) if why else []
    failing = [
        pack_deltas(part.block, {}, dict.fromkeys(range(4 * at, 4 * at + 1000, 4), why))
        for part, at in itertools.product(parts[:20], starts)
    ]
    if failing:
        longest = bench.slowest(lambda: bench.send(failing))
        print(f"apply_blocks, {name}: longest call {longest:.2f} ms (10)")
    for _ in range(3):
        bench.acker.connection.run(commands.rotate(KEYS, force=True))
    begun, call = time.perf_counter(), commands.expire_blocks(KEYS, DRAIN_BLOCKS)
    longest = bench.slowest(lambda: all(iter(lambda: bench.acker.connection.run(call)[2], 0)))
    seconds, trees = time.perf_counter() - begun, len(parts) * SLOTS
    print(f"expiry, {trees:,} trees, {name}: {seconds:.2f} s (1), longest {longest:.2f} ms (10)")


def break_even(bench: Bench, slots: int, rounds: int) -> None:
    """Print the microseconds of a call, sparse and dense, by the share of named slots."""
    bench.begin()
    count = 400 // bench.scale
    held = bench.track(slots, 10)
    bench.send(held)
    shares = sorted({max(1, slots // part) for part in (64, 32, 16, 8, 5, 4, 3, 2, 1)})
    for _, named in itertools.product(range(rounds), shares):
        deltas = {slots - 1 - k * slots // named: 5 for k in range(named)}
        for kind in ("sparse", "dense"):
            some = [pack_deltas(p.block, deltas, dense=kind == "dense") for p in held]
            sent = bench.blocks(itertools.islice(itertools.cycle(some), count), 1)
            bench.clock(f"{kind}, {named} of {slots}", sent, count)
    for named in shares:
        sparse, dense = (f"{kind}, {named} of {slots}" for kind in ("sparse", "dense"))
        print(
            f"break-even, {named:4} of {slots:4} ({named / slots:.3f}): "
            f"sparse {bench.median(sparse) * 1e6:7.1f} us, {10 * named:6,} bytes; "
            f"dense {bench.median(dense) * 1e6:7.1f} us, {8 * slots:6,} bytes"
        )


def measure(url: str, rounds: int, quick: bool) -> None:
    """Measure and print all figures."""
    bench = Bench(url, quick)
    bench.client.config_set("slowlog-max-len", 10_000)
    print(f"{server_version.of_info(bench.client.info('server'))}, {rounds} rounds")
    rates(bench, rounds)
    memory(bench, SLOTS, 10)
    memory(bench, 500, 14)
    expiry(bench, "1 % open", (bytes(7) + b"\1" + bytes(8 * 99)) * 41)
    expiry(bench, "all open", b"\1" * 8 * SLOTS)
    expiry(bench, "1000 whys a block", b"\1" * 8 * SLOTS, "why " * 63)
    expiry(bench, "1000 whys a block, quotes", b"\1" * 8 * SLOTS, '"' * 255)
    for slots in DENSE:
        break_even(bench, slots, rounds)
    bench.end()


def main() -> None:
    """Read the arguments and measure."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--quick", action="store_true", help="small sizes, to check that it runs")
    parser.add_argument("--url", help="a Redis to use; the benchmark adds keys and deletes them")
    args = parser.parse_args()
    if args.url:
        measure(args.url, args.rounds, args.quick)
        return
    # The default of Redis, which is the harder case.
    with EmbeddedRedis(extra_args=("--hash-max-ziplist-entries", "512"), tcp=True) as server:
        measure(server.url, args.rounds, args.quick)


if __name__ == "__main__":
    main()
