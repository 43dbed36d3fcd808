"""Boards that listeners read: the present state, and a ring of past events."""

import asyncio
from collections.abc import Callable
from typing import Protocol

from acker_api.auth.tokens import Who
from acker_api.live.ring import Ring
from acker_api.live.wire import frame, pack

Shown = Callable[["Listener"], bytes]
"""A frame, as a listener may see it."""
HELLO, STATE = "hello", "state"
"""Kinds of state: a new one replaces the old one, whether a listener has read it or not."""


class Board:
    """A board with one writer and many readers."""

    def __init__(self, ring: Ring) -> None:
        self.ring = ring
        self.news = asyncio.Event()
        """Set, and replaced, when the board has changed."""
        self.bells: set[asyncio.Event] = set()
        """Set when the board has changed; each belongs to a stream of several boards."""
        self.shown: dict[str, tuple[int, Shown]] = {}
        """By kind: the number of its changes, and its frame."""

    def show(self, kind: str, shown: Shown) -> None:
        """Replace the state of a kind."""
        self.shown[kind] = self.shown.get(kind, (0, shown))[0] + 1, shown
        self.wake()

    def tell(self, event: str, data: str, public: str | None = None) -> None:
        """Add an event to the ring; ``public`` is its form without ids, if it has ids."""
        self.ring.append(event, data, public)
        self.wake()

    def wake(self) -> None:
        """Wake all listeners."""
        self.news.set()
        self.news = asyncio.Event()
        for bell in self.bells:
            bell.set()


class Streamed(Protocol):
    """The content of a stream: see :class:`Listener`."""

    cut: Callable[[], object] | None

    @property
    def over(self) -> bool:
        """Whether the stream must end."""

    @property
    def news(self) -> asyncio.Event:
        """The event to wait for. Get it before :meth:`take`."""

    def take(self) -> bytes | None:
        """Return the next event, None if there is none now."""


class Listener:
    """One stream of events, and its position on its board.

    ``last`` is the id of the last event that the client has received; None if it has none.
    ``ids``: whether the client may see ids of messages.
    """

    def __init__(
        self, board: Board, who: Who, client: str, last: str | None = None, ids: bool = False
    ) -> None:
        self.board, self.who, self.client = board, who, client
        self._ids = ids
        self._seen: dict[str, int] = {}
        place = None if last is None else board.ring.place(last)
        self._at = board.ring.position if place is None else place
        self._lost = last is not None and place is None
        self._showed = False
        self.over = False
        """Whether the stream must end."""
        self.cut: Callable[[], object] | None = None
        """Ends the stream even while it waits for its client."""

    @property
    def news(self) -> asyncio.Event:
        """The event to wait for. Get it before :meth:`take`, or an event in between is missed."""
        return self.board.news

    @property
    def id(self) -> str | None:
        """The id of the last event taken; None if a gap must be reported first."""
        return None if self._lost else self.board.ring.id_of(self._at)

    def skip(self, kind: str) -> None:
        """Skip the present state of a kind: it may be out of date."""
        if kind in self.board.shown:
            self._seen[kind] = self.board.shown[kind][0]

    def end(self) -> None:
        """Let the stream end."""
        self.over = True
        self.board.wake()

    def take(self) -> bytes | None:
        """Return the next event, None if there is none now. Replaced states are skipped."""
        # In turns, so that a listener that is as slow as the state changes gets verdicts too.
        turn = (self._told, self._changed) if self._showed else (self._changed, self._told)
        for look in turn:
            if (event := look()) is not None:
                self._showed = look == self._changed
                return event
        return None

    def _changed(self) -> bytes | None:
        for kind in (HELLO, STATE):
            version, shown = self.board.shown.get(kind, (0, None))
            if shown and self._seen.get(kind) != version:
                self._seen[kind] = version
                return shown(self)
        return None

    def _told(self) -> bytes | None:
        ring = self.board.ring
        missed = ring.position - self._at
        if not self._lost and not missed:
            return None
        event = None if self._lost else ring.after(self._at, self._ids)
        if event is None:
            known, self._lost, self._at = not self._lost, False, ring.position
            return _gap(ring, missed if known else None)
        self._at += 1
        return event


def _gap(ring: Ring, missed: int | None) -> bytes:
    why = (
        "this process does not have the events since then"
        if missed is None
        else f"{missed} events came faster than the client read them"
    )
    text = f"{why}; GET outcomes has the untaken verdicts"
    return frame("gap", pack({"missed": missed, "why": text}), ring.id)
