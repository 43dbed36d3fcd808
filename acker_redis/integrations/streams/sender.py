"""The records of a source as entries of a stream."""

from typing import Any

from acker_redis.integrations.core.sender import Sender
from acker_redis.integrations.streams.entries import add, encoded, encoder_of, stamped
from acker_redis.sync.client import Acker
from acker_redis.trees.record import Record

MOST = 500
"""Entries that are added in one round trip."""


class StreamSender(Sender):
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
        self._encode = encoder_of(client, "a StreamSender")
        self._stream, self._maxlen = stream, maxlen
        super().__init__(acker, lambda commands: add(client, commands), MOST)

    def __call__(self, record: Record, ids: Any) -> None:
        """Put the messages of a record into the buffer.

        Raises:
            redis.DataError: The value of the record is no mapping, or empty, or has a value that
                redis-py does not take.

        """
        command = encoded(self._encode, self._stream, record.value, self._maxlen)
        self._put([(anchor, stamped(command, each)) for each in ids for anchor in each])
