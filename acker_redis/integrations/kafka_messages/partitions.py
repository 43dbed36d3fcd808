"""The assigned partitions of a consumer, and which of their offsets may be committed. No I/O."""

import logging
import re
from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from acker_redis.errors import ConfigError
from acker_redis.trees.frontier import Frontier

log = logging.getLogger(__name__)

Place = tuple[str, int]
"""A topic and the number of a partition."""

_NOTE = re.compile(r"acker-redis:(\d{1,9}):(\d{1,19}):(\d{1,19})")


class Note(NamedTuple):
    """The metadata of an offset that is committed before messages begin: ``deliveries.py``.

    >>> str(Note(2, 40, 47))
    'acker-redis:2:40:47'
    >>> Note.of("acker-redis:2:40:47"), Note.of("of another program")
    (Note(begun=2, offset=40, end=47), Note(begun=0, offset=-1, end=-1))
    """

    begun: int = 0
    """How many consumers have begun at this message."""
    offset: int = -1
    """The offset of the message."""
    end: int = -1
    """Offsets below it may have been in hand together."""

    def __str__(self) -> str:
        return f"acker-redis:{self.begun}:{self.offset}:{self.end}"

    @classmethod
    def of(cls, metadata: str | None) -> "Note":
        """Return the note of a committed offset, or one that counts nothing."""
        # The mock cluster of librdkafka adds a null character.
        found = _NOTE.fullmatch((metadata or "").rstrip("\0"))
        return cls(*map(int, found.groups())) if found else cls()


class Moved(NamedTuple):
    """A partition whose position is to be committed: it has moved, or is committed with a note."""

    place: Place
    partition: "Partition"
    position: int
    """The offset to commit."""
    note: str = ""
    """What to commit with it."""


class Partition:
    """An assigned partition.

    Args:
        older: Frontiers from before Kafka went back, each with the offset to which it went.

    """

    __slots__ = (
        *("committed", "expected", "first", "frontier", "last", "left", "note", "older"),
        "restarts",
    )

    def __init__(self, older: tuple[tuple[Frontier, int], ...] = ()) -> None:
        self.last = -1
        """The offset of the message that was read last since the assignment or the seek."""
        self.left = False
        """Whether the partition is given away: no message begins."""
        self.restarts: deque[int] = deque()
        """The offsets to which Kafka went back, of messages that are not handled yet."""
        self.frontier: Frontier | None = None
        """None until the first message: its offset is where the group continues."""
        self.older = older
        self.first = 0
        self.expected = 0
        self.committed = 0
        self.note: Note | None = None
        """The note of the offset at which the assignment began; None until it is read."""

    @property
    def position(self) -> int:
        """The offset below which every message is complete; 0 if that is not known."""
        if self.frontier is None or any(each.position < end for each, end in self.older):
            return 0
        return self.frontier.position

    def read(self, offset: int, end: int = 0) -> Frontier:
        """Note that a message, or those below ``end``, are processed next; return their frontier.

        Raises:
            ConfigError: Messages of the partition were handled out of order.

        """
        frontier = self.frontier
        if frontier is None:
            frontier = self.frontier = Frontier(offset)
            self.first = self.committed = offset
        elif offset < self.expected:
            raise ConfigError(
                f"offset {offset} is handled after offset {self.expected - 1}: handle the messages "
                "of a partition in their order, or move back with seek()"
            )
        elif offset > self.expected:
            frontier.complete(self.expected, offset)  # offsets without a record
        self.expected = max(offset + 1, end)
        return frontier

    def continues_at(self, first: int) -> int | None:
        """Return the offset to commit before the message at ``first`` begins; None if unknown."""
        if self.restarts or self.older:
            return None
        return first if self.frontier is None else self.frontier.position

    def restarted(self, offset: int) -> "Partition":
        """Return the partition for the message at an offset: a new one if Kafka went back to it.

        Messages below that offset, which are still in process, hold its commits back.
        """
        if self.frontier is None or offset >= self.expected:
            return self
        if not self.restarts or offset < self.restarts[0]:
            return self
        new = Partition((*self.older, (self.frontier, self.restarts.popleft())))
        new.last, new.restarts = self.last, self.restarts
        return new


