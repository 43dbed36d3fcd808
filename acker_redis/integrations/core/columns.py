"""Messages of a batch whose ids are columns: no objects for messages that are not named."""

from collections.abc import Callable
from threading import Lock
from typing import Any

from acker_redis.integrations.core.work import Work
from acker_redis.trees.message_id import MessageId
from acker_redis.trees.processing import Ids, Processing

Begin = Callable[[int, Processing], Work[Any]]


class Columns:
    """Messages that were begun together; one that is named gets its own work. Thread-safe.

    Args:
        bodies: What a handler gets.
        ids: The ids of the messages, as the transport gives them; '' for one without an id.
        makes: Makes the ids of children.
        begin: ``begin(position, processing)`` returns the work of a message.

    Raises:
        InvalidBatchError: An id is malformed.
        ModuleNotFoundError: numpy is not installed.

    Examples:
        >>> columns = Columns(["a hat", "a shoe"], ["7:40", "8:41"], IdMaker(), Work)
        >>> columns.work(0).failed("no such address")
        >>> columns.rows()
        ([8], [41])
        >>> [work.rows() for work in columns.works]
        [[Row(anchor=7, delta=40, flags=2, text='no such address')]]

    """

    def __init__(self, bodies: list[Any], ids: list[str | bytes], makes: Ids, begin: Begin) -> None:
        from acker_redis.trees.processing_batch import ProcessingBatch

        self.bodies = bodies
        self._batch = ProcessingBatch(ids, ids=makes)
        self._begin = begin
        self._works: dict[int, Work[Any]] = {}
        self._lock = Lock()
        """A thread that names a message while the rows are made has its work in ``works``, or gets
        ClosedError."""

    @property
    def works(self) -> list[Work[Any]]:
        """The works of the messages that were named."""
        return list(self._works.values())

    def work(self, at: int) -> Work[Any]:
        """Return the work of a message."""
        with self._lock:
            work = self._works.get(at)
            if work is None:
                work = self._works[at] = self._begin(at, self._batch.take(at))
            return work

    def emit(self, counts: list[int], key: str | None, edge: str) -> list[MessageId]:
        """Return the ids of new messages, by the number that each message has caused."""
        if any(counts[at] for at in self._works):
            parents = [at for at, count in enumerate(counts) for _ in range(count)]
            return [self.work(at).emit(key, edge) for at in parents]
        return self._batch.emit(counts, key=key, edge=edge).ids

    def named(self) -> list[int]:
        """Return the positions of the messages that were named, ascending."""
        return sorted(self._works)

    def rows(self) -> tuple[list[int], list[int]]:
        """Ack the messages that were not named; return the anchors and deltas of their rows.

        No other message can be named after that.
        """
        with self._lock:
            settled = self._batch.acked()
        return settled.anchors.tolist(), settled.deltas.tolist()
