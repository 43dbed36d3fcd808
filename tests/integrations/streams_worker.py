"""A worker that is killed: prices orders, then ships them, and writes down each step.

``streams_worker.py URL NAMESPACE STREAM FILE`` runs a worker of each stream until SIGTERM.
"""

import os
import sys
import threading
from pathlib import Path
from typing import Any

import redis

from acker_redis import Acker, MessageId
from acker_redis.integrations.streams import StreamWorker

IDLE = 0.5
"""Seconds after which an entry of a killed worker is delivered again."""


def main(url: str, namespace: str, stream: str, file: str) -> None:
    """Process both streams; append a line ``<anchor> <step>`` before a handler returns."""
    done = os.open(file, os.O_WRONLY | os.O_APPEND)

    def did(fields: Any, step: str) -> None:
        (anchor,) = MessageId.from_headers(fields)
        os.write(done, f"{anchor} {step}\n".encode())

    def price(fields: Any) -> None:
        if fields[b"name"] == b"poison":
            raise ValueError("no such address")
        # Half of the children have derived ids, so that duplicates reach the other stream.
        child = "priced" if fields[b"name"].endswith((b"0", b"2", b"4", b"6", b"8")) else None
        pricing.xadd(f"{stream}-priced", fields, edge="priced", child=child)
        did(fields, "priced")

    def ship(fields: Any) -> None:
        did(fields, "shipped")

    with redis.Redis.from_url(url) as client, Acker.from_url(url, namespace) as acker:
        options: Any = {"idle": IDLE, "delete": True}
        pricing = StreamWorker(acker, client, stream, "pricing", **options)
        shipping = StreamWorker(acker, client, f"{stream}-priced", "shipping", **options)
        other = threading.Thread(target=shipping.run, args=(ship,))
        other.start()
        Path(f"{file}.{os.getpid()}").touch()
        pricing.run(price)
        shipping.stop()
        other.join()


if __name__ == "__main__":
    main(*sys.argv[1:])
