"""The diff of the how-to page makes the tracked Celery app of the untracked one, and it works."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from acker_redis import Acker
from acker_redis.embedded import EmbeddedRedis
from tests.integrations import celery, diffs
from tests.waiting import wait_until

EXAMPLE = diffs.ROOT / "examples/celery"


def test_tracked_program_differs_in_three_lines_and_imports() -> None:
    diffs.check("celery", "track-celery.md")


@pytest.mark.parametrize("program", ["before", "after"])
def test_example_ships_an_order(program: str, any_server: EmbeddedRedis, tmp_path: Path) -> None:
    environment = {
        **os.environ,
        "ACKER_REDIS_URL": any_server.url,
        "BROKER_URL": any_server.url,
        "PYTHONPATH": os.pathsep.join(map(str, [diffs.ROOT, *sys.path])),
    }
    order = tmp_path / "order-1.json"
    order.write_text(json.dumps({"name": "order-1", "items": 2, "price": 9.5}))
    log = tmp_path / "log"

    def start(*command: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [sys.executable, *command], env=environment, cwd=EXAMPLE, start_new_session=True,
            stdout=subprocess.DEVNULL, stderr=log.open("a"),
        )  # fmt: skip

    with Acker.from_url(any_server.url, "orders", timeout=60) as acker:
        acker.create()
        programs = [
            start("-m", "celery", "-A", program, "worker", "--pool=solo", "--loglevel=INFO"),
            start(f"{program}.py", str(tmp_path)),
        ]
        try:
            wait_until(
                lambda: "Task ship" in (text := log.read_text()) and "19.0" in text,
                "the order is shipped",
            )
            if program == "after":
                wait_until(lambda: acker.status().counters["acked"] == 1, "the ack of the order")
            assert not order.exists()
        finally:
            for each in programs:
                celery.kill(each)
        acker.drop()
