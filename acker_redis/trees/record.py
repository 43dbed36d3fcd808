"""The records of a source, their verdicts, and the edges that they travel on."""

import math
import random
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from acker_redis.errors import ConfigError
from acker_redis.protocol.outcome import Entry, Outcome
from acker_redis.protocol.reports import SourceEdge
from acker_redis.trees.window import Window

if TYPE_CHECKING:
    from acker_redis.trees.group import GroupBlock


@dataclass(slots=True, eq=False)
class Record:
    """A record that a source emits, and replays until its whole tuple tree was processed.

    >>> Record("order-1", {"items": 3}).attempt
    0
    """

    source_id: str
    """The source's id of the record, which the verdict carries."""
    value: Any = None
    """The data that ``send`` needs; None if the program that tracked the record has ended."""
    messages: int | None = 1
    """Number of first messages; None: unknown until ``send`` has emitted them."""
    attempt: int = 0
    """How often the record was tracked, without ``free`` attempts. 0 in a verdict on a record that
    an earlier program tracked."""
    edge: str = ""
    """Name of the edge that the first messages travel on, mostly that of their queue; '' if they
    have none, or if ``send`` names the edge of each."""
    _readings: "list[Reading] | None" = field(default=None, repr=False)
    """Entries of the stream that cannot be taken until the record is tracked again."""
    _group: "GroupBlock | None" = field(default=None, repr=False)
    """The block of the completion group that emitted the record."""
    free: int = 0
    """Attempts that do not count: probes that expired untouched while their edge was down."""
    _edge: "Edge | None" = field(default=None, repr=False)
    _sent: bool = field(default=False, repr=False)
    """Whether an attempt is in flight."""
    _probe: bool = field(default=False, repr=False)
    """Whether the edge was down when the attempt was tracked."""
    _first_at: float | None = field(default=None, repr=False)
    """When this program tracked it first."""

    @property
    def delivery(self) -> str:
        """Where the record is, and why it waits, in a few words."""
        if self._edge is None:
            return "not taken in yet"
        times = f"attempt {self.attempt}" + (f" and {self.free} free" if self.free else "")
        edge, window = self._edge, self._edge.window
        on = f" on edge {edge.name}" if edge.name else ""
        if self._sent:
            return f"in flight{on}, {times}{', a probe' if self._probe else ''}"
        if self in edge.due or self in edge.queue:
            if window.down_since is not None:
                return f"waits after {times}: nothing is answered{on}, one probe a lifetime is sent"
            size = int(window.size) if window.most < math.inf else "any number"
            return f"waits after {times}: {window.in_flight} of {size} records{on} are in flight"
        return f"waits after {times}: back-off"


@dataclass(slots=True)
class Verdict:
    """The verdict on one attempt of a record, as callbacks receive it.

    >>> Verdict(Record("order-1"), "nack", "expired", "", 90_000, final=False, anchor=7).final
    False
    """

    record: Record
    verdict: Literal["ack", "nack"]
    reason: str
    """completed, failed, expired, overflow, conflict or reset, as in the stream. ``timeout``: the
    source received no verdict in time, so the acker must have lost the tree. ``outage``: the last
    of the free attempts, after ``give_up_after`` seconds."""
    why: str
    """The reason that the bolt gave when it failed the tree; of an expired tree, where a message is
    missing and since when, such as ``no ack on edge plane; last row 41 s ago, of 90 s``; or ''."""
    age_ms: int
    """Milliseconds from the tree's first row to the verdict."""
    final: bool
    """True for an ack, and for a nack that is not followed by a replay."""
    anchor: int
    """The anchor of the attempt."""
    outcome: Outcome | None = None
    """The verdict as the stream has it, with edges and residual of an expired tree; None if the
    source itself has timed the attempt out."""


@dataclass(frozen=True, slots=True)
class Backoff:
    """Exponential back-off with jitter before a replay: 1, 2, 4, .. seconds, at most 60.

    Each wait is random between half of that time and all of it, so that records that failed
    together are not replayed together.

    Raises:
        ConfigError: Not ``0 <= first <= most``.

    Examples:
        >>> Backoff(first=1.0, most=60.0).ceiling(4)
        8.0

    """

    first: float = 1.0
    """Maximum seconds of the wait after the first attempt."""
    most: float = 60.0
    """Maximum seconds of any wait."""

    def __post_init__(self) -> None:
        if not 0 <= self.first <= self.most:
            raise ConfigError(
                f"a back-off needs 0 <= first <= most seconds, not {self.first} and {self.most}"
            )

    def ceiling(self, attempt: int) -> float:
        """Return the maximum seconds of the wait after this number of attempts."""
        return min(self.most, self.first * 2.0 ** min(max(attempt - 1, 0), 60))

    def draw(self, attempt: int) -> float:
        """Return a random wait in seconds after this number of attempts."""
        return self.ceiling(attempt) * random.uniform(0.5, 1.0)  # noqa: S311 - jitter


@dataclass(slots=True, eq=False)
class Reading:
    """Progress of the source in an entry of the stream."""

    entry: Entry
    next: int = 0
    """Number of the first verdict that has not counted yet."""
    read: bool = False
    """Whether all verdicts have counted."""
    owed: set[Record] = field(default_factory=set)
    """Records that the entry nacked and that are not tracked again yet."""


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

    def probe(self) -> "Record":
        """Return and remove the oldest of the waiting records with the fewest attempts.

        So probes go round, and no record uses its attempts up while the edge is down.
        """
        if self.queue:
            return self.queue.popleft()
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
