"""Read lines from stdin as they arrive."""

import codecs
import sys
from collections.abc import Iterator
from io import BufferedReader
from typing import cast

from acker_redis.errors import InvalidBatchError

CHUNK = 64 * 1024
"""Bytes per read of stdin, and limit of a line. The lines of one read become a batch."""


def text_of(line: bytes, number: int) -> str:
    """Return the text of a line; the first line may begin with a byte order mark, which is no text.

    Editors and spreadsheets of Windows begin their files so.
    """
    return (line.removeprefix(codecs.BOM_UTF8) if number == 1 else line).decode()


def chunks() -> Iterator[list[tuple[int, str]]]:
    """Yield the lines of each read, with their line numbers, without empty lines.

    Raise InvalidBatchError, with the line number, if a line is not UTF-8 or longer than 64 KiB.
    """
    number, rest, stdin = 0, b"", cast(BufferedReader, sys.stdin.buffer)
    while True:
        chunk = stdin.read1(CHUNK)
        *lines, rest = (rest + chunk).split(b"\n") if chunk else [rest, b""]
        if len(rest) > CHUNK:
            raise InvalidBatchError(
                f"line {number + len(lines) + 1} of stdin is longer than 64 KiB"
            )
        found = []
        for line in lines:
            number += 1
            try:
                text = text_of(line, number).strip("\r")
            except UnicodeDecodeError:
                raise InvalidBatchError(f"line {number} of stdin is not UTF-8") from None
            if text:
                found.append((number, text))
        if found:
            yield found
        if not chunk:
            return
