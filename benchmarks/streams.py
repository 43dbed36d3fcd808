"""The worker of examples/streams, tracked and untracked: entries per second of 1 kB each.

One Redis holds the streams and the namespace. The programs read all entries in batches of up to
100, price each, add the result to another stream, and remove the entry from the group. The
untracked program waits for Redis after each command, as the example does; *pipelined* is the same
program with one pipeline for each batch. They take turns. The trees of the entries exist before the
clock starts.
"""

import argparse
import importlib.util
import json
import statistics
import time
from pathlib import Path
from typing import Any

import redis

from acker_redis import Acker, Batch, emit
from acker_redis.embedded import EmbeddedRedis
from acker_redis.integrations.streams import StreamWorker

EXAMPLE = Path(__file__).parents[1] / "examples/streams"
PROGRAMS = "untracked", "pipelined", "tracked"


def price(program: str) -> Any:
    """Return the handler of ``before.py`` or ``after.py``."""
    spec = importlib.util.spec_from_file_location(program, EXAMPLE / f"{program}.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.price


def fill(acker: Acker, client: Any, count: int) -> None:
    """Track ``count`` records, and add an order of 1 kB for each."""
    client.delete("orders", "priced")
    client.xgroup_create("orders", "pricing", id="0", mkstream=True)
    batch, pipe = Batch("shop"), client.pipeline(transaction=False)
    for number in range(count):
        order = {"order": number, "items": number % 7, "price": 12.5, "note": "x" * 940}
        tree = emit(str(number))
        batch.add(tree.row)
        pipe.xadd("orders", {"order": json.dumps(order), **tree.ids[0].to_headers()})
        if batch.full:
            acker.apply(batch)
            batch = Batch("shop")
            pipe.execute()
    acker.apply(batch)
    pipe.execute()


def rate(acker: Acker, client: Any, count: int, program: str) -> float:
    """Return the entries per second of one run, from the first read to the last XACK."""
    handler = price("after" if program == "tracked" else "before")
    done, began = 0, time.perf_counter()
    if program == "tracked":
        with StreamWorker(acker, client, "orders", "pricing") as worker:
            while done < count:
                for _, entries in worker.read():
                    for key, fields in entries:
                        worker.handle(key, fields, handler, worker)
                    done += len(entries)
    while done < count:
        for _, entries in client.xreadgroup("pricing", "me", {"orders": ">"}, count=100):
            with client.pipeline(transaction=False) as pipe:
                streams = pipe if program == "pipelined" else client
                for key, fields in entries:
                    handler(fields, streams)
                    streams.xack("orders", "pricing", key)
                if program == "pipelined":
                    pipe.execute()
            done += len(entries)
    found = count / (time.perf_counter() - began)
    assert client.xlen("priced") == count
    assert not client.xpending("orders", "pricing")["pending"]
    return found


def main() -> None:
    """Read the arguments and measure."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--entries", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--profile", action="store_true", help="profile a tracked run, at the end")
    args = parser.parse_args()
    with (
        EmbeddedRedis(tcp=True) as server,
        Acker.from_url(server.url, "bench", timeout=60) as acker,
        redis.Redis.from_url(server.url, protocol=2, socket_timeout=60) as client,
    ):
        acker.create()
        found: dict[str, list[float]] = {program: [] for program in PROGRAMS}
        for number in range(args.rounds):
            for program in PROGRAMS if number % 2 else PROGRAMS[::-1]:
                fill(acker, client, args.entries)
                found[program].append(rate(acker, client, args.entries, program))
        print(
            f"redis-py {redis.__version__}, {args.entries:,} entries of 1 kB, {args.rounds} rounds"
        )
        medians = {program: statistics.median(rates) for program, rates in found.items()}
        for program, each in medians.items():
            of = each / medians["untracked"]
            print(f"{program:12}{each:9,.0f} entries/s   {of:5.2f} of untracked")
        if args.profile:
            profile(acker, client, args.entries)


def profile(acker: Acker, client: Any, count: int) -> None:
    """Print the profile of the thread that consumes."""
    import cProfile
    import pstats

    fill(acker, client, count)
    with cProfile.Profile() as found:
        rate(acker, client, count, "tracked")
    pstats.Stats(found).sort_stats("tottime").print_stats(22)


if __name__ == "__main__":
    main()
