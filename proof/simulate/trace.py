"""The history of one run: a digest of all events, and a readable trace of one tree."""

import hashlib
from collections.abc import Iterable


class Trace:
    """The events of a history in order. Histories that differ in a byte have different digests."""

    def __init__(self, keep: int = 100_000) -> None:
        self._hash = hashlib.blake2b(digest_size=8)
        self._events: list[tuple[int, str, tuple[int, ...]]] = []
        self._keep = keep

    def add(self, now: int, text: str, anchors: Iterable[int] = ()) -> None:
        """Add an event at ``now`` ms; without anchors it concerns every tree."""
        self._hash.update(f"{now} {text}\n".encode())
        self._events.append((now, text, tuple(anchors)))
        if len(self._events) > 2 * self._keep:
            del self._events[: self._keep]

    @property
    def digest(self) -> str:
        """The digest of all events so far, 16 hex digits."""
        return self._hash.hexdigest()

    def tail(self, anchor: int, tick_ms: int, lines: int = 25) -> list[str]:
        """Return the last events of one tree (0: of all), with their time in ticks."""
        found = [
            f"{now / tick_ms:9.3f}  {text}"
            for now, text, anchors in self._events
            if not anchor or not anchors or anchor in anchors
        ]
        return found[-lines:]
