"""The examples as a user runs them: to the end, on the user's Redis, and interrupted."""

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
import redis

from acker_redis.embedded import EmbeddedRedis
from tests.waiting import LIMIT

pytest.importorskip("httpx")
EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
KEY_LINES = {
    "webhooks": [
        r"order-1 +1 +done",
        r"order-2 +2 +done +failed: RefusedError: search answered 503",
        r"order-4 +2 +done +failed: RefusedError: mailer answered 503",
        r"order-6 +2 +done +failed: OutOfStockError: not enough for order-6",
        r"order-8 +2 +done +expired: no ack on edge search",
        r"order-10 +3 +dead letter +failed: RefusedError: legacy: .*",
        r"Each order is accounted for\.",
    ],
    "work_queue": [
        r"line 33, attempt 2 failed: UnicodeDecodeError: .*",
        r"killing a worker that holds a page of line 20",
        r"line 20 is complete: position \d+ -> \d+",
        r"position (\d+) of \1",
        r"Every document is accounted for\.",
    ],
    "crawler": [
        r"json +failed: TimeoutError: json.tool did not answer, attempt 1",
        r"json +complete: \d+ pages, attempt 2",
        r"http +complete: \d+ pages, attempt 1",
        r"asyncio +failed: ModuleNotFoundError: no module \w+, attempt 2",
        r"asyncio +given up",
        r"Each site is accounted for\.",
    ],
}


def start(example: str, scratch: Path, *args: str) -> "subprocess.Popen[str]":
    """Start an example; ``scratch`` is its folder and its directory for temporary files."""
    return subprocess.Popen(
        [sys.executable, str(EXAMPLES / example / "main.py"), *args],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "TMPDIR": str(scratch)},
        cwd=scratch,
    )


WHILE_IT_STARTS = """
import os, runpy, signal, subprocess, sys

class Interrupted(subprocess.Popen):
    def __init__(self, command, **options):
        super().__init__(command, **options)
        if command[1].startswith(os.path.dirname(sys.argv[0])):  # not the guard of the server
            with open(os.environ["STARTED"], "a") as file:
                print(self.pid, file=file)
            os.kill(os.getpid(), getattr(signal, os.environ["SIGNAL"]))

subprocess.Popen = Interrupted
sys.argv = sys.argv[1:]
sys.path[0] = os.path.dirname(sys.argv[0])
runpy.run_path(sys.argv[0], run_name="__main__")
"""
"""Runs an example that is interrupted before it knows the first process that it has started."""


def finish(process: "subprocess.Popen[str]") -> str:
    said, _ = process.communicate(timeout=LIMIT)
    assert process.returncode == 0, said
    return said


def shape(text: str) -> list[str]:
    """Return the lines of an output, sorted and without numbers, so that runs can be compared."""
    text = re.sub(r"no module \w+", "no module X", re.sub(r"\d+", "0", text))
    return sorted(" ".join(line.split()) for line in text.splitlines())


@pytest.mark.parametrize("example", KEY_LINES)
def test_output_of_an_example_matches_its_readme(example: str, tmp_path: Path) -> None:
    said = finish(start(example, tmp_path))
    for line in KEY_LINES[example]:
        assert re.search(f"^{line}$", said, re.MULTILINE), f"no {line!r} in\n{said}"
    readme = (EXAMPLES / example / "README.md").read_text()
    (output,) = re.findall(r"```text\n(.*?)```", readme.partition("python examples/")[2], re.DOTALL)
    assert shape(said) == shape(output)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("example", KEY_LINES)
def test_example_leaves_only_acker_keys_on_the_users_redis(
    example: str, any_server: EmbeddedRedis, tmp_path: Path
) -> None:
    with redis.Redis.from_url(any_server.url) as client:
        client.flushall()  # removes keys of earlier tests
        finish(start(example, tmp_path, "--redis", any_server.url))
        foreign = [key for key in client.scan_iter() if not key.startswith(b"acker:")]
    assert not foreign, "keys that are not the acker's are left"


def _interrupted(
    example: str, delay: float, scratch: Path
) -> "tuple[subprocess.Popen[str], str, list[psutil.Process]] | None":
    """Interrupt an example; return it, its output and its children; None if it ended before."""
    process = start(example, scratch)
    assert process.stdout
    process.stdout.readline()
    time.sleep(delay)
    with contextlib.suppress(psutil.NoSuchProcess):
        children = psutil.Process(process.pid).children(recursive=True)
        process.send_signal(signal.SIGINT)
        said, _ = process.communicate(timeout=LIMIT)
        if process.returncode:
            assert children
            return process, said, children
    finish(process)
    return None


@pytest.mark.parametrize("delay", [0.0, 0.3])
@pytest.mark.parametrize("example", KEY_LINES)
def test_interrupted_program_leaves_no_process_and_no_file(
    example: str, delay: float, tmp_path: Path
) -> None:
    # If the machine stalls, the example may end before it is interrupted.
    while (ended := _interrupted(example, delay, tmp_path)) is None:
        pass
    process, said, children = ended
    _, alive = psutil.wait_procs(children, timeout=LIMIT)
    assert process.returncode == 130, said
    assert not alive
    assert "Traceback" not in said
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("example", "number", "needs"),
    [
        ("work_queue", "SIGINT", "redis"),
        ("order_lines", "SIGINT", "pyspark"),
        ("order_lines", "SIGTERM", "pyspark"),
        ("spark_jobs", "SIGINT", "pyspark"),
        ("spark_jobs", "SIGTERM", "pyspark"),
    ],
)
def test_interrupt_while_a_process_starts_leaves_no_process(
    example: str, number: str, needs: str, tmp_path: Path
) -> None:
    pytest.importorskip(needs)
    scratch, started = tmp_path / "scratch", tmp_path / "started"
    scratch.mkdir()
    done = subprocess.run(
        [sys.executable, "-c", WHILE_IT_STARTS, str(EXAMPLES / example / "main.py")],
        capture_output=True,
        text=True,
        env={**os.environ, "TMPDIR": str(scratch), "STARTED": str(started), "SIGNAL": number},
        cwd=scratch,
        timeout=LIMIT,
        check=False,
    )
    (pid,) = map(int, started.read_text().split())
    left = [psutil.Process(pid)] if psutil.pid_exists(pid) else []
    for process in left:
        process.kill()
    assert not left, done
    assert done.returncode == 130, done
    assert not list(scratch.iterdir())
