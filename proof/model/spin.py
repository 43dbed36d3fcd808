"""Run Spin on a model: generate the verifier, compile it, search, and read the trail."""

import re
import shutil
import subprocess
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from proof.model.runs import Run
from proof.model.trail import Event, invariant, parse

FOLDER = Path(__file__).parent
INCOMPLETE = ("max search depth too small", "Search not completed", "hash-compact", "bitstate",
              "out of memory", "reached -DMEMLIM", "aborting", "error:")  # fmt: skip
"""What Spin prints if a search was not exhaustive."""
DEPTH = 1_000_000
MEMORY_MB = 16_000


class SpinError(Exception):
    """Spin or the compiler has failed; the message is its output."""


@dataclass(frozen=True, slots=True)
class Checked:
    """The result of one run."""

    run: Run
    states: int
    transitions: int
    seconds: float
    exhaustive: bool
    """Whether Spin has visited every state within the bounds."""
    errors: int
    violated: str
    """The invariant that was violated; '' for none."""
    events: tuple[Event, ...]
    """The counterexample."""

    @property
    def passed(self) -> bool:
        """Whether a rule that is kept holds, or one that is broken was found."""
        return (
            bool(self.errors and self.events)
            if self.run.broken
            else (self.exhaustive and not self.errors)
        )


def missing() -> str:
    """Return the program that is missing, or ''."""
    return next((tool for tool in ("spin", "gcc") if not shutil.which(tool)), "")


def check(run: Run) -> Checked:
    """Check one run in a temporary folder. Raise SpinError if a tool fails."""
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="acker-model-") as name:
        folder = _copy(Path(name))
        # Breadth-first finds a shortest counterexample, but has no variables that are hidden.
        shortest = bool(run.broken) and not run.cycles
        flags = [*run.flags, *(["-Dhidden="] if shortest else [])]
        _call(folder, "spin", "-a", *flags, run.file)
        how = ["-O0" if run.broken else "-O2", "-w", f"-DMEMLIM={MEMORY_MB}"]
        # Partial order reduction halves the states of rows.pml, and costs time in the others.
        how += [] if run.file == "rows.pml" else ["-DNOREDUCE"]
        how += ["-DNFAIR=3"] if run.cycles else ["-DSAFETY"]
        how += ["-DBFS"] if shortest else []
        how += ["-DCOLLAPSE"] if run.nightly else []
        _call(folder, "gcc", *how, "-o", "pan", "pan.c")
        search = ["-a", "-f"] if run.cycles else []
        found = _call(folder, "./pan", f"-m{DEPTH}", "-w22", *search, fails=True)
        trail = folder / f"{run.file}.trail"
        output = _call(folder, "spin", "-t", *flags, run.file, fails=True) if trail.exists() else ""
    violated = re.search(r"pan:1: (.*) \(at depth", found)
    errors = int(_number(r"errors: (\d+)", found))
    return Checked(
        run=run,
        states=int(float(_number(r"(\S+) states, stored", found))),
        transitions=int(float(_number(r"(\S+) transitions", found))),
        seconds=time.monotonic() - started,
        exhaustive="errors:" in found and not any(words in found for words in INCOMPLETE),
        errors=errors,
        violated=invariant(violated.group(1)) if violated else "",
        events=tuple(parse(output)),
    )


def wander(run: Run, seed: int, steps: int) -> tuple[Event, ...]:
    """Return the events of one random history of the model."""
    with tempfile.TemporaryDirectory(prefix="acker-model-") as name:
        folder = _copy(Path(name))
        output = _call(folder, "spin", f"-n{seed}", f"-u{steps}", *run.flags, run.file, fails=True)
    return tuple(parse(output))


def _copy(folder: Path) -> Path:
    for file in FOLDER.rglob("*.pml"):
        place = folder / file.relative_to(FOLDER)
        place.parent.mkdir(exist_ok=True)
        shutil.copy(file, place)
    return folder


def _call(folder: Path, *command: str, fails: bool = False) -> str:
    done = subprocess.run(  # noqa: S603 - commands of this file
        command, cwd=folder, capture_output=True, text=True, check=False
    )
    output = done.stdout + done.stderr
    if done.returncode and not fails:
        raise SpinError(f"{' '.join(command)}: {output}")
    return output


def _number(pattern: str, text: str) -> str:
    found = re.search(pattern, text)
    return found.group(1) if found else "0"
