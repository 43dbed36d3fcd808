"""Check the verdicts of a source whose workers are killed by SIGKILL at random moments.

A worker writes a line ``<anchor> <step>`` for each message before it acks the message. An ack of a
record is therefore false if a step of its attempt is not written when the verdict is read.
"""

import os
import random
import re
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from acker_redis import Source, Verdict
from tests.waiting import LIMIT, wait_until

ROOT = Path(__file__).parents[2]


class Ledger:
    """Emits records, and compares their verdicts with the written steps; a context manager.

    A thread reads the verdicts until the end of the block. Its error fails the test.

    Args:
        source: The source.
        file: The file of steps, which is created.
        steps: The steps of each record.
        value: ``value(source_id)`` returns the value of a record.
        edge: The edge of its first messages.
        exact: Whether an acked attempt must have no other steps, and none twice.
        poll: Called again and again by each wait.

    """

    def __init__(
        self, source: Source, file: Path, *steps: str, value: Callable[[str], Any] = str,
        edge: str = "", exact: bool = False, poll: Callable[[], object] = lambda: None,
    ) -> None:  # fmt: skip
        self.source, self.file = source, file
        self.seed = random.randrange(2**32)
        self.dice = random.Random(self.seed)
        self.emitted: list[str] = []
        self.acked: set[str] = set()
        self.failed: dict[str, set[str]] = {}
        """The reasons of the failed attempts of each record."""
        self._steps, self._value, self._edge = steps, value, edge
        self._exact, self._poll = exact, poll
        self._error: BaseException | None = None
        self._reader = threading.Thread(target=self._read, daemon=True)
        file.touch()

    def __enter__(self) -> "Ledger":
        self._reader.start()
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        self.source.stop()
        self._reader.join(LIMIT)
        if kind is None:
            self._check_reader()
            assert not self._reader.is_alive(), f"the source did not stop, seed {self.seed}"

    def emit(self, source_id: str) -> None:
        """Emit a record."""
        self.emitted.append(source_id)
        self.source.emit(source_id, self._value(source_id), edge=self._edge)

    def emit_orders(self, count: int) -> None:
        """Emit records with new ids."""
        for _ in range(count):
            self.emit(f"order-{len(self.emitted)}")

    @contextmanager
    def worker(
        self, *command: str, ready: Callable[[], object] | None = None
    ) -> Iterator["subprocess.Popen[bytes]"]:
        """Start a Python program, wait until it is ready, and kill it after the block.

        Args:
            command: The arguments of Python.
            ready: Whether the program is ready; by default, whether ``<file>.<pid>`` exists.

        """
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, [ROOT, *sys.path]))}
        process = subprocess.Popen([sys.executable, *command], env=environment, cwd=ROOT)
        try:
            ready = ready or Path(f"{self.file}.{process.pid}").exists
            wait_until(ready, f"a worker, seed {self.seed}")
            yield process
        finally:
            process.kill()
            process.wait()

    def wait_for_work(self, *bounds: int) -> None:
        """Wait until a random number of new steps is written, or no record is open.

        Args:
            bounds: The arguments of ``randrange``.

        """
        at = self._count() + self.dice.randrange(*bounds)
        wait_until(lambda: self.closed() or self._count() >= at, f"work, seed {self.seed}", 0.001)

    def wait_until_closed(self) -> None:
        """Wait until no record is open."""
        wait_until(self.closed, f"verdicts on {self.source.pending} records, seed {self.seed}")

    def closed(self) -> bool:
        """Return whether no record is open; raise AssertionError if an ack was false."""
        self._poll()
        self._check_reader()
        return not self.source.pending

    def check(self, *others: str, poison: str = "ValueError: no such address") -> None:
        """Check that no record is lost, and that the reason of each failed attempt is known.

        An expired attempt names the edges on which an odd number of messages is missing.

        Args:
            others: How other reasons begin.
            poison: A pattern of the reason that the record ``poison`` has, and no other record.

        """
        seed = f"seed {self.seed}"
        assert "poison" not in self.acked, f"the poison is acked, {seed}"
        reasons = self.failed.get("poison", set())
        known = {why for why in reasons if re.fullmatch(poison, why)}
        assert known, f"the poison failed with {reasons}, {seed}"
        lost = set(self.emitted) - self.acked - set(self.failed)
        assert not lost, f"{lost}, {seed}"
        for source_id, whys in {**self.failed, "poison": reasons - known}.items():
            named = all(why.startswith(("no ack", *others)) for why in whys)
            assert named, f"{source_id} failed with {whys}, {seed}"
        given_up = set(self.failed) - self.acked
        print(f"{len(set(self.emitted))} records, {len(self.acked)} acked, {len(self.failed)} "
              f"failed an attempt, {len(given_up)} given up, {seed}")  # fmt: skip

    def _read(self) -> None:
        try:
            for verdict in self.source.verdicts():
                self._add(verdict)
        except BaseException as error:
            self._error = error

    def _add(self, verdict: Verdict) -> None:
        source_id = verdict.record.source_id
        if verdict.verdict == "ack":
            anchor = verdict.anchor
            done = Counter(line for line in self._lines() if line.startswith(f"{anchor} "))
            needed = Counter(f"{anchor} {step}" for step in self._steps)
            complete = done == needed if self._exact else done >= needed
            assert complete, f"{source_id} is acked after {done}, seed {self.seed}"
            self.acked.add(source_id)
        else:
            self.failed.setdefault(source_id, set()).add(verdict.why or verdict.reason)

    def _check_reader(self) -> None:
        if self._error:
            raise AssertionError(f"{self._error!r}, seed {self.seed}") from self._error

    def _lines(self) -> list[str]:
        return self.file.read_text().splitlines()

    def _count(self) -> int:
        """Return the number of steps; without ``exact``, a step that was repeated counts once."""
        return len(self._lines() if self._exact else set(self._lines()))
