"""How often the group has begun a message: the limit of deliveries of a Kafka consumer. No I/O.

Kafka counts no deliveries. But it stores a text with each committed offset, its metadata, and that
outlives a consumer that is killed. So before a consumer begins messages, it commits its position
(never a higher one) with a note: how many consumers have begun at this message, and where those end
that are in hand. The next commit, after messages were settled, has no note.

A consumer that finds a note knows that another one has begun there and was killed, or hangs.
It handles the messages that were in hand one by one, and commits a note before each: from then on,
a crash counts for one message only.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from acker_redis.errors import AckerError, ConfigError
from acker_redis.integrations.kafka_messages.partitions import (
    Moved,
    Note,
    Partitions,
    Place,
    runs,
)


class Begin(NamedTuple):
    """What a consumer begins next."""

    take: int
    """The number of messages."""
    notes: list[Moved]
    """What to commit before."""
    error: AckerError | None
    """Why the message, which is a single one then, fails without being handled."""


class Deliveries:
    """The limit of deliveries, and the notes of assigned partitions.

    Args:
        limit: The number of deliveries after which a message fails.
        partitions: The assigned partitions.

    Raises:
        ConfigError: The limit is no number, or below 2: the first delivery may be that of a batch.

    """

    def __init__(self, limit: int, partitions: Partitions) -> None:
        if type(limit) is not int or limit < 2:
            raise ConfigError(f"deliveries is a number, at least 2, or None, not {limit!r}")
        self._limit, self._partitions = limit, partitions

    def unknown(self, located: Iterable[tuple[Place, int]]) -> list[Place]:
        """Return the partitions of messages of which the metadata was not read yet."""
        places = dict.fromkeys(place for place, _ in located)
        return [each for each in places if (at := self._partitions.at(each)) and at.note is None]

    def found(self, place: Place, metadata: str | None) -> None:
        """Note the metadata of the committed offset of a partition."""
        partition = self._partitions.at(place)
        if partition is not None:
            partition.note = Note.of(metadata)

    def begin(self, located: Sequence[tuple[Place, int]]) -> Begin:
        """Return which of these messages, at least one, begin next: all, or the first one."""
        alone = any(self._was_in_hand(*each) for each in located)
        spans = dict[Place, tuple[int, int]]()
        for place, first, end in runs(located[:1] if alone else located):
            spans[place] = spans.get(place, (first, end))[0], end
        notes = list[Moved]()
        for place, (first, end) in spans.items():
            partition = self._partitions.at(place)
            if partition is None:
                continue
            found = partition.note or Note()
            begun = found.begun if found.offset == first else 0
            if begun >= self._limit:
                times = f"delivered {begun} times, and no consumer has settled it"
                return Begin(1, [], AckerError(times))
            position = partition.continues_at(first)
            if position is not None:
                note = Note(begun + 1, first, end)
                notes.append(Moved(place, partition, position, str(note)))
        return Begin(1 if alone else len(located), notes, None)

    def _was_in_hand(self, place: Place, offset: int) -> bool:
        partition = self._partitions.at(place)
        note = None if partition is None else partition.note
        return note is not None and note.offset <= offset < note.end


def limited(limit: int | None, partitions: Partitions) -> Deliveries | None:
    """Return the limit of a consumer, or None if it has none."""
    return None if limit is None else Deliveries(limit, partitions)


def raising(_: object, error: AckerError) -> None:
    """Fail a message: the handler of one that was delivered too often."""
    raise error


async def raising_async(_: object, error: AckerError) -> None:
    """Fail a message, as ``raising`` does."""
    raise error
