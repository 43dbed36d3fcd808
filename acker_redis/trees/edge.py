"""The records of a source that travel on one edge: those that wait, and the edge's window."""

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from acker_redis.trees.window import Window

if TYPE_CHECKING:
    from acker_redis.trees.pending import Record


@dataclass(frozen=True, slots=True)
class SourceEdge:
    """What a source says of one of its edges: see :meth:`Source.status`.

    >>> from acker_redis import SourceEdge
    >>> SourceEdge("parts", window=1000, in_flight=12, waiting=0, down_for=None).edge
    'parts'
    """

    edge: str
    """Name of the edge that first messages travel on; '' for records without one."""
    window: int | None
    """Records that may be in flight; None with ``adaptive=False``, which has no window."""
    in_flight: int
    """Records that were sent, and have no verdict yet."""
    waiting: int
    """Records that wait for the window or for their back-off."""
    down_for: float | None
    """Seconds since which no answer comes, so that only probes are sent; None if answers come."""


@dataclass(slots=True, eq=False)
class Edge:
    """The open records of one edge."""

    name: str
    window: Window
    queue: "deque[Record]" = field(default_factory=deque)
    """New records to track next."""
    due: "deque[Record]" = field(default_factory=deque)
    """Records to track again; the wait of their back-off is over."""
    open: int = 0
    """Records that are not closed; the thread that runs the steps writes it."""
    added: int = 0
    """Records that were added in all, for :meth:`SourceFlows.has_room`."""
    room: float = 0.0
    """How many more records may be sent in this step."""

    def take(self) -> "Record | None":
        """Return and remove the record to send next: replays first; None if none waits."""
        if self.window.down_since is not None:
            return self._probe()
        if self.due:
            return self.due.popleft()
        return self.queue.popleft() if self.queue else None

    def _probe(self) -> "Record | None":
        """Return and remove the oldest of the records with the fewest attempts.

        So probes go round, and no record uses its attempts up while the edge is down.
        """
        if self.queue:
            return self.queue.popleft()
        if not self.due:
            return None
        record = min(self.due, key=lambda each: each.attempt + each.free)
        self.due.remove(record)
        return record

    def state(self, now: float) -> SourceEdge:
        """Return what :meth:`Source.status` says of the edge."""
        window = self.window
        return SourceEdge(
            self.name,
            None if window.most == float("inf") else int(window.size),
            window.in_flight,
            self.open - window.in_flight,
            None if window.down_since is None else now - window.down_since,
        )
