"""Price orders: read the topic ``orders``, write each order with its total to ``priced``."""

import asyncio
import json
import sys
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer


async def price(message: Any, writer: Any) -> None:
    """Send an order with its total."""
    order = json.loads(message.value)
    order["total"] = order["items"] * order["price"]
    await writer.send("priced", json.dumps(order).encode(), message.key)


async def main(servers: str) -> None:
    """Price orders until the process is ended."""
    group = {"group_id": "pricer", "auto_offset_reset": "earliest", "enable_auto_commit": False}
    conf = {"bootstrap_servers": servers, **group}
    writer = AIOKafkaProducer(bootstrap_servers=servers)
    reader = AIOKafkaConsumer(**conf)
    reader.subscribe(["orders"])
    async with writer, reader:
        while True:
            for messages in (await reader.getmany(timeout_ms=100)).values():
                for message in messages:
                    await price(message, writer)
            await writer.flush()
            await reader.commit()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