class Partitions:
    """All partitions that are assigned to a consumer.

    >>> partitions = Partitions()
    >>> partitions.assign([("orders", 0)])
    >>> partitions.arrived(("orders", 0), 7)
    >>> frontier = partitions.read(("orders", 0), 7)
    >>> partitions.moved()
    []
    >>> frontier.complete(7)
    8
    >>> [each.position for each in partitions.moved()]
    [8]
    """

    def __init__(self) -> None:
        self._places: dict[Place, Partition] = {}

    def assign(self, places: Iterable[Place]) -> None:
        """Add partitions; a partition that was assigned before begins again."""
        for place in places:
            self._places[place] = Partition()

    def leave(self, places: Iterable[Place]) -> None:
        """Let no more messages of these partitions begin; those in process may be completed."""
        for place in places:
            if place in self._places:
                self._places[place].left = True

    def forget(self, places: Iterable[Place] | None = None) -> None:
        """Remove partitions, or all."""
        for place in list(self._places if places is None else places):
            self._places.pop(place, None)

    def seek(self, place: Place) -> None:
        """Let a partition continue at the next message that is read, also at a lower offset."""
        if place in self._places:
            self.assign([place])

    def arrived(self, place: Place, offset: int, end: int = 0) -> None:
        """Note that the client library has returned a message, or those below ``end``.

        Without a seek, an offset that is not above the last one is where Kafka continues after the
        topic was created again, or truncated. The partition begins again with that message.
        """
        partition = self._places.get(place)
        if partition is None or partition.left:
            return
        if offset <= partition.last:
            partition.restarts.append(offset)
            log.warning(
                "%s [%d]: Kafka went back from offset %d to %d, because the topic was created "
                "again or truncated; its messages are processed from there",
                *place, partition.last, offset,
            )  # fmt: skip
        partition.last = max(offset, end - 1)

    def read(self, place: Place, offset: int, end: int = 0) -> Frontier | None:
        """Note that a message, or those below ``end``, are processed next; None if they are not to.

        That is so if its partition is not assigned, or if the message was read before the partition
        was assigned or moved by a seek: Kafka delivers it again, as far as it is wanted. Its offset
        would begin the new frontier above messages that are not processed.

        Raises:
            ConfigError: see :meth:`Partition.read`.

        """
        partition = self.at(place)
        if partition is None:
            return None
        if partition.restarts:
            partition = self._places[place] = partition.restarted(offset)
        return partition.read(offset, end)

    def at(self, place: Place) -> Partition | None:
        """Return a partition of which messages may begin; None if there is none."""
        partition = self._places.get(place)
        return None if partition is None or partition.last < 0 or partition.left else partition

    def moved(self) -> list[Moved]:
        """Return the partitions with offsets to commit."""
        return [
            Moved(place, each, each.position)
            for place, each in self._places.items()
            if each.position > each.committed
        ]

    def has(self, moved: Moved) -> bool:
        """Return whether a partition is still assigned, as it was when it moved."""
        return self._places.get(moved.place) is moved.partition

    def committed(self, place: Place, offset: int) -> None:
        """Note that Kafka has committed an offset.

        What it tells of a time before the partition was assigned, or moved back, is ignored.
        """
        partition = self._places.get(place)
        if partition is not None and partition.first <= offset <= partition.position:
            partition.committed = max(partition.committed, offset)


def runs(located: Iterable[tuple[Place, int]]) -> Iterator[tuple[Place, int, int]]:
    """Yield ranges of offsets that follow one another in a partition; ends exclusive.

    >>> [*runs([(("orders", 0), 7), (("orders", 0), 8), (("orders", 1), 9)])]
    [(('orders', 0), 7, 9), (('orders', 1), 9, 10)]
    """
    last, first, end = None, 0, 0
    for place, offset in located:
        if offset == end and place == last:
            end += 1
            continue
        if last is not None:
            yield last, first, end
        last, first, end = place, offset, offset + 1
    if last is not None:
        yield last, first, end


def check_auto_commit(config: dict[str, Any], name: str, kind: str) -> None:
    """Refuse a configuration that commits by itself.

    Raises:
        ConfigError: It would commit messages in process.

    """
    auto = config.get(name, False)
    if auto not in (False, "false", "False"):
        raise ConfigError(
            f"{name} is {auto!r}: it would commit messages in process; leave it out, a {kind} "
            "commits processed messages"
        )
