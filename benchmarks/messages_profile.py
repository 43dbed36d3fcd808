"""Show where the microseconds of a message are: of the source or of the worker of messages.py.

    python benchmarks/messages_profile.py [source|worker] [--side 'one by one'] [--records 50000]

A timer looks at the main thread every millisecond of processor time. So calls cost nothing extra,
as they do under cProfile. Time of other threads (the senders of a producer) is one line.
"""

from __future__ import annotations

import argparse
import multiprocessing
import signal
import sys
import time
from collections import Counter
from multiprocessing.connection import Connection
from pathlib import Path
from types import FrameType
from typing import Self

from acker_redis import Acker
from acker_redis.embedded import EmbeddedRedis

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks import messages

EVERY = 0.001
"""Seconds of processor time between two samples."""


class Sampler:
    """Samples the main thread: the functions, innermost first, that are in this package."""

    def __init__(self) -> None:
        self.found: Counter[str] = Counter()
        self._last = self._began = self._process = 0.0

    def __enter__(self) -> Self:
        self._last = self._began = time.thread_time()
        self._process = time.process_time()
        signal.signal(signal.SIGPROF, self._sample)
        signal.setitimer(signal.ITIMER_PROF, EVERY, EVERY)
        return self

    def __exit__(self, *error: object) -> None:
        signal.setitimer(signal.ITIMER_PROF, 0)

    def _sample(self, _: int, frame: FrameType | None) -> None:
        now = time.thread_time()
        spent, self._last = now - self._last, now
        if frame is not None and spent > EVERY / 2:  # else another thread was running
            code = frame.f_code
            self.found[f"{_place(code.co_filename)}  {code.co_name}"] += 1

    def table(self, count: int) -> str:
        """Return the microseconds of each function per message, by file."""
        own = time.thread_time() - self._began
        scale = own / max(self.found.total(), 1) / count * 1e6
        files: dict[str, Counter[str]] = {}
        for place, samples in self.found.items():
            file, _, name = place.partition("  ")
            files.setdefault(file, Counter())[name] += samples
        lines = []
        for file, names in sorted(files.items(), key=lambda each: -each[1].total()):
            if names.total() * scale >= 0.02:
                most = ", ".join(f"{n} {c * scale:.2f}" for n, c in names.most_common(5))
                lines.append(f"{names.total() * scale:6.2f}  {file:42} {most}")
        others = time.process_time() - self._process - own
        lines.append(f"{others / count * 1e6:6.2f}  other threads")
        return "\n".join(lines)


def _place(file: str) -> str:
    """Return a file's name from its package on."""
    parts = Path(file).parts
    for root in ("site-packages", "acker_redis", "benchmarks"):
        if root in parts:
            at = parts.index(root)
            return "/".join(parts[at + (root == "site-packages") :])
    return Path(file).name


def work(side: str, url: str, pipe: Connection, sampled: bool, count: int) -> None:
    """Run the worker of a side, sampled or not, and send its table."""
    with Sampler() as sampler:
        messages.SIDES[side][1](url, pipe)
    pipe.send(sampler.table(count))


def main() -> None:
    """Read the arguments, run one side, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("part", choices=("source", "worker"), nargs="?", default="worker")
    parser.add_argument("--side", choices=messages.SIDES, default="one by one")
    parser.add_argument("--records", type=int, default=50_000)
    args = parser.parse_args()
    records = messages.count_of(args.side, args.records)
    count = records * (1 + messages.CAUSED)
    with EmbeddedRedis(tcp=True) as server, Acker.from_url(server.url, "bench") as acker:
        acker.create(messages.CONFIG)
        mine, its = multiprocessing.Pipe()
        given = (args.side, server.url, its, args.part == "worker", count)
        worker = multiprocessing.get_context("spawn").Process(target=work, args=given)
        worker.start()
        with Sampler() as sampler:
            messages.SIDES[args.side][0](server.url, mine, records)
        table = sampler.table(count)
        mine.send([])
        in_worker = mine.recv()
        worker.join()
    print(f"microseconds a message, {args.side}, {args.part}")
    print(table if args.part == "source" else in_worker)


if __name__ == "__main__":
    main()
