"""The demo, as a user runs it: three days, reconciled; interrupted; without Java."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from urllib.request import urlopen

import psutil
import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from rich.console import Console

from acker_redis.client import Acker
from acker_redis.embedded import EmbeddedRedis
from acker_redis.errors import ConfigError
from tests.browser import flights
from tests.browser.conftest import keep
from tests.conftest import CI, missing, slow

pytest.importorskip("acker_flights.data")
from acker_flights import data, demo, report, session
from acker_flights.data import Selection

COMMAND = [sys.executable, "-m", "acker_redis", "demo"]


@pytest.fixture
def scratch(tmp_path: Path) -> Path:
    """The only place for temporary files; nothing may be left in it."""
    folder = tmp_path / "tmp"
    folder.mkdir()
    return folder


def start(scratch: Path, *args: str, **environment: str) -> "subprocess.Popen[str]":
    env = {**os.environ, "TMPDIR": str(scratch), "PYTHONUNBUFFERED": "1", **environment}
    return subprocess.Popen(
        [*COMMAND, *args],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=env,
        start_new_session=True,
    )


def until(demo: "subprocess.Popen[str]", words: str) -> str:
    """What it says until the line with these words."""
    assert demo.stdout
    said = ""
    while not re.search(words, said):
        line = demo.stdout.readline()
        assert line, said
        said += line
    return said


def need_java() -> None:
    advice = session.missing_java()
    if advice:
        missing(advice)


def gone(processes: list[psutil.Process], scratch: Path) -> bool:
    """Wait until neither a process nor a file is left."""
    _, alive = psutil.wait_procs(processes, timeout=30)
    return not alive and not list(scratch.iterdir())


def test_three_days_reconcile(scratch: Path, tmp_path: Path) -> None:
    need_java()
    demo = start(scratch, "--days", "3", "--serve", "--keep", str(tmp_path / "tables"))
    said = until(demo, r"Redis: ")
    [dashboard] = re.findall(r"Dashboard: (http://127\.0\.0\.1:\d+)/#/ns/flights\n", said)
    if flights.chromium():
        with flights.watched(f"{dashboard}/#/ns/flights") as page:
            said += until(demo, "stay until Ctrl-C")
            flights.all_ended(page)
            keep(page, "flights")
    elif CI:
        missing("chromium")
    else:
        said += until(demo, "stay until Ctrl-C")
    with urlopen(f"{dashboard}/api/v1/namespaces/flights") as answer:
        assert json.load(answer)["counters"]["acked"] == 2656
    demo.send_signal(signal.SIGINT)
    said += demo.communicate(timeout=60)[0]
    assert demo.returncode == 0, said
    assert "2,699 tracked = 2,656 acked + 39 failed + 4 expired" in said
    assert "Every flight has the verdict" in said
    assert "Mean departure delay" in said
    assert not list(scratch.iterdir())
    done = ds.dataset(tmp_path / "tables" / "done").to_table().to_pylist()
    replay = ds.dataset(tmp_path / "tables" / "replay").to_table().to_pylist()
    wanted = data.expected(Selection((1,), 3))
    assert {r["source_id"] for r in done} == wanted.acked
    assert {r["source_id"] for r in replay if r["reason"] == "failed"} == wanted.failed
    assert {r["source_id"] for r in replay if r["reason"] == "expired"} == wanted.expired
    assert all(re.match("no weather at .* for 2013-", r["why"]) for r in replay if r["why"])


@pytest.mark.parametrize(
    ("moment", "sign"),
    [
        ("Redis:", signal.SIGINT),
        ("Redis:", signal.SIGTERM),
        ("starting Spark", signal.SIGTERM),
        pytest.param(r" [1-9][\d,]* tracked", signal.SIGINT, marks=slow),
    ],
)
def test_interrupted_it_leaves_nothing_behind(scratch: Path, moment: str, sign: int) -> None:
    need_java()
    demo = start(scratch, "--days", "3")
    said = until(demo, moment)
    if moment == "starting Spark":
        time.sleep(1)  # into the start of the JVM, wherever that is by now
    processes = psutil.Process(demo.pid).children(recursive=True)
    os.killpg(demo.pid, sign)
    rest, _ = demo.communicate(timeout=60)
    assert demo.returncode == 130, said + rest
    assert "Traceback" not in rest
    assert gone(processes, scratch)


def test_killed_it_leaves_nothing_behind(scratch: Path) -> None:
    need_java()
    demo = start(scratch, "--days", "3")
    assert demo.stdout
    while "tracked" not in demo.stdout.readline():
        pass
    processes = psutil.Process(demo.pid).children(recursive=True)
    demo.kill()
    demo.communicate(timeout=60)
    psutil.wait_procs(processes, timeout=30)
    deadline = time.monotonic() + 30
    while list(scratch.iterdir()) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert gone(processes, scratch)


def test_without_java_it_says_what_to_install(scratch: Path) -> None:
    path = str(Path(sys.executable).parent)
    demo = start(scratch, PATH=path, JAVA_HOME="")
    said, _ = demo.communicate(timeout=60)
    assert demo.returncode == 2
    assert "install Java 17" in said
    assert "Traceback" not in said


@slow
def test_a_difference_is_exit_code_1(scratch: Path, tmp_path: Path) -> None:
    """One flight more is expected than there is: it is named, and the demo fails."""
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
        [sys.executable, str(script)], capture_output=True, text=True, env=env, timeout=240
    )
    assert done.returncode == 1, done.stdout + done.stderr
    assert "acked, but should not be: 1 flights, e.g. 2013-01-01T" in done.stdout.replace("\n", " ")
    assert "failed, is missing: 1 flights" in done.stdout
    assert not list(scratch.iterdir())


def test_expected_comes_from_the_files_alone() -> None:
    """The numbers of January, counted once by hand with SQL."""
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


class Told:
    """Verdicts as the tables hold them: all that must be done is done."""

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
    """All verdicts are right, and one flight is missing in what the last bolt wrote."""
    expected = data.expected(Selection((1,), 1))
    console = Console(record=True, width=200)
    told = Told(expected)
    assert report.reconcile(console, told, dict(expected.delays), expected)  # type: ignore[arg-type]
    key, (flights, minutes) = next(iter(expected.delays.items()))
    wrong = {**expected.delays, key: (flights - 1, minutes)}
    assert not report.reconcile(console, told, wrong, expected)  # type: ignore[arg-type]
    assert not report.reconcile(console, told, {}, expected)  # type: ignore[arg-type]
    assert "delays differ in 1 sums" in console.export_text()


def test_on_a_redis_that_was_there_only_its_own_namespace_goes(any_server: EmbeddedRedis) -> None:
    with Acker.from_url(any_server.url, demo.NAMESPACE) as acker:
        acker.connection.client.flushall()
        with demo._server(any_server.url):
            assert acker.status().pending == 0
        assert acker.connection.client.dbsize() == 0
        acker.create(demo.CONFIG)  # somebody else's
        with pytest.raises(ConfigError, match="somebody else"), demo._server(any_server.url):
            raise AssertionError("it began")
        assert acker.status().pending == 0
        acker.drop()
