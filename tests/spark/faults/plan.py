"""Fault injection at the k-th call of a function, in any process.

A fault is a file in the folder ``ACKER_FAULTS``. The watched calls are counted over all processes:
each call claims the next number, so exactly one is the k-th, and a retried task does not meet the
fault again. :mod:`tests.spark.faults.daemon` installs this in Python workers.
"""

import itertools
import json
import os
import signal
import time
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import Any

import psutil
from pyspark import TaskContext

from acker_redis.spark.fold import lanes
from acker_redis.spark.fold.terms import Packer
from acker_redis.spark.replays import waiting
from acker_redis.spark.streams.queue import FileQueue
from acker_redis.sync.client import Acker
from tests.waiting import LIMIT, wait_until

VARIABLE = "ACKER_FAULTS"


@dataclass(frozen=True)
class Fault:
    """One planned fault; see :func:`plan`."""

    path: Path

    @property
    def happened(self) -> bool:
        """Whether the fault has happened."""
        return self.path.with_suffix(".happened").exists()

    @property
    def pid(self) -> int:
        """The process in which the fault has happened."""
        return int(self.path.with_suffix(".happened").read_text())

    @property
    def calls(self) -> int:
        """Number of counted calls."""
        return len(list(self.path.parent.glob(f"{self.path.stem}.call-*")))

    def calls_of_its_task(self) -> int:
        """Return the number of calls of the task attempt that met the fault, with that call."""
        at = int(self.path.stem.split("-at-")[1].split("-")[0])
        owners = [Path(_call(self.path, number)).read_text() for number in range(1, at + 1)]
        return owners.count(owners[-1])

    def wait(self) -> None:
        """Wait until the fault has happened."""
        wait_until(lambda: self.happened, "the fault")

    def go(self) -> None:
        """Let the waiting call continue."""
        self.path.with_suffix(".go").touch()

    def lift(self) -> None:
        """Stop watching."""
        self.path.unlink(missing_ok=True)


def plan(folder: Path, where: str, at: int, what: str, **details: Any) -> Fault:
    """Let ``what`` happen at call ``at`` (from 1) of ``where``.

    ``where``: ``pack`` (before terms are packed), ``applied_content`` (after the lane was read),
    ``send`` (before a call is sent), ``sent`` (after a call was applied, before the caller has its
    reply), ``write`` and ``written`` (before and after a batch of a queue is written), ``planned``
    (after a plan of replays was saved), ``forget`` (before the plan of a finished batch is
    deleted).

    ``what``: ``throw``, ``kill`` (this process), ``kill-executor`` (the JVM of this worker),
    ``kill-driver`` (all of process group ``group``), ``wait`` (until :meth:`Fault.go`).
    """
    name = f"{where}-{what}-at-{at}-{time.monotonic_ns()}"
    path = folder / f"{name}.fault"
    aside = path.with_suffix(".new")
    aside.write_text(json.dumps({"where": where, "at": at, "what": what, **details}))
    aside.rename(path)
    return Fault(path)


def install() -> None:
    """Watch the calls of this process."""
    lanes.applied_content = _after(lanes.applied_content, "applied_content")
    Packer.add = _before(Packer.add, "pack")  # type: ignore[method-assign]
    Acker.apply_part = _after(_before(Acker.apply_part, "send"), "sent")  # type: ignore[method-assign]
    waiting._save = _after(waiting._save, "planned")
    waiting.Waiting._forget = _before(waiting.Waiting._forget, "forget")  # type: ignore[method-assign]
    for name in ("write", "replace"):
        setattr(FileQueue, name, _after(_before(getattr(FileQueue, name), "write"), "written"))


def _before(call: Any, where: str) -> Any:
    @wraps(call)
    def watched(*args: Any, **kwargs: Any) -> Any:
        passes(where)
        return call(*args, **kwargs)

    return watched


def _after(call: Any, where: str) -> Any:
    @wraps(call)
    def watched(*args: Any, **kwargs: Any) -> Any:
        found = call(*args, **kwargs)
        passes(where)
        return found

    return watched


def passes(where: str) -> None:
    """Count a call for each fault, and then inject the faults that are due."""
    due = []
    for path in Path(os.environ[VARIABLE]).glob(f"{where}-*.fault"):
        try:
            fault = json.loads(path.read_text())
        except FileNotFoundError:
            continue
        only = fault.get("pid")
        if only in (None, os.getpid()) and _claim(path) == fault["at"]:
            due.append((path, fault))
    for path, fault in due:
        _happen(path, fault)


def _claim(path: Path) -> int:
    for number in itertools.count(1):  # pragma: no branch
        try:
            with Path(_call(path, number)).open("x") as file:
                file.write(_owner())
        except FileExistsError:
            continue
        return number
    raise AssertionError


def _call(path: Path, number: int) -> str:
    return f"{path.with_suffix('')}.call-{number:04d}"


def _owner() -> str:
    """Return the task attempt that runs in this process."""
    task = TaskContext.get()
    if task is None:
        return f"driver {os.getpid()}"
    return f"stage {task.stageId()} task {task.partitionId()} attempt {task.attemptNumber()}"


def _happen(path: Path, fault: dict[str, Any]) -> None:
    aside = path.with_suffix(".happening")
    aside.write_text(str(os.getpid()))
    aside.rename(path.with_suffix(".happened"))
    what = fault["what"]
    if what == "throw":
        raise RuntimeError("the fault that was planned")
    if what == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if what == "kill-executor":
        jvm = next(p for p in psutil.Process().parents() if p.name() == "java")
        jvm.kill()
    if what == "kill-driver":
        os.killpg(fault["group"], signal.SIGKILL)
    if what == "wait":
        wait_until(path.with_suffix(".go").exists, "the signal to continue")
    else:
        time.sleep(LIMIT)  # until the kill signal arrives
