"""Price orders: read the queue ``orders``, publish each order with its total to ``priced``."""

import json
import sys
from typing import Any

import pika


def price(channel: Any, method: Any, properties: Any, body: bytes) -> None:
    """Publish an order with its total."""
    order = json.loads(body)
    order["total"] = order["items"] * order["price"]
    channel.basic_publish("", "priced", json.dumps(order))
    channel.basic_ack(method.delivery_tag)


def main(url: str) -> None:
    """Price orders until the process is ended."""
    channel = pika.BlockingConnection(pika.URLParameters(url)).channel()
    channel.queue_declare("orders", durable=True)
    channel.queue_declare("priced", durable=True)
    channel.basic_qos(prefetch_count=100)
    channel.basic_consume("orders", price)
    channel.start_consuming()


if __name__ == "__main__":
    main(sys.argv[1])
