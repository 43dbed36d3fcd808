"""Logs: events and their fields as text, and as one JSON object per line."""

import io
import json
import logging
import re
from collections.abc import Callable, Iterator

import pytest

from acker_redis.errors import ConfigError
from acker_redis.logs import Event, Format, set_up

log = logging.getLogger("acker_redis.test")


@pytest.fixture
def logged() -> Iterator[Callable[[Format, str], io.StringIO]]:
    """Set up logging; return the stream it writes. Restore the old state afterwards."""
    root = logging.getLogger()
    before, level = root.handlers[:], root.level

    def begin(form: Format, level: str = "info") -> io.StringIO:
        out = io.StringIO()
        root.handlers = []
        set_up(level, form, out)
        return out

    yield begin
    root.handlers = before
    root.setLevel(level)


ODD = 'a "quoted"\nline = é\x1b'


def test_events_as_text(logged: Callable[..., io.StringIO]) -> None:
    out = logged("text")
    log.info(Event("tick", namespace="orders", shard=0, late_ms=12, why=ODD, empty=""))
    log.debug("below the level")
    (line,) = out.getvalue().splitlines()
    time, level, logger, *words = line.split(" ", 4)
    assert time[10] + time[-5] + time[-1] == "T.Z"
    assert (level, logger, words[0]) == ("INFO", "acker_redis.test:", "tick")
    assert words[1].startswith("namespace=orders shard=0 late_ms=12 why=")
    why, _, empty = words[1].partition("why=")[2].rpartition(" empty=")
    assert (json.loads(why), json.loads(empty)) == (ODD, "")


def test_controls_do_not_reach_a_terminal(logged: Callable[..., io.StringIO]) -> None:
    """Also C1 controls: some terminals read U+009B as ESC [."""
    out = logged("text")
    log.info(Event("tick", why="page \x9b2J", label="a\x80b"))
    log.warning("text of a user: \x9b2J \x1b[2J")
    try:
        raise ValueError("page \x9b2J")
    except ValueError:
        log.exception(Event("broken"))
    text = out.getvalue()
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f]", text)
    assert 'why="page \\u009b2J" label="a\\u0080b"' in text
    assert "ValueError: page \\x9b2J\n" in text
    assert Event("tick", label="a\x80b").__str__() == 'tick label="a\\u0080b"'
    # Marks of direction and characters without width, as a field and in a message.
    log.info(Event("tick", label="a\u202eb\u200b"))
    log.warning("text of a user: \u202e \u2066")
    assert '="a\\u202eb\\u200b"\n' in out.getvalue()
    assert "text of a user: \\u202e \\u2066\n" in out.getvalue()


def test_events_as_json_lines(logged: Callable[..., io.StringIO]) -> None:
    out = logged("json")
    log.warning(Event("tick", namespace="orders", late_ms=12, why=ODD, error=ValueError("so")))
    log.info("plain %d", 7)
    try:
        raise ValueError("boom")
    except ValueError:
        log.exception(Event("broken"))
    one, two, three = map(json.loads, out.getvalue().splitlines())
    assert one.pop("time")[-1] == "Z"
    assert one == {
        "level": "warning", "logger": "acker_redis.test", "event": "tick", "namespace": "orders",
        "late_ms": 12, "why": ODD, "error": "so",
    }  # fmt: skip
    assert two["message"] == "plain 7"
    assert "boom" in three["exception"]
    assert three["event"] == "broken"


def test_invalid_log_level_or_format_is_refused() -> None:
    with pytest.raises(ConfigError, match="one of debug, info"):
        set_up("loud")
    with pytest.raises(ConfigError, match="text or json"):
        set_up("info", "xml")  # type: ignore[arg-type]
