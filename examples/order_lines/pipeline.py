"""The jobs as processes: start them, kill one in the middle of a batch, wait for the others."""

import contextlib
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from rich.console import Console
from rich.progress import Progress

from acker_redis import Acker

HERE = Path(__file__).resolve().parent
PATIENCE = 900
"""Maximum seconds for each step."""
console = Console(highlight=False, soft_wrap=True)


@contextlib.contextmanager
def interrupted_later() -> Iterator[None]:
    """Let Ctrl-C and SIGTERM wait for the end of the block, so that each started job is known."""
    came: list[int] = []
    signals = signal.SIGINT, signal.SIGTERM
    before = [signal.signal(each, lambda number, _: came.append(number)) for each in signals]
    try:
        yield
    finally:
        for each, handler in zip(signals, before, strict=True):
            signal.signal(each, handler)
    if came:
        raise KeyboardInterrupt


class Pipeline:
    """The jobs, their processes, and their progress."""

    def __init__(self, work: Path, url: str, acker: Acker) -> None:
        self.work, self.url, self.acker = work, url, acker
        self.jobs: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, job: str) -> None:
        """Start a job in its own process group, with a log file."""
        command = [sys.executable, str(HERE / f"{job}.py"), str(self.work), self.url]
        with (self.work / f"{job}.log").open("ab") as log, interrupted_later():
            self.jobs[job] = subprocess.Popen(  # noqa: S603
                command, stdout=log, stderr=log, start_new_session=True
            )

    def kill(self, job: str) -> None:
        """Send SIGKILL to the driver of the job and to its JVM."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.jobs[job].pid, signal.SIGKILL)
        self.jobs[job].wait()

    def stop(self) -> None:
        """Let each job end after its current batch."""
        (self.work / "stop").touch()
        for job in self.jobs.values():
            job.wait(PATIENCE)

    def wait(
        self, what: str, total: int, count: Callable[[], int], kills: "tuple[Kill, ...]" = ()
    ) -> None:
        """Show the progress until ``count`` returns ``total``, and do these kills meanwhile."""
        deadline = time.monotonic() + PATIENCE
        with Progress(console=console, transient=True, disable=not console.is_terminal) as shown:
            bar = shown.add_task(what, total=total)
            while (done := count()) < total:
                shown.update(bar, completed=done)
                kills = tuple(kill for kill in kills if not kill.is_done())
                for name, job in self.jobs.items():
                    if job.poll():
                        log = (self.work / f"{name}.log").read_text()
                        raise SystemExit(f"{name}.py failed:\n{log}")
                if time.monotonic() > deadline:
                    raise SystemExit(f"timeout of {PATIENCE} s: {what}")
                time.sleep(0.01 if kills else 0.3)
        for kill in kills:
            raise SystemExit(f"{kill.job}.py ended before it was killed")


class Kill:
    """Kills a job when its second or a later batch has done a part of its work; restarts it."""

    def __init__(self, pipeline: Pipeline, job: str) -> None:
        self.pipeline, self.job = pipeline, job
        self._began: tuple[int, int] | None = None
        """The open batch, and the work that was done when it was first seen."""

    def is_done(self) -> bool:
        """Kill and restart the job if this is the moment; return whether it was."""
        batch = self._open_batch()
        if not batch:
            self._began = None
        elif self._began is None or self._began[0] != batch:
            self._began = batch, self._work()
        elif (work := self._work()) > self._began[1]:
            self.pipeline.kill(self.job)
            in_time = self._open_batch() == batch  # otherwise its commit came first
            if in_time:
                what = "trees tracked" if self.job == "ingest" else "lines in the table"
                done = f"{work - self._began[1]:,} {what}, no commit"
                console.print(f"killed {self.job}.py in batch {batch}: {done}; starting it again")
            self.pipeline.start(self.job)
            return in_time
        return False

    def _open_batch(self) -> int | None:
        """Return the number of the batch that is planned and not committed; None without one."""
        folder = self.pipeline.work / "checkpoints" / self.job
        planned, committed = (
            {int(path.name) for path in (folder / kind).glob("[0-9]*")}
            for kind in ("offsets", "commits")
        )
        return max(planned - committed, default=None)

    def _work(self) -> int:
        """Return the trees that job A has tracked, or the lines that job B has written."""
        if self.job == "ingest":
            return self.pipeline.acker.status().counters["tracked"]
        database = sqlite3.connect(self.pipeline.work / "shop.db", timeout=60)
        with contextlib.closing(database):
            return int(database.execute("SELECT count(*) FROM priced").fetchone()[0])
