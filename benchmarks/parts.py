"""Measure the time of each part of ``apply``, in nanoseconds per row.

    python benchmarks/parts.py [--rows 1000] [--rounds 15]

A copy of the script calls TIME between its parts; the benchmark prints the medians. The rest, up to
the duration of the whole call in SLOWLOG, is spent by Redis: it reads and passes the arguments.
"""

from __future__ import annotations

import argparse
import itertools
import statistics

from acker_redis import Acker, AckerConfig, Batch, new_anchor, new_tuple_id
from acker_redis.embedded import EmbeddedRedis
from acker_redis.protocol import commands, scripts, server_version
from acker_redis.protocol.keys import ShardKeys

PARTS = [
    ("read the configuration", "local namespace = string.match("),
    ("check flags and texts", "local n = #flags"),
    ("unpack the columns", "local flag = { byte(flags"),
    ("check each row", "local row_of = {}"),
    ("the fence", "-- parts/fence.lua"),
    ("look the records up", "-- parts/records.lua"),
    ("decide: XOR, records, verdicts", "local puts, drops = {}, {}"),
    ("check streams and backlogs", "local waiting, asked"),
    ("XADD", "if created == 0 then call('UNLINK', shard)"),
    ("HSET", "if fence_key then\n  call"),
    ("HDEL", "for bucket = 0, buckets - 1 do\n  if drops"),
    ("PUBLISH, counters", "if tracks > 0 and not conf[10] then\n"),
]
"""Parts of the script, and the code with which each begins. Comments change more often."""
END = "return { 1, tracked, acked"


def instrumented() -> bytes:
    """Return the script with a TIME between its parts. It replies with these times, in us."""
    code = scripts.load("apply").source.decode()
    marks = [*(mark for _, mark in PARTS), END]
    for number, mark in reversed(list(enumerate(marks))):
        if code.count(mark) != 1:
            raise RuntimeError(
                f"apply.lua has {mark!r} {code.count(mark)} times, not once: correct PARTS"
            )
        code = code.replace(mark, f"times[{number + 1}] = redis.call('TIME')\n{mark}")
    code = code.replace("local shard, meta =", "local times = {}\nlocal shard, meta =", 1)
    reply = "for i, t in ipairs(times) do times[i] = t[1] % 1000 * 1000000 + t[2] end\n"
    return code.replace(END, f"{reply}if true then return times end\n{END}").encode()


def main() -> None:
    """Read the arguments and measure."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--rows", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=15)
    args = parser.parse_args()
    found: dict[str, list[list[float]]] = {"track": [], "delta": [], "ack": []}
    with EmbeddedRedis(tcp=True) as server:
        acker, keys = Acker.from_url(server.url, "parts", timeout=60), ShardKeys("parts", 0)
        acker.create(AckerConfig(high_water=10**9, outcomes_limit=10**9, tick_ms=3_600_000))
        client = acker.connection.client
        client.config_set("slowlog-log-slower-than", 0)
        sha = client.script_load(instrumented())
        for _ in range(args.rounds):
            batches = {"track": Batch("source"), "delta": Batch(), "ack": Batch()}
            for _ in range(args.rows):
                anchor, first, second = new_anchor(), new_tuple_id(), new_tuple_id()
                batches["track"].track(anchor, f"2013-01-01/{anchor % 10**9:09d}", [first])
                batches["delta"].ack(anchor, first, [second])
                batches["ack"].ack(anchor, second)
            for name, batch in batches.items():
                call = commands.apply(keys, batch.columns(1)[0], None)
                client.slowlog_reset()
                times = client.evalsha(sha, 2, *call.keys, *call.args)
                (entry,) = [e for e in client.slowlog_get(9) if e["command"][:7] == b"EVALSHA"]
                parts = [b - a for a, b in itertools.pairwise(times)]
                found[name].append([*parts, entry["duration"] - sum(parts), entry["duration"]])
        version = server_version.of_info(client.info("server"))
    print(f"{version}, nanoseconds a row, {args.rows} rows a call")
    print(f"{'':32}" + "".join(f"{name:>8}" for name in found))
    for number, part in enumerate([*(part for part, _ in PARTS), "Redis, the rest", "in all"]):
        medians = (statistics.median(row[number] for row in rows) for rows in found.values())
        print(f"{part:32}" + "".join(f"{1000 * m / args.rows:8,.0f}" for m in medians))


if __name__ == "__main__":
    main()
