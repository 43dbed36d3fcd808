"""The records of a source as messages of a queue, many in one round trip."""

import logging
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from acker_redis.arguments import check_is
from acker_redis.errors import AckerError, BufferFullError
from acker_redis.flows.forks import reset_in_children
from acker_redis.protocol.rows import fail_row
from acker_redis.protocol.texts import words
from acker_redis.sync.client import Acker
from acker_redis.sync.producer import Producer

log = logging.getLogger(__name__)


class Sender:
    """The ``send`` of a source: a thread sends the messages of its records.

    While one round trip is under way, further records wait, and travel together in the next. If a
    message is refused, or the queue does not answer, its attempt fails with the words of the error.

    Args:
        acker: The client of the namespace.
        add: Sends messages; returns for each why it was refused, or None.
        most: Messages that are sent in one round trip.

    """

    def __init__(
        self, acker: Acker, add: Callable[[list[Any]], Sequence[Exception | None]], most: int
    ) -> None:
        check_is(acker, Acker, f"a {type(self).__name__}")
        self.acker = acker
        self._add, self._most = add, most
        self._sink = Producer(acker)
        self.reset_after_fork()
        reset_in_children(self)

    def reset_after_fork(self) -> None:
        """Begin without messages: those that the parent of a forked child has not sent are its own.

        A forked child calls this.
        """
        self._idle = threading.Condition()
        self._busy = False
        """Whether the thread has messages to send, or sends some."""
        self._outbox: list[tuple[int, Any]] = []
        """The anchor of each first message, and the message."""
        self._pool = ThreadPoolExecutor(1, "acker-sender")

    def flush(self, timeout: float | None = None) -> None:
        """Wait until all messages are sent or refused.

        Raises:
            BufferFullError: Messages are left after ``timeout`` seconds.

        """
        with self._idle:
            if not self._idle.wait_for(lambda: not self._busy, timeout):
                raise BufferFullError(f"{len(self._outbox)} messages wait to be sent")

    def close(self) -> None:
        """Flush, and end the thread. Programs need not call it: the end of a process does."""
        self.flush()
        self._pool.shutdown()
        self._sink.close()

    def _put(self, messages: Sequence[tuple[int, Any]]) -> None:
        with self._idle:
            if not self._busy:
                self._pool.submit(self._run)  # raises after close(): then nothing is kept
                self._busy = True
            self._outbox += messages

    def _run(self) -> None:
        while True:
            with self._idle:
                taken, self._outbox = self._outbox[: self._most], self._outbox[self._most :]
                if not taken:
                    self._busy = False
                    self._idle.notify_all()
                    return
            try:
                refused = self._add([message for _, message in taken])
            except Exception as error:
                refused = [error] * len(taken)
            rows = [
                fail_row(anchor, words(error))
                for (anchor, _), error in zip(taken, refused, strict=True)
                if error is not None
            ]
            try:
                self._sink.add(rows, wait=False)
            except AckerError as error:
                log.warning("%d attempts failed, their trees expire: %s", len(rows), error)
