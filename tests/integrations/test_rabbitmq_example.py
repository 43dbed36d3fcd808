"""The diff of the how-to page makes the tracked RabbitMQ consumer of the untracked one."""

import json
import os
import subprocess
import sys

import pika
import pytest

from acker_redis import Acker, Batch
from acker_redis.embedded import EmbeddedRedis
from acker_redis.integrations.rabbitmq import TrackedChannel
from acker_redis.trees.processing import emit
from tests.integrations import diffs, rabbitmq
from tests.waiting import wait_until


def test_tracked_program_differs_in_one_line_and_imports() -> None:
    diffs.check("rabbitmq", "track-rabbitmq.md")


@pytest.mark.parametrize("program", ["before", "after"])
def test_example_prices_an_order(program: str, any_server: EmbeddedRedis, rabbit: str) -> None:
    environment = {
        **os.environ,
        "ACKER_REDIS_URL": any_server.url,
        "PYTHONPATH": os.pathsep.join(map(str, [diffs.ROOT, *sys.path])),
    }
    file = diffs.ROOT / f"examples/rabbitmq/{program}.py"
    found = []
    connection = rabbitmq.connect(rabbit)
    with Acker.from_url(any_server.url, "orders", timeout=60) as acker:
        acker.create()
        tree = emit("order-1")
        batch = Batch("shop")
        batch.add(tree.row)
        acker.apply(batch)
        channel = connection.channel()
        for queue in ("orders", "priced"):
            # The program of another test was killed, maybe before it acked its order.
            channel.queue_delete(queue)
            channel.queue_declare(queue, durable=True)
        order = json.dumps({"items": 2, "price": 9.5})
        properties = pika.BasicProperties(headers=dict(tree.ids[0].to_headers()))
        channel.basic_publish("", "orders", order, properties)
        process = subprocess.Popen([sys.executable, str(file), rabbit], env=environment)
        try:
            tracked = TrackedChannel(acker, channel)
            tracked.basic_consume("priced", lambda *each: found.append(each), auto_ack=True)

            def priced() -> bool:
                connection.process_data_events(0.01)
                return bool(found)

            wait_until(priced, "the priced order")
            tracked.settle()
            if program == "after":
                wait_until(lambda: acker.status().counters["acked"] == 1, "the ack of the order")
        finally:
            process.kill()
            process.wait()
            connection.close()
        acker.drop()
    assert [json.loads(body)["total"] for *_, body in found] == [19.0]
