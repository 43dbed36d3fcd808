"""The messages of a Kafka consumer in process, until their offsets may be committed. No I/O."""

from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from functools import partial
from itertools import groupby
from operator import itemgetter
from typing import Any, NamedTuple, Self

from acker_redis.errors import InvalidBatchError
from acker_redis.integrations.core.batches import Works
from acker_redis.integrations.core.columns import Columns
from acker_redis.integrations.core.failures import OnFailure, to_tell
from acker_redis.integrations.core.work import Work, begun
from acker_redis.integrations.kafka_messages.partitions import Partitions, Place, runs
from acker_redis.trees.frontier import Frontier
from acker_redis.trees.message_id import AnyId
from acker_redis.trees.processing import Ids, Processing

SETTLE = 0.01
"""Seconds between two looks at delivery reports while messages are in process."""
IDLE = 0.1
"""Seconds that run() waits for messages, and after which it notices a signal."""
FLUSH = 10.0
"""Seconds for which a revoked partition, or the end, waits for handlers and reports, and a commit
for the acks."""


class Read(NamedTuple):
    """A message that a consumer has read."""

    message: Any
    """The message of the client library."""
    frontier: Frontier
    """The frontier of the partition, as of the assignment in which the message was read."""
    place: Place
    offset: int
    consumer: Any

    def __str__(self) -> str:
        return f"{self.place[0]} [{self.place[1]}] at offset {self.offset}"


_Run = tuple[int, Frontier, Place, int, int]
"""Messages of a batch that follow one another in a partition: the position of the first one, their
frontier, their partition, the first offset, and the offset after the last one."""


class InProcess:
    """The messages that a consumer has begun and not settled.

    Args:
        kind: The class of its messages.
        consumer: The consumer.
        ids: Makes the ids of children.
        on_failure: The function of the application, if there is one.

    """

    def __init__(
        self, kind: type[Read], consumer: Any, ids: Ids, on_failure: OnFailure | None
    ) -> None:
        self.partitions = Partitions()
        self.finished: deque[Work[Read]] = deque()
        """Those that can be settled."""
        self._kind, self._consumer, self._ids = kind, consumer, ids
        self._on_failure = on_failure
        self._works: set[Work[Read]] = set()
        self.skipped = 0
        """Messages that no handler got, because their trees had ended."""
        self.batches: set[Batch] = set()

    def __len__(self) -> int:
        return len(self._works) + len(self.batches)

    def begin(
        self, message: Any, place: Place, offset: int, ids_of: Callable[[], AnyId]
    ) -> Work[Read] | None:
        """Return the work of a message; None if it is not to be processed.

        If ``ids_of`` raises InvalidBatchError, the message must fail.

        Raises:
            ConfigError: see :meth:`Partition.read`.

        """
        frontier = self.partitions.read(place, offset)
        if frontier is None:
            return None
        return self._begin(self._kind(message, frontier, place, offset, self._consumer), ids_of)

    def skip(self, place: Place, offset: int) -> None:
        """Note that a message is not to be processed, because its trees have ended."""
        frontier = self.partitions.read(place, offset)
        if frontier is not None:
            frontier.complete(offset)
            self.skipped += 1

    def batch(
        self,
        messages: Sequence[Any],
        located: Iterable[tuple[Place, int]],
        id_of: Callable[[Any], str | bytes],
        ended: Container[int] = (),
    ) -> "Batch":
        """Begin messages that are processed together, but for those that are not to be processed.

        Args:
            messages: The messages of the client library.
            located: The partition and the offset of each.
            id_of: Returns the id of a message of the client library; '' without one. Raises
                InvalidBatchError.
            ended: The positions of messages that are skipped.

        """
        bodies, found, seen = list[Any](), list[_Run](), 0
        for place, first, end in runs(located):
            frontier = self.partitions.read(place, first, end)
            for has_ended, low, high in _parts(first - seen, first, end, ended):
                if frontier is None:
                    continue
                if has_ended:
                    frontier.complete(low, high)
                    self.skipped += high - low
                else:
                    found.append((len(bodies), frontier, place, low, high))
                    bodies += messages[seen + low - first : seen + high - first]
            seen += end - first

        def begin(at: int, ids_of: Callable[[], AnyId | Processing]) -> Work[Read]:
            start, frontier, place, first, _ = found[bisect_right(found, at, key=itemgetter(0)) - 1]
            read = self._kind(bodies[at], frontier, place, first + at - start, self._consumer)
            return self._begin(read, ids_of)

        # Once: a second call of confluent-kafka's headers() has none, and raises nothing.
        ids = list[str | bytes | InvalidBatchError]()
        for each in bodies:
            try:
                ids.append(id_of(each))
            except InvalidBatchError as error:
                ids.append(error)
        try:
            whole = [_whole(each) for each in ids]
            columns = Columns(bodies, whole, self._ids, lambda at, one: begin(at, lambda: one))
        except (InvalidBatchError, ModuleNotFoundError):
            works = [begin(at, partial(_whole, each)) for at, each in enumerate(ids)]
            return Batch(self, Works([*zip(works, bodies, strict=True)]), [])
        return Batch(self, columns, found)

    def _begin(self, read: Read, ids_of: Callable[[], AnyId | Processing]) -> Work[Read]:
        work = begun(read, ids_of, self._ids, self.finished.append)
        self._works.add(work)
        return work

    def to_tell(self, work: Work[Read]) -> OnFailure | None:
        """See :func:`acker_redis.integrations.core.failures.to_tell`."""
        try:
            return to_tell(work, self._on_failure, work.message)
        except BaseException:
            self.drop(work)
            raise

    def drop(self, work: Work[Read]) -> None:
        """Forget a message whose offset stays incomplete."""
        self._works.discard(work)

    def complete(self, work: Work[Read]) -> None:
        """Note that a message is settled: the sink has its rows."""
        work.message.frontier.complete(work.message.offset)
        self._works.discard(work)


