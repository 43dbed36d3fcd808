"""Settles messages of a queue: children are sent, rows go to Redis, then messages are removed.

Messages whose handlers take little time go through these steps together, in one round trip each. If
a step has no answer, the messages stay in the queue, and are delivered again.

**Slow is not dead.** A message whose lease has ended goes to another worker. The slow worker
notices that before it acks: it discards what the handler has sent, and sends no row.
"""

import logging
import time
from dataclasses import dataclass, field
from typing import Any

from acker_redis.integrations.core.failures import OnFailure, to_tell
from acker_redis.integrations.core.queues import Queue
from acker_redis.integrations.core.work import Work
from acker_redis.protocol.rows import Row
from acker_redis.sync.producer import Producer

log = logging.getLogger(__name__)

SETTLE = 0.01
"""Seconds after which the messages that were processed are settled."""


@dataclass(slots=True, eq=False)
class Leased:
    """A message of a queue that a worker has."""

    owner: object
    """The worker."""
    key: Any
    body: Any
    """What a handler gets."""
    since: float
    """When its lease began, on the ``time.monotonic`` clock."""
    doubtful: bool = False
    """Whether children may be missing: the message must be delivered again."""
    outbox: list[Any] = field(default_factory=list)
    """The children that are sent next."""

    def __str__(self) -> str:
        return f"{self.owner}: message {str(self.key)[:40]}"


class Settling:
    """The messages of one worker whose handlers have returned, until they leave their queue.

    Args:
        queue: The queue.
        sink: Takes the rows; the worker closes it.
        lease: Seconds after which a message goes to another worker.
        on_failure: ``on_failure(body, error)`` is called for each message that failed, if given.

    """

    def __init__(
        self, queue: Queue, sink: Producer, lease: float, on_failure: OnFailure | None
    ) -> None:
        self._queue, self._sink, self._lease = queue, sink, lease
        self._on_failure = on_failure
        self._settled_at = 0.0
        self.reset_after_fork()

    def reset_after_fork(self) -> None:
        """Begin without messages, as a forked child must."""
        self._works: list[Work[Leased]] = []

    def put(self, works: list[Work[Leased]]) -> None:
        """Settle messages soon, whose handler has returned.

        Raises:
            Exception: As :meth:`settle`.

        """
        for work in works:
            work.returned()
        self._works += works
        if time.monotonic() - self._settled_at > SETTLE:
            self.settle()

    def settle(self) -> None:
        """Send the children of the messages, apply their rows, and remove them from the queue.

        Raises:
            Exception: Redis or the queue does not answer: the messages stay in the queue. Or what
                ``on_failure`` raises, or the failure of a message without an id: that message
                stays, and all others are settled.

        """
        if not self._works:
            return
        works, self._works = self._works, []
        works = [work for work in works if not self._is_lost(work)]
        self.send_children(works)
        rows: list[Row] = []
        done: list[Any] = []
        raised: Exception | None = None
        for work in works:
            try:
                self._tell(work)
                rows += work.rows()
            except Exception as error:
                raised = error if raised is None else raised
            else:
                done.append(work.message.key)
        self._sink.add(rows)
        self._sink.flush()
        self._queue.done(done)
        self._settled_at = time.monotonic()
        if raised is not None:
            raise raised

    def send_children(self, works: list[Work[Leased]]) -> None:
        """Send the children that messages have now.

        Raises:
            Exception: No reply: some may have been sent. The messages stay in the queue.

        """
        outbox = [(work, child) for work in works for child in work.message.outbox]
        if not outbox:
            return
        for work in works:
            work.message.outbox = []
        try:
            refused = self._queue.add([child for _, child in outbox])
        except BaseException:
            for work in works:
                work.message.doubtful = True
            raise
        for (work, _), error in zip(outbox, refused, strict=True):
            if error is not None:
                work.failed(error)

    def is_late(self, since: float) -> bool:
        """Return whether other workers may soon have a message whose lease began then."""
        return time.monotonic() - since > self._lease / 2

    def _tell(self, work: Work[Leased]) -> None:
        tell = to_tell(work, self._on_failure, work.message)
        if tell is not None:
            work.run(tell, work.message.body, work.why)
            work.returned()
            if work.error is None:
                self.send_children([work])
            to_tell(work, None, work.message)

    def _is_lost(self, work: Work[Leased]) -> bool:
        """Return whether a message must stay in its queue, or belongs to another worker."""
        message = work.message
        if message.doubtful:
            why = "stays in its queue: its children may be missing"
        elif self.is_late(message.since) and not self._queue.owns(message.key, message.since):
            why = "took so long that another worker has it: discarded"
        else:
            return False
        log.warning("%s %s", message, why)
        return True
