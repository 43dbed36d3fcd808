"""``acker-redis demo``: a whole pipeline on real data, reconciled flight by flight."""

import contextlib
import logging
import signal
import socketserver
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, wait
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import FrameType

from pydantic import SecretStr
from pyspark.errors import PySparkException
from rich.console import Console

import acker_redis
from acker_api.serving.server import in_background
from acker_api.settings import ApiSettings
from acker_flights import data, lost, pipeline, report, session
from acker_flights.memory import PeakMemory
from acker_flights.progress import Display
from acker_flights.results import Results
from acker_redis import AckerConfig, AckerError, Rotator
from acker_redis.embedded import EmbeddedRedis
from acker_redis.errors import ConfigError, NamespaceNotFoundError
from acker_redis.operate import Settings, redact
from acker_redis.spark import Acker

NAMESPACE = "flights"
CONFIG = AckerConfig(tick_ms=600_000, edges=tuple(pipeline.SCHEMA_OF))
"""No healthy tree lives that long in the demo. Forced ticks expire the trees that are left. The ids
of messages name their edge."""
REFRESH_SECONDS = 0.25
SIGNALS = (signal.SIGINT, signal.SIGTERM)
EXIT_OK, EXIT_DIFFERS, EXIT_NO_JAVA, EXIT_INTERRUPTED = 0, 1, 2, 130


class DemoError(AckerError):
    """Raised when a query of the demo failed; the message is the text of Spark's error."""


@dataclass(frozen=True, slots=True)
class Options:
    """The options of the demo."""

    selection: data.Selection
    files_per_trigger: int = 1
    keep: Path | None = None
    """Directory for the tables ``done``, ``replay`` and ``delays``; with None they are deleted."""
    url: str | None = None
    """A Redis to use instead of a temporary one; it must not have a namespace ``flights``."""
    serve: bool = False
    """Whether Redis and the dashboard stay at the end, until Ctrl-C."""


@dataclass(frozen=True, slots=True)
class Summary:
    """The result of the demo."""

    right: bool
    """Whether every flight has the verdict that the CSV files call for."""
    counters: Mapping[str, int]
    seconds: float
    peak_mib: int


def run(
    options: Options, console: Console, on_summary: Callable[[Summary], None] | None = None
) -> int:
    """Run the demo and return its exit code.

    0: all flights are accounted for; 1: a difference was found; 2: no Java; 130: interrupted.
    """
    advice = session.missing_java()
    if advice:
        console.print(f"[red]{advice}[/red]")
        return EXIT_NO_JAVA
    try:
        with (
            _interruptible(),
            _server(options.url) as server,
            _temporary_files_in(server.directory),
            _dashboard(console, server.url),
        ):
            summary = _run(options, console, server)
            if on_summary:
                on_summary(summary)
            if options.serve:
                _stay(console)
            return EXIT_OK if summary.right else EXIT_DIFFERS
    except KeyboardInterrupt:
        console.print("interrupted; all processes were stopped and all temporary files removed")
        return EXIT_INTERRUPTED


@contextlib.contextmanager
def _dashboard(console: Console, url: str) -> Iterator[None]:
    """Run the admin service on a free port of the loopback interface during the block."""
    settings = ApiSettings(host="127.0.0.1", port=0)
    with in_background(Settings(url=SecretStr(url)), settings) as address:
        console.print(f"Dashboard: {address}/#/ns/{NAMESPACE}", highlight=False)
        yield


def _stay(console: Console) -> None:
    console.print("Redis and the dashboard stay until Ctrl-C")
    with contextlib.suppress(KeyboardInterrupt):
        while True:
            time.sleep(3600)


@dataclass(frozen=True, slots=True)
class _Foreign:
    """A Redis that the user gave."""

    url: str
    description: str
    directory: Path


@contextlib.contextmanager
def _server(url: str | None) -> Iterator[EmbeddedRedis | _Foreign]:
    """Yield a temporary Redis, or the one at ``url``; drop the namespace there at the end."""
    if url is None:
        with EmbeddedRedis() as server:
            yield server
        return
    with (
        tempfile.TemporaryDirectory(prefix="acker-demo-") as directory,
        acker_redis.Acker.from_url(url, NAMESPACE) as acker,
    ):
        if not acker.create(CONFIG):
            raise ConfigError(
                f"the namespace {NAMESPACE} exists already, and may be in use: drop it with "
                f"acker-redis drop {NAMESPACE}, or use another Redis"
            )
        try:
            yield _Foreign(url, "the given Redis", Path(directory))
        finally:
            with contextlib.suppress(NamespaceNotFoundError):
                acker.drop()


