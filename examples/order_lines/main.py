"""Two Spark jobs price 200,000 order lines; both are killed, one has a bug; pandas checks all.

python main.py [--lines N] [--seed N] [--kill JOB ..] [--work FOLDER] [--redis URL]
"""

import argparse
import contextlib
import json
import signal
import sqlite3
import sys
import tempfile
import time
from pathlib import Path
from types import FrameType

import pandas as pd
from generate import generate
from pipeline import Kill, Pipeline, console
from reconcile import at_the_end, before_the_replay, order_lines, table
from rich.table import Table

import acker_redis
from acker_redis import Acker, AckerConfig, Rotator
from acker_redis.embedded import EmbeddedRedis

NAMESPACE = "order-lines"
JOBS = ("ingest", "price")


def main() -> int:
    """Run the example; return 0 if everything agrees with the generated files."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    parser.add_argument("--lines", type=int, default=200_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--kill", nargs="*", choices=JOBS, default=JOBS)
    parser.add_argument("--work", type=Path, help="a new folder for all files, which stays")
    parser.add_argument("--redis", help="URL of your Redis; by default a temporary one")
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, interrupt)
    try:
        with contextlib.ExitStack() as stack:
            if given.work:
                given.work.mkdir(parents=True)
                work = given.work.resolve()
            else:
                work = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="orders-")))
            generate(work, given.lines, given.seed)
            url = given.redis or stack.enter_context(EmbeddedRedis()).url
            acker = stack.enter_context(Acker.from_url(url, NAMESPACE))
            # A tree expires after 20 minutes or later: a job needs time to start again.
            if not acker.create(AckerConfig.for_profile("spark", edges=("price",))):
                raise SystemExit(f"{NAMESPACE} exists: acker-redis drop {NAMESPACE}")
            stack.callback(acker.drop)
            stack.enter_context(Rotator([acker]))
            pipeline = Pipeline(work, url, acker)
            try:
                return run(pipeline, tuple(Kill(pipeline, job) for job in given.kill))
            finally:
                for job in pipeline.jobs:
                    pipeline.kill(job)
    except KeyboardInterrupt:
        return 130


def run(pipeline: Pipeline, kills: tuple[Kill, ...]) -> int:
    """Run the jobs, replay the nacked orders, and compare everything with pandas."""
    work, acker, began = pipeline.work, pipeline.acker, time.monotonic()
    lines = order_lines(work)
    orders = lines.order_id.nunique()
    console.print(f"{len(lines):,} lines of {orders:,} orders")
    with sqlite3.connect(work / "shop.db") as database:
        database.execute(
            "CREATE TABLE priced (order_id TEXT, line INT, product TEXT, pieces INT, cents INT, "
            "PRIMARY KEY (order_id, line))"
        )
    pipeline.start("ingest")
    pipeline.start("price")
    pipeline.wait("first attempts", orders, lambda: verdicts(acker), kills)
    # This reads the verdicts and deletes none: job C takes them later.
    outcomes = [each for entry in acker.outcomes("shop").read(10_000) for each in entry]
    lost, differences = before_the_replay(work, outcomes)
    show(lost)

    (work / "all-prices.csv").replace(work / "prices.csv")
    nacked = lost.order_id.unique()
    console.print(f"the price list is mended; replay.py sends {len(nacked):,} orders again")
    pipeline.start("replay")
    pipeline.wait("replays", orders, lambda: acks(work))
    pipeline.stop()
    differences += at_the_end(work, nacked)
    counters = acker.status().counters
    figures = {
        "order lines": len(lines),
        "rows of the table": len(table(work)),
        "orders": orders,
        "nacked and replayed": len(nacked),
        **{f"trees {name}": counters[name] for name in ("tracked", "acked", "failed", "expired")},
        "calls repeated": counters["repeated"],
    }
    result = {"package": acker_redis.__file__, "differences": differences, **figures}
    (work / "result.json").write_text(json.dumps(result, indent=1))
    console.print(as_table(figures))
    for difference in differences:
        console.print(f"WRONG: {difference}")
    if not differences:
        seconds = time.monotonic() - began
        console.print(f"Verdicts and table agree with the files, after {seconds:.0f} s.")
    return 1 if differences else 0


def verdicts(acker: Acker) -> int:
    """Return the number of trees that have a verdict."""
    counters = acker.status().counters
    return counters["acked"] + counters["failed"]


def acks(work: Path) -> int:
    """Return the number of acks that job C has kept."""
    paths = sorted((work / "verdicts").glob("batch-*/*.parquet"))
    return int((pd.read_parquet(paths).verdict == "ack").sum()) if paths else 0


def show(lost: pd.DataFrame) -> None:
    """Print the lost lines by product, with one of each and the verdict of its order."""
    console.print(f"{lost.order_id.nunique():,} orders are nacked; job B has lost these lines:")
    for product, rows in lost.groupby("product"):
        row = rows.iloc[0]
        why = row.why.split("@")[0]
        console.print(f"  {product}: {len(rows):,}, such as {row.order_id} line {row.line}: {why}")


def as_table(figures: dict[str, int]) -> Table:
    """Return the final table."""
    grid = Table(box=None, show_header=False)
    grid.add_column(justify="right")
    for name, value in figures.items():
        grid.add_row(f"{value:,}", name)
    return grid


def interrupt(number: int, frame: FrameType | None) -> None:
    """Raise KeyboardInterrupt, as Ctrl-C does."""
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
