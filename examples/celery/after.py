"""Price and ship orders: a task for each step. The publisher sends the orders of a folder."""

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

from celery import Celery

from acker_redis import Acker, Source
from acker_redis.integrations.celery import TaskTracker

app = Celery("orders", broker=os.environ["BROKER_URL"])
tracker = TaskTracker(app, Acker.from_url(os.environ["ACKER_REDIS_URL"], "orders"))
app.conf.task_acks_late = True


@app.task(name="price", autoretry_for=(ConnectionError,), retry_backoff=True)
def price(order: dict[str, Any]) -> None:
    """Add the total, and ship."""
    order["total"] = order["items"] * order["price"]
    ship.delay(order)


@app.task(name="ship")
def ship(order: dict[str, Any]) -> None:
    """Ship an order."""
    print("shipped", order["name"], order["total"])


def main(folder: str) -> None:
    """Send each order in a folder until the process is ended."""
    source = Source(tracker.acker, "shop", tracker.send).start()
    while True:
        for file in sorted(Path(folder).glob("*.json")):
            source.emit(file.stem, price.s(json.loads(file.read_text())))
            file.rename(file.with_suffix(".sent"))
        time.sleep(0.1)


if __name__ == "__main__":
    main(sys.argv[1])
