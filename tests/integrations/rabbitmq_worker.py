"""A worker that is killed: prices orders, then ships them, and writes down each step.

``rabbitmq_worker.py BROKER URL NAMESPACE FILE PREFETCH`` consumes the queue NAMESPACE, and the
queue NAMESPACE-priced, until it is killed.
"""

import os
import sys
from pathlib import Path
from typing import Any

from acker_redis import Acker, MessageId
from acker_redis.integrations.rabbitmq import TrackedChannel
from tests.integrations.rabbitmq import connect


def main(broker: str, url: str, namespace: str, file: str, prefetch: str) -> None:
    """Process both queues; append a line ``<anchor> <step>`` before a delivery is acked."""
    done = os.open(file, os.O_WRONLY | os.O_APPEND)
    priced = f"{namespace}-priced"

    def did(channel: Any, method: Any, properties: Any, step: str) -> None:
        (anchor,) = MessageId.from_headers(properties.headers)
        os.write(done, f"{anchor} {step}\n".encode())
        channel.basic_ack(method.delivery_tag)

    def price(channel: Any, method: Any, properties: Any, body: bytes) -> None:
        if body == b"poison":
            raise ValueError("no such address")
        # Half of the children have derived ids, so that duplicates reach the other queue.
        child = "priced" if body[-1:] in b"02468" else None
        channel.basic_publish("", priced, body, properties, child=child, edge="priced")
        did(channel, method, properties, "priced")

    def ship(channel: Any, method: Any, properties: Any, body: bytes) -> None:
        did(channel, method, properties, "shipped")

    channel = TrackedChannel(Acker.from_url(url, namespace), connect(broker).channel())
    channel.basic_qos(prefetch_count=int(prefetch))
    channel.basic_consume(namespace, price)
    channel.basic_consume(priced, ship)
    Path(f"{file}.{os.getpid()}").touch()
    channel.start_consuming()


if __name__ == "__main__":
    main(*sys.argv[1:])
