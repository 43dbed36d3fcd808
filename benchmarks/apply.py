"""Measure rows per second of ``apply`` and of pipelined HINCRBY, on one server in one run.

    python benchmarks/apply.py [--rows 1000] [--rounds 9] [--url redis://...]

Every command is packed before the clock starts and sent over a plain socket, so that the benchmark
measures the server and not redis-py. The sides take turns, round by round, because machines are
noisy. The benchmark prints the median of each side, and the median of the ratios.

- ``HINCRBY``: 1000 in a pipeline, on random fields of a hash of a million fields. The
  minimal cost of a counter per tree: no verdict, no fence, no timeout.
- ``track``: 1000 trees tracked by one call, source ids of 20 bytes.
- ``ack``: 1000 rows by one call, each of which completes its tree: 1000 verdicts in the stream and
  on pub/sub.
- ``track+ack``: both, as a source and a bolt together use it. The target is for this figure.
- ``delta``: 1000 rows by one call on trees that stay pending.
- ``folded``: as in Spark, five messages of each of 1000 trees folded into one row, by one call; the
  figure counts messages.
"""

from __future__ import annotations

import argparse
import random
import socket
import statistics
import time
from collections.abc import Iterator
from urllib.parse import urlsplit

from acker_redis import Acker, AckerConfig, Batch, new_anchor, new_tuple_id
from acker_redis.embedded import EmbeddedRedis
from acker_redis.protocol import commands, scripts, server_version
from acker_redis.protocol.commands import Fence
from acker_redis.protocol.keys import ShardKeys

NAMESPACE = "bench-apply"
HASH = "bench-hincrby"
FIELDS = 1_000_000
FOLD = 5
"""Messages of a tree in a folded row."""


def pack(*args: object) -> bytes:
    """Return one command in RESP."""
    parts = [a if isinstance(a, bytes) else str(a).encode() for a in args]
    return b"*%d\r\n" % len(parts) + b"".join(b"$%d\r\n%s\r\n" % (len(p), p) for p in parts)


class Wire:
    """A socket that sends packed commands and waits for all replies."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._socket = socket.create_connection((parts.hostname, parts.port))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if parts.password:
            self._socket.sendall(pack("AUTH", parts.username or "default", parts.password))
            assert self._socket.recv(64) == b"+OK\r\n"

    def seconds(self, payload: bytes) -> float:
        """Return the seconds from the first byte sent to the reply to a PING after the payload."""
        start = time.perf_counter()
        self._socket.sendall(payload + pack("PING"))
        tail = b""
        while not tail.endswith(b"+PONG\r\n"):
            data = self._socket.recv(1 << 20)
            if b"-ERR" in data or b"-ACKER" in data:
                raise RuntimeError(data[:200].decode(errors="replace"))
            tail = (tail + data)[-16:]
        return time.perf_counter() - start


def hincrby(calls: int) -> bytes:
    """Return a pipeline of HINCRBY on random fields."""
    return b"".join(pack("HINCRBY", HASH, random.randrange(FIELDS), 1) for _ in range(calls))


class Rows:
    """Packed ``apply`` calls of one lane."""

    def __init__(self, rows: int) -> None:
        self.rows = rows
        self._seq = 0

    def call(self, lane: str, batch: Batch) -> bytes:
        """Return one EVALSHA for a batch; each side has its own lane, as the sides take turns."""
        (columns,) = batch.columns(1).values()
        call = commands.apply(ShardKeys(NAMESPACE, 0), columns, Fence(lane, self._seq))
        return pack("EVALSHA", scripts.load("apply").sha, 2, *call.keys, *call.args)

    def trees(self, calls: int) -> Iterator[tuple[bytes, bytes, bytes, bytes]]:
        """Yield track, delta, folded and ack calls for the same trees."""
        for _ in range(calls):
            self._seq += 1
            track, delta, folded, ack = Batch("bench-source"), Batch(), Batch(), Batch()
            for _ in range(self.rows):
                anchor, first, second = new_anchor(), new_tuple_id(), new_tuple_id()
                track.track(anchor, f"2013-01-01/{anchor % 10**9:09d}", [first])
                delta.ack(anchor, first, [second])
                # A chain of FOLD bolts in one micro-batch.
                for _ in range(FOLD):
                    third = new_tuple_id()
                    folded.ack(anchor, second, [third])
                    second = third
                ack.ack(anchor, second)
            parts = (("a", track), ("b", delta), ("d", folded), ("c", ack))
            one, two, three, four = (self.call(lane, batch) for lane, batch in parts)
            yield one, two, three, four


def measure(url: str, rows: int, rounds: int) -> None:
    """Print the table."""
    acker = Acker.from_url(url, NAMESPACE, timeout=60)
    client = acker.connection.client
    acker.create(AckerConfig(high_water=10**9, outcomes_limit=10**9, tick_ms=3_600_000))
    client.script_load(scripts.load("apply").source)
    wire = Wire(url)
    for start in range(0, FIELDS, 50_000):
        mapping = {str(field): 0 for field in range(start, start + 50_000)}
        client.hset(HASH, mapping=mapping)

    calls = max(1, 20_000 // rows)
    total = calls * rows
    source = Rows(rows)
    times: dict[str, list[float]] = {}

    def clock(name: str, payload: bytes) -> float:
        seconds = wire.seconds(payload)
        times.setdefault(name, []).append(seconds)
        return seconds

    for _ in range(rounds):
        parts = list(source.trees(calls))
        clock("HINCRBY", hincrby(total))
        track = clock("track", b"".join(p[0] for p in parts))
        clock("delta", b"".join(p[1] for p in parts))
        clock("folded", b"".join(p[2] for p in parts))
        ack = clock("ack", b"".join(p[3] for p in parts))
        times.setdefault("track+ack", []).append((track + ack) / 2)
        client.delete(ShardKeys(NAMESPACE, 0).outcomes("bench-source"))

    counters = acker.status().counters
    if counters["acked"] != total * rounds or counters["repeated"]:
        raise RuntimeError(
            f"the calls had a wrong effect, so their times would be wrong: {counters}"
        )
    version = server_version.of_info(client.info("server"))
    print(f"{version}, {rows} rows a call, {rounds} rounds of {total} rows")
    print(f"{'':10} {'messages/s':>12} {'of HINCRBY':>11}")
    for name, seconds in times.items():
        messages = FOLD if name == "folded" else 1
        rate = messages * total / statistics.median(seconds)
        ratio = messages * statistics.median(
            h / s for h, s in zip(times["HINCRBY"], seconds, strict=True)
        )
        print(f"{name:10} {rate:12,.0f} {ratio:11.2f}")
    for key in client.scan_iter("acker:{" + NAMESPACE + ":0}*"):
        client.unlink(key)
    client.unlink(HASH)


def main() -> None:
    """Read the arguments and measure."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--rows", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--url", help="a Redis to use; the benchmark adds keys and deletes them")
    args = parser.parse_args()
    if args.url:
        measure(args.url, args.rows, args.rounds)
    else:
        with EmbeddedRedis(tcp=True) as server:
            measure(server.url, args.rows, args.rounds)


if __name__ == "__main__":
    main()
