"""The demo as a user runs it: three days are reconciled; it is interrupted; Java is missing."""

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from unittest.mock import MagicMock
from urllib.request import urlopen

import psutil
import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from pyspark.errors import PySparkException, StreamingQueryException
from rich.console import Console

from acker_redis.embedded import EmbeddedRedis
from acker_redis.errors import ConfigError
from acker_redis.sync.client import Acker
from tests.conftest import missing
from tests.demo.running import DASHBOARD, start, until

pytest.importorskip("acker_flights.data")
from acker_flights import data, demo, lost, report, results, session
from acker_flights.data import Selection
from tests.waiting import LIMIT, wait_until


def names_of_children(demo: "subprocess.Popen[str]") -> set[str]:
    """Return the names of the demo's child processes, without those that have ended."""
    names = set()
    for child in psutil.Process(demo.pid).children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):
            names.add(child.name())
    return names


def need_java() -> None:
    advice = session.missing_java()
    if advice:
        missing(advice)


def all_ended(processes: list[psutil.Process], scratch: Path) -> bool:
    """Wait for the end of the processes; return whether no process and no file is left."""
    _, alive = psutil.wait_procs(processes, timeout=LIMIT)
    return not alive and not list(scratch.iterdir())


def test_three_days_reconcile(scratch: Path, tmp_path: Path) -> None:
    need_java()
    demo = start(scratch, "--days", "3", "--serve", "--keep", str(tmp_path / "tables"))
    said = until(demo, "stay until Ctrl-C")
    [dashboard] = DASHBOARD.findall(said)
    with urlopen(f"{dashboard}/api/v1/namespaces/flights") as answer:
        assert json.load(answer)["counters"]["acked"] == 2656
    demo.send_signal(signal.SIGINT)
    said += demo.communicate(timeout=LIMIT)[0]
    assert demo.returncode == 0, said
    assert "2,699 tracked = 2,656 acked + 39 failed + 4 expired" in said
    assert "Every flight has the verdict" in said
    assert re.search(
        r"by the edges .* unaccounted for on:\n.*\n.*edges.*\n.*\n.* plane +.* 4 ", said
    )
    assert "Some of the 4 messages, found in the queues" in said
    assert len(re.findall(r"plane .* 2013-01-0\d.* none ", said)) == 4
    assert "Mean departure delay" in said
    assert not list(scratch.iterdir())
    done = ds.dataset(tmp_path / "tables" / "done").to_table().to_pylist()
    replay = ds.dataset(tmp_path / "tables" / "replay").to_table().to_pylist()
    wanted = data.expected(Selection((1,), 3))
    assert {r["source_id"] for r in done} == wanted.acked
    assert {r["source_id"] for r in replay if r["reason"] == "failed"} == wanted.failed
    assert {r["source_id"] for r in replay if r["reason"] == "expired"} == wanted.expired
    assert all(re.match("no weather at .* for 2013-", r["why"]) for r in replay if r["why"])
    assert {tuple(r["edges"]) for r in replay if r["reason"] == "expired"} == {("plane",)}
    assert all(r["residual"] for r in replay if r["reason"] == "expired")


@pytest.mark.full
@pytest.mark.parametrize(
    ("moment", "sign"),
    [
        pytest.param("Server:", signal.SIGINT, marks=pytest.mark.nightly),
        ("Server:", signal.SIGTERM),
        ("starting Spark", signal.SIGTERM),
        pytest.param(r" [1-9][\d,]* tracked", signal.SIGINT, marks=pytest.mark.nightly),
    ],
)
def test_interrupted_program_leaves_no_process_and_no_file(
    scratch: Path, moment: str, sign: int
) -> None:
    need_java()
    demo = start(scratch, "--days", "3")
    said = until(demo, moment)
    if moment == "starting Spark":
        wait_until(lambda: "java" in names_of_children(demo), "the JVM starts")
    processes = psutil.Process(demo.pid).children(recursive=True)
    os.killpg(demo.pid, sign)
    rest, _ = demo.communicate(timeout=LIMIT)
    assert demo.returncode == 130, said + rest
    assert "Traceback" not in rest
    assert all_ended(processes, scratch)


