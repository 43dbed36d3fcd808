"""The bolts of the source tests: they keep the messages that were sent, and process them."""

import re
from collections.abc import Callable
from typing import Any

from acker_redis import Acker, Batch, MessageId, OpenTree, Processing
from acker_redis.protocol.rows import Row
from acker_redis.trees.record import Record


class Bolts:
    """Keeps the messages that were sent; acks or fails them on demand, one call per row."""

    def __init__(self, acker: Acker) -> None:
        self.acker = acker
        self.sent: list[tuple[Record, int, tuple[MessageId, ...]]] = []
        """Record, its attempt, and the ids of its messages."""

    def send(self, record: Record, given: Any) -> None:
        """The ``send`` of a source."""
        ids = (given.emit(), given.emit()) if isinstance(given, OpenTree) else given
        self.sent.append((record, record.attempt, ids))

    def send_and_ack(self, record: Record, given: Any) -> None:
        """A ``send`` whose messages are processed at once."""
        self.send(record, given)
        self.ack()

    def ack(self) -> list[str]:
        """Process all messages that were sent; return the source ids."""
        return self._all(lambda message: message.acked())

    def fail(self, why: str = "") -> list[str]:
        """Fail all messages that were sent."""
        return self._all(lambda message: message.failed(why))

    def touch(self) -> None:
        """Reset the timeouts of all messages that were sent; they stay unprocessed."""
        for _, _, ids in self.sent:
            for each in ids:
                self._apply(Processing(each).touched())

    @property
    def attempts(self) -> list[tuple[str, int]]:
        """Source id and attempt of the messages that were sent and are not processed."""
        return [(record.source_id, attempt) for record, attempt, _ in self.sent]

    def _all(self, end: Callable[[Processing], list[Row]]) -> list[str]:
        sent, self.sent = self.sent, []
        for _, _, ids in sent:
            for each in ids:
                self._apply(end(Processing(each)))
        return [record.source_id for record, _, _ in sent]

    def _apply(self, rows: list[Row]) -> None:
        batch = Batch()
        for row in rows:
            batch.add(row)
        self.acker.apply(batch)


class CallbackLog:
    """The callbacks of a source, in order: ``ack a``, ``fail a failed no such address``, ..

    Why a tree has expired depends on the clock: the times in it are left out.
    """

    def __init__(self) -> None:
        self.words: list[str] = []
        self.records: list[Record] = []
        self.attempts: list[int] = []
        """Per record, its attempt at each callback."""
        self.raises: list[Exception] = []
        """Exceptions that the next callbacks raise, in this order."""

    def on_ack(self, record: Record) -> None:
        self._hear(record, "ack", record.source_id)

    def on_fail(self, record: Record, reason: str, why: str) -> None:
        self._hear(record, "fail", record.source_id, reason, why)

    def dead_letter(self, record: Record, reason: str, why: str) -> None:
        self._hear(record, "dead", record.source_id, reason, why)

    @property
    def callbacks(self) -> dict[str, Any]:
        """The callbacks as options of a source."""
        return {"on_ack": self.on_ack, "on_fail": self.on_fail, "dead_letter": self.dead_letter}

    def take(self) -> list[str]:
        """Return the callbacks since the last call."""
        words, self.words = self.words, []
        return words

    def _hear(self, record: Record, *words: str) -> None:
        clockless = (re.sub(r"; last row \d.* ago, of \d.*", "", word) for word in words if word)
        self.words.append(" ".join(clockless))
        self.records.append(record)
        self.attempts.append(record.attempt)
        if self.raises:
            raise self.raises.pop(0)
