"""Several boards on one stream: a browser has six connections to a server, and more windows.

The events of a namespace have its name after their kind, ``status orders``; those of the list of
all namespaces have none.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable

from acker_api.live.board import Listener
from acker_api.live.wire import frame, pack
from acker_api.problems import Problem


class Several:
    """Listeners that share a stream, by namespace; None for the list of all."""

    def __init__(
        self, parts: Iterable[tuple[str | None, Listener]], refused: Iterable[tuple[str, Problem]]
    ) -> None:
        """``refused`` are namespaces without a listener, and why; the stream begins with them."""
        self.parts = deque(parts)
        self._first = deque(
            named(frame("problem", pack(problem.body())), name) for name, problem in refused
        )
        self._bell = asyncio.Event()
        for _, listener in self.parts:
            listener.board.bells.add(self._bell)

    @property
    def over(self) -> bool:
        """Whether the stream must end."""
        return any(listener.over for _, listener in self.parts)

    @property
    def cut(self) -> Callable[[], object] | None:
        """Ends the stream even while it waits for its client."""
        return self.parts[0][1].cut if self.parts else None

    @cut.setter
    def cut(self, cut: Callable[[], object] | None) -> None:
        for _, listener in self.parts:
            listener.cut = cut

    @property
    def news(self) -> asyncio.Event:
        """The event to wait for, before :meth:`take` as that of a listener."""
        self._bell.clear()
        return self._bell

    def take(self) -> bytes | None:
        """Return the next event of the listeners in turn; None if there is none now."""
        if self._first:
            return self._first.popleft()
        for _ in range(len(self.parts)):
            name, listener = self.parts[0]
            self.parts.rotate(-1)
            if (event := listener.take()) is not None:
                return event if name is None else named(event, name)
        return None

    def leave(self) -> None:
        """Do not wake the stream again; it has ended."""
        for _, listener in self.parts:
            listener.board.bells.discard(self._bell)


def named(event: bytes, name: str) -> bytes:
    r"""Return an event with the name of its namespace.

    >>> named(b"event: status\ndata: {}\n\n", "orders")
    b'event: status orders\ndata: {}\n\n'
    """
    kind, _, rest = event.partition(b"\n")
    return b"%b %b\n%b" % (kind, name.encode(), rest)
