"""How many records of one edge a source may have in flight: a window, as TCP has it. No I/O.

**The problem.** While a consumer is away, its queue fills with messages whose trees expire. If the
source sends replays and new records all the same, the consumer comes back to a queue that takes it
longer to work off than trees live. It works for trees that have ended, and never gets out of it: a
metastable failure (Bronson et al., HotOS 2021). A window keeps in the source what the consumer
cannot finish in time.

**The control.** Additive increase, multiplicative decrease (Chiu and Jain, 1989; RFC 5681). An
*answer* is an ack or a failure: a consumer has processed the record. The rules:

* *Begin.* The window is ``BEGIN``, and doubles each second until the first answer, so that sources
  of slow trees need no ramp of hours. It is ``FIRST``, and does not double, if expired verdicts of
  an earlier program wait.
* *Silence.* If no answer came for longer than answers take (their mean and four deviations, or
  ``PATIENCE`` if these are shorter, as in RFC 6298), one more record is sent each time the silence
  has doubled, and one a lifetime later on. So the queue of a consumer that has stopped stays short.
* *Down.* A lifetime without an answer, in which a record expired. Then only probes are sent, one a
  lifetime. The first answer ends it; then the window is 1.
* *Expiry.* The window becomes half of the records in flight, at most once a lifetime, and only if
  more than one in eight of the last verdicts is an expiry: fewer are lost messages, and no sign of
  a queue.
* *Growth*, only if a record waited for the window since the last answer (RFC 7661: a window that
  does not limit is not validated). Each answer adds 1 below the threshold (slow start) and
  ``GAIN`` above it, while answers take about as long as the fastest lately. If they take longer,
  there is a queue, so a larger window brings nothing: an answer adds 1 in a whole window, and
  nothing if it took over half a lifetime.
* *Slow consumers.* Once answers take a quarter of a lifetime, and three times as long as the
  fastest, the window is no larger than the number of records in flight.

The threshold is the number in flight before the window shrank. The constants come from the
simulation in ``tests/source/test_window_stability.py``.

All times are in seconds of one clock that does not go back.
"""

import math
from dataclasses import dataclass

BEGIN = 100
"""Records in flight at first."""
FIRST = 10
"""Records in flight at first, if expired verdicts of an earlier program wait at the start."""
PATIENCE = 1.0
"""Seconds beyond the mean that are no silence, or a quarter of a lifetime if that is shorter."""
MANY = 1 / 8
"""Part of the last verdicts up to which expiries do not shrink the window."""
GAIN = 1 / 16
"""What an answer adds above the threshold."""
NEAR, SLACK = 1.5, 0.1
"""An answer is about as fast as the fastest up to this factor, and these seconds more."""
REMEMBERED = 10
"""Lifetimes after which the fastest answers are measured again, unless the window limits."""


