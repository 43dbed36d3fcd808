"""The records of a source as entries of a stream, many in one round trip."""

import logging
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from acker_redis.arguments import check_is
from acker_redis.errors import AckerError, BufferFullError
from acker_redis.flows.forks import reset_in_children
from acker_redis.integrations.streams.entries import Command, add, check_client, encoded, with_id
from acker_redis.protocol.rows import fail_row
from acker_redis.protocol.texts import words
from acker_redis.sync.client import Acker
from acker_redis.sync.producer import Producer
from acker_redis.trees.pending import Record

log = logging.getLogger(__name__)

MOST = 500
"""Entries that are added in one round trip."""


class StreamSender:
    """The ``send`` of a :class:`Source` whose records go to a stream: a thread adds the entries.

    The value of a record is the mapping of its fields. While one round trip is under way, further
    records wait, and travel together in the next.

    **If Redis refuses an entry**, or does not answer, the attempt fails with Redis's words. If the
    process dies between tracking a record and adding its entry, the tree expires.

    Args:
        acker: The client of the namespace.
        client: The client of redis-py for the stream; it may be a cluster's.
        stream: The name of the stream.
        maxlen: If given, each XADD trims the stream to about this number of entries. The trees of
            entries that are trimmed and not processed expire.

    Raises:
        ConfigError: ``acker`` is no Acker, or ``client`` no blocking client of redis-py.

    Examples:
        >>> import redis
        >>> from acker_redis.integrations.streams import StreamSender, StreamWorker
        >>> acker, client = Acker.from_url(url, "orders"), redis.Redis.from_url(url)
        >>> worker = StreamWorker(acker, client, "hats", "packing")
        >>> def pack(fields):
        ...     print("packing", fields[b"name"].decode())
        ...     worker.stop()
        >>> with Source(acker, "shop", StreamSender(acker, client, "hats")) as source:
        ...     source.emit("order-1", {"name": "a hat"})
        ...     worker.run(pack)
        ...     source.join()
        packing a hat
        True

    """

    def __init__(
        self, acker: Acker, client: Any, stream: str | bytes, *, maxlen: int | None = None
    ) -> None:
        check_is(acker, Acker, "a StreamSender")
        check_client(client, "a StreamSender")
        self.acker = acker
        self._client, self._stream, self._maxlen = client, stream, maxlen
        self._sink = Producer(acker)
        self.reset_after_fork()
        reset_in_children(self)

    def reset_after_fork(self) -> None:
        """Begin without entries: those that the parent of a forked child has not sent are its own.

        A forked child calls this.
        """
        self._idle = threading.Condition()
        self._busy = False
        """Whether the thread has entries to add, or adds some."""
        self._outbox: list[tuple[int, Command]] = []
        """The anchor and the entry of each first message."""
        self._pool = ThreadPoolExecutor(1, "acker-streams")

    def __call__(self, record: Record, ids: Any) -> None:
        """Put the messages of a record into the buffer.

        Raises:
            redis.DataError: The value of the record is no mapping, or empty, or has a value that
                redis-py does not take.

        """
        command = encoded(self._client, self._stream, record.value, self._maxlen)
        with self._idle:
            if not self._busy:
                self._pool.submit(self._run)  # raises after close(): then nothing is kept
                self._busy = True
            for each in ids:
                (anchor,) = each
                self._outbox.append((anchor, with_id(command, each)))

    def flush(self, timeout: float | None = None) -> None:
        """Wait until all entries are added or refused.

        Raises:
            BufferFullError: Entries are left after ``timeout`` seconds.

        """
        with self._idle:
            if not self._idle.wait_for(lambda: not self._busy, timeout):
                raise BufferFullError(f"{len(self._outbox)} entries wait for Redis")

    def close(self) -> None:
        """Flush, and end the thread. Programs need not call it: the end of a process does."""
        self.flush()
        self._pool.shutdown()
        self._sink.close()

    def _run(self) -> None:
        while True:
            with self._idle:
                taken, self._outbox = self._outbox[:MOST], self._outbox[MOST:]
                if not taken:
                    self._busy = False
                    self._idle.notify_all()
                    return
            try:
                refused = add(self._client, [command for _, command in taken])
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
