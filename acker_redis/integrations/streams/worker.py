"""A worker of a consumer group: processes entries, acks them, and takes over those of dead workers.

``reading.py`` gets the entries, ``settling.py`` settles those whose handlers have returned. This
module has the methods for programs and handlers, and the loop.
"""

import logging
import math
import os
import secrets
import socket
import threading
import time
from collections.abc import Callable
from typing import Any

import redis

from acker_redis.arguments import check_blocking, check_is
from acker_redis.errors import (
    BacklogError,
    BufferFullError,
    ClosedError,
    ConfigError,
    FenceError,
    RedisRefusedError,
    RedisUnavailableError,
)
from acker_redis.flows.forks import reset_in_children
from acker_redis.integrations.core.until_signal import until_signal
from acker_redis.integrations.streams.entries import Fields, check_client, encoded
from acker_redis.integrations.streams.group import Entry, Group
from acker_redis.integrations.streams.reading import Reading
from acker_redis.integrations.streams.settling import OnFailure, Settling
from acker_redis.integrations.streams.work import Work, begun, in_process
from acker_redis.sync.bolt import Current, Handle
from acker_redis.sync.client import Acker
from acker_redis.sync.producer import Producer
from acker_redis.transport.errors import is_transient, may_pass

log = logging.getLogger(__name__)

BLOCK = 0.1
"""Seconds that read() waits for entries, and after which run() notices a signal."""
PAUSE = 0.5
"""Seconds between two attempts of run() while Redis does not answer."""
PATIENCE = 60.0
"""Seconds for which run() goes on while Redis refuses it, as during the rotation of a password."""
MOST = 1000
"""Children of one entry that wait to be added."""

REFUSED = (redis.RedisError, redis.exceptions.RedisClusterException)
"""Errors of redis-py."""
RETRIED = (RedisUnavailableError, BacklogError, BufferFullError, FenceError)
"""Errors of acker-redis after which run() goes on."""
CAUGHT = (*REFUSED, *RETRIED, RedisRefusedError)
"""Errors after which run() may go on."""

Handler = Callable[..., object]


