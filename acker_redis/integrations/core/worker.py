"""A worker of a queue: the loop, and what handlers and programs call.

A queue has its own commands (``queues.py``); ``settling.py`` settles the messages whose handlers
have returned.
"""

import logging
import math
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any, Self

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
from acker_redis.integrations.core.batches import Messages, Works, run_batch
from acker_redis.integrations.core.ended import Ended, Sent
from acker_redis.integrations.core.failures import OnFailure
from acker_redis.integrations.core.queues import Given, Queue, Reader
from acker_redis.integrations.core.settling import Leased, Settling
from acker_redis.integrations.core.until_signal import until_signal
from acker_redis.integrations.core.work import Work, begun, in_process
from acker_redis.sync.bolt import Current, Handle
from acker_redis.sync.client import Acker
from acker_redis.sync.producer import Producer
from acker_redis.transport.errors import is_transient, may_pass
from acker_redis.trees.message_id import MessageId

log = logging.getLogger(__name__)

BLOCK = 0.1
"""Seconds that a worker waits for messages, and after which run() notices a signal."""
PAUSE = 0.5
"""Seconds between two attempts of run() while Redis or the queue does not answer."""
PATIENCE = 60.0
"""Seconds for which run() goes on while Redis refuses it, as during the rotation of a password."""
MOST = 1000
"""Children of one message that wait to be sent."""

RETRIED = (RedisUnavailableError, BacklogError, BufferFullError, FenceError)
"""Errors of acker-redis after which run() goes on."""

INSTEAD = "a sender for first messages, the client of the queue for untracked ones"

Handler = Callable[..., object]
BatchHandler = Callable[[Messages], object]


