"""Server-sent events as bytes (the WHATWG's format).

Data is JSON, whose texts contain no line break, so data cannot begin another field or event.
"""

import json
from typing import Any

HEARTBEAT = b": \n\n"
"""A comment, for proxies that close idle connections."""


def frame(event: str, data: str, id: str | None = None, retry_ms: int | None = None) -> bytes:
    """Return one event; ``data`` is JSON on one line.

    >>> for line in frame("gap", pack({"why": "two lines"}), id="a-1").splitlines():
    ...     print(line.decode())
    event: gap
    id: a-1
    data: {"why":"two lines"}
    <BLANKLINE>
    """
    head = f"event: {event}\n"
    if id is not None:
        head += f"id: {id}\n"
    if retry_ms is not None:
        head += f"retry: {retry_ms}\n"
    return f"{head}data: {data}\n\n".encode(errors="replace")


def parts(event: bytes) -> tuple[str, bytes]:
    """Return name and data of an event that :func:`frame` has made.

    >>> parts(frame("hello", "{}", id="a-1"))
    ('hello', b'{}')
    """
    lines = dict(line.split(b": ", 1) for line in event.split(b"\n") if line)
    return lines[b"event"].decode(), lines[b"data"]


def pack(value: Any) -> str:
    """Return JSON on one line."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
