"""Structured logs with the standard library: an event and its fields, as text or as JSON lines.

>>> log = logging.getLogger("acker_redis.rotator")
>>> log.info(Event("tick", namespace="orders", shard=0, late_ms=12))

Any handler writes this event as ``tick namespace=orders shard=0 late_ms=12``. The ``json`` handler
of :func:`set_up` writes one JSON object per line, with the fields ``time``, ``level``, ``logger``,
``event`` and the fields of the event. A plain message has the field ``message`` instead.
"""

import json
import logging
import re
import sys
from datetime import UTC, datetime
from typing import Any, Literal, TextIO

from acker_redis.errors import ConfigError
from acker_redis.terminal import HIDDEN, plain

Format = Literal["text", "json"]
LEVELS = ("debug", "info", "warning", "error")

_PLAIN = re.compile(rf"[^\s\"=\x00-\x1f\x7f-\x9f{HIDDEN}]+")


class Event:
    """A message for a logger: the name of an event, and its fields (numbers and texts).

    >>> str(Event("tick", namespace="orders", why="no way"))
    'tick namespace=orders why="no way"'
    """

    __slots__ = ("fields", "name")

    def __init__(self, name: str, **fields: Any) -> None:
        self.name = name
        self.fields = fields

    def __str__(self) -> str:
        return " ".join([self.name, *(f"{k}={_value(v)}" for k, v in self.fields.items())])


class TextFormatter(logging.Formatter):
    """Text lines for people: time in UTC, level, logger, message."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s: %(message)s")

    def format(self, record: logging.LogRecord) -> str:
        """Return the record as text, with control characters escaped."""
        return plain(super().format(record))

    def formatTime(self, record: logging.LogRecord, datefmt: str | None = None) -> str:  # noqa: N802
        """Return the time of a record in UTC, as in RFC 3339."""
        return _time(record)


class JsonFormatter(logging.Formatter):
    """One JSON object per line; a value that JSON cannot represent becomes text."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the record as one line of JSON."""
        said: dict[str, Any] = {
            "time": _time(record),
            "level": record.levelname.lower(),
            "logger": record.name,
        }
        if isinstance(record.msg, Event):
            said |= {"event": record.msg.name, **record.msg.fields}
        else:
            said["message"] = record.getMessage()
        if record.exc_info:
            said["exception"] = self.formatException(record.exc_info)
        return json.dumps(said, default=str)


def set_up(level: str = "info", form: Format = "text", stream: TextIO | None = None) -> None:
    """Make all loggers of the program write to ``stream``. Handlers set up before are replaced.

    Args:
        level: One of ``LEVELS``.
        form: ``text`` or ``json``.
        stream: The stream; by default stderr.

    Raises:
        ConfigError: The level or the form is invalid.

    """
    if level.lower() not in LEVELS:
        raise ConfigError(f"a log level is one of {', '.join(LEVELS)}, not {level!r}")
    if form not in ("text", "json"):
        raise ConfigError(f"a log format is text or json, not {form!r}")
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonFormatter() if form == "json" else TextFormatter())
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)


def _value(value: Any) -> str:
    text = str(value)
    return text if _PLAIN.fullmatch(text) else json.dumps(text)


def _time(record: logging.LogRecord) -> str:
    at = datetime.fromtimestamp(record.created, UTC)
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")
