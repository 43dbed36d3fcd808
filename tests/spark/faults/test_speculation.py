"""Spark's speculative execution, on a standalone master with workers on two loopback hosts."""

import os
import socket
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from tests.spark.faults.conftest import MakeCase
from tests.spark.faults.plan import VARIABLE
from tests.spark.faults.stage import ROOT, Stage, spark_home
from tests.spark.faults.work import last, middle, reconcile, track
from tests.waiting import LIMIT, wait_until


@pytest.fixture(scope="module")
def standalone(java: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    """Start the driver of a cluster with one core on each of two hosts, and speculation."""
    scratch = tmp_path_factory.mktemp("standalone")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    started: list[subprocess.Popen[bytes]] = []

    def start(what: str, host: str, *args: str) -> Path:
        log = scratch / f"{host}-{what}.log"
        command = [f"{spark_home()}/bin/spark-class", f"org.apache.spark.deploy.{what}"]
        env = {**os.environ, "SPARK_LOCAL_IP": host, "SPARK_NO_DAEMONIZE": "1"}
        with log.open("w") as file:
            started.append(
                subprocess.Popen(
                    [*command, "--host", host, "--webui-port", "0", *args],
                    stdout=file,
                    stderr=file,
                    env={**env, "PYTHONPATH": str(ROOT)},
                )
            )
        return log

    url = f"spark://127.0.0.1:{port}"
    try:
        log = start("master.Master", "127.0.0.1", "--port", str(port))
        wait_until(lambda: "New state: ALIVE" in log.read_text(), "the master")
        for host in ("127.0.0.2", "127.0.0.3"):
            work = str(scratch / f"work-{host}")
            start("worker.Worker", host, "-c", "1", "-m", "1g", "-d", work, url)
        wait_until(lambda: log.read_text().count("Registering worker") == 2, "the workers")
        conf = {
            "spark.speculation": "true",
            "spark.speculation.interval": "100ms",
            "spark.speculation.task.duration.threshold": "2s",
            "spark.executor.memory": "512m",
            "spark.executorEnv.PYTHONPATH": str(ROOT),
            f"spark.executorEnv.{VARIABLE}": str(scratch / "stage" / "faults"),
        }
        with Stage(scratch / "stage", url, conf) as running:
            yield running
    finally:
        children = [c for p in started for c in psutil.Process(p.pid).children(recursive=True)]
        for process in [*(psutil.Process(p.pid) for p in started), *children]:
            if process.is_running():
                process.kill()
        for each in started:
            each.wait(LIMIT)


def test_speculative_twin_applies_each_call_once(standalone: Stage, make_case: MakeCase) -> None:
    """Both attempts send the calls of one shard alternately."""
    case, client = make_case(1, "loose")
    standalone.run(track, case)
    first = standalone.plan("sent", 2, "wait")
    second = standalone.plan("sent", 4, "wait")
    standalone.begin(middle, replace(case, mode="executors"))
    first.wait()
    # The first attempt waits, so the fourth call is one of the twin.
    second.wait()
    first.go()
    wait_until(lambda: first.calls >= 6, "calls of the first")
    second.go()
    report = standalone.end()
    first.lift()
    second.lift()
    standalone.run(last, case)
    repeated = client.status().counters["repeated"]
    print("calls", report["calls"], "sent", first.calls, "repeated", repeated)
    assert repeated >= 2
    reconcile(case, client, None)
