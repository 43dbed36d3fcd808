"""``python -m proof.model``: check the model, with a bar while it runs and a table at the end."""

import argparse
import json
import sys
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from proof.model.history import history
from proof.model.runs import FULL, MODEL, NIGHTLY, Run, runs
from proof.model.spin import Checked, check, missing
from proof.model.trail import sentences


def main() -> int:
    """Check all runs, or those that are named, and return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m proof.model", description=__doc__)
    parser.add_argument("names", nargs="*", help="runs; default: all of the tier")
    parser.add_argument("--tier", choices=(FULL, MODEL, NIGHTLY), default=MODEL)
    parser.add_argument("--jobs", type=int, default=2, help="searches at a time")
    parser.add_argument("--trails", action="store_true", help="print each counterexample")
    parser.add_argument("--histories", type=Path, help="folder for counterexamples to replay")
    options = parser.parse_args()
    if tool := missing():
        print(f"{tool} is missing; on Debian: apt install spin gcc libc6-dev", file=sys.stderr)
        return 2
    chosen = runs(options.tier)
    if options.names:
        known = {run.name: run for run in runs(NIGHTLY)}
        if unknown := set(options.names) - set(known):
            parser.error(f"unknown runs {', '.join(sorted(unknown))}; known: {', '.join(known)}")
        chosen = [known[name] for name in options.names]
    found = _check(chosen, options.jobs)
    console = Console(highlight=False)
    for each in found:
        if options.trails and each.events:
            console.print(
                f"[bold]{each.run.title}[/bold]; violated: {each.violated}", soft_wrap=True
            )
            console.print("\n".join(f"  {line}" for line in sentences(each.events)), markup=False)
        if options.histories and each.events and each.run.replayable:
            options.histories.mkdir(parents=True, exist_ok=True)
            file = options.histories / f"{each.run.name}.json"
            file.write_text(json.dumps(history(each.events, each.run), indent=1) + "\n")
    console.print(_table(found))
    return 0 if all(each.passed for each in found) else 1


def _check(chosen: list[Run], jobs: int) -> list[Checked]:
    done: dict[str, Checked] = {}
    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("checking", total=len(chosen))
        with ThreadPoolExecutor(jobs) as pool:
            for future in as_completed([pool.submit(check, run) for run in chosen]):
                each = future.result()
                done[each.run.name] = each
                bar.update(task, advance=1, description=each.run.name)
    return [done[run.name] for run in chosen]


def _table(found: list[Checked]) -> Table:
    table = Table()
    for name in ("run", "what"):
        table.add_column(name, overflow="fold")
    for name in ("states", "seconds"):
        table.add_column(name, justify="right")
    table.add_column("result")
    for each in found:
        result = "found" if each.run.broken else "holds"
        if not each.passed:
            result = "NOT FOUND" if each.run.broken else (each.violated or "NOT EXHAUSTIVE")
        numbers = (f"{each.states:,}", f"{each.seconds:.1f}")
        table.add_row(each.run.name, each.run.title, *numbers, result)
    return table


if __name__ == "__main__":
    sys.exit(main())