class Batch:
    """Messages that were begun together; a ``with`` block in which they are in process.

    After an exception in the block their offsets stay incomplete.
    """

    def __init__(self, owner: InProcess, given: Columns | Works, found: list[_Run]) -> None:
        self.given = given
        """What the handler gets."""
        self._owner, self._found = owner, found

    def returned(self) -> tuple[list[int], list[int]]:
        """Note that the handler has returned.

        Return anchors and deltas of the rows of messages that have no work.
        """
        rows = self.given.rows()
        for work in self.given.works:
            work.returned()
        return rows

    def complete(self) -> None:
        """Note that the sink has the rows: complete all offsets but those of the works."""
        named = self.given.named() if isinstance(self.given, Columns) else []
        for start, frontier, _, first, end in self._found:
            zero = first - start
            for at in named[bisect_left(named, start) : bisect_left(named, end - zero)]:
                frontier.complete(first, zero + at)
                first = zero + at + 1
            frontier.complete(first, end)

    def __enter__(self) -> Self:
        self._owner.batches.add(self)
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        self._owner.batches.discard(self)
        for work in self.given.works if kind else ():
            self._owner.drop(work)


def _whole(found: str | bytes | InvalidBatchError) -> str | bytes:
    if isinstance(found, InvalidBatchError):
        raise found
    return found


def _parts(
    before: int, first: int, end: int, ended: Container[int]
) -> Iterator[tuple[bool, int, int]]:
    """Yield the parts of a range of offsets, and whether they are skipped.

    ``before`` is the difference between an offset and the position of its message.
    """
    if not ended:
        yield False, first, end
        return
    for has_ended, part in groupby(range(first, end), lambda offset: offset - before in ended):
        offsets = [*part]
        yield has_ended, offsets[0], offsets[-1] + 1
