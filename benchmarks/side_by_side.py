"""What the benchmarks of integrations share: tracked orders, turns, and their table."""

import argparse
import cProfile
import importlib.util
import json
import pstats
import statistics
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

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


def in_turns(
    programs: Sequence[str], rounds: int, run: Callable[[str], float], warm: bool = False
) -> dict[str, list[float]]:
    """Return the rates of each program; ``warm``: without a first round, which warms up."""
    found: dict[str, list[float]] = {program: [] for program in programs}
    for number in range(rounds + warm):
        for program in programs if number % 2 else programs[::-1]:
            rate = run(program)
            if number or not warm:
                found[program].append(rate)
    return found


def show(found: dict[str, list[float]], unit: str) -> None:
    """Print the median of each program, and its ratio to the first one."""
    medians = {program: statistics.median(rates) for program, rates in found.items()}
    first, baseline = next(iter(medians.items()))
    for program, each in medians.items():
        ratio = "" if program == first else f"   {each / baseline:.2f} of {first}"
        print(f"{program:12}{each:9,.0f} {unit}{ratio}")


def profile(run: Callable[[], object]) -> None:
    """Print the profile of a run, in the thread that consumes."""
    with cProfile.Profile() as found:
        run()
    pstats.Stats(found).sort_stats("tottime").print_stats(22)
