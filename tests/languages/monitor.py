"""The commands that reach the servers: MONITOR of each node, decoded to bytes."""

import re
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from tests.languages.links import Links
from tests.waiting import LIMIT

_ARGUMENT = re.compile(rb'"((?:[^"\\]|\\.)*)"')
_ESCAPE = re.compile(rb"\\(x[0-9a-f]{2}|.)", re.DOTALL)
_NAMED = {b"n": b"\n", b"r": b"\r", b"t": b"\t", b"a": b"\a", b"b": b"\b"}
_HEAD = re.compile(rb"\+\d+\.\d+ \[\d+ [^\]]*\] ")
_OF_SCRIPT = re.compile(rb"\+\d+\.\d+ \[\d+ lua\] ")


@dataclass(frozen=True)
class Command:
    """A command as a node received it."""

    node: int
    words: tuple[bytes, ...]

    @property
    def name(self) -> str:
        """Return its name in capitals."""
        return self.words[0].decode().upper()


class Monitor:
    """Records the commands of nodes on 127.0.0.1, given by their ports.

    >>> with Monitor([port]) as monitor:
    ...     monitor.begin()
    ...     client.get("a")
    ...     monitor.end()
    [Command(node=0, words=(b'GET', b'a'))]
    """

    def __init__(self, ports: Sequence[int]) -> None:
        self._links = Links(ports)
        self._lines = [_Lines(port) for port in ports]
        self._number = 0

    def begin(self) -> None:
        """Start to record."""
        self._mark()

    def end(self) -> list[Command]:
        """Return all commands since :meth:`begin`, except those of scripts, node by node."""
        first, last = self._number, self._mark()
        found: list[Command] = []
        for node, lines in enumerate(self._lines):
            lines.until(_marker(first))
            for line in lines.until(_marker(last)):
                head = _HEAD.match(line)
                assert head, line
                words = tuple(map(unescape, _ARGUMENT.findall(line, head.end())))
                found.append(Command(node, words))
        return found

    def _mark(self) -> int:
        # A command that was answered before appears in MONITOR before the marker.
        self._number += 1
        self._links.ask("ECHO", _marker(self._number))
        return self._number

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for lines in self._lines:
            lines.close()
        self._links.close()


class _Lines:
    """One connection in MONITOR mode."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), LIMIT)
        self._socket.sendall(b"MONITOR\r\n")
        self._data = bytearray()
        assert self._socket.recv(5) == b"+OK\r\n"

    def until(self, marker: bytes) -> list[bytes]:
        """Return the lines before the marker, except those of scripts."""
        marker = b'"' + marker + b'"\r\n'
        begun = 0
        while (end := self._data.find(marker, begun)) < 0:
            begun = max(0, len(self._data) - len(marker))
            data = self._socket.recv(1 << 20)
            if not data:
                raise AssertionError("MONITOR has ended")
            self._data += data
        lines = bytes(self._data[:end]).split(b"\r\n")[:-1]
        del self._data[: end + len(marker)]
        return [line for line in lines if not _OF_SCRIPT.match(line)]

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()


def unescape(text: bytes) -> bytes:
    """Return the bytes of an argument that MONITOR shows escaped."""
    return _ESCAPE.sub(_byte, text) if b"\\" in text else text


def _byte(match: "re.Match[bytes]") -> bytes:
    code = match[1]
    if code[:1] == b"x" and len(code) == 3:
        return bytes([int(code[1:], 16)])
    return _NAMED.get(code, code)


def _marker(number: int) -> bytes:
    return b"acker-marker-%d" % number
