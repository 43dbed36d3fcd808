"""The last events of a namespace, in memory: all listeners read from one ring.

The state of a listener is the position up to which it has read, so a slow listener costs no memory.
When the ring has dropped its next event, the listener is notified that it has missed some.
"""

import secrets
from collections import deque
from collections.abc import Callable

from acker_api.live.wire import frame, parts

MOST = 600
"""Events that are kept: those of a minute, at the maximum rate."""
MAX_BYTES = 1024 * 1024
"""Maximum size of these events, in bytes."""


class Ring:
    """Events with ids; the oldest ones are dropped.

    >>> ring = Ring(most=2)
    >>> begin = ring.position
    >>> for event in "abc":
    ...     ring.append(event, "{}")
    >>> ring.after(begin) is None  # it was dropped
    True
    >>> ring.after(begin + 1)[:8]
    b'event: b'
    >>> ring.place(ring.id) == ring.position, ring.place("other-1") is None
    (True, True)
    """

    def __init__(self, most: int = MOST, most_bytes: Callable[[], int] | int = MAX_BYTES) -> None:
        self._most, self._most_bytes = most, most_bytes
        self._events: deque[bytes] = deque()
        self.size = 0
        """Size of the events, in bytes."""
        self.position = 0
        """Number of the newest event; 0 before the first."""
        self._epoch = secrets.token_hex(6)
        """Distinguishes the ids of this ring from those of other processes."""

    @property
    def id(self) -> str:
        """The id of the newest event."""
        return self.id_of(self.position)

    def id_of(self, position: int) -> str:
        """Return the id of the event at a position."""
        return f"{self._epoch}-{position}"

    def append(self, event: str, data: str) -> None:
        """Add an event; ``data`` is JSON on one line."""
        self.position += 1
        self._events.append(frame(event, data, self.id))
        self.size += len(self._events[-1])
        most = self._most_bytes if isinstance(self._most_bytes, int) else self._most_bytes()
        while len(self._events) > self._most or (self.size > most and len(self._events) > 1):
            self.size -= len(self._events.popleft())

    def after(self, position: int) -> bytes | None:
        """Return the event after a position, which is not the newest; None if it was dropped."""
        wanted = self.position - position
        return self._events[-wanted] if wanted <= len(self._events) else None

    def kept(self) -> list[tuple[str, bytes]]:
        """Return name and data of all events, the oldest first.

        >>> ring = Ring()
        >>> ring.append("gap", "{}")
        >>> ring.kept()
        [('gap', b'{}')]
        """
        return [parts(event) for event in self._events]

    @property
    def whole(self) -> bool:
        """Whether no event was dropped."""
        return self.position == len(self._events)

    def place(self, id: str) -> int | None:
        """Return the position of an id; None if it is not an id of this ring."""
        epoch, _, number = id.partition("-")
        if epoch != self._epoch or not (number.isascii() and number.isdigit()):
            return None
        position = int(number[:18])
        return position if position <= self.position else None