def _run(options: Options, console: Console, server: EmbeddedRedis | _Foreign) -> Summary:
    console.print(f"Server: {server.description}, {redact(server.url)}", highlight=False)
    work = server.directory / "demo"
    tables = options.keep or work / "tables"
    days = data.split_by_day(options.selection, work / "days")
    expected = data.expected(options.selection)
    console.print(f"{expected.flights:,} flights of {len(days)} days; starting Spark")
    with (
        acker_redis.Acker.from_url(server.url, NAMESPACE) as acker,
        PeakMemory() as memory,
        session.started(work / "spark") as spark,
    ):
        # Spark has installed its own signal handler.
        listen()
        acker.create(CONFIG)
        began = time.monotonic()
        flights = Acker(spark, NAMESPACE, app_id="flights-demo", url=server.url)
        results = Results(tables)
        verdicts = results.start(spark, server.url, NAMESPACE, pipeline.SOURCE, work / "verdicts")
        running = pipeline.start(spark, flights, work, tables, options.files_per_trigger)
        with Rotator([acker]) as rotator, Display(console, expected.flights) as display:
            _watch(display, "processing", running, acker, running.drain)
            _watch(display, "expiring", running, acker, lambda: _expire_all(rotator, acker))
            _watch(display, "verdicts", running, acker, verdicts.drain)
            missing: list[lost.Message] = []
            if expected.expired:
                replay = results.path("replay")
                find = partial(lost.find, spark, replay, work, missing)
                _watch(display, "lost messages", running, acker, find)
        running.stop()
        verdicts.stop()
        seconds = time.monotonic() - began
        counters = acker.status().counters
    delays = report.read_delays(tables / "delays")
    report.show_delays(console, delays)
    right = report.reconcile(console, results, delays, expected)
    if nacked := results.read("replay"):
        lost.show(console, nacked, missing)
        right &= lost.check(console, nacked, missing, expected)
    console.print(f"Peak memory of all processes: {memory.peak_mib:,} MiB")
    report.sum_up(console, counters, expected, right, seconds)
    return Summary(right, counters, seconds, memory.peak_mib)


def _expire_all(rotator: Rotator, acker: acker_redis.Acker) -> None:
    # The newest trees are in the newest bucket, which is drained after N ticks.
    for _ in range(acker.config.buckets):
        rotator.step(force=True)


def _watch(
    display: Display,
    what: str,
    running: pipeline.Pipeline,
    acker: acker_redis.Acker,
    work: Callable[[], None],
) -> None:
    """Do ``work`` in a thread, and show the progress. Raises the exception of ``work``."""
    doing: Future[None] = Future()

    def do() -> None:
        try:
            work()
            doing.set_result(None)
        except PySparkException as error:
            # Read the text now: it is in the JVM, which will have ended when the error is printed.
            doing.set_exception(DemoError(f"Spark failed ({what}): {error}"))
        except BaseException as error:
            doing.set_exception(error)

    # A daemon thread: after an interrupt it is not joined, and ends with Spark.
    threading.Thread(target=do, name="acker-demo", daemon=True).start()
    while not doing.done():
        display.update(what, running.rows, acker.status())
        wait([doing], timeout=REFRESH_SECONDS)
    doing.result()


@contextlib.contextmanager
def _temporary_files_in(directory: Path) -> Iterator[None]:
    before = tempfile.tempdir
    tempfile.tempdir = str(directory)
    try:
        yield
    finally:
        tempfile.tempdir = before


@contextlib.contextmanager
def _interruptible() -> Iterator[None]:
    """Let the first Ctrl-C or SIGTERM end the block; ignore later ones during the clean-up."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in SIGNALS}
    listen()
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _say_nothing(server: object, request: object, address: object) -> None:
    """Print nothing, instead of the traceback that a server of PySpark would print."""


def listen() -> None:
    """Turn the first Ctrl-C or SIGTERM into KeyboardInterrupt."""
    if threading.current_thread() is not threading.main_thread():
        return

    def interrupt(number: int, frame: FrameType | None) -> None:
        for each in SIGNALS:
            signal.signal(each, signal.SIG_IGN)
        # From here on, errors of PySpark and its threads are consequences of the interrupt.
        logging.disable()
        socketserver.BaseServer.handle_error = _say_nothing  # type: ignore[method-assign, assignment]
        raise KeyboardInterrupt

    for number in SIGNALS:
        signal.signal(number, interrupt)
