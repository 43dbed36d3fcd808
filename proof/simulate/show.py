"""The command ``acker-redis simulate``: a bar while it runs, a table at the end."""

import json
import shlex
import sys
from dataclasses import asdict
from pathlib import Path

from rich.console import Console
from rich.progress import track
from rich.table import Table

from acker_redis.transport.urls import redact
from proof.run import explain, play, play_history, smallest, summary, url_of
from proof.simulate.faults import parse
from proof.simulate.replay import load
from proof.simulate.world import Played


def simulate(
    seed: int,
    seeds: int,
    trees: int,
    faults: str,
    blocks: str,
    server: str,
    breaks: str,
    as_json: bool = False,
) -> int:
    """Play ``seeds`` histories from ``seed`` on and print a summary; return the exit code.

    Stops at the first broken promise, prints its trace and the command that replays it, and
    returns 1; otherwise 0. With ``as_json`` it prints one object instead. Raises ConfigError for
    an unknown fault or an invalid URL.
    """
    names = parse(faults)
    done: list[Played] = []
    with url_of(server) as url:
        for number in track(
            range(seed, seed + seeds),
            "histories",
            console=Console(stderr=True),
            transient=True,
            disable=not sys.stderr.isatty(),
        ):
            done.append(play(number, trees, names, breaks, url, server == "both", blocks))
            if done[-1].violation:
                break
    last = done[-1]
    if last.violation and server == "reference":
        # The smallest history says most.
        last = smallest(last, lambda seed, trees: play(seed, trees, names, breaks, blocks=blocks))
        trees = last.trees
    if as_json:
        said = last.violation and str(last.violation)
        found = {"counts": dict(summary(done)), "seed": last.seed, "history": last.digest}
        print(json.dumps({**found, "violation": said}))
        return 1 if last.violation else 0
    _table(done)
    if last.violation:
        shown = redact(server) if "://" in server else server
        options = ["--seed", last.seed, "--trees", trees, "--faults", faults, "--blocks", blocks]
        options += ["--server", shown]
        options += ["--break", breaks] if breaks else []
        print(explain(last, shlex.join(["acker-redis", "simulate", *map(str, options)])))
        return 1
    if seeds == 1:
        print(f"seed {seed}: history {last.digest}")
    if breaks:
        print(f"no false ack in {seeds:,} histories, though a rule was broken: raise --seeds")
    else:
        print(f"{seeds:,} histories of {trees:,} trees: no promise was broken")
    return 0


def show_history(path: Path, server: str, as_json: bool = False) -> int:
    """Replay a history from a file, print its steps, and return the exit code.

    It is 1 if the oracle found a violation, or the shard has not done what a truthful file states;
    otherwise 0. Raises ConfigError for an invalid file or URL.
    """
    history = load(path)
    with url_of(server) as url:
        replayed = play_history(history, url, server == "both")
    wrong = replayed.violation or (history.truthful and replayed.different)
    if as_json:
        said = replayed.violation and str(replayed.violation)
        steps = [asdict(step) for step in replayed.steps]
        print(json.dumps({"title": history.title, "violation": said, "steps": steps}))
        return 1 if wrong else 0
    print(history.title)
    for number, step in enumerate(replayed.steps, 1):
        said = ", ".join(filter(None, [step.reply, *step.verdicts]))
        print(f"{number:3}  {step.say}" + (f" -> {said}" if said else ""))
        if step.different:
            print(f"     the file states: {step.different or 'nothing'}")
    if replayed.violation:
        print(f"violation: {replayed.violation}")
    elif wrong:
        print("the shard has not done what the file states")
    else:
        print("no promise was broken")
    return 1 if wrong else 0


def _table(done: list[Played]) -> None:
    table = Table(show_header=False)
    table.add_column()
    table.add_column(justify="right")
    for name, count in summary(done):
        table.add_row(name, f"{count:,}")
    Console().print(table)
