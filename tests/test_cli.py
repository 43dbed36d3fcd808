"""The command line: what it prints, its exit codes, and the rotator as a process."""

import signal
import subprocess
import sys
import time

import pytest
from typer.testing import CliRunner, Result

from acker_redis.batch import Batch
from acker_redis.cli import app
from acker_redis.client import Acker
from acker_redis.embedded import EmbeddedRedis
from tests.conftest import MakeAcker
from tests.support import track

COMMAND = [sys.executable, "-m", "acker_redis"]


def run(*args: str) -> Result:
    return CliRunner().invoke(app, args)


def test_create_and_status(any_server: EmbeddedRedis) -> None:
    args = ("create", "cli-ns", "--url", any_server.url, "--shards", "2", "--high-water", "5")
    assert run(*args).stdout == "cli-ns: created\n"
    assert "is there" in run(*args).stdout
    shown = run("status", "cli-ns", "--url", any_server.url).stdout
    assert "pending     0" in shown
    assert "high water  ok (mark 5)" in shown


def test_show(make_any_acker: MakeAcker, any_server: EmbeddedRedis) -> None:
    acker = make_any_acker()
    track(acker, 77, 0xABC, "a record")
    anchors = acker.track_block("t", "page/1", [5, 0, 7])
    batch = Batch()
    batch.fail(anchors[2], "no luck")
    acker.apply(batch)

    def show(anchor: str) -> Result:
        return run("show", acker.namespace, anchor, "--url", any_server.url)

    assert "checksum    0000000000000abc\nsource      t a record\n" in show("77").stdout
    assert show("0x4d").stdout.startswith("state       open\n")
    block = show(hex(anchors[2])).stdout
    assert block.startswith("state       failed: no luck\n")
    assert "3 trees\nopen        1: slots 0\nfailed      1\n" in block
    assert "complete, told when its block ends" in show(str(anchors[1])).stdout
    assert show("78").exit_code == 1
    assert "not pending" in show("78").stdout
    assert show("4d").exit_code == 2


def test_url_from_the_environment(
    any_server: EmbeddedRedis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ACKER_REDIS_URL", any_server.url)
    assert "created" in run("create", "cli-env").stdout


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["create", "x y"], "a namespace is 1 to 64"),
        (["create", "x", "--shards", "3"], "shards is a power of two"),
        (["create", "x", "--tick-ms", "0"], "tick_ms is a whole number from 1"),
        (["create", "x", "--buckets", "1"], "buckets is a whole number from 2"),
        (["status", "nobody"], "not created"),
        (["rotator", "nobody"], "not created"),
        (["status", "x", "--url", "http://u:secret@h"], "write redis://HOST:PORT/DB"),
        (["status", "x", "--url", "redis://u:secret@127.0.0.1:1/0"], "running and reachable"),
    ],
)
def test_errors_are_one_sentence_and_exit_code_1(
    any_server: EmbeddedRedis, args: list[str], words: str
) -> None:
    if "--url" not in args:
        args = [*args, "--url", any_server.url]
    done = subprocess.run([*COMMAND, *args], capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert words in done.stderr
    assert done.stderr.startswith("acker-redis: ")
    assert "Traceback" not in done.stderr
    assert "secret" not in done.stderr + done.stdout


@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGINT])
def test_rotator_process(make_any_acker: MakeAcker, any_server: EmbeddedRedis, end: int) -> None:
    acker = make_any_acker(tick_ms=100)
    track(acker, 7, 5, "s7")
    rotator = subprocess.Popen(
        [*COMMAND, "rotator", acker.namespace, "--url", any_server.url],
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        deadline = time.monotonic() + 30
        while not (found := list(acker.outcomes("t"))):
            assert time.monotonic() < deadline
            time.sleep(0.02)
        assert [o.reason for o in found] == ["expired"]
        rotator.send_signal(end)
        _, log = rotator.communicate(timeout=20)
    finally:
        rotator.kill()
    assert rotator.returncode == 0
    assert "1 trees expired" in log
    assert log.rstrip().endswith("left")


def test_demo_refuses_a_directory_that_exists(tmp_path: object) -> None:
    result = run("demo", "--keep", str(tmp_path))
    assert result.exit_code == 2
    assert "exists" in result.output


def test_importing_the_client_imports_nothing_big() -> None:
    """Producers that only need the client do not pay for Spark, Arrow or the command line."""
    code = (
        "import sys, acker_redis.client; "
        "print([m for m in ('pyspark', 'pyarrow', 'numpy', 'pandas', 'typer', 'rich') "
        "if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_acker_is_what_the_package_exports() -> None:
    import acker_redis

    assert acker_redis.Acker is Acker
    for name in acker_redis.__all__:
        assert getattr(acker_redis, name)
