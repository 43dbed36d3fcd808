"""A Spark driver in a separate process, which runs functions for the tests, and may be killed.

The driver has its own JVM, master and environment, and leaves no state in the tests' process. A
process can have only one Spark context.
"""

import importlib
import os
import signal
import socket
import subprocess
import sys
import traceback
from collections.abc import Callable, Mapping
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import psutil

from tests.spark.classes import JVM_OPTIONS
from tests.spark.faults import plan
from tests.waiting import LIMIT

ROOT = Path(__file__).parents[3]
PYTHON = os.environ.get("ACKER_SPARK_PYTHON", sys.executable)
"""The interpreter of the drivers and workers; its PySpark may be of another version."""
_SECONDS = 600.0
_SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.memory": "1g",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.session.timeZone": "UTC",
    # With so few rows, compiling a plan takes longer than running it.
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.python.daemon.module": "tests.spark.faults.daemon",
}
_LOGGING = """
rootLogger.level = fatal
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = %d{HH:mm:ss} %p %c{1}: %m%n%ex{3}
"""


class StageError(Exception):
    """An exception on the stage: the name of its class, and its text."""

    def __init__(self, kind: str, words: str) -> None:
        super().__init__(kind, words)
        self.kind, self.words = kind, words

    def __str__(self) -> str:
        return f"{self.kind}: {self.words}"


class Stage:
    """A driver process; ``faults`` is the folder of :mod:`tests.spark.faults.plan`."""

    def __init__(
        self,
        scratch: Path,
        master: str = "local[2,4]",
        conf: Mapping[str, str] | None = None,
        env: Mapping[str, str] | None = None,
        *,
        remote: bool = False,
        python: str = PYTHON,
    ) -> None:
        scratch.mkdir(parents=True, exist_ok=True)
        self.faults = scratch / "faults"
        self.faults.mkdir(exist_ok=True)
        self.log = scratch / "stage.log"
        (scratch / "log4j2.properties").write_text(_LOGGING)
        options = (
            f"{JVM_OPTIONS} -XX:+UseSerialGC -XX:-UsePerfData "
            f"-Djava.io.tmpdir={scratch} -Dlog4j2.configurationFile={scratch}/log4j2.properties"
        )
        settings = {
            **_SETTINGS,
            "spark.local.dir": str(scratch),
            "spark.sql.warehouse.dir": str(scratch / "warehouse"),
            "spark.driver.extraJavaOptions": options,
            "spark.executor.extraJavaOptions": options,
            **(conf or {}),
        }
        mine, other = socket.socketpair()
        with self.log.open("a") as log:
            self._process = subprocess.Popen(
                [python, "-m", __name__, str(other.fileno())],
                pass_fds=[other.fileno()],
                cwd=ROOT,
                start_new_session=True,
                stdout=log,
                stderr=log,
                env={
                    **os.environ,
                    "PYSPARK_PYTHON": python,
                    "PYTHONPATH": str(ROOT),
                    "SPARK_LOCAL_IP": "127.0.0.1",
                    plan.VARIABLE: str(self.faults),
                    **(env or {}),
                },
            )
        other.close()
        self._line = Connection(mine.detach())
        self._line.send((master, settings, remote))

    @property
    def pid(self) -> int:
        """Process id of the driver, and of its process group."""
        return self._process.pid

    def plan(self, where: str, at: int, what: str) -> plan.Fault:
        """Plan a fault of this driver or its workers; see :func:`plan.plan`."""
        return plan.plan(self.faults, where, at, what, group=self.pid)

    def begin(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> None:
        """Start ``function(spark, *args)`` on the stage, which imports the function by name."""
        name = f"{function.__module__}:{function.__qualname__}"
        self._line.send((name, args, kwargs))

    def end(self) -> Any:
        """Return the result of the function. Raises StageError; EOFError if the driver has died."""
        if not self._line.poll(_SECONDS):
            raise TimeoutError(f"the stage does not answer: {self.log.read_text()[-4000:]}")
        try:
            error, found = self._line.recv()
        except (EOFError, ConnectionResetError) as ended:
            raise EOFError(self.log.read_text()[-4000:]) from ended
        if error:
            raise StageError(*error)
        return found

    def run(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Run a function on the stage, and return its result."""
        self.begin(function, *args, **kwargs)
        return self.end()

    def close(self) -> None:
        """Kill the driver and all its descendants, like a power failure."""
        if self._process.poll() is None:
            os.killpg(self.pid, signal.SIGKILL)
        self._line.close()
        self._process.wait(LIMIT)
        # Its executors and Python workers notice the death of the driver one after the other.
        _, alive = psutil.wait_procs(self.members(), timeout=10)
        for each in alive:
            each.kill()
        psutil.wait_procs(alive, timeout=LIMIT)

    def members(self) -> list[psutil.Process]:
        """Return the driver and all its descendants, including those of ended processes."""
        return [each for each in psutil.process_iter() if _session(each.pid) == self.pid]

    def __enter__(self) -> "Stage":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def spark_home() -> Path:
    """Return the folder of the PySpark of ``PYTHON``."""
    show = "import pyspark; print(pyspark.__path__[0])"
    return Path(subprocess.check_output([PYTHON, "-c", show], text=True).strip())


def _session(pid: int) -> int | None:
    try:
        return os.getsid(pid)
    except ProcessLookupError:
        return None


def _serve(line: Connection) -> None:
    plan.install()
    master, settings, remote = line.recv()
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.appName("stage")
    builder = builder.remote(master) if remote else builder.master(master)
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    while True:
        try:
            name, args, kwargs = line.recv()
        except EOFError:
            break
        module, _, function = name.partition(":")
        try:
            found = getattr(importlib.import_module(module), function)(spark, *args, **kwargs)
            line.send((None, found))
        except Exception as error:
            traceback.print_exc()
            line.send(((type(error).__name__, str(error)), None))
    spark.stop()


if __name__ == "__main__":
    _serve(Connection(int(sys.argv[1])))
