"""A standalone cluster of Spark: a master and two workers, each a process on a loopback host."""

import os
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Literal

import psutil

from tests.spark.faults.plan import VARIABLE
from tests.spark.faults.stage import ROOT, Stage, spark_home
from tests.spark.faults.work import executors
from tests.waiting import LIMIT, wait_until

Victim = Literal["executor", "worker"]
_MASTER, _HOSTS = "127.0.0.1", ("127.0.0.2", "127.0.0.3")
_SETTINGS = {
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.task.duration.threshold": "2s",
    "spark.executor.memory": "512m",
    "spark.executorEnv.PYTHONPATH": str(ROOT),
}


class Standalone:
    """The cluster, with one core on each of two hosts, and a driver with speculation."""

    stage: Stage

    def __init__(self, scratch: Path) -> None:
        self._scratch, self._spark = scratch, spark_home() / "bin" / "spark-class"
        self._started: list[subprocess.Popen[bytes]] = []
        self._workers: dict[str, subprocess.Popen[bytes]] = {}
        with socket.create_server((_MASTER, 0)) as free:
            port = free.getsockname()[1]
        self._url = f"spark://{_MASTER}:{port}"
        self._log = scratch / "master.log"
        self._start("master.Master", _MASTER, self._log, "--port", str(port))
        wait_until(lambda: "New state: ALIVE" in self._log.read_text(), "the master")
        self._start_workers()

    def _start(self, what: str, host: str, log: Path, *args: str) -> subprocess.Popen[bytes]:
        with log.open("a") as file:
            command = [self._spark, f"org.apache.spark.deploy.{what}", "--host", host]
            started = subprocess.Popen(
                [*command, "--webui-port", "0", *args],
                stdout=file,
                stderr=file,
                env={**os.environ, "SPARK_LOCAL_IP": host, "PYTHONPATH": str(ROOT)},
            )
        self._started.append(started)
        return started

    def _start_workers(self) -> None:
        """Start a worker on each host that has none."""
        for host in set(_HOSTS) - set(self._workers):
            known = self._registered()
            limits = ("-c", "1", "-m", "1g", "-d", str(self._scratch / host))
            log = self._scratch / f"{host}.log"
            self._workers[host] = self._start("worker.Worker", host, log, *limits, self._url)
            wait_until(partial(self._registered, known), "the worker")

    def _registered(self, known: int = 0) -> int:
        """Return how many workers have registered, more than were known."""
        return self._log.read_text().count("Registering worker") - known

    def kill(self, victim: Victim, pid: int) -> None:
        """Kill the executor of the host on which a process runs, or its worker, too.

        If the process is the driver, the host is any.
        """
        above = {each.pid for each in psutil.Process(pid).parents()}
        hosts = [host for host, worker in self._workers.items() if worker.pid in above]
        host = hosts[0] if hosts else _HOSTS[0]
        worker = self._workers[host]
        wait_until(lambda: executors(worker.pid), "an executor")
        victims = executors(worker.pid)
        if victim == "worker":
            del self._workers[host]
            worker.kill()
            worker.wait(LIMIT)
        for each in victims:
            os.kill(each, signal.SIGKILL)

    def mend(self) -> None:
        """Start a killed worker again; wait until each has an executor."""
        self._start_workers()
        for worker in self._workers.values():
            wait_until(partial(executors, worker.pid), "the executors")

    def close(self) -> None:
        """Kill all processes of the cluster."""
        running = [psutil.Process(each.pid) for each in self._started if each.poll() is None]
        below = [each for process in running for each in process.children(recursive=True)]
        for process in [*running, *below]:
            if process.is_running():
                process.kill()
        for each in self._started:
            each.wait(LIMIT)


@contextmanager
def cluster(scratch: Path) -> Iterator[Standalone]:
    """Start a cluster and its driver; kill both at the end."""
    made = Standalone(scratch)
    faults = {f"spark.executorEnv.{VARIABLE}": str(scratch / "stage" / "faults")}
    try:
        with Stage(scratch / "stage", made._url, _SETTINGS | faults) as made.stage:
            yield made
    finally:
        made.close()
