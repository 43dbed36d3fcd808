"""What the benchmarks of integrations share: tracked orders, turns, and their table."""

import argparse
import cProfile
import importlib.util
import json
import pstats
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from acker_redis import Acker, Batch, emit

EXAMPLES = Path(__file__).parents[1] / "examples"
ORDER = {"items": 7, "price": 12.5, "note": "x" * 940}
"""An order of 1 kB."""


def arguments(doc: str | None, count: str, default: int, rounds: int) -> argparse.ArgumentParser:
    """Return a parser with ``--<count>`` and ``--rounds``."""
    parser = argparse.ArgumentParser(description=(doc or "").splitlines()[0])
    parser.add_argument(f"--{count}", type=int, default=default)
    parser.add_argument("--rounds", type=int, default=rounds)
    return parser


def price(example: str, program: str) -> Any:
    """Return the handler of ``before.py`` or ``after.py`` of an example."""
    spec = importlib.util.spec_from_file_location(program, EXAMPLES / example / f"{program}.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.price


def tracked(acker: Acker, count: int) -> Iterator[tuple[str, dict[str, str]]]:
    """Track records; yield for each its order of 1 kB as JSON, and the headers of its message."""
    batch = Batch("shop")
    for number in range(count):
        tree = emit(str(number))
        batch.add(tree.row)
        yield json.dumps({"order": number, **ORDER}), tree.ids[0].to_headers()
        if batch.full:
            acker.apply(batch)
            batch = Batch("shop")
    acker.apply(batch)


class Measured(NamedTuple):
    """A run."""

    rate: float
    """Messages a second."""
    cost: float = 0.0
    """Microseconds of processor time of this process, for each message; 0 if that says nothing."""


class Clock:
    """Measures a run from now on."""

    def __init__(self) -> None:
        self._began, self._used = time.perf_counter(), time.process_time()

    def stop(self, count: int) -> Measured:
        """Return the figures of a run of ``count`` messages that ends now."""
        used = time.process_time() - self._used
        return Measured(count / (time.perf_counter() - self._began), used / count * 1e6)


def in_turns(
    programs: Sequence[str], rounds: int, run: Callable[[str], Measured], warm: bool = False
) -> dict[str, list[Measured]]:
    """Return the figures of each program; ``warm``: without a first round, which warms up."""
    found: dict[str, list[Measured]] = {program: [] for program in programs}
    for number in range(rounds + warm):
        for program in programs if number % 2 else programs[::-1]:
            measured = run(program)
            if number or not warm:
                found[program].append(measured)
    return found


def show(found: dict[str, list[Measured]], unit: str) -> None:
    """Print the medians of each program, and their relation to the first one."""
    medians = {
        program: Measured(*map(statistics.median, zip(*runs, strict=True)))
        for program, runs in found.items()
    }
    first, baseline = next(iter(medians.items()))
    for program, each in medians.items():
        cost = f"{each.cost:8.1f} us" if each.cost else ""
        ratio = "" if program == first else f"   {each.rate / baseline.rate:.2f} of {first}"
        more = f", {each.cost - baseline.cost:+.1f} us" if ratio and each.cost else ""
        print(f"{program:12}{each.rate:9,.0f} {unit}{cost}{ratio}{more}")


def profile(run: Callable[[], object]) -> None:
    """Print the profile of a run, in the thread that consumes."""
    with cProfile.Profile() as found:
        run()
    pstats.Stats(found).sort_stats("tottime").print_stats(22)
