"""Virtual time: a queue of actions, independent of the machine."""

from collections.abc import Callable
from heapq import heappop, heappush

Action = Callable[[], None]


class Clock:
    """Runs actions in order of virtual time, in ms; at equal times in the order of the calls."""

    def __init__(self) -> None:
        self.now = 0
        self.work = 0
        """Number of waiting actions that are not background actions."""
        self._queue: list[tuple[int, int, Action, bool]] = []
        self._asked = 0

    def after(self, ms: int, action: Action, background: bool = False) -> None:
        """Run ``action`` in ``ms``. Background actions alone do not keep a history running."""
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
