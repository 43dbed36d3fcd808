"""Price orders: read the topic ``orders``, write each order with its total to ``priced``."""

import json
import sys
from typing import Any

from confluent_kafka import Consumer, Producer


def price(message: Any, producer: Any) -> None:
    """Produce an order with its total."""
    order = json.loads(message.value())
    order["total"] = order["items"] * order["price"]
    producer.produce("priced", json.dumps(order), message.key())


def main(servers: str) -> None:
    """Price orders until the process is ended."""
    config = {"bootstrap.servers": servers}
    group = {"group.id": "pricing", "auto.offset.reset": "earliest", "enable.auto.commit": False}
    producer = Producer(config)
    consumer = Consumer({**config, **group})
    consumer.subscribe(["orders"])
    while True:
        for message in consumer.consume(500, 0.1):
            price(message, producer)
        producer.flush()
        consumer.commit()


if __name__ == "__main__":
    main(sys.argv[1])