@dataclass(slots=True, eq=False)
class Window:
    """The window of one edge of a source.

    >>> window = Window(100, lifetime=60.0)
    >>> window.room(0.0)
    100
    >>> for _ in range(8):
    ...     window.sent(0.0)
    >>> for _ in range(8):
    ...     window.expired(60.0)
    >>> window.room(61.0), window.size, window.down_since
    (1, 1.0, 61.0)
    """

    most: float
    """The largest window; infinity: it never limits, and all records are sent at once."""
    lifetime: float = math.inf
    """Seconds that trees live at least."""
    size: float = 0.0
    """Records that may be in flight; 0 at the beginning means ``BEGIN``, or ``most`` if smaller."""
    in_flight: int = 0
    """Records that were sent, and have no verdict yet."""
    down_since: float | None = None
    """When the edge was found to be down; None while answers come."""
    _threshold: float = math.inf
    _doubles_at: float = -math.inf
    """When the window doubles if no answer has come yet; infinity: it does not."""
    _limits: bool = False
    """Whether a record waits because of the window."""
    _limited_at: float = -math.inf
    _quiet_since: float = 0.0
    """When the last answer came, or the first record was sent after a time without any."""
    _next_probe: float = 0.0
    """Seconds of silence after which one more record is sent."""
    _expired: bool = False
    """Whether a record has expired since the last answer."""
    _used: int = 0
    """Records in flight after the last one was sent."""
    _before: int = 0
    """Records in flight when the first of these expired."""
    _share: float = 0.0
    """Part of the last verdicts that are expiries, smoothed over 16 of them."""
    _cut_at: float = -math.inf
    """When the window shrank last because of an expiry."""
    _mean: float = 0.0
    """Smoothed seconds from TRACK to answer."""
    _deviation: float = 0.0
    _patience: float = math.inf
    """Seconds without an answer that are no silence; infinity before the first answer."""
    _fastest: float = math.inf
    """The smallest mean lately; infinity: the next answer begins the mean."""
    _fastest_at: float = 0.0
    _learned_at: float = -math.inf
    """When an answer was measured last; of those that are heard together one is enough."""

    def __post_init__(self) -> None:
        self.size = self.size or (self.most if self.most == math.inf else min(self.most, BEGIN))

    def begin_carefully(self) -> None:
        """Begin with a small window: trees of an earlier program have expired."""
        self.size, self._doubles_at = min(self.size, FIRST), math.inf

    def room(self, now: float) -> float:
        """Return how many records may be sent now."""
        if self.most == math.inf:
            return math.inf
        if self._limits:
            self._limited_at, self._limits = now, False
            if now >= self._doubles_at and self._patience == math.inf and not self._expired:
                self.size, self._doubles_at = min(self.most, 2 * self.size), now + PATIENCE
        quiet = now - self._quiet_since if self.in_flight or self._expired else 0.0
        # Trees that are touched, or refreshed by their rows, live longer than a lifetime.
        if quiet >= self.lifetime and self._expired and self.down_since is None:
            self.size, self._threshold, self.down_since = 1.0, max(1.0, self._before), now
        if self._silent(quiet):
            return int(quiet >= self._next_probe)
        return max(0, int(self.size) - self.in_flight)

    def waits(self) -> None:
        """Note that a record waits for room."""
        self._limits = True

    def sent(self, now: float) -> None:
        """Note that a record was sent."""
        if self._doubles_at < 0:
            self._doubles_at = now + PATIENCE
        if not self.in_flight and not self._expired:
            self._quiet_since = now
        elif self._silent(quiet := now - self._quiet_since):
            self._next_probe = quiet + min(quiet, self.lifetime)
        self.in_flight += 1
        self._used = self.in_flight

    def answered(self, now: float, took: float) -> None:
        """Note that a record was acked or failed ``took`` seconds after its TRACK."""
        if self._silent(now - self._quiet_since):
            if self.down_since is None:
                self.size = max(1.0, min(self.size, self.in_flight))
            else:
                self._share = 0.0  # probes that are still in the queue expire: they shrink nothing
            # It waited in a queue that had stopped, so its time says nothing.
            self._patience, self._fastest = min(PATIENCE, self.lifetime / 4), math.inf
        elif now != self._learned_at:
            self._learn(now, took)
        self.down_since, self._expired = None, False
        self._quiet_since, self._next_probe = now, 0.0
        self._share -= self._share / 16
        queued = took > NEAR * self._fastest + min(SLACK, self.lifetime / 20)
        if self._mean > max(self.lifetime / 4, 3 * self._fastest):
            self.size = min(self.size, self._used)
        if self._limits and self.size < self.most:
            gain = 1.0 / self.size
            if not queued:
                gain = 1.0 if self.size < self._threshold else max(gain, GAIN)
            elif took > self.lifetime / 2:
                gain = 0.0  # a longer queue would make trees expire
            self.size = min(self.most, self.size + gain)
        self.in_flight -= 1

    def expired(self, now: float) -> None:
        """Note that a record expired without an answer."""
        self._share += (1 - self._share) / 16
        if now >= self._cut_at + self.lifetime and self._share > MANY:
            self.size = max(1.0, min(self.size, self.in_flight / 2))
            if self.down_since is None:
                self._threshold = self.size
            self._cut_at = now
        if not self._expired:
            self._expired, self._before = True, self.in_flight
        self.in_flight -= 1

    def withdrawn(self) -> None:
        """Note that a record was not sent after all: it says nothing about the edge."""
        self.in_flight -= 1
        self._next_probe = 0.0

    def pardon(self, now: float) -> None:
        """Begin the silence again: answers could not be heard until now."""
        if self.down_since is None:
            self._quiet_since, self._next_probe = now, 0.0

    def _silent(self, quiet: float) -> bool:
        """Return whether answers should have come in this time without one."""
        if self.down_since is not None:
            return True
        return quiet > (self._patience if self._patience < math.inf else self.lifetime)

    def _learn(self, now: float, took: float) -> None:
        self._learned_at = now
        if self._fastest == math.inf:
            self._mean, self._deviation = took, took / 2
        else:
            self._deviation += (abs(took - self._mean) - self._deviation) / 4
            self._mean += (took - self._mean) / 8
        least = min(PATIENCE, self.lifetime / 4)
        self._patience = self._mean + max(least, 4 * self._deviation)
        # While the window limits, even the fastest answers may have waited in a queue.
        old = now >= self._fastest_at + REMEMBERED * self.lifetime
        if self._mean < self._fastest or (old and now >= self._limited_at + self.lifetime):
            self._fastest, self._fastest_at = self._mean, now
