"""What listeners look at: how something stands now, and a ring of what was told."""

import asyncio
from collections.abc import Callable

from acker_api.auth.tokens import Who
from acker_api.live.ring import Ring
from acker_api.live.wire import frame, pack

Shown = Callable[["Listener"], bytes]
"""A frame, as one who listens may see it."""
HELLO, STATE = "hello", "state"
"""What is shown: each replaces what was shown of it before, read or not."""


class Board:
    """Written by one, read by many."""

    def __init__(self, ring: Ring) -> None:
        self.ring = ring
        self.news = asyncio.Event()
        """Set, and replaced, when there is something new."""
        self.shown: dict[str, tuple[int, Shown]] = {}
        """By kind: how often it has changed, and what it is."""

    def show(self, kind: str, shown: Shown) -> None:
        """Replace what is shown."""
        self.shown[kind] = self.shown.get(kind, (0, shown))[0] + 1, shown
        self.wake()

    def tell(self, event: str, data: str) -> None:
        """Add to the ring."""
        self.ring.append(event, data)
        self.wake()

    def wake(self) -> None:
        """Let all listeners look."""
        self.news.set()
        self.news = asyncio.Event()


class Listener:
    """One stream of events: where it is on its board.

    ``last`` is the id of the last event that it has had, or None if it begins.
    """

    def __init__(self, board: Board, who: Who, client: str, last: str | None = None) -> None:
        self._board, self.who, self.client = board, who, client
        self._seen: dict[str, int] = {}
        place = None if last is None else board.ring.place(last)
        self._at = board.ring.position if place is None else place
        self._lost = last is not None and place is None
        self._showed = False
        self.over = False
        """Whether the stream is to end."""
        self.cut: Callable[[], object] | None = None
        """Ends the stream also while it waits for its client."""

    @property
    def news(self) -> asyncio.Event:
        """To wait for; take it before looking, or something may come in between."""
        return self._board.news

    @property
    def id(self) -> str | None:
        """Id of the last event that it has had; None if there is a gap to tell first."""
        return None if self._lost else self._board.ring.id_of(self._at)

    def end(self) -> None:
        """Let the stream end."""
        self.over = True
        self._board.wake()

    def take(self) -> bytes | None:
        """The next event, None if there is none now. What it has not seen in time it never sees."""
        # By turns: one that reads no faster than the state changes hears of verdicts too.
        turn = (self._told, self._changed) if self._showed else (self._changed, self._told)
        for look in turn:
            if (event := look()) is not None:
                self._showed = look == self._changed
                return event
        return None

    def _changed(self) -> bytes | None:
        for kind in (HELLO, STATE):
            version, shown = self._board.shown.get(kind, (0, None))
            if shown and self._seen.get(kind) != version:
                self._seen[kind] = version
                return shown(self)
        return None

    def _told(self) -> bytes | None:
        ring = self._board.ring
        missed = ring.position - self._at
        if not self._lost and not missed:
            return None
        event = None if self._lost else ring.behind(self._at)
        if event is None:
            known, self._lost, self._at = not self._lost, False, ring.position
            return _gap(ring, missed if known else None)
        self._at += 1
        return event


def _gap(ring: Ring, missed: int | None) -> bytes:
    why = (
        "the events since then are not known here"
        if missed is None
        else f"{missed} events came faster than they were read"
    )
    return frame("gap", pack({"missed": missed, "why": f"{why}; GET outcomes tells"}), ring.id)
