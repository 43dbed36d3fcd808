"""Celery tasks, tracked and untracked: tasks per second of a worker with two pool processes.

Each order of 1 kB is two tasks: one prices it and publishes the other, which ships it. All orders
are published before a worker starts; the clock runs from the first task that the worker takes until
the queue is empty and no task is unconfirmed. The two programs take turns, each with a new worker.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
import uuid
from typing import Any

import redis
from celery import Celery

from acker_redis import Acker, Source
from acker_redis.embedded import EmbeddedRedis
from acker_redis.integrations.celery import TaskTracker


def make(url: str, queue: str, tracked: bool) -> tuple[Celery, TaskTracker | None]:
    """Return an app with two tasks, tracked or not."""
    app = Celery(queue, broker=url, set_as_current=False)
    app.conf.update(
        task_default_queue=queue,
        task_acks_late=True,
        task_ignore_result=True,
        worker_prefetch_multiplier=16,
        broker_connection_retry_on_startup=True,
    )

    @app.task(name="price", shared=False)
    def price(order: dict[str, Any]) -> None:
        order["total"] = order["items"] * order["price"]
        ship.delay(order)

    @app.task(name="ship", shared=False)
    def ship(order: dict[str, Any]) -> None:
        json.dumps(order)

    return app, TaskTracker(app, Acker.from_url(url, "bench", timeout=60)) if tracked else None


def publish(app: Celery, tracker: TaskTracker | None, count: int) -> float:
    """Publish orders; return the orders per second."""
    order = {"items": 7, "price": 12.5, "note": "x" * 940}
    price = app.tasks["price"]
    began = time.perf_counter()
    if tracker is None:
        for _ in range(count):
            price.delay(order)
    else:
        sent = 0

        def send(record: Any, ids: Any) -> None:
            nonlocal sent
            tracker.send(record, ids)
            sent += 1

        with Source(tracker.acker, "shop", send, max_pending=count) as source:
            for number in range(count):
                source.emit(str(number), price.s(order))
            while sent < count:
                time.sleep(0.001)
    return count / (time.perf_counter() - began)


def drain(url: str, queue: str, tracked: bool, count: int) -> float:
    """Run a worker until all orders are shipped; return the tasks per second."""
    command = [sys.executable, __file__, "--worker", queue, *(["--tracked"] * tracked)]
    quiet, environment = subprocess.DEVNULL, {**os.environ, "BENCH_URL": url}
    worker = subprocess.Popen(command, env=environment, stdout=quiet, stderr=quiet)
    client = redis.Redis.from_url(url)
    while client.llen(queue) == count:
        time.sleep(0.001)
    began = time.perf_counter()
    while client.llen(queue) or client.hlen("unacked"):
        time.sleep(0.01)
    found = 2 * count / (time.perf_counter() - began)
    worker.terminate()
    worker.wait()
    client.close()
    return found


def main() -> None:
    """Read the arguments and measure."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--orders", type=int, default=4_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    parser.add_argument("--tracked", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.worker:
        app, _ = make(os.environ["BENCH_URL"], args.worker, tracked=args.tracked)
        quiet = ["--without-gossip", "--without-mingle", "--without-heartbeat"]
        app.worker_main(["worker", "--concurrency=2", "--loglevel=ERROR", *quiet])
        return
    os.environ.setdefault("C_FORCE_ROOT", "1")
    published: dict[bool, list[float]] = {False: [], True: []}
    drained: dict[bool, list[float]] = {False: [], True: []}
    with (
        EmbeddedRedis(tcp=True) as server,
        Acker.from_url(server.url, "bench", timeout=60) as acker,
    ):
        acker.create()
        for number in range(args.rounds):
            for tracked in (False, True) if number % 2 else (True, False):
                queue = f"orders-{uuid.uuid4().hex[:8]}"
                app, tracker = make(server.url, queue, tracked)
                published[tracked].append(publish(app, tracker, args.orders))
                drained[tracked].append(drain(server.url, queue, tracked, args.orders))
                app.close()
                if tracker:
                    assert acker.status().open == 0
                    tracker.close()
                    tracker.acker.close()
    print(f"{args.orders:,} orders of 1 kB, two tasks each, {args.rounds} rounds")
    for name, found in (("published", published), ("processed", drained)):
        untracked, with_ids = (statistics.median(found[each]) for each in (False, True))
        unit = "orders/s" if name == "published" else "tasks/s"
        print(f"{name}  untracked {untracked:7,.0f} {unit}   tracked {with_ids:7,.0f} {unit}   "
              f"{with_ids / untracked:.2f} of untracked")  # fmt: skip


if __name__ == "__main__":
    main()
