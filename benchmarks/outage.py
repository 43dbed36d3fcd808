"""Outages of a pipeline: how long until it is normal again, and how much work was for nothing.

A shop (a source) sends orders through Redis Streams, or Kafka with ``--kafka``, to a packer (a
worker), each a process, with a rotator. In each case something stops or is slow for some lifetimes,
of 2 s each. The same with ``adaptive=False``, and each with and without ``skip_ended=True``.

* *limit*: 1.3 times the seconds in which a perfect system works off the orders that arrived
  meanwhile, ``L * (load - left) / (after - load)``: L, the outage; *left*, the part of the capacity
  that is left; *after*, the capacity after it, by the capacity before.
* *normal*: seconds from the end of the outage until orders are as fast as before, and no more wait.
* *work*: orders that the packers have worked off, per order acked.

Cases run side by side, ``--jobs`` at a time: they sleep nearly all of their time. A case on a
machine that is too busy is not reported.
"""

import argparse
import contextlib
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from kafka_broker import BROKER, broker, jars
from rich.console import Console
from rich.progress import track
from rich.table import Table

from acker_redis import Acker, AckerConfig, Rotator
from acker_redis.embedded import EmbeddedRedis, find_server
from acker_redis.protocol.keys import ShardKeys

sys.path.insert(0, str(Path(__file__).parents[1]))
from tests.cluster.servers import Cluster, slot_of, spread
from tests.project.drawings.outage import chart

LIFETIME = 2.0
CAPACITY = 50.0
"""Orders a second that the packers process."""
WARM, BEFORE, LIMIT = 8.0, 5.0, 1.3
PROGRAMS = Path(__file__).with_name("outage_programs.py")
KINDS = {
    "packer": "the packer stops",
    "half": "half of the packers are killed",
    "slow": "the packer is slow by three",
    "faster": "the packer stops, and returns ten times as fast",
    "redis": "Redis stops",
    "shard": "one master of three stops",
    "shop": "the shop is killed",
    "sources": "the packer of 20 sources stops",
}


@dataclass(frozen=True)
class Case:
    """Something that happens to a pipeline for ``lifetimes``."""

    kind: str
    lifetimes: float
    load: float
    adaptive: bool = True
    skip_ended: bool = False

    @property
    def away(self) -> float:
        """Seconds of the outage."""
        return self.lifetimes * LIFETIME

    def limit(self, away: float) -> float:
        """Return the seconds within which it is to be normal again after ``away`` seconds."""
        left = {"half": 1 / 2, "slow": 1 / 3}.get(self.kind, 0.0)
        after = 10.0 if self.kind == "faster" else 1.0
        if self.kind == "shard":
            return 0.0  # the others take its records
        return LIMIT * away * max(0.0, self.load - left) / (after - self.load)


@dataclass
class Found:
    """The figures of a case."""

    case: Case
    limit: float = 0.0
    normal: float | None = None
    acked: int = 0
    work: float = 0.0
    useless: int = 0
    dead: int = 0
    skipped: int = 0
    fairness: float = 1.0
    """Jain's index of the acks of the sources."""
    starved: str = ""
    series: list[tuple[float, int, int, int]] = field(default_factory=list)
    """Each second: seconds since the outage began, orders that wait, orders acked, the window."""


class Program:
    """A program that runs, and its lines so far."""

    def __init__(self, *words: str) -> None:
        self.lines: list[dict[str, Any]] = []
        command = [sys.executable, str(PROGRAMS), *words]
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self.process.stdout
        for line in self.process.stdout:
            self.lines.append(json.loads(line))

    def last(self, name: str, default: Any = 0) -> Any:
        """Return the last value of a name."""
        return next((each[name] for each in reversed(self.lines) if name in each), default)

    def kill(self) -> None:
        """Kill it."""
        self.process.kill()
        self.process.wait()


