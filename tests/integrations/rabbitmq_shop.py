"""The queues of a shop on a RabbitMQ broker, for tests of tracked consumers."""

import time
import uuid
from typing import Any

import pika

from acker_redis import Acker, Batch
from acker_redis.integrations.rabbitmq import TrackedChannel
from acker_redis.trees.processing import emit
from tests.integrations import rabbitmq
from tests.waiting import LIMIT


class Shop:
    """A connection to the broker, and the queues ``orders`` and ``priced`` with unique names."""

    def __init__(self, url: str, acker: Acker) -> None:
        self.acker = acker
        self.connection = rabbitmq.connect(url)
        self.raw = self.connection.channel()
        self.channel = TrackedChannel(acker, self.connection.channel())
        self.url = url
        self.found: dict[str, str] = {}
        unique = uuid.uuid4().hex[:8]
        self.orders, self.priced = f"orders-{unique}", f"priced-{unique}"
        for queue in (self.orders, self.priced):
            self.raw.queue_declare(queue)

    def order(self, name: str, queue: str = "", kind: type = str) -> int:
        """Track a record, and publish its message; return the anchor."""
        tree = emit(name)
        self.acker.apply(_batch(tree.row))
        value: Any = str(tree.ids[0]) if kind is str else str(tree.ids[0]).encode()
        self.put(queue or self.orders, name, {"acker-tuple": value, "other": 7})
        return tree.anchor

    def put(self, queue: str, body: str, headers: Any = None, **more: Any) -> None:
        """Publish a message without tracking."""
        self.raw.basic_publish("", queue, body, pika.BasicProperties(headers=headers, **more))

    def run_until(self, condition: Any) -> None:
        """Process events of the connection until a condition holds."""
        end = time.monotonic() + LIMIT
        while not condition():
            assert time.monotonic() < end
            self.connection.process_data_events(0.01)

    def verdicts(self) -> dict[str, str]:
        """Return the verdict of each record, or the reason of its failure."""
        for each in self.acker.outcomes("shop"):
            self.found[each.source_id] = each.why or each.verdict
        return self.found

    def until(self, **verdicts: str) -> None:
        """Process events until the records have these verdicts, and no others have any."""
        self.run_until(lambda: self.verdicts() == verdicts)


def _batch(row: Any) -> Any:
    batch = Batch("shop")
    batch.add(row)
    return batch


def left(shop: Shop, queue: str) -> int:
    """Close the connection, so that unacked messages return; return how many a queue has."""
    if shop.connection.is_open:
        shop.connection.close()
    connection = rabbitmq.connect(shop.url)
    count = rabbitmq.count(connection.channel(), queue)
    connection.close()
    return count
