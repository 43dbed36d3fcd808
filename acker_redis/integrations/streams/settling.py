"""Settles entries: their children are added, their rows go to Redis, then they leave the group.

**Order of events** for each entry: its handler returns; its children are added to their streams;
Redis has applied the row of the entry; the entry leaves the group (XACK). A crash at any moment
leaves an entry that is delivered again, and none that is skipped. The same holds for a doubt: if
Redis does not answer, the entry stays pending. Entries whose handlers take little time go through
these steps together, in one round trip each.

**What a second delivery does.** The tree of an entry that was acked and not yet removed has two
acks. If it is complete, the second is ignored. If not, the acks cancel each other, and the tree
expires: a replay, and no false ack.

**Slow is not dead.** An entry that is idle for too long goes to another worker. The slow worker
notices that before it acks: it discards what the handler has added, and sends no row.
"""

import logging
import time
from collections.abc import Callable
from typing import Any

from acker_redis.integrations.streams.entries import Fields, add
from acker_redis.integrations.streams.group import Group
from acker_redis.integrations.streams.work import Work
from acker_redis.protocol.rows import Row
from acker_redis.sync.producer import Producer

log = logging.getLogger(__name__)

SETTLE = 0.01
"""Seconds after which the entries that were processed are settled."""

OnFailure = Callable[[Fields, BaseException], object]


class Settling:
    """The entries of one worker whose handlers have returned, until they leave the group.

    Args:
        group: The consumer of the group.
        sink: Takes the rows; the worker closes it.
        idle: Seconds after which an entry goes to another worker.
        delete: Whether entries are deleted from the stream, too.
        on_failure: Is called for each entry that failed, if given.

    """

    def __init__(
        self,
        group: Group,
        sink: Producer,
        idle: float,
        delete: bool,
        on_failure: OnFailure | None,
    ) -> None:
        self._group, self._sink = group, sink
        self._idle, self._delete = idle, delete
        self._on_failure = on_failure
        self._settled_at = 0.0
        self.reset_after_fork()

    def reset_after_fork(self) -> None:
        """Begin without entries, as a forked child must."""
        self._works: list[Work] = []

    def put(self, work: Work) -> None:
        """Settle an entry soon, whose handler has returned.

        Raises:
            redis.RedisError, AckerError, Exception: As :meth:`settle`.

        """
        self._works.append(work)
        if time.monotonic() - self._settled_at > SETTLE:
            self.settle()

    def settle(self) -> None:
        """Add the children of the entries, apply their rows, and remove them from the group.

        Raises:
            redis.RedisError, AckerError: Redis does not answer: the entries stay pending.
            Exception: What ``on_failure`` raises, or the failure of an entry without an id. That
                entry stays pending, and all others are settled.

        """
        if not self._works:
            return
        works, self._works = self._works, []
        works = [work for work in works if not self._is_lost(work)]
        self.add_children(works)
        rows: list[Row] = []
        done: list[Any] = []
        raised: Exception | None = None
        for work in works:
            try:
                rows += self._rows(work)
            except Exception as error:
                raised = error if raised is None else raised
            else:
                done.append(work.key)
        self._sink.add(rows)
        self._sink.flush()
        self._group.done(done, delete=self._delete)
        self._settled_at = time.monotonic()
        if raised is not None:
            raise raised

    def add_children(self, works: list[Work]) -> None:
        """Add the children that entries have now.

        Raises:
            redis.RedisError: No reply: some may have been added. The entries stay pending.

        """
        outbox = [(work, command) for work in works for command in work.take()]
        if outbox:
            try:
                refused = add(self._group.client, [command for _, command in outbox])
            except BaseException:
                for work in works:
                    work.doubtful = True
                raise
            for (work, _), error in zip(outbox, refused, strict=True):
                if error is not None:
                    work.failed(error)

    def _is_lost(self, work: Work) -> bool:
        """Return whether an entry must stay pending, or belongs to another worker."""
        if work.doubtful:
            log.warning("%s: entry %s stays pending: its children may be missing",
                        self._group.stream, work.key)  # fmt: skip
            return True
        if time.monotonic() - work.since < self._idle / 2 or self._group.owns(work.key):
            return False
        log.warning("%s: entry %s took so long that another worker has it: discarded",
                    self._group.stream, work.key)  # fmt: skip
        return True

    def _rows(self, work: Work) -> list[Row]:
        error = work.error
        if error is not None:
            log.warning("%s: entry %s failed: %r", self._group.stream, work.key, error)
            if self._on_failure is not None:
                work.told, work.error = True, None
                work.call(self._on_failure, work.fields, error)
                self.add_children([work])
                if work.error is not None:
                    raise work.error
                work.error = error
            elif not work.tracked:
                raise error
        return work.rows()