class Worker:
    """What the workers of queues have in common; see the class of each.

    Args:
        acker: The client of the namespace.
        queue: The queue.
        reader: Reads from it.
        lease: Seconds after which a message goes to another worker.
        on_failure: ``on_failure(body, error)`` is called for each message that failed, if given.
        ended: Finds the messages that are removed before their handler, if given.

    """

    def __init__(
        self,
        acker: Acker,
        queue: Queue,
        reader: Reader,
        lease: float,
        on_failure: OnFailure | None,
        ended: Ended | None = None,
    ) -> None:
        name = f"a {type(self).__name__}"
        check_is(acker, Acker, name)
        check_blocking(name, on_failure=on_failure)
        self.acker = acker
        self._queue, self._reader, self._ended = queue, reader, ended
        self._sink = Producer(acker)
        self._settling = Settling(queue, self._sink, lease, on_failure)
        self._stop = threading.Event()
        self._worked_at = -math.inf
        """When run() has last done a round, on the ``time.monotonic`` clock."""
        self._closed = False
        self.skipped = 0
        """Messages that were removed before their handler, because their trees had ended."""
        reset_in_children(self)

    def reset_after_fork(self) -> None:
        """Begin without the messages of the parent. A forked child calls this."""
        self._settling.reset_after_fork()

    @property
    def current(self) -> Handle:
        """The handle of the message in process, for ``fail()``.

        Raises:
            ConfigError: No handler of this worker runs in this context.

        """
        return Current(self._in_process().processing, self._sink)

    @property
    def key(self) -> Any:
        """The key of the message in process.

        Raises:
            ConfigError: No handler of this worker runs in this context.

        """
        return self._in_process().message.key

    def run(self, handler: Handler, *, count: int = 100) -> None:
        """Process messages until :meth:`stop`, SIGTERM or SIGINT; then close.

        In the main thread it handles the first of these signals: the handler that runs returns, and
        messages that were read and not handled go to other workers at once. A second signal acts as
        before. While Redis or the queue does not answer, it logs that and tries again. A refusal
        that may pass, such as a full memory or a password that is being rotated, ends it after a
        minute, and before it has worked at all at once.

        Args:
            handler: Called with each message. It may send others with this worker.
            count: Maximum number of messages that are read at once. With 1, none ever waits for the
                handler of another.

        Raises:
            NamespaceNotFoundError: The namespace does not exist.
            RedisRefusedError: Redis refuses, see above; or an error of the queue's library.
            Exception: What ``on_failure`` raises, or the failure of a message without an id: see
                the class.

        """
        check_blocking("run()", handler=handler)
        self._run(partial(self._handle_all, handler), count)

    def run_batches(
        self, handler: BatchHandler, *, count: int = 100, isolate: bool = False
    ) -> None:
        """Process messages in batches until :meth:`stop`, SIGTERM or SIGINT; see :meth:`run`.

        Args:
            handler: Called with :class:`Messages`, a sequence of messages. Those that it neither
                fails nor skips are acked when it has returned. A message of a dead worker comes
                alone.
            count: Maximum number of messages in a batch. Fewer are read if the handler is slow.
            isolate: If the handler raises an Exception, all messages of the batch fail. With True,
                it gets them again, one by one, and only those fail with which it raises. What it
                has sent before is sent twice then.

        Raises:
            Exception: As :meth:`run`.

        """
        check_blocking("run_batches()", handler=handler)
        self._run(partial(self.handle_batch, handler=handler, isolate=isolate), count)

    def handle(self, key: Any, body: Any, handler: Handler, *args: Any) -> None:
        """Call ``handler(body, *args)``; the message is acked or failed soon, by :meth:`settle`.

        An Exception of the handler fails the message, and is not raised. A message that was read
        too long ago is left to other workers.

        Raises:
            BaseException: What the handler raises that is no Exception: the message is delivered
                again.
            Exception: As :meth:`settle`.

        """
        if self._settling.is_late(self._reader.read_at):
            log.info("%s: message %s waited too long, another worker gets it", self, key)
            return
        work = self._begin(key, body)
        work.run(handler, body, *args)
        self._settling.put([work])

    def handle_batch(
        self, messages: list[Given], handler: BatchHandler, *, isolate: bool = False
    ) -> None:
        """Call ``handler`` with messages, as :meth:`run_batches` does; see also :meth:`handle`.

        Args:
            messages: The key of each message, and what a handler gets.
            handler: Called with :class:`Messages`.
            isolate: Whether the handler gets the messages of a batch that failed one by one.

        """
        if self._settling.is_late(self._reader.read_at):
            log.info("%s: a batch waited too long, other workers get it", self)
            return
        given = Works([(self._begin(key, body), body) for key, body in messages])
        run_batch(given, handler, isolate)
        self._settling.put(given.works)

    def flush(self) -> None:
        """Send the messages that the handler has given to this worker now.

        Raises:
            ConfigError: No handler of this worker runs in this context.
            Exception: No reply: some may have been sent. The message in process is delivered again,
                also if the handler catches this.

        """
        self._settling.send_children([self._in_process()])

    def drop(self) -> None:
        """Let the message in process be removed without a row, because it is a duplicate.

        Two messages have one id if a worker died after it had sent the first with ``child=``, and
        before its own message was removed. Two acks would cancel each other. A handler that has
        noted :attr:`key` with its result drops a message with another key.

        Raises:
            ConfigError: No handler of this worker runs in this context.

        """
        self._in_process().skip()

    def renew(self) -> None:
        """Restart the time after which the message in process goes to another worker.

        The timeout of its tree restarts, too. For handlers that take longer.

        Raises:
            ConfigError: No handler of this worker runs in this context.
            ClosedError: Another worker has the message already.
            Exception: Redis or the queue does not answer.

        """
        work = self._in_process()
        if not self._queue.owns(work.message.key, work.message.since):
            raise ClosedError(f"another worker has taken message {work.message.key!r} over")
        now = time.monotonic()
        self._queue.keep(work.message.key)
        work.message.since = now
        Current(work.processing, self._sink).reset_timeout()

    def settle(self) -> None:
        """Send the children of handled messages, apply their rows, and remove them from the queue.

        It is called in time by the other methods.

        Raises:
            Exception: Redis or the queue does not answer: the messages are delivered again. Or what
                ``on_failure`` raises, or the failure of a message without an id: that message is
                delivered again, and all others are settled.

        """
        self._settling.settle()

    def stop(self) -> None:
        """End :meth:`run` when the handler that runs has returned. Any thread may call it."""
        self._stop.set()

    def close(self) -> None:
        """Settle handled messages, and leave the queue. A second call is a no-op."""
        if self._closed:
            return
        self._closed = True
        try:
            self.settle()
            self._queue.leave()
        except self._errors() as error:
            if not self._passes(error):
                raise
            log.warning("%s: messages will be delivered again: %s", self, error)
        finally:
            self._sink.close()

    def __str__(self) -> str:
        return self._queue.name

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _read(self, count: int, block: float) -> list[Given]:
        _ = self.acker.config  # until it is known no row can be applied, so no handler runs
        self.settle()
        found = self._reader.read(count, block, self._fail)
        return found if self._ended is None else self._without(self._ended, found)

    def _without(self, ended: Ended, found: list[Given]) -> list[Given]:
        """Remove the messages of ended trees, and return the others."""
        queue = self._queue
        sent = [Sent(queue.sent_ms(*each), partial(queue.id_of, each[1])) for each in found]
        skipped = self.acker.connection.drive(ended.find(sent))
        if not skipped:
            return found
        queue.done([found[at][0] for at in sorted(skipped)])
        self.skipped += len(skipped)
        return [each for at, each in enumerate(found) if at not in skipped]

    def _emit(self, with_id: Callable[[MessageId], Any], child: str | None, edge: str) -> None:
        """Emit a child of the message in process, which is sent after the handler has returned."""
        work = self._in_process()
        outbox = work.message.outbox
        outbox.append(with_id(work.emit(child, edge)))
        if len(outbox) >= MOST:
            self.flush()

    def _in_process(self) -> Work[Leased]:
        work = in_process(Leased, "a worker", INSTEAD)
        if work.message.owner is not self:
            raise ConfigError("the message in process is none of this worker")
        return work

    def _run(self, process: Callable[[list[Given]], object], count: int) -> None:
        try:
            with until_signal(self._stop.set):
                while not self._stop.is_set():
                    try:
                        found = self._read(count, BLOCK)
                        if self._stop.is_set():
                            self._give_back(found)
                        elif found:
                            process(found)
                        self._worked_at = time.monotonic()
                    except self._errors() as error:
                        if not self._passes(error):
                            raise
                        log.warning("%s: messages will be delivered again: %s", self, error)
                        self._stop.wait(PAUSE)
        finally:
            self.close()

    def _handle_all(self, handler: Handler, messages: list[Given]) -> None:
        for number, (key, body) in enumerate(messages):
            if self._stop.is_set():
                self._give_back(messages[number:])
                return
            self.handle(key, body, handler)

    def _give_back(self, messages: list[Given]) -> None:
        if not self._settling.is_late(self._reader.read_at):
            self._queue.give_back([key for key, _ in messages])

    def _begin(self, key: Any, body: Any) -> Work[Leased]:
        leased = Leased(self, key, body, self._reader.read_at)
        return begun(leased, partial(self._queue.id_of, body), self.acker.fresh_ids)

    def _fail(self, key: Any, body: Any, error: Exception) -> None:
        """Settle a message that no handler gets."""
        work = self._begin(key, body)
        work.failed(error)
        self._settling.put([work])
        self.settle()

    def _errors(self) -> tuple[type[Exception], ...]:
        return (*RETRIED, RedisRefusedError, *self._queue.errors)

    def _passes(self, error: Exception) -> bool:
        """Return whether an error may be gone at the next attempt."""
        if isinstance(error, RETRIED) or is_transient(error) or self._queue.passes(error):
            return True
        return may_pass(error) and time.monotonic() - self._worked_at < PATIENCE
