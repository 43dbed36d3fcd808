"""Structured logs by the standard library: an event and its fields, as text or as JSON lines.

>>> log = logging.getLogger("acker_redis.rotator")
>>> log.info(Event("tick", namespace="orders", shard=0, late_ms=12))

is told by any handler as ``tick namespace=orders shard=0 late_ms=12``, and by one that
:func:`set_up` has made with ``json`` as one line, an object with the fields ``time``, ``level``,
``logger``, ``event`` and those of the event. A plain message is the field ``message`` there.
"""

import json
import logging
import re
import sys
from datetime import UTC, datetime
from typing import Any, Literal, TextIO

from acker_redis.errors import ConfigError
from acker_redis.terminal import plain

Format = Literal["text", "json"]
LEVELS = ("debug", "info", "warning", "error")

_PLAIN = re.compile(r"[^\s\"=\x00-\x1f\x7f-\x9f]+")


class Event:
    """A message for a logger: what happened, and fields of numbers and texts.

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
    """Lines for people: time in UTC, level, logger, message."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s: %(message)s")

    def format(self, record: logging.LogRecord) -> str:
        """Lines without controls that a terminal would obey."""
        return plain(super().format(record))

    def formatTime(self, record: logging.LogRecord, datefmt: str | None = None) -> str:  # noqa: N802
        """Time of a record, as in RFC 3339, in UTC."""
        return _time(record)


class JsonFormatter(logging.Formatter):
    """An object a line; what JSON cannot say becomes text."""

    def format(self, record: logging.LogRecord) -> str:
        """One line."""
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
    """Have all loggers of the program write to ``stream``, stderr if there is none.

    ``level`` is one of ``LEVELS``, ``form`` ``text`` or ``json``; ConfigError for another. What
    was set up before is replaced.
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
