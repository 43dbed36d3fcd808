"""A handle for a batch of messages: see :meth:`acker_redis.sync.bolt.Bolt.process_batch`."""

from collections.abc import Sequence
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from acker_redis.batching.column_batch import ColumnBatch
from acker_redis.errors import ClosedError
from acker_redis.protocol.texts import words
from acker_redis.sync.client import Acker
from acker_redis.trees.forgotten import Reported

if TYPE_CHECKING:
    from acker_redis.trees.processing_batch import Children, ProcessingBatch, Settled


class BatchHandle(Reported):
    """A batch of messages in process; from :meth:`Bolt.process_batch`.

    In a ``with`` block the batch is settled at the end: messages that were not failed are acked.
    When the block has ended, Redis has the rows. An exception fails all messages, and propagates.

    Examples:
        >>> acker = Acker.from_url(url, "orders")
        >>> with Bolt(Producer(acker)).process_batch(["7:40", "8:41"]) as batch:
        ...     children = batch.emit()
        >>> acker.show(7).checksum == 40 ^ children.ids[0][7]
        True

    """

    __slots__ = ("_acker", "_columns")

    def __init__(self, processing: "ProcessingBatch", acker: Acker) -> None:
        self.processing: ProcessingBatch = processing
        """The state of the batch; it computes the rows and sends none."""
        self._acker = acker
        self._columns: ColumnBatch | None = None
        """The rows: a retry must send the same object."""

    def __len__(self) -> int:
        return len(self.processing)

    def emit(
        self, counts: int | Sequence[int] | Any = 1, *, key: str | None = None, edge: str = ""
    ) -> "Children":
        """Return the ids of new messages. Send exactly one message with each.

        Args:
            counts: The number of new messages that each message has caused: one number for all, or
                a column with one for each.
            key: Makes the ids deterministic: a retry of the same messages gets the same ids. A
                message has at most one child of each key.
            edge: The name of the edge that the messages travel on.

        Raises:
            ClosedError: The batch is settled, or this process is a fork of the one that began it.
            InvalidBatchError: ``counts`` has another length or a negative number, a message has a
                child of this key, or ``counts`` is above 1 with a key. Nothing is emitted then.

        """
        return self.processing.emit(counts, key=key, edge=edge)

    def fail(self, position: int, why: str | BaseException = "") -> None:
        """Fail one message of the batch: its trees are nacked when the batch is settled.

        Args:
            position: The position of the message in the batch.
            why: The reason, as text or exception; cut to 255 bytes.

        Raises:
            ClosedError: The batch is settled.
            InvalidBatchError: There is no such position.

        """
        self.processing.fail(position, why)

    def ack(self) -> None:
        """Settle the batch, and wait until Redis has its rows. Emit all children before.

        After an error call it again: the same rows are sent, and none counts twice.

        Raises:
            ClosedError: This process is a fork of the one that began the batch.
            AckerError: Redis does not take the rows; see :meth:`Acker.apply`.

        """
        self._apply(self.processing.acked())

    def __enter__(self) -> Self:
        if not self.processing.open:
            raise ClosedError("this batch was settled before and cannot be processed again")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is None:
            self.ack()
        elif self.processing.open:
            try:
                self._apply(self.processing.failed(error))
            except Exception as unsent:
                with suppress(Exception):  # some exceptions refuse notes
                    error.add_note(f"its trees cannot be failed and will expire: {words(unsent)}")

    def _apply(self, settled: "Settled") -> None:
        if self._columns is None:
            self._columns = ColumnBatch(*settled)
        self._acker.apply(self._columns)
