"""Three Spark jobs in three processes; one job is killed; each order is accounted for.

python examples/spark_jobs/main.py [--redis URL]
"""

import argparse
import contextlib
import json
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType

import pyarrow.dataset as ds

from acker_redis import Acker, AckerConfig, Rotator
from acker_redis.embedded import EmbeddedRedis

HERE = Path(__file__).resolve().parent
ITEMS = ("apple", "pear", "plum", "moon")
DAYS, ORDERS = 4, 250
"""Files of orders, and orders in each."""
PATIENCE = 600
"""Maximum seconds for each step."""


def main() -> int:
    """Run the example; return 0 if each order is accounted for."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--redis", help="URL of your Redis; by default a temporary one")
    given = arguments.parse_args().redis
    signal.signal(signal.SIGTERM, interrupt)
    try:
        with contextlib.ExitStack() as stack:
            url = given or stack.enter_context(EmbeddedRedis()).url
            work = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="acker-jobs-")))
            return run(work, url)
    except KeyboardInterrupt:
        return 130


def run(work: Path, url: str) -> int:
    """Start the jobs, disturb them, and compare their tables with the orders."""
    write_orders(work)
    write_prices(work, {"apple": 0.5, "plum": 0.25})
    with Acker.from_url(url, "orders") as acker:
        # A message must not expire while it waits for a job that starts: it would be priced twice.
        acker.create(AckerConfig.for_profile("spark"))
        with Rotator([acker]), jobs(work, url) as running:
            disturb(work, acker, url, running)
        counters = acker.status().counters
    priced = table(work, "priced")
    given_up = table(work, "given_up")
    expected = {name for name, item in all_orders() if item != "moon"}
    right = {row["order_id"] for row in priced} == expected and len(priced) == len(expected)
    lost = {name for name, _ in all_orders()} - expected
    right &= {row["source_id"] for row in given_up} == lost
    print(f"{len(priced)} orders are priced, once each")
    print(f"{len(given_up)} are given up: {given_up[0]['why'] if given_up else ''}")
    print(f"{counters['tracked']} trees = {counters['acked']} acked + {counters['failed']} failed")
    print("Each order is accounted for." if right else "WRONG: compare the tables.")
    return 0 if right else 1


def disturb(
    work: Path, acker: Acker, url: str, running: "dict[str, subprocess.Popen[bytes]]"
) -> None:
    """Kill a job, change the prices, and wait until every order has an outcome."""
    wait("a batch of prices", running, lambda: rows(work, "priced") > 0)
    print("killing job B, price.py, and starting it again")
    running["price"].kill()
    running["price"].wait()
    start("price", work, url, running)
    wait("nacks", running, lambda: acker.status().counters["failed"] > 0)
    print("no price for pears: pears get a price")
    write_prices(work, {"apple": 0.5, "plum": 0.25, "pear": 0.75})
    total = DAYS * ORDERS
    wait("the end", running, lambda: rows(work, "priced") + rows(work, "given_up") >= total)
    (work / "stop").touch()
    for job in running.values():
        job.wait(PATIENCE)


def all_orders() -> Iterator[tuple[str, str]]:
    """Yield id and item of each order."""
    for number in range(DAYS * ORDERS):
        yield f"order-{number:04d}", ITEMS[number % 50 % len(ITEMS) if number % 50 < 5 else 0]


def write_orders(work: Path) -> None:
    """Write the files of orders, one JSON object per line."""
    (work / "orders").mkdir()
    lines = [
        json.dumps({"order_id": name, "item": item, "pieces": 1 + number % 7})
        for number, (name, item) in enumerate(all_orders())
    ]
    for day in range(DAYS):
        text = "\n".join(lines[day * ORDERS : (day + 1) * ORDERS])
        (work / "orders" / f"day-{day}.json").write_text(text)


def write_prices(work: Path, prices: dict[str, float]) -> None:
    """Replace the price list atomically."""
    (work / "prices").mkdir(exist_ok=True)
    lines = [json.dumps({"item": item, "price": price}) for item, price in prices.items()]
    aside = work / "prices" / "_new"
    aside.write_text("\n".join(lines))
    aside.replace(work / "prices" / "list.json")


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


def start(job: str, work: Path, url: str, running: "dict[str, subprocess.Popen[bytes]]") -> None:
    """Start one of the three jobs, and add it to those that run."""
    command = [sys.executable, str(HERE / f"{job}.py"), str(work), url]
    with (work / f"{job}.log").open("ab") as log, interrupted_later():
        running[job] = subprocess.Popen(  # noqa: S603
            command, stdout=log, stderr=log, start_new_session=True
        )


@contextlib.contextmanager
def jobs(work: Path, url: str) -> Iterator[dict[str, "subprocess.Popen[bytes]"]]:
    """Run the three jobs during the block; kill those that still run at its end."""
    running: dict[str, subprocess.Popen[bytes]] = {}
    try:
        for name in ("ingest", "price", "replay"):
            start(name, work, url, running)
        yield running
    finally:
        for job in running.values():
            job.kill()
            job.wait()


def wait(
    what: str, running: "dict[str, subprocess.Popen[bytes]]", done: Callable[[], bool]
) -> None:
    """Wait until ``done`` returns True; exit with an error if a job ends before."""
    deadline = time.monotonic() + PATIENCE
    while not done():
        for name, job in running.items():
            if job.poll() is not None:
                raise SystemExit(f"job {name} ended with exit code {job.returncode} before {what}")
        if time.monotonic() > deadline:
            raise SystemExit(f"timeout of {PATIENCE} s while waiting for {what}")
        time.sleep(0.3)


def table(work: Path, name: str) -> list[dict[str, str]]:
    """Return the rows of a table that a job has written."""
    found = sorted((work / name).glob("batch-*/*.parquet"))
    return ds.dataset(found).to_table().to_pylist() if found else []


def rows(work: Path, name: str) -> int:
    """Return the number of rows in a table."""
    return len(table(work, name))


def interrupt(number: int, frame: FrameType | None) -> None:
    """Raise KeyboardInterrupt, as Ctrl-C does."""
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
