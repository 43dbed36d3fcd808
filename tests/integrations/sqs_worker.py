"""A worker that is killed: prices orders, then ships them, and writes down each step.

``sqs_worker.py URL NAMESPACE SQS ORDERS PRICED FILE MODE`` runs a worker of each queue until
SIGTERM; in the mode ``batches`` the first has a handler of batches.
"""

import os
import sys
import threading
from pathlib import Path
from typing import Any

from acker_redis import Acker
from acker_redis.integrations.sqs import SqsWorker
from tests.integrations import sqs

LEASE = 4
"""Seconds after which a message of a killed worker is delivered again: the least."""


def main(
    url: str, namespace: str, server: str, orders: str, priced: str, file: str, mode: str
) -> None:
    """Process both queues; append a line ``<anchor> <step>`` before a handler returns."""
    done = os.open(file, os.O_WRONLY | os.O_APPEND)

    def did(message: Any, step: str) -> None:
        anchor = message["MessageAttributes"]["acker-tuple"]["StringValue"].partition(":")[0]
        os.write(done, f"{anchor} {step}\n".encode())

    def price(message: Any) -> None:
        body = message["Body"]
        if body == "poison":
            raise ValueError("no such address")
        # Half of the children have derived ids, so that duplicates reach the other queue.
        child = "priced" if body.endswith(("0", "2", "4", "6", "8")) else None
        pricing.send(priced, body, edge="priced", child=child)
        did(message, "priced")

    def price_all(messages: Any) -> None:
        for at, message in enumerate(messages):
            with messages.of(at):
                price(message)

    def ship(message: Any) -> None:
        did(message, "shipped")

    with Acker.from_url(url, namespace) as acker:
        pricing = SqsWorker(acker, sqs.client(server), orders, lease=LEASE, wait=1)
        shipping = SqsWorker(acker, sqs.client(server), priced, lease=LEASE, wait=1)
        other = threading.Thread(target=shipping.run, args=(ship,))
        other.start()
        Path(f"{file}.{os.getpid()}").touch()
        if mode == "batches":
            pricing.run_batches(price_all, isolate=True)
        else:
            pricing.run(price)
        shipping.stop()
        other.join()


if __name__ == "__main__":
    main(*sys.argv[1:])