class Pipeline:
    """A case that runs."""

    def __init__(self, case: Case, where: tuple[str, str, str], folder: str) -> None:
        self.case, self._where = case, where
        self._sources = 20 if case.kind == "sources" else 1
        self._done = f"{folder}/done"
        Path(self._done).touch()
        packers = 2 if case.kind == "half" else 1
        self._rate = CAPACITY / packers
        self.packers = [self._packer() for _ in range(packers)]
        while not all(each.lines for each in self.packers):
            time.sleep(0.05)
        self.shops = [self._shop("0")]

    def _packer(self) -> Program:
        skip = ["--skip-ended"] if self.case.skip_ended else []
        return Program("packer", *self._where, "--rate", str(self._rate), *skip)

    def _shop(self, since: str) -> Program:
        return Program(
            "shop", *self._where, "--rate", str(self.case.load * CAPACITY), "--since",
            since, "--done", self._done, "--sources", str(self._sources),
            "--adaptive" if self.case.adaptive else "--no-adaptive",
        )  # fmt: skip

    def stop(self, pid: int) -> Callable[[], None]:
        """Begin the outage; return the function that ends it. ``pid`` is that of the server."""
        packer = self.packers[0].process
        match self.case.kind:
            case "half":
                self.packers[0].kill()
                return lambda: self._again(self.packers, self._packer)
            case "slow":
                packer.send_signal(signal.SIGUSR1)
                return lambda: packer.send_signal(signal.SIGHUP)
            case "redis" | "shard":
                os.kill(pid, signal.SIGSTOP)
                return lambda: os.kill(pid, signal.SIGCONT)
            case "shop":
                self.shops[0].kill()
                since = str(self.shops[0].last("since"))
                return lambda: self._again(self.shops, lambda: self._shop(since))
        packer.send_signal(signal.SIGSTOP)

        def back() -> None:
            if self.case.kind == "faster":
                packer.send_signal(signal.SIGUSR2)
            packer.send_signal(signal.SIGCONT)

        return back

    @staticmethod
    def _again(programs: list[Program], start: Callable[[], Program]) -> None:
        programs.append(start())
        while not programs[-1].lines:
            time.sleep(0.05)

    def acked(self) -> list[int]:
        """Return the orders acked so far, by source."""
        told = [shop.last("acked", [0] * self._sources) for shop in self.shops]
        return [sum(each) for each in zip(*told, strict=True)]

    def waiting(self) -> int:
        """Return the orders that have arrived and are not done."""
        done = len(set(Path(self._done).read_text().split()))
        return int(self.shops[-1].last("arrived")) - done

    def _dead(self) -> int:
        return sum(shop.last("dead") for shop in self.shops)

    def latency(self, since: float) -> float | None:
        """Return the median seconds from the arrival of an order to its ack, lately."""
        lines = [each for shop in self.shops for each in shop.lines if each["at"] >= since]
        took = [each["latency"] for each in lines if each.get("latency") is not None]
        return statistics.median(took) if took else None

    def end(self, found: Found) -> None:
        """Stop the programs, and note their figures."""
        for each in [*self.shops, *self.packers]:
            each.kill()
        acked = self.acked()
        calls = sum(each.last("calls") for each in self.packers)
        found.acked, found.dead = sum(acked), self._dead()
        found.skipped = sum(each.last("skipped") for each in self.packers)
        found.useless, found.work = max(0, calls - found.acked), calls / max(1, found.acked)
        found.fairness = sum(acked) ** 2 / max(1, len(acked) * sum(each**2 for each in acked))


def run(case: Case, kafka: Sequence[str] = ()) -> Found:
    """Run a case; over Kafka if its jars are given."""
    found = Found(case)
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        server = stack.enter_context(EmbeddedRedis(tcp=True))
        url, name, pid = server.url, "outage", server.pid
        if case.kind == "shard":
            cluster = stack.enter_context(Cluster(find_server() or sys.exit("no server"), 3))
            name, node = spread(cluster, 4), cluster.nodes[0]
            if cluster.owner(slot_of(ShardKeys(name, 0))) is node:
                node = cluster.nodes[1]
            url, pid = f"redis+cluster://127.0.0.1:{cluster.nodes[2].server.port}", node.server.pid
        with Acker.from_url(url, name) as acker:
            shards = 4 if case.kind == "shard" else 1
            acker.create(AckerConfig(tick_ms=round(LIFETIME * 500), buckets=3, shards=shards))
        stack.enter_context(Rotator.from_url(url, name))
        queue = server.url
        if kafka:
            queue = f"kafka://{stack.enter_context(broker(Path(folder), list(kafka)))}"
        pipeline = Pipeline(case, (url, queue, name), folder)
        try:
            watch(pipeline, pid, found)
        finally:
            pipeline.end(found)
    return found


def watch(pipeline: Pipeline, pid: int, found: Found) -> None:
    """Let the outage happen, and wait until the pipeline is normal, or for the limit and more."""
    case = pipeline.case
    while not pipeline.shops[0].lines:
        time.sleep(0.05)
    ready = time.monotonic() + 40  # a consumer of Kafka needs seconds for its partitions
    while time.monotonic() < ready:
        time.sleep(1.0)
        took = pipeline.latency(time.time() - 1.0)
        if took is not None and took <= LIFETIME / 4:
            break
    began = time.monotonic()

    def seconds(until: float) -> Iterator[float]:
        """Yield each quarter of a second the time, until the pipeline is ``until`` old."""
        while (now := time.monotonic() - began) < until:
            if len(found.series) < now - WARM + BEFORE:
                window = pipeline.shops[-1].last("window")
                acked, waits = sum(pipeline.acked()), pipeline.waiting()
                found.series.append((round(now - WARM, 1), waits, acked, window))
            yield now
            time.sleep(0.25)

    for _ in seconds(WARM):
        pass
    usual, most = pipeline.latency(time.time() - WARM / 2), max(0, pipeline.waiting())
    if usual is None or usual > LIFETIME / 4:
        found.starved = f"busy: {usual or 0:.1f} s an order"
        return
    back = pipeline.stop(pid)
    for _ in seconds(WARM + case.away):
        pass
    back()
    ends = time.monotonic() - began  # a program that starts again takes some seconds
    found.limit = case.limit(ends - WARM)
    for now in seconds(ends + max(1.3 * found.limit, found.limit + 5 * LIFETIME)):
        took = pipeline.latency(time.time() - 1.0)
        calm = took is not None and took <= max(2 * usual, usual + 0.3)
        if now > ends + 1.0 and calm and pipeline.waiting() <= 2 * most + 10:
            found.normal = max(0.0, now - ends - 1.0)
            break
    for _ in seconds(time.monotonic() - began + 3):
        pass


