"""The diffs of the how-to page make tracked programs of the untracked ones, and they work."""

import json
import os
import signal
import subprocess
import sys

import pytest

from acker_redis import Acker, MessageId
from acker_redis.embedded import EmbeddedRedis
from tests.integrations import diffs
from tests.integrations.kafka import put, read
from tests.integrations.test_kafka import track
from tests.waiting import wait_until

LIBRARIES = pytest.mark.parametrize("library", ["kafka", "aiokafka"])


@LIBRARIES
def test_tracked_program_differs_in_three_lines_and_imports(library: str) -> None:
    diffs.check(library, "track-kafka.md", number=["kafka", "aiokafka"].index(library))


@LIBRARIES
def test_tracked_program_works(any_server: EmbeddedRedis, servers: str, library: str) -> None:
    with Acker.from_url(any_server.url, "orders", timeout=60) as acker:
        acker.create()
        order = json.dumps({"items": 2, "price": 9.5})
        put(servers, "orders", [(key, order, headers) for key, _, headers in track(acker, library)])
        environment = {
            **os.environ,
            "ACKER_REDIS_URL": any_server.url,
            "PYTHONPATH": os.pathsep.join(map(str, [diffs.ROOT, *sys.path])),
        }
        command = [sys.executable, str(diffs.ROOT / "examples" / library / "after.py"), servers]
        program = subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL)
        try:
            children: list[MessageId] = []

            def ours() -> bool:
                found = [
                    m for m in read(servers, "priced", 1) if (m.key() or b"").decode() == library
                ]
                children.extend(MessageId.from_headers(m.headers()) for m in found)
                return bool(found)

            wait_until(ours, "the priced order")
            (anchor,) = children[0]
            wait_until(
                lambda: acker.show(anchor).checksum == children[0][anchor], "the ack of the order"
            )
        finally:
            program.send_signal(signal.SIGKILL)
            program.wait()
        acker.drop()