class StreamWorker:
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
    ) -> None:
        check_is(acker, Acker, "a StreamWorker")
        check_blocking("a StreamWorker", on_failure=on_failure)
        if not idle >= 0.001:
            raise ConfigError(f"idle is a number of seconds, at least 0.001, not {idle!r}")
        if type(deliveries) is not int or deliveries < 1:
            raise ConfigError(f"deliveries is a number, at least 1, not {deliveries!r}")
        check_client(client, "a StreamWorker")
        self.acker = acker
        self.stream = stream
        self._client = client
        self._idle, self._consumer = idle, consumer
        self._sink = Producer(acker)
        self._group = Group(client, stream, group, "")
        self._reading = Reading(self._group, idle, deliveries)
        self._settling = Settling(self._group, self._sink, idle, delete, on_failure)
        self._stop = threading.Event()
        self._worked_at = -math.inf
        """When run() has last done a round, on the ``time.monotonic`` clock."""
        self.reset_after_fork()
        reset_in_children(self)
        self._closed = False

    def reset_after_fork(self) -> None:
        """Begin without the entries of the parent, and with another name in the group.

        A forked child calls this.
        """
        me = self._consumer or f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(4)}"
        self._group.consumer = me
        self._settling.reset_after_fork()

    @property
    def current(self) -> Handle:
        """The handle of the entry in process, for ``fail()``.

        Raises:
            ConfigError: No handler of this worker runs in this context.

        """
        return Current(in_process(self).processing, self._sink)

    @property
    def key(self) -> Any:
        """The key of the entry in process, such as ``b"1700000000000-0"``.

        It is the same in each delivery of the entry, and tells it from a duplicate: see
        :meth:`drop`.

        Raises:
            ConfigError: No handler of this worker runs in this context.

        """
        return in_process(self).key

    def run(self, handler: Handler, *, count: int = 100) -> None:
        """Process entries until :meth:`stop`, SIGTERM or SIGINT; then close.

        In the main thread it handles the first of these signals: the handler that runs returns, and
        entries that were read and not handled go to other workers at once. A second signal acts as
        before. While Redis does not answer, it logs that and tries again. A refusal that may pass,
        such as a full memory or a password that is being rotated, ends it after a minute, and
        before it has worked at all at once.

        Args:
            handler: ``handler(fields)`` is called with the fields of each entry, as redis-py
                returns them. It may call :meth:`xadd`.
            count: Maximum number of entries that are read at once. Fewer are read if handlers are
                slow. With 1, no entry ever waits for the handler of another.

        Raises:
            NamespaceNotFoundError: The namespace does not exist.
            RedisRefusedError, redis.RedisError: Redis refuses, see above.
            Exception: What ``on_failure`` raises, or the failure of an entry without an id: see
                the class.

        """
        check_blocking("run()", handler=handler)
        try:
            with until_signal(self._stop.set):
                while not self._stop.is_set():
                    try:
                        self._round(handler, count)
                        self._worked_at = time.monotonic()
                    except CAUGHT as error:
                        if not self._passes(error):
                            raise
                        log.warning("%s: entries stay pending: %s", self.stream, error)
                        self._stop.wait(PAUSE)
        finally:
            self.close()

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
        _ = self.acker.config  # until it is known no row can be applied, so no handler runs
        self.settle()
        entries = self._reading.read(count, block, self._fail)
        return [(self.stream, entries)] if entries else []

    def handle(self, key: Any, fields: Fields, handler: Handler, *args: Any) -> None:
        """Call ``handler(fields, *args)``; the entry is acked or failed soon, by :meth:`settle`.

        An Exception of the handler fails the message, and is not raised. An entry that was read
        too long ago is left to other workers.

        Raises:
            BaseException: What the handler raises that is no Exception: the entry stays pending.
            redis.RedisError, AckerError, Exception: As :meth:`settle`.

        """
        if self._reading.is_late():
            log.info("%s: entry %s waited too long, another worker gets it", self.stream, key)
            return
        work = self._begin(key, fields)
        if work.error is None:
            try:
                work.call(handler, fields, *args)
            except Exception as error:
                work.failed(error)
        self._settling.put(work)

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
        work = in_process(self)
        if work.put(encoded(self._client, name, fields, maxlen), child, edge) >= MOST:
            self.flush()

    def flush(self) -> None:
        """Add the entries that the handler has given to :meth:`xadd` now.

        Raises:
            ConfigError: No handler of this worker runs in this context.
            redis.RedisError: No reply: some may have been added. The entry in process stays
                pending, also if the handler catches this.

        """
        self._settling.add_children([in_process(self)])

    def drop(self) -> None:
        """Let the entry in process be removed without a row, because it is a duplicate.

        Two entries have one id if a worker died between ``xadd(.., child=)`` and the removal of its
        own entry. Two acks would cancel each other. A handler that has noted :attr:`key` with its
        result drops an entry with another key.

        Raises:
            ConfigError: No handler of this worker runs in this context.

        """
        in_process(self).dropped = True

    def renew(self) -> None:
        """Restart the time after which the entry in process goes to another worker.

        The timeout of its tree restarts, too. For handlers that take longer than ``idle``.

        Raises:
            ConfigError: No handler of this worker runs in this context.
            ClosedError: Another worker has the entry already.
            redis.RedisError, AckerError: Redis does not answer.

        """
        work = in_process(self)
        if not self._group.owns(work.key):
            raise ClosedError(f"another worker has taken entry {work.key!r} over")
        now = time.monotonic()
        self._group.keep(work.key)
        work.since = now
        Current(work.processing, self._sink).reset_timeout()

    def settle(self) -> None:
        """Add the children of handled entries, apply their rows, and remove them from the group.

        :meth:`read` and :meth:`handle` call it in time.

        Raises:
            redis.RedisError, AckerError: Redis does not answer: the entries stay pending.
            Exception: What ``on_failure`` raises, or the failure of an entry without an id. That
                entry stays pending, and all others are settled.

        """
        self._settling.settle()

    def stop(self) -> None:
        """End :meth:`run` when the handler that runs has returned. Any thread may call it."""
        self._stop.set()

    def close(self) -> None:
        """Settle handled entries, and leave the group. A second call is a no-op."""
        if self._closed:
            return
        self._closed = True
        try:
            self.settle()
            if self._consumer is None:
                self._group.leave()
        except CAUGHT as error:
            if not self._passes(error):
                raise
            log.warning("%s: entries will be delivered again: %s", self.stream, error)
        finally:
            self._sink.close()

    def __enter__(self) -> "StreamWorker":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _round(self, handler: Handler, count: int) -> None:
        for _, entries in self.read(count):
            for number, (key, fields) in enumerate(entries):
                if self._stop.is_set():
                    if not self._reading.is_late():
                        left = [each for each, _ in entries[number:]]
                        self._group.give_back(left, int(self._idle * 1000))
                    return
                self.handle(key, fields, handler)

    def _begin(self, key: Any, fields: Fields) -> Work:
        return begun(self, key, fields, self.acker.fresh_ids, self._reading.read_at)

    def _fail(self, key: Any, fields: Fields, error: Exception) -> None:
        """Settle an entry that no handler gets."""
        work = self._begin(key, fields)
        work.failed(error)
        self._settling.put(work)
        self.settle()

    def _passes(self, error: Exception) -> bool:
        """Return whether an error may be gone at the next attempt."""
        if isinstance(error, RETRIED) or is_transient(error):
            return True
        return may_pass(error) and time.monotonic() - self._worked_at < PATIENCE