@pytest.mark.full
def test_killed_demo_leaves_no_process_and_no_file(scratch: Path) -> None:
    need_java()
    demo = start(scratch, "--days", "3")
    until(demo, "tracked")
    processes = psutil.Process(demo.pid).children(recursive=True)
    demo.kill()
    demo.communicate(timeout=LIMIT)
    psutil.wait_procs(processes, timeout=LIMIT)
    wait_until(lambda: not list(scratch.iterdir()), "the scratch folder is empty")
    assert all_ended(processes, scratch)


def test_demo_without_java_names_the_package_to_install(scratch: Path) -> None:
    path = str(Path(sys.executable).parent)
    demo = start(scratch, PATH=path, JAVA_HOME="")
    said, _ = demo.communicate(timeout=LIMIT)
    assert demo.returncode == 2
    assert "install Java 17" in said
    assert "Traceback" not in said


@pytest.mark.nightly
def test_a_difference_is_exit_code_1(scratch: Path, tmp_path: Path) -> None:
    """The expectation of one flight is changed: the demo names the flight and fails."""
    need_java()
    script = tmp_path / "wrong.py"
    script.write_text(
        "import dataclasses\n"
        "from acker_flights import data, demo\n"
        "from rich.console import Console\n"
        "right = data.expected\n"
        "def wrong(selection):\n"
        "    e = right(selection)\n"
        "    moved = sorted(e.acked)[0]\n"
        "    return dataclasses.replace(e, acked=e.acked - {moved}, failed=e.failed | {moved})\n"
        "data.expected = wrong\n"
        "raise SystemExit(demo.run(demo.Options(data.Selection((1,), 1)), Console()))\n"
    )
    env = {**os.environ, "TMPDIR": str(scratch)}
    done = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, env=env, timeout=900
    )
    assert done.returncode == 1, done.stdout + done.stderr
    assert "acked, but should not be: 1 flights, e.g. 2013-01-01T" in done.stdout.replace("\n", " ")
    assert "failed, is missing: 1 flights" in done.stdout
    assert not list(scratch.iterdir())


class TextInJvm(PySparkException):  # type: ignore[misc]
    """An exception like those of Spark: its text is available only while the JVM runs."""

    running = True

    def __str__(self) -> str:
        assert self.running
        return "Python worker failed to connect back"


def test_failed_query_is_reported_with_sparks_text() -> None:
    """The JVM has ended when the text is printed."""

    def work() -> None:
        raise TextInJvm("")

    with pytest.raises(demo.DemoError) as raised:
        demo._watch(MagicMock(), "verdicts", MagicMock(), MagicMock(), work)
    TextInJvm.running = False
    assert str(raised.value) == "Spark failed (verdicts): Python worker failed to connect back"


def test_verdicts_query_restarts_after_a_late_python_worker() -> None:
    """Another error ends the query, and so does a worker that is late each time."""
    late = StreamingQueryException("[STREAM_FAILED] .. Python worker failed to connect back.")
    stream = MagicMock()
    verdicts = results.Verdicts(stream)
    drain = stream.start.return_value.processAllAvailable
    drain.side_effect = [late, late, None]
    verdicts.drain()
    assert stream.start.call_count == 3
    drain.side_effect = StreamingQueryException("the disk is full")
    with pytest.raises(StreamingQueryException, match="disk"):
        verdicts.drain()
    assert stream.start.call_count == 3
    drain.side_effect = late
    with pytest.raises(StreamingQueryException, match="connect back"):
        verdicts.drain()


def test_expected_verdicts_come_from_the_files_alone() -> None:
    """The numbers of January, counted once manually with SQL."""
    january = data.expected(Selection((1,)))
    counts = (len(january.acked), len(january.failed), len(january.expired))
    assert counts == (26_797, 52, 155)
    assert january.flights == 27_004


