"""The diff of the how-to page makes the traced program of the untraced one, and it works."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from acker_redis import Acker
from acker_redis.embedded import EmbeddedRedis
from tests.integrations import diffs


def test_traced_program_differs_in_one_line_and_imports() -> None:
    diffs.check("otel", "trace-with-opentelemetry.md")


@pytest.mark.parametrize("program", ["before", "after"])
def test_example_prints_the_spans(program: str, any_server: EmbeddedRedis, tmp_path: Path) -> None:
    for name, address in (("order-1", "Main St 1"), ("order-2", "")):
        (tmp_path / f"{name}.json").write_text(json.dumps({"address": address}))
    environment = {
        **os.environ,
        "ACKER_REDIS_URL": any_server.url,
        "PYTHONPATH": os.pathsep.join(map(str, [diffs.ROOT, *sys.path])),
    }
    command = [sys.executable, str(diffs.ROOT / "examples/otel" / f"{program}.py"), str(tmp_path)]
    with Acker.from_url(any_server.url, "orders", timeout=60) as acker:
        acker.create()
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        acker.drop()
    spans: dict[str, dict[str, Any]] = {}
    for line in done.stdout.splitlines():
        span = json.loads(line)
        spans[span["attributes"].get("acker.source_id", span["name"])] = span
    read = {"read order-1.json", "read order-2.json"}
    assert set(spans) == (read if program == "before" else read | {"order-1", "order-2"})
    if program == "after":
        assert spans["order-1"]["name"] == "ack orders"
        assert spans["order-2"]["attributes"]["acker.why"] == "ValueError: no address"
        for name in ("order-1", "order-2"):
            (link,) = spans[name]["links"]
            assert link["context"] == spans[f"read {name}.json"]["context"]
