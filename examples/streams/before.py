"""Price orders: read the stream ``orders``, add each order with its total to ``priced``."""

import json
import sys
from contextlib import suppress
from os import getpid
from socket import gethostname
from typing import Any

import redis


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
    while True:
        for _, entries in client.xreadgroup("pricing", me, {"orders": ">"}, count=100, block=1000):
            for key, fields in entries:
                price(fields, client)
                client.xack("orders", "pricing", key)


if __name__ == "__main__":
    main(sys.argv[1])
