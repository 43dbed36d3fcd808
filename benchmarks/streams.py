"""The worker of examples/streams, tracked and untracked: entries per second of 1 kB each.

One Redis holds the streams and the namespace. The programs read all entries in batches of up to
100, price each, add the result to another stream, and remove the entry from the group. The
untracked program waits for Redis after each command, as the example does; *pipelined* is the same
program with one pipeline for each batch. They take turns. The trees of the entries exist before the
clock starts.
"""

from functools import partial
from typing import Any

import redis
from side_by_side import Clock, Measured, arguments, in_turns, price, profile, show, tracked

from acker_redis import Acker
from acker_redis.embedded import EmbeddedRedis
from acker_redis.integrations.streams import StreamWorker

PROGRAMS = "untracked", "pipelined", "tracked"


def fill(acker: Acker, client: Any, count: int) -> None:
    """Track ``count`` records, and add an order of 1 kB for each."""
    client.delete("orders", "priced")
    client.xgroup_create("orders", "pricing", id="0", mkstream=True)
    pipe = client.pipeline(transaction=False)
    for number, (order, headers) in enumerate(tracked(acker, count), 1):
        pipe.xadd("orders", {"order": order, **headers})
        if number % 1000 == 0:
            pipe.execute()
    pipe.execute()


def rate(acker: Acker, client: Any, count: int, program: str) -> Measured:
    """Measure one run, from the first read to the last XACK."""
    fill(acker, client, count)
    handler = price("streams", "after" if program == "tracked" else "before")
    done, clock = 0, Clock()
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
    found = clock.stop(count)
    assert client.xlen("priced") == count
    assert not client.xpending("orders", "pricing")["pending"]
    return found


def main() -> None:
    """Read the arguments and measure."""
    parser = arguments(__doc__, "entries", 10_000, rounds=7)
    parser.add_argument("--profile", action="store_true", help="profile a tracked run, at the end")
    args = parser.parse_args()
    with (
        EmbeddedRedis(tcp=True) as server,
        Acker.from_url(server.url, "bench", timeout=60) as acker,
        redis.Redis.from_url(server.url, protocol=2, socket_timeout=60) as client,
    ):
        acker.create()
        run = partial(rate, acker, client, args.entries)
        found = in_turns(PROGRAMS, args.rounds, run)
        print(
            f"redis-py {redis.__version__}, {args.entries:,} entries of 1 kB, {args.rounds} rounds"
        )
        show(found, "entries/s")
        if args.profile:
            profile(lambda: run("tracked"))


if __name__ == "__main__":
    main()
