"""Price orders: read the stream ``orders``, add each order with its total to ``priced``."""

import json
import sys
from contextlib import suppress
from os import getpid
from socket import gethostname
from typing import Any

import redis

from acker_redis import Acker
from acker_redis.integrations.streams import StreamWorker


def price(fields: dict[bytes, bytes], streams: Any) -> None:
    """Add an order with its total."""
    order = json.loads(fields[b"order"])
    order["total"] = order["items"] * order["price"]
    streams.xadd("priced", {"order": json.dumps(order)})


def main(url: str) -> None:
    """Price orders until the process is ended."""
    client = redis.Redis.from_url(url)
    with suppress(redis.ResponseError):  # the group exists
        client.xgroup_create("orders", "pricing", id="0", mkstream=True)
    me = f"{gethostname()}-{getpid()}"
    worker = StreamWorker(Acker.from_url(url, "orders"), client, "orders", "pricing", consumer=me)
    worker.run(lambda fields: price(fields, worker))


if __name__ == "__main__":
    main(sys.argv[1])
