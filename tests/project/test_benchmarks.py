"""The benchmarks run and print their tables. These tests do not judge the figures."""

import subprocess
import sys
from pathlib import Path

import pytest

from acker_flights import session
from acker_redis.embedded import find_server
from tests.conftest import missing
from tests.integrations import rabbitmq

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(
    ("name", "arguments", "says"),
    [
        ("apply", ("--rows", "50", "--rounds", "1"), "track+ack"),
        ("blocks", ("--quick", "--rounds", "1"), "break-even"),
        ("producer", ("--operations", "200"), "linger   10 ms"),
        ("messages", ("--records", "500", "--rounds", "1"), "above untracked"),
        ("messages_profile", ("source", "--records", "2000"), "other threads"),
        ("kafka", ("--messages", "1000", "--rounds", "1"), "of untracked"),
        ("celery_tasks", ("--orders", "200", "--rounds", "1"), "of untracked"),
        ("http_requests", ("--orders", "50", "--rounds", "1"), "of untracked"),
        ("otel", ("--records", "500", "--rounds", "1"), "of off"),
        ("rabbitmq", ("--messages", "500", "--rounds", "1"), "of untracked"),
        ("streams", ("--entries", "500", "--rounds", "1"), "of untracked"),
        pytest.param(
            "outage", ("--adaptive", "--kinds", "faster"), "ten times", marks=pytest.mark.nightly
        ),
        ("latency", ("--calls", "2", "--pending", "2000"), "status, 1000 sources"),
        ("drain", ("--trees", "50000", "--beside", "0.2"), "during the drain"),
        (
            "admin",
            ("--trees", "4000", "--calls", "2", "--rounds", "0"),
            "the producer applied",
        ),
        ("peers/run", ("--small", "--installed", "--wait", "5"), "name after"),
        ("scale", ("--quick",), "size, several"),
        pytest.param(
            *("spark_jobs", ("--rows", "20000", "--pairs", "1"), "1,000 rows, plain"),
            marks=pytest.mark.nightly,
        ),
        pytest.param(
            *("spark_kafka", ("--messages", "3000", "--rounds", "1"), "of write"),
            marks=pytest.mark.nightly,
        ),
        pytest.param(
            "spark_demo",
            ("--days", "1", "--rounds", "1"),
            "1 days, medians of 1",
            marks=pytest.mark.nightly,
        ),
        pytest.param(
            "explain",
            ("--messages", "20000", "--trees", "500", "--rounds", "1"),
            "explain, broadcast",
            marks=pytest.mark.nightly,
        ),
    ],
)
def test_benchmark_runs(name: str, arguments: tuple[str, ...], says: str) -> None:
    if find_server() is None:
        missing("redis-server")
    if name.startswith(("spark", "explain")):
        advice = session.missing_java()
        if advice:
            missing(advice)
    if name == "rabbitmq" and (lacks := rabbitmq.lacks()):
        missing(lacks)
    command = [sys.executable, ROOT / "benchmarks" / f"{name}.py", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    if name == "spark_kafka" and "Maven" in done.stderr:
        missing(done.stderr)
    assert done.returncode == 0, done.stderr
    assert says in done.stdout
