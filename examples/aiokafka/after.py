"""Price orders: read the topic ``orders``, write each order with its total to ``priced``."""

import asyncio
import json
import sys
from os import environ
from typing import Any

from acker_redis.aio import AsyncAcker
from acker_redis.integrations.aiokafka import TrackedAsyncConsumer, TrackedAsyncProducer


async def price(message: Any, writer: Any) -> None:
    """Send an order with its total."""
    order = json.loads(message.value)
    order["total"] = order["items"] * order["price"]
    await writer.send("priced", json.dumps(order).encode(), message.key)


async def main(servers: str) -> None:
    """Price orders until the process is ended."""
    group = {"group_id": "pricer", "auto_offset_reset": "earliest", "enable_auto_commit": False}
    conf = {"bootstrap_servers": servers, **group}
    writer = TrackedAsyncProducer(bootstrap_servers=servers)
    reader = TrackedAsyncConsumer(AsyncAcker.from_url(environ["ACKER_REDIS_URL"], "orders"), **conf)
    reader.subscribe(["orders"])
    async with writer, reader:
        while True:
            for messages in (await reader.getmany(timeout_ms=100)).values():
                for message in messages:
                    await reader.handle(message, price, writer)
            await writer.flush()
            await reader.commit()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