def cases(complete: bool) -> list[Case]:
    """Return the cases, each with its variants."""
    if complete:
        loads, lengths = (0.5, 0.7, 0.9), (0.5, 2, 5, 20)
    else:
        loads, lengths = (0.7,), (2, 5)
    first = [Case("packer", length, load) for length in lengths for load in loads]
    first += [Case(kind, 5, 0.7) for kind in KINDS if kind != "packer"]
    return [
        replace(case, adaptive=adaptive, skip_ended=skip)
        for case in first
        for adaptive in (True, False)
        for skip in (False, True)
    ]


def show(results: list[Found]) -> None:
    """Print the table."""
    table = Table(title="outages: lifetimes of 2 s, 50 orders a second")
    for name in ("outage", "lifetimes", "load", "window", "skip ended"):
        table.add_column(name)
    for name in ("limit s", "normal s", "work", "useless", "skipped", "dead", "fairness"):
        table.add_column(name, justify="right")
    for found in results:
        case = found.case
        words = [KINDS[case.kind], f"{case.lifetimes:g}", f"{case.load:g}"]
        words += ["yes" if case.adaptive else "no", "yes" if case.skip_ended else "no"]
        if found.starved:
            table.add_row(*words, found.starved)
            continue
        normal = "never" if found.normal is None else f"{found.normal:.1f}"
        figures = [
            f"{found.limit:.1f}" if found.limit else "none",
            normal,
            f"{found.work:.2f}",
            f"{found.useless}",
        ]
        figures += [f"{found.skipped}", f"{found.dead}", f"{found.fairness:.3f}"]
        table.add_row(*words, *figures)
    Console(width=150).print(table)


def draw(results: list[Found], folder: Path) -> None:
    """Draw each case that has run with windows and without."""
    pairs: dict[tuple[str, float, float], dict[bool, dict[str, Any]]] = {}
    for found in results:
        case = found.case
        if not case.skip_ended and not found.starved:
            key = case.kind, case.lifetimes, case.load
            pairs.setdefault(key, {})[case.adaptive] = asdict(found)
    for key, pair in pairs.items():
        if len(pair) == 2:
            name = "-".join(f"{each:g}" if isinstance(each, float) else str(each) for each in key)
            (folder / f"{name}.svg").write_text(chart(pair))


def main() -> None:
    """Read the arguments and measure."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--all", action="store_true", help="all lengths and loads, some 30 minutes")
    parser.add_argument("--kinds", nargs="*", choices=KINDS, help="only these outages")
    parser.add_argument("--adaptive", action="store_true", help="only with windows")
    parser.add_argument("--jobs", type=int, default=4, help="cases that run side by side")
    parser.add_argument("--kafka", type=Path, help="over Kafka; its jars are, or go, into a folder")
    parser.add_argument("--pictures", type=Path, help="draw each outage into this folder")
    parser.add_argument("--json", type=Path, help="write the results to this file, too")
    args = parser.parse_args()
    chosen = [
        case for case in cases(args.all)
        if (not args.kinds or case.kind in args.kinds) and (case.adaptive or not args.adaptive)
    ]  # fmt: skip
    kafka = jars(args.kafka, BROKER) if args.kafka else []
    if kafka:  # a message must be ten minutes older than its tree to be skipped there
        chosen = [case for case in chosen if not case.skip_ended and case.kind != "shard"]
    with ThreadPoolExecutor(args.jobs) as pool:
        runs = pool.map(partial(run, kafka=kafka), chosen)
        results = list(track(runs, "outages", total=len(chosen)))
    show(results)
    if args.pictures:
        args.pictures.mkdir(parents=True, exist_ok=True)
        draw(results, args.pictures)
    if args.json:
        args.json.write_text(json.dumps([asdict(each) for each in results]) + "\n")
    if any(each.starved for each in results):
        sys.exit(1)


if __name__ == "__main__":
    main()
