"""A worker of a consumer group: processes entries, acks them, and takes over those of dead workers.

``reading.py`` gets the entries, ``group.py`` has the commands. The worker is that of all queues, in
:mod:`acker_redis.integrations.core.worker`.
"""

from functools import partial
from typing import Any

from acker_redis.errors import ConfigError
from acker_redis.integrations.core.ended import Ended
from acker_redis.integrations.core.failures import OnFailure
from acker_redis.integrations.core.worker import BLOCK, Worker
from acker_redis.integrations.streams.entries import Fields, encoded, encoder_of, stamped
from acker_redis.integrations.streams.group import Entry, Group
from acker_redis.integrations.streams.reading import Reading
from acker_redis.sync.client import Acker


class StreamWorker(Worker):
    """A worker that processes the entries of a stream, as a consumer of a group.

    :meth:`run` calls a handler with the fields of each entry. The entry is acked when the handler
    has returned, and fails with the exception's words if it raises. A program with its own loop
    calls :meth:`read` and :meth:`handle` instead. Either way an entry is processed at least once.
    Start several workers to use several cores.

    **A failed entry** is removed from the group: its source decides about a replay. With
    ``on_failure`` the application is told, too.

    **Dead workers.** An entry that was neither acked nor failed for ``idle`` seconds is delivered
    to another worker. After ``deliveries`` deliveries it fails, because it may kill its workers.

    **Without an id** (the field ``acker-tuple``) an entry is processed and not tracked, and so are
    its children. If it fails and there is no ``on_failure``, no source is told: the exception ends
    :meth:`run`, and the entry stays pending. The same holds for an id that is malformed.

    **One group.** All groups of a stream receive an entry with the same id, and its tree may
    complete when the first has processed it. So only one group of a stream may have StreamWorkers.

    **Deleted entries.** If an entry is trimmed or deleted before its processing, its tree expires.

    Args:
        acker: The client of the namespace.
        client: The client of redis-py for the streams, with or without ``decode_responses``; it
            may be a cluster's. With it, an entry that is no text fails; ``on_failure`` gets its
            fields as bytes.
        stream: The name of the stream.
        group: The name of the group; it is created if it does not exist, at the first entry.
        consumer: A name that no other worker has; by default a random one.
        idle: Seconds after which an entry goes to another worker: longer than the slowest handler,
            and best shorter than the timeout of the namespace.
        deliveries: Maximum number of deliveries of an entry.
        delete: Whether entries are deleted from the stream, too, when they leave the group. Other
            groups that read the stream would miss them.
        on_failure: ``on_failure(fields, error)`` is called for each entry that failed, for example
            to add it to a dead-letter stream. What it adds is not tracked. If it raises, the entry
            stays pending, and the exception ends :meth:`run`.
        skip_ended: Right only where a record that expires is sent again: in the stream into which a
            :class:`Source` or an outbox sends. Anywhere else it loses records. With True, entries
            of ended trees are removed before their handler, and counted in ``skipped``: entries
            that are older than a tree lives, of which no tree is pending, unless Redis may have
            lost trees of that time. In doubt an entry is processed. Redis must make the ids of
            entries (``*``), as :class:`StreamSender` lets it: they say how old an entry is.

    Raises:
        ConfigError: An argument is invalid.

    Examples:
        >>> import redis
        >>> from acker_redis.integrations.streams import StreamWorker
        >>> client = redis.Redis.from_url(url)
        >>> worker = StreamWorker(Acker.from_url(url, "orders"), client, "orders", "pricing")
        >>> def price(fields):
        ...     worker.xadd("priced", {"name": fields[b"name"], "total": 19})
        ...     worker.stop()
        >>> _ = client.xadd("orders", {"name": "a hat"})
        >>> worker.run(price)
        >>> client.xlen("priced")
        1

    """

    def __init__(
        self,
        acker: Acker,
        client: Any,
        stream: str,
        group: str,
        *,
        consumer: str | None = None,
        idle: float = 60.0,
        deliveries: int = 5,
        delete: bool = False,
        on_failure: OnFailure | None = None,
        skip_ended: bool = False,
    ) -> None:
        if not idle >= 0.001:
            raise ConfigError(f"idle is a number of seconds, at least 0.001, not {idle!r}")
        if type(deliveries) is not int or deliveries < 1:
            raise ConfigError(f"deliveries is a number, at least 1, not {deliveries!r}")
        self._encode = encoder_of(client, "a StreamWorker")
        self.stream = stream
        self._group = Group(client, stream, group, consumer, idle, delete)
        self._reading = Reading(self._group, idle, deliveries)
        ended = Ended(acker.flows, self._group.now_ms) if skip_ended else None
        super().__init__(acker, self._group, self._reading, idle, on_failure, ended)

    def reset_after_fork(self) -> None:
        """Begin without the entries of the parent, and with another name in the group."""
        super().reset_after_fork()
        self._group.join()

    def read(self, count: int = 100, block: float = BLOCK) -> list[tuple[str, list[Entry]]]:
        """Settle handled entries, and return entries to :meth:`handle`, as XREADGROUP does.

        For programs with their own loop; others call :meth:`run`, which goes on after an outage.

        Args:
            count: Maximum number of entries.
            block: Seconds to wait for entries, at most a quarter of ``idle``: in between it looks
                for entries of dead workers.

        Returns:
            Nothing, or the stream with its entries: their keys and their fields. An entry of
            another worker comes alone.

        Raises:
            redis.RedisError: Redis refuses, or does not answer: for example redis.TimeoutError or
                redis.ConnectionError. Call it again: the entries stay pending.
            AckerError, Exception: As :meth:`settle`.

        """
        entries = self._read(count, block)
        return [(self.stream, entries)] if entries else []

    def xadd(
        self,
        name: str | bytes,
        fields: Fields,
        *,
        maxlen: int | None = None,
        child: str | None = None,
        edge: str = "",
    ) -> None:
        """Add an entry that the entry in process has caused to a stream.

        It is added after the handler has returned, together with others; see :meth:`flush`. An
        ``acker-tuple`` in ``fields`` is replaced, so a handler may pass on the fields it got. If
        Redis refuses the entry, the tree fails with Redis's words.

        Args:
            name: The name of the stream.
            fields: The fields, as redis-py's ``xadd`` takes them.
            maxlen: If given, trims the stream to about this number of entries.
            child: Says which child of the processed entry this is. Its id is then derived, and
                the same when the entry is delivered again: see :meth:`Handle.emit`.
            edge: The name of the edge that the entry travels on.

        Raises:
            ConfigError: No handler of this worker runs in this context.
            ClosedError: The handler has returned.
            redis.DataError: A field is of a wrong type, or there are none.

        """
        command = encoded(self._encode, name, fields, maxlen)
        self._emit(partial(stamped, command), child, edge)
