"""The last events of a namespace, in memory: all listeners read from one ring.

An event may have a second form, for listeners that may not see ids of messages.

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
        self._events: deque[tuple[bytes, bytes]] = deque()
        """Each for listeners that may see ids, and for others."""
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

    def append(self, event: str, data: str, public: str | None = None) -> None:
        """Add an event; ``data`` is JSON on one line.

        ``public`` is its form without ids; None: ``data`` has none.
        """
        self.position += 1
        whole = frame(event, data, self.id)
        other = whole if public in (None, data) else frame(event, public, self.id)
        self._events.append((whole, other))
        self.size += _size(whole, other)
        most = self._most_bytes if isinstance(self._most_bytes, int) else self._most_bytes()
        while len(self._events) > self._most or (self.size > most and len(self._events) > 1):
            self.size -= _size(*self._events.popleft())

    def after(self, position: int, ids: bool = False) -> bytes | None:
        """Return the event after a position, which is not the newest; None if it was dropped.

        ``ids``: whether the listener may see ids of messages.
        """
        wanted = self.position - position
        return self._events[-wanted][0 if ids else 1] if wanted <= len(self._events) else None

    def kept(self, ids: bool = False) -> list[tuple[str, bytes]]:
        """Return name and data of all events, the oldest first.

        ``ids``: whether the caller may see ids of messages.

        >>> ring = Ring()
        >>> ring.append("gap", "{}")
        >>> ring.kept()
        [('gap', b'{}')]
        """
        return [parts(event[0 if ids else 1]) for event in self._events]

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


def _size(whole: bytes, other: bytes) -> int:
    return len(whole) + (0 if other is whole else len(other))