def test_days_hold_the_original_rows(tmp_path: Path) -> None:
    files = data.split_by_day(Selection((2,), 2), tmp_path)
    assert [f.name for f in files] == ["2013-02-01.csv", "2013-02-02.csv"]
    lines = files[0].read_text().splitlines()
    assert lines[0].startswith("year,month,day,dep_time")
    assert all(line.startswith("2013,2,1,") for line in lines[1:])
    assert len(lines) == 927


class AllRight:
    """Results in which every flight has the expected verdict."""

    def __init__(self, expected: data.Expected) -> None:
        reasons = [("failed", i) for i in expected.failed] + [
            ("expired", i) for i in expected.expired
        ]
        self.tables = {
            "done": pa.table({"source_id": sorted(expected.acked)}),
            "replay": pa.table(
                {"source_id": [i for _, i in reasons], "reason": [r for r, _ in reasons]}
            ),
        }

    def read(self, table: str) -> pa.Table:
        return self.tables[table]


def test_a_message_that_never_arrived_is_a_difference() -> None:
    """All verdicts are right, and one flight is missing in the output of the last bolt."""
    expected = data.expected(Selection((1,), 1))
    console = Console(record=True, width=200)
    verdicts = AllRight(expected)
    assert report.reconcile(console, verdicts, dict(expected.delays), expected)  # type: ignore[arg-type]
    key, (flights, minutes) = next(iter(expected.delays.items()))
    wrong = {**expected.delays, key: (flights - 1, minutes)}
    assert not report.reconcile(console, verdicts, wrong, expected)  # type: ignore[arg-type]
    assert not report.reconcile(console, verdicts, {}, expected)  # type: ignore[arg-type]
    assert "delays differ in 1 sums" in console.export_text()


def test_wrong_edge_or_message_is_a_difference() -> None:
    """All 155 flights of January must name the edge ``plane`` and the message that was dropped."""
    expected = data.expected(Selection((1,)))
    console = Console(record=True, width=200)
    flights = sorted(expected.expired)
    rows = [{"source_id": each, "reason": "expired", "edges": ["plane"]} for each in flights]
    rows.append({"source_id": "x", "reason": "failed", "edges": []})
    messages = [lost.Message("plane", each, "AA", None) for each in flights]
    replay = pa.Table.from_pylist(rows)
    assert lost.check(console, replay, messages, expected)
    lost.show(console, replay, messages)
    said = console.export_text()
    assert re.search("plane .* 155 ", said)
    assert "Some of the 155 messages" in said
    wrong = [
        ([{**rows[0], "edges": ["weather"]}, *rows[1:]], messages),
        ([{**rows[0], "edges": ["plane", "delays"]}, *rows[1:]], messages),
        (rows, messages[1:]),
        (rows, [*messages, messages[0]]),
        (rows, [lost.Message("weather", flights[0], "AA", None), *messages[1:]]),
        (rows, [lost.Message("plane", flights[0], "AA", "N1"), *messages[1:]]),
    ]
    for some, found in wrong:
        assert not lost.check(console, pa.Table.from_pylist(some), found, expected)
        assert f"of 1 flights, e.g. {flights[0]}" in console.export_text()


def test_demo_on_a_given_redis_drops_only_its_namespace(any_server: EmbeddedRedis) -> None:
    with Acker.from_url(any_server.url, demo.NAMESPACE, timeout=60) as acker:
        acker.connection.client.flushall()
        with demo._server(any_server.url):
            assert acker.status().pending == 0
        assert acker.connection.client.dbsize() == 0
        acker.create(demo.CONFIG)  # a namespace of another program
        with pytest.raises(ConfigError, match="may be in use"), demo._server(any_server.url):
            raise AssertionError("the demo started")
        assert acker.status().pending == 0
        acker.drop()
