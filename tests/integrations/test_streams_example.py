"""The diff of the how-to page makes the tracked worker of the untracked one, and it works."""

import json
import os
import subprocess
import sys

import pytest
import redis

from acker_redis import Acker, AckerConfig, Source
from acker_redis.embedded import EmbeddedRedis
from acker_redis.integrations.streams import StreamSender, StreamWorker
from tests.integrations import diffs
from tests.waiting import wait_until


def test_tracked_program_has_two_lines_in_place_of_its_loop() -> None:
    diffs.check("streams", "track-redis-streams.md", removed=5)


@pytest.mark.parametrize("program", ["before", "after"])
def test_example_prices_an_order(program: str, any_server: EmbeddedRedis) -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, [diffs.ROOT, *sys.path]))}
    file = diffs.ROOT / f"examples/streams/{program}.py"
    client = redis.Redis.from_url(any_server.url)
    client.delete("orders", "priced")
    order = {"order": json.dumps({"items": 2, "price": 9.5})}
    with Acker.from_url(any_server.url, "orders", timeout=60) as acker:
        acker.create(AckerConfig())
        command = [sys.executable, str(file), any_server.url]
        process = subprocess.Popen(command, env=environment)
        try:
            if program == "before":
                client.xadd("orders", order)
                wait_until(lambda: client.xlen("priced"), "the priced order")
            else:
                source = Source(acker, "shop", StreamSender(acker, client, "orders"))
                source.emit("order-1", order)
                worker = StreamWorker(acker, client, "priced", "shipping")
                with source:
                    wait_until(lambda: client.xlen("priced"), "the priced order")
                    worker.run(lambda _: worker.stop())
                    assert source.join(60)
                    assert acker.status().counters["acked"] == 1
            ((_, fields),) = client.xrange("priced")
            assert json.loads(fields[b"order"])["total"] == 19
            wait_until(lambda: not client.xpending("orders", "pricing")["pending"], "its XACK")
        finally:
            process.kill()
            process.wait()
        acker.drop()
    client.delete("orders", "priced")
    client.close()
