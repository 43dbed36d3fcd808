"""Rows that wait to be sent: batches in a queue per shard. No I/O, no locks."""

import math
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from acker_redis.batching.batch import Batch
from acker_redis.protocol.ids import shard_of
from acker_redis.protocol.rows import FAIL, TRACK, Row


@dataclass(slots=True)
class _Shard:
    queue: deque[Batch] = field(default_factory=deque)
    """Batches that are not sent yet; rows are added to the last one."""
    since: float = 0.0
    """When the first row of the first batch was added."""
    hurried: int = 0
    """Number of batches, from the first on, that do not linger."""
    in_flight: Batch | None = None
    """The batch that was sent and has no reply yet."""
    sending: bool = False
    """Whether a sender has it; else it waits for its next attempt."""
    away: bool = False
    """Whether its last attempt failed."""
    retry_at: float = 0.0
    """When the next attempt is due."""


class Accumulator:
    """Folds rows per anchor into batches, and chooses the shard whose batch is sent next.

    A shard is ready when its batch is full, or the batch's first row has waited for ``linger``
    seconds, or :meth:`hurry` was called. In addition no other batch of the shard may be in flight,
    because a lane has at most one call in flight. New rows go into the next batch, so batches grow
    as Redis gets slower. All times are in seconds of any one clock.

    **Shards that do not answer.** A batch whose attempt failed waits for its next one with
    :meth:`later`, and its shard is *away* until an attempt succeeds. At most one shard that is away
    is with a sender at a time, and the others go first: calls that hang leave senders to them.
    """

    def __init__(self, source: str, shards: int, linger: float) -> None:
        self.shards = shards
        self._source = source
        self._linger = linger
        self._waiting: dict[int, _Shard] = {}
        """Shards with batches that are queued or in flight."""
        self._trying: int | None = None
        """The shard that is away and that a sender has."""
        self.size = 0
        """Number of folded rows that are queued or in flight."""

    def add(self, rows: Iterable[Row], now: float) -> bool:
        """Add validated rows; return whether a sleeping sender must wake up."""
        wake = False
        for row in rows:
            anchor, delta, flags, said = row
            text = said.encode() if flags & (TRACK | FAIL) else b""
            number = shard_of(anchor, self.shards) if self.shards > 1 else 0
            shard = self._waiting.get(number)
            if shard is None:
                shard = self._waiting[number] = _Shard()
            queue = shard.queue
            if not queue:
                shard.since = now
                queue.append(Batch(self._source))
                wake = True
            batch = queue[-1]
            added = batch.fold(anchor, delta, flags, text)
            if added is None:
                batch, wake = Batch(self._source), True
                queue.append(batch)
                added = batch.fold(anchor, delta, flags, text)
            if added:
                self.size += 1
                wake = wake or batch.full
        return wake

    def add_acks(self, anchors: list[int], deltas: list[int], now: float) -> bool:
        """Add acks as columns; return whether a sleeping sender must wake up: see :meth:`add`."""
        acks = dict(zip(anchors, deltas, strict=True)) if self.shards == 1 else {}
        if not anchors or len(acks) < len(anchors):  # an anchor occurs twice
            return self.add([Row(*each) for each in zip(anchors, deltas, strict=True)], now)
        wake, shard = False, self._waiting.get(0)
        if shard is None or not shard.queue:
            wake = self.add([Row(anchors[0], acks.pop(anchors[0]))], now)
            shard = self._waiting[0]
        batch, before = shard.queue[-1], len(shard.queue[-1])
        if batch.fold_acks(acks):
            self.size += len(batch) - before
            return wake or batch.full
        return self.add([Row(*each) for each in acks.items()], now) or wake

    def take(self, now: float) -> tuple[int, Batch] | None:
        """Return a ready shard and its batch, which is then in flight; None if none is ready."""
        ready = [number for number, each in self._waiting.items() if self._is_due(each, now)]
        if not ready:
            return None
        number = next((each for each in ready if not self._waiting[each].away), ready[0])
        shard = self._waiting[number]
        if shard.in_flight is None:
            shard.in_flight = shard.queue.popleft()
            shard.since = now
            shard.hurried = max(shard.hurried - 1, 0)
        shard.sending = True
        if shard.away:
            self._trying = number
        # Round-robin: this shard is the last in the next round.
        self._waiting[number] = self._waiting.pop(number)
        return number, shard.in_flight

    def later(self, shard: int, at: float) -> None:
        """Let the batch in flight of a shard, whose attempt failed, wait for its next attempt."""
        its = self._waiting[shard]
        its.sending, its.away, its.retry_at = False, True, at
        self._tried(shard)

    def done(self, shard: int) -> None:
        """Remove the batch in flight of a shard: it was answered, or given up."""
        its = self._waiting[shard]
        if its.in_flight is not None:
            self.size -= len(its.in_flight)
            its.in_flight = None
        its.sending = its.away = False
        self._tried(shard)
        if not its.queue:
            del self._waiting[shard]

    def due(self) -> float:
        """Return when the next shard is ready; infinity if none will be without a new event."""
        return min((self._due(shard) for shard in self._waiting.values()), default=math.inf)

    def batches(self) -> Iterator[Batch]:
        """Yield all batches that were not answered yet."""
        for shard in self._waiting.values():
            if shard.in_flight is not None:
                yield shard.in_flight
            yield from shard.queue

    def hurry(self) -> None:
        """Make all batches that are queued now ready without linger."""
        for shard in self._waiting.values():
            shard.hurried = len(shard.queue)

    def _tried(self, shard: int) -> None:
        if self._trying == shard:
            self._trying = None

    def _is_due(self, shard: _Shard, now: float) -> bool:
        return not shard.sending and self._due(shard) <= now

    def _due(self, shard: _Shard) -> float:
        if shard.sending or (shard.away and self._trying is not None):
            return math.inf
        if shard.in_flight is not None:
            return shard.retry_at
        if not shard.queue:
            return math.inf
        ready = shard.hurried or len(shard.queue) > 1 or shard.queue[0].full
        return -math.inf if ready else shard.since + self._linger
