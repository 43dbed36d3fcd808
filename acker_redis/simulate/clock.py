"""Virtual time: a queue of things to do, and nothing that the machine decides."""

from collections.abc import Callable
from heapq import heappop, heappush

Action = Callable[[], None]


class Clock:
    """Runs actions in order of their virtual time, in ms; at one time, as they were asked for."""

    def __init__(self) -> None:
        self.now = 0
        self.work = 0
        """Actions that wait and are more than the background's."""
        self._queue: list[tuple[int, int, Action, bool]] = []
        self._asked = 0

    def after(self, ms: int, action: Action, background: bool = False) -> None:
        """Run ``action`` in ``ms``. Background actions alone do not keep a history going."""
        self._asked += 1
        self.work += not background
        heappush(self._queue, (self.now + ms, self._asked, action, background))

    def run(self) -> None:
        """Run until only background actions are left."""
        queue = self._queue
        while self.work:
            self.now, _, action, background = heappop(queue)
            self.work -= not background
            action()
