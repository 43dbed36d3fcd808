"""The assigned partitions of a consumer, and which of their offsets may be committed. No I/O."""

from collections.abc import Iterable
from typing import Any, NamedTuple

from acker_redis.errors import ConfigError
from acker_redis.trees.frontier import Frontier

Place = tuple[str, int]
"""A topic and the number of a partition."""


class Moved(NamedTuple):
    """A partition whose position has moved since its last commit."""

    place: Place
    partition: "Partition"
    position: int
    """The offset to commit."""


class Partition:
    """An assigned partition."""

    __slots__ = ("arrived", "committed", "expected", "first", "frontier")

    def __init__(self) -> None:
        self.arrived = False
        """Whether messages may begin: one was read since the assignment or the seek."""
        self.frontier: Frontier | None = None
        """None until the first message: its offset is where the group continues."""
        self.first = 0
        self.expected = 0
        self.committed = 0

    def read(self, offset: int) -> Frontier:
        """Note that the message at an offset is processed next; return the frontier to complete.

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
        self.expected = offset + 1
        return frontier


class Partitions:
    """All partitions that are assigned to a consumer.

    >>> partitions = Partitions()
    >>> partitions.assign([("orders", 0)])
    >>> partitions.arrived("orders", 0)
    >>> frontier = partitions.read("orders", 0, 7)
    >>> partitions.moved()
    []
    >>> frontier.complete(7)
    8
    >>> [each.position for each in partitions.moved()]
    [8]
    """

    def __init__(self) -> None:
        self._places: dict[Place, Partition] = {}
        self.awaited: set[Place] = set()
        """Partitions of which no message was read since they were assigned or moved."""

    def assign(self, places: Iterable[Place]) -> None:
        """Add partitions; a partition that was assigned before begins again."""
        for place in places:
            self._places[place] = Partition()
            self.awaited.add(place)

    def leave(self, places: Iterable[Place]) -> None:
        """Let no more messages of these partitions begin; those in process may be completed."""
        for place in places:
            if place in self._places:
                self._places[place].arrived = False
                self.awaited.discard(place)

    def forget(self, places: Iterable[Place] | None = None) -> None:
        """Remove partitions, or all."""
        for place in list(self._places if places is None else places):
            self._places.pop(place, None)
            self.awaited.discard(place)

    def seek(self, place: Place) -> None:
        """Let a partition continue at the next message that is read, also at a lower offset."""
        if place in self._places:
            self.assign([place])

    def arrived(self, topic: str, number: int) -> None:
        """Note that the client library has returned a message of a partition."""
        place = topic, number
        if place in self.awaited:
            self.awaited.discard(place)
            self._places[place].arrived = True

    def read(self, topic: str, number: int, offset: int) -> Frontier | None:
        """Note that a message is processed next; return None if it is not to be processed.

        That is so if its partition is not assigned, or if the message was read before the partition
        was assigned or moved by a seek: Kafka delivers it again, as far as it is wanted. Its offset
        would begin the new frontier above messages that are not processed.

        Raises:
            ConfigError: see :meth:`Partition.read`.

        """
        partition = self._places.get((topic, number))
        return partition.read(offset) if partition and partition.arrived else None

    def moved(self) -> list[Moved]:
        """Return the partitions with offsets to commit."""
        return [
            Moved(place, each, each.frontier.position)
            for place, each in self._places.items()
            if each.frontier and each.frontier.position > each.committed
        ]

    def has(self, moved: Moved) -> bool:
        """Return whether a partition is still assigned, as it was when it moved."""
        return self._places.get(moved.place) is moved.partition

    def committed(self, place: Place, offset: int) -> None:
        """Note that Kafka has committed an offset.

        What it tells of a time before the partition was assigned, or moved back, is ignored.
        """
        partition = self._places.get(place)
        frontier = partition and partition.frontier
        if partition and frontier and partition.first <= offset <= frontier.position:
            partition.committed = max(partition.committed, offset)


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
