"""Loose rows on the wire: a column of bytes for each field, whichever language fills them."""

import hashlib
import re
from dataclasses import dataclass

from acker_redis.errors import InvalidBatchError

TRACK, FAIL, TOUCH = 1, 2, 4
MAX_ROWS = 1024
"""Rows (distinct anchors) of one batch at most."""
MAX_TEXT = 255
"""Bytes of a source id or of a why at most."""
MAX_TEXTS = 64 * 1024
"""Bytes of all source ids and whys of one batch at most."""


_CONTROL = re.compile(rb"[\x00-\x1f\x7f]")


@dataclass(frozen=True, slots=True)
class Columns:
    """Rows of one shard as they are sent: ``n`` flags, ``8n`` bytes each of anchors, deltas."""

    flags: bytes
    anchors: bytes
    deltas: bytes
    task: str
    texts: tuple[bytes, ...]
    """Source ids of the TRACK rows, then whys of the FAIL rows, each in row order."""

    def __len__(self) -> int:
        return len(self.flags)

    @property
    def digest(self) -> str:
        """16 hex digits that tell these rows from others."""
        digest = hashlib.blake2b(self.flags, digest_size=8)
        digest.update(self.anchors + self.deltas + self.task.encode())
        for text in self.texts:
            digest.update(b"%d " % len(text) + text)
        return digest.hexdigest()

    def anchor(self, row: int) -> int:
        """Anchor of a row, counted from 0."""
        return int.from_bytes(self.anchors[8 * row : 8 * row + 8], "big")


def check_text(kind: str, text: str, least: int) -> bytes:
    """UTF-8 of a source id or why; InvalidBatchError if the scripts would refuse it."""
    try:
        data = text.encode()
    except (UnicodeEncodeError, AttributeError):
        raise InvalidBatchError(f"a {kind} is text that UTF-8 can hold, not {text!r}") from None
    if not least <= len(data) <= MAX_TEXT:
        raise InvalidBatchError(f"a {kind} has {least} to {MAX_TEXT} bytes, this one {len(data)}")
    if _CONTROL.search(data):
        raise InvalidBatchError(f"a {kind} has no control characters: {text!r}")
    return data
