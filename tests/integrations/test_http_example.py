"""The diff of the how-to page makes the tracked service of the untracked one, and it works."""

import os
import subprocess
import sys

import httpx
import pytest

from acker_redis import Acker, Source
from acker_redis.embedded import EmbeddedRedis
from tests.integrations import diffs, http
from tests.waiting import wait_until


def test_tracked_program_differs_in_two_lines_and_imports() -> None:
    diffs.check("http", "track-http.md")


@pytest.mark.parametrize("program", ["before", "after"])
def test_example_ships_an_order(program: str, any_server: EmbeddedRedis) -> None:
    port = http.free_port()
    environment = {
        **os.environ,
        "ACKER_REDIS_URL": any_server.url,
        "SHIPPING_URL": f"http://127.0.0.1:{port}",
        "PYTHONPATH": os.pathsep.join(map(str, [diffs.ROOT, *sys.path])),
    }
    command = [sys.executable, "-m", "uvicorn", f"{program}:app", "--port", str(port)]
    service = subprocess.Popen(
        command, env=environment, cwd=diffs.ROOT / "examples/http",
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    order = {"items": 2, "price": 9.5}
    try:
        wait_until(lambda: http.listens(port), "the service")
        with httpx.Client(base_url=environment["SHIPPING_URL"], timeout=60) as client:
            assert client.post("/orders/order-1", json=order).json()["total"] == 19
            if program == "after":
                with Acker.from_url(any_server.url, "orders", timeout=60) as acker:
                    acker.create()
                    source = Source(
                        acker, "shop",
                        lambda record, ids: client.post(
                            "/orders/order-1", json=record.value, headers=ids[0].to_headers()
                        ).raise_for_status(),
                    )  # fmt: skip
                    source.emit("order-1", order)
                    (verdict,) = source.verdicts(until_closed=True)
                    assert verdict.verdict == "ack"
                    acker.drop()
    finally:
        service.kill()
        service.wait()
