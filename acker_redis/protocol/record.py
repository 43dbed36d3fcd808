"""The bytes of a stored record (a loose tree) and of a stored header (a block).

``lua/README.md`` specifies both layouts. The scripts write them; clients only read them.
"""

import re
import struct
from dataclasses import dataclass

from acker_redis.errors import SchemaError
from acker_redis.protocol.keys import is_name
from acker_redis.protocol.texts import CONTROL

RECORD_FIRST = slice(9, 15)
"""Where a record holds the time of its first row."""
RECORD_TASK = 19
"""Where a record holds the length of its task."""
HEADER_FIRST = slice(0, 6)
HEADER_SLOTS = slice(11, 13)

_RECORD = struct.Struct(">QB6sI")
_HEADER = struct.Struct(">6sIBH8s")
_ESCAPED = re.compile(r'\\(["\\])')


@dataclass(frozen=True, slots=True)
class StoredRecord:
    """A loose tree as it is stored."""

    checksum: int
    failed: bool
    capped: bool
    """Whether the deadline kept its last move out of the newest bucket."""
    first_ms: int
    """Time of the first row, in ms since 1970."""
    last_ms: int
    """Time of the last row, in ms since 1970."""
    task: str
    """'' if the tree was not tracked yet."""
    text: str
    """The source id; of a record without a task, why it failed, or ''."""


@dataclass(frozen=True, slots=True)
class StoredHeader:
    """A block as it is stored, without its checksums."""

    first_ms: int
    last_ms: int
    """Time of the last row, to within a tick, in ms since 1970."""
    capped: bool
    partial: bool
    """Whether some slots hold no tree."""
    has_failed: bool
    """Whether some trees have failed."""
    slots: int
    digest: str
    task: str
    label: str


def parse_record(record: bytes) -> StoredRecord:
    """Return a record; raise SchemaError if no script has written it."""
    try:
        checksum, flags, first, since = _RECORD.unpack_from(record)
        begin = RECORD_TASK + 1 + record[RECORD_TASK]
        task, text = record[RECORD_TASK + 1 : begin].decode(), record[begin:].decode()
    except (struct.error, IndexError, TypeError, UnicodeDecodeError):
        raise SchemaError("a record has been tampered with") from None
    if len(record) < begin or (task and not text) or not _is_written(task, text):
        raise SchemaError("a record has been tampered with")
    first_ms = int.from_bytes(first, "big")
    return StoredRecord(
        checksum,
        bool(flags & 1),
        bool(flags & 2),
        first_ms,
        first_ms + since,
        task,
        _ESCAPED.sub(r"\1", text),
    )


def parse_header(header: bytes) -> StoredHeader:
    """Return the header of a block; raise SchemaError if no script has written it."""
    try:
        first, since, flags, slots, digest = _HEADER.unpack_from(header)
        at = _HEADER.size + 1
        begin = at + header[_HEADER.size]
        task, label = header[at:begin].decode(), header[begin:].decode()
        known = digest.decode()
    except (struct.error, IndexError, TypeError, UnicodeDecodeError):
        raise SchemaError("the header of a block has been tampered with") from None
    if not task or not label or not _is_written(task, label):
        raise SchemaError("the header of a block has been tampered with")
    first_ms = int.from_bytes(first, "big")
    return StoredHeader(
        first_ms,
        first_ms + since,
        bool(flags & 1),
        bool(flags & 2),
        bool(flags & 4),
        slots,
        known,
        task,
        label,
    )


def _is_written(task: str, text: str) -> bool:
    """Return whether the scripts accept both texts: others must reach no terminal."""
    return (not task or is_name(task)) and not CONTROL.search(text)
