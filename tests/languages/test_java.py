"""Tests that only the Java client has."""

import subprocess
from pathlib import Path

import pytest

from acker_redis.embedded import EmbeddedRedis
from tests.conftest import MakeAcker, missing
from tests.languages.clients import CLIENTS
from tests.waiting import LIMIT

JAVA = CLIENTS["java"]


def flush_waits(url: str, namespace: str, end: str) -> list[str]:
    """Give up a batch, and end the producer; return what ``FlushWaits`` prints."""
    if lacks := JAVA.lacks():
        missing(f"{lacks}, for the client in Java,")
    JAVA.prepare()
    words = ["java", "-XX:TieredStopAtLevel=1", "-cp", f"{JAVA.output}/classes"]
    program = Path(__file__).parent / "java" / "FlushWaits.java"
    done = subprocess.run(
        [*words, str(program), url, namespace, end],
        capture_output=True,
        text=True,
        timeout=LIMIT,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.parametrize("end", ["flush", "close"])
def test_flush_and_close_wait_for_on_given_up(
    any_server: EmbeddedRedis, make_any_acker: MakeAcker, end: str
) -> None:
    """The caller can handle all rows that were given up once a flush has returned."""
    printed = flush_waits(any_server.url, make_any_acker().namespace, end)
    assert printed == ["given up 1", "UNAVAILABLE"]


@pytest.mark.parametrize("end", ["flush", "close"])
def test_flush_and_close_return_if_on_given_up_throws_a_checked_exception(
    any_server: EmbeddedRedis, make_any_acker: MakeAcker, end: str
) -> None:
    """Kotlin and Scala do not declare them. The sender thread continues."""
    printed = flush_waits(any_server.url, make_any_acker().namespace, f"{end}, throws")
    assert printed == ["UNAVAILABLE"]
