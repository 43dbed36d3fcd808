"""The last events of a namespace, in memory: all listeners read from one ring.

A listener is a number: the event up to which it has read. So a slow one costs nothing; when the
ring has gone on without it, it is told that it has missed some.
"""

import secrets
from collections import deque
from collections.abc import Callable

from acker_api.live.wire import frame

MOST = 600
"""Events that are kept: a minute, when as many come as may."""
MAX_BYTES = 1024 * 1024
"""Their bytes."""


class Ring:
    """Events with ids, the oldest of which are forgotten.

    >>> ring = Ring(most=2)
    >>> begin = ring.position
    >>> for event in "abc":
    ...     ring.append(event, "{}")
    >>> ring.behind(begin) is None  # it is gone
    True
    >>> ring.behind(begin + 1)[:8]
    b'event: b'
    >>> ring.place(ring.id) == ring.position, ring.place("other-1") is None
    (True, True)
    """

    def __init__(self, most: int = MOST, most_bytes: Callable[[], int] | int = MAX_BYTES) -> None:
        self._most, self._most_bytes = most, most_bytes
        self._events: deque[bytes] = deque()
        self.size = 0
        """Bytes that the events take."""
        self.position = 0
        """Number of the newest event; 0 before the first."""
        self._epoch = secrets.token_hex(6)
        """Tells the ids of this ring from those of other processes."""

    @property
    def id(self) -> str:
        """Id of the newest event."""
        return self.id_of(self.position)

    def id_of(self, position: int) -> str:
        """Id of the event at a position."""
        return f"{self._epoch}-{position}"

    def append(self, event: str, data: str) -> None:
        """Add an event; ``data`` is JSON on one line."""
        self.position += 1
        self._events.append(frame(event, data, self.id))
        self.size += len(self._events[-1])
        most = self._most_bytes if isinstance(self._most_bytes, int) else self._most_bytes()
        while len(self._events) > self._most or (self.size > most and len(self._events) > 1):
            self.size -= len(self._events.popleft())

    def behind(self, position: int) -> bytes | None:
        """The event right behind a position that is not the newest; None if it is gone."""
        wanted = self.position - position
        return self._events[-wanted] if wanted <= len(self._events) else None

    def place(self, id: str) -> int | None:
        """The position that an id means; None if it is not of this ring."""
        epoch, _, number = id.partition("-")
        if epoch != self._epoch or not (number.isascii() and number.isdigit()):
            return None
        position = int(number[:18])
        return position if position <= self.position else None
