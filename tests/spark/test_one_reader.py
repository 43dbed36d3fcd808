"""A source has one stream reader in an application: a concurrent second reader is refused."""

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from acker_redis.errors import ConfigError
from acker_redis.spark.one_reader import OneReader

HOLD = """
import sys
from acker_redis.spark.one_reader import OneReader
one = OneReader("redis://localhost", "orders", "shop", folder=sys.argv[1], jvm=7)
one.hold()
print("held", flush=True)
sys.stdin.read()
"""


def reader(folder: Path, source: str = "shop", wait: float = 0.0) -> OneReader:
    return OneReader("redis://localhost", "orders", source, wait, str(folder), jvm=7)


def test_a_second_reader_is_refused_until_the_first_has_stopped(tmp_path: Path) -> None:
    first, second = reader(tmp_path), reader(tmp_path)
    first.hold()
    first.hold()
    with pytest.raises(ConfigError, match="two readers of source shop of namespace orders"):
        second.hold()
    reader(tmp_path, "other").hold()
    first.release()
    second.hold()


@pytest.mark.parametrize("ends", [signal.SIGKILL, signal.SIGTERM])
def test_reader_waits_for_a_reader_that_is_being_stopped(
    tmp_path: Path, ends: signal.Signals
) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    ) as child:  # fmt: skip
        assert child.stdout
        assert child.stdout.readline() == "held\n"
        with pytest.raises(ConfigError, match="two readers"):
            reader(tmp_path).hold()
        child.send_signal(ends)
        reader(tmp_path, wait=60).hold()


def test_without_a_writable_folder_nothing_is_locked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(*_: object) -> int:
        raise PermissionError("no")

    monkeypatch.setattr(os, "open", refuse)
    reader(tmp_path).hold()
    reader(tmp_path).hold()
    assert "a second reader of shop" in caplog.text


def test_reader_of_an_application_that_ends_leaves_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    removed, temporary = tmp_path / "removed-by-spark", tmp_path / "tmp"
    temporary.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    reader(removed).hold()
    assert list(temporary.iterdir()) == []
    assert "a second reader of shop" in caplog.text
