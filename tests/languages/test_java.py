"""Tests that only the Java client has."""

import subprocess
from pathlib import Path

import pytest

from acker_redis.embedded import EmbeddedRedis
from tests.conftest import MakeAcker, missing
from tests.languages.clients import CLIENTS
from tests.waiting import LIMIT

JAVA = CLIENTS["java"]


@pytest.mark.parametrize("end", ["flush", "close"])
def test_flush_and_close_wait_for_on_given_up(
    any_server: EmbeddedRedis, make_any_acker: MakeAcker, end: str
) -> None:
    """The caller can handle all rows that were given up once a flush has returned."""
    if lacks := JAVA.lacks():
        missing(f"{lacks}, for the client in Java,")
    JAVA.prepare()
    words = ["java", "-XX:TieredStopAtLevel=1", "-cp", f"{JAVA.output}/classes"]
    program = Path(__file__).parent / "java" / "FlushWaits.java"
    done = subprocess.run(
        [*words, str(program), any_server.url, make_any_acker().namespace, end],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=LIMIT,
        check=False,
    )
    assert done.stdout.splitlines() == ["given up 1", "UNAVAILABLE"]
