"""The messages of some trees, from a file of message ids that may be larger than memory."""

from __future__ import annotations

import json
import tempfile
from array import array
from collections.abc import Iterable, Iterator
from typing import BinaryIO

from acker_redis.cli.lines import text_of
from acker_redis.errors import InvalidBatchError
from acker_redis.trees.message_id import HEADER, MessageId

MAX_LINE = 1024 * 1024
"""Limit of a line in bytes."""
IN_MEMORY = 16 * 1024 * 1024
"""Bytes of lines that are kept in memory; more are in a temporary file."""


class Messages:
    """Keeps the messages of these trees: 16 bytes a message in memory, and the lines in a file."""

    def __init__(self, anchors: Iterable[int]) -> None:
        self._ids = {anchor: array("Q") for anchor in anchors}
        """Of each tree: tuple id and place of the line, tuple id and place of the line, .."""
        self._lines = tempfile.SpooledTemporaryFile(IN_MEMORY)  # noqa: SIM115 - see close()
        self._end = 0
        self.read = self.kept = 0
        """Number of lines that were read, and of those that belong to the trees."""

    def add_all(self, file: BinaryIO, name: str) -> None:
        """Read a file, line by line.

        Raise InvalidBatchError, with the name of the file and the number of the line, for a line
        that is neither.
        """
        for number, line in _lines(file, name):
            self.read += 1
            try:
                message = _id_of(line)
            except InvalidBatchError as error:
                raise InvalidBatchError(f"line {number} of {name}: {error}") from None
            known = [(a, tuple_id) for a, tuple_id in message.items() if a in self._ids]
            if not known:
                continue
            self.kept += 1
            for anchor, tuple_id in known:
                self._ids[anchor].extend((tuple_id, self._end))
            data = line.encode() + b"\n"
            self._lines.write(data)
            self._end += len(data)

    def of(self, anchor: int) -> dict[int, int]:
        """Return the tuple ids of a tree, each with the place of its first line."""
        both, found = self._ids[anchor], dict[int, int]()
        for tuple_id, place in zip(both[::2], both[1::2], strict=True):
            found.setdefault(tuple_id, place)
        return found

    def line(self, place: int) -> str:
        """Return the line at a place."""
        self._lines.seek(place)
        return self._lines.readline().decode().rstrip("\n")

    def close(self) -> None:
        """Remove the temporary file."""
        self._lines.close()


def _lines(file: BinaryIO, name: str) -> Iterator[tuple[int, str]]:
    number = 0
    while data := file.readline(MAX_LINE + 1):
        number += 1
        data = data.rstrip(b"\r\n")
        if len(data) > MAX_LINE:
            raise InvalidBatchError(f"line {number} of {name} is longer than 1 MiB")
        try:
            line = text_of(data, number)
        except UnicodeDecodeError:
            raise InvalidBatchError(f"line {number} of {name} is not UTF-8") from None
        if line.strip():
            yield number, line


def _id_of(line: str) -> MessageId:
    """Return the message id that begins a line; or of a line of JSON, its field acker-tuple."""
    text = line.lstrip(" \t")
    if not text.startswith("{"):
        return MessageId.parse(text.replace("\t", " ", 1).partition(" ")[0])
    try:
        given = json.loads(text).get(HEADER)
    except (ValueError, RecursionError):
        raise InvalidBatchError(f"it is not JSON: {text[:50]!r}") from None
    return MessageId.of("" if given is None else given)
