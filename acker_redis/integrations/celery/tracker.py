"""Celery tasks as messages: ids in the headers of their messages, and one row when a task ends.

**Order of events** for each task: the messages that it causes are published, with ids; Celery
stores its result; the row of the task is sent. Celery confirms the message to the broker before the
task begins, or, with ``acks_late``, after the row was put into the producer's buffer. A crash at
any moment leaves a tree without the row of its task, which expires, or a message that the broker
delivers again.

**A second delivery**, with ``acks_late`` or after the visibility timeout, runs the task again under
the same id: see :mod:`acker_redis.integrations.core`.

**Exceptions in signal handlers.** Celery logs them and continues, so a handler cannot stop a
message that has no id. It notes the error instead, and the message in process fails.
"""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from weakref import WeakValueDictionary

from billiard.exceptions import TimeLimitExceeded, WorkerLostError
from celery import Celery, signals
from celery.canvas import Signature
from celery.exceptions import Ignore
from celery.states import IGNORED, REJECTED, RETRY

from acker_redis.arguments import check_is
from acker_redis.errors import AckerError, ConfigError
from acker_redis.integrations.celery.signatures import copied
from acker_redis.integrations.celery.work import PROMISE, Task
from acker_redis.integrations.core.handlers import check_done
from acker_redis.integrations.core.work import Work, current
from acker_redis.protocol.texts import clipped, words
from acker_redis.sync.bolt import Current, Handle
from acker_redis.sync.client import Acker
from acker_redis.sync.producer import Producer
from acker_redis.trees.message_id import HEADER, MessageId
from acker_redis.trees.processing import OpenTree, Processing
from acker_redis.trees.record import Record

log = logging.getLogger(__name__)

LINGER = 0.05
"""Seconds that a row waits for others: a batch for each task would cost as much as the task."""
CLOSING = 10.0
"""Seconds for which a pool process that ends waits for the replies to its rows."""
UNDONE = "its result could not be stored, or its next task not published"

_tracked: "dict[int, TaskTracker]" = {}
"""The trackers, by the identity of their app, which they keep alive."""


class TaskTracker:
    """Follows the tasks of a Celery app: create it in the module of the app, once.

    The processes that publish and all workers need it. A task whose message has an id is acked when
    it has succeeded and everything that Celery publishes after it is published: the next task of
    its chain, its links, the body of its chord. It fails with its name, its id and the exception's
    words when Celery gives it up: after the last retry, at its time limit, when its worker process
    is lost, when it is revoked or has expired. A retry is a child of the task. Chains, groups and
    chords belong to the tree of the task, or of the record, that publishes them.

    A task without an id runs as before, and so does everything that it publishes.

    **Edges.** The message of a task travels on the edge that has the name of the task, or the last
    part of it, if the namespace lists that edge: see :attr:`AckerConfig.edges`.

    **Threads.** A task that publishes in another thread must run that in a copy of its context
    (``contextvars.copy_context().run``). Otherwise the messages are not tracked.

    Args:
        app: The app. It uses Celery's message protocol 2, its default.
        acker: The client of the namespace.

    Raises:
        ConfigError: The app has a tracker.

    Examples:
        >>> from celery import Celery
        >>> from acker_redis.integrations.celery import TaskTracker
        >>> app = Celery("orders", broker=url)
        >>> @app.task
        ... def price(order):
        ...     print("pricing", order)
        >>> app.conf.task_always_eager = True  # here only: no worker runs
        >>> tracker = TaskTracker(app, Acker.from_url(url, "orders"))
        >>> with Source(tracker.acker, "shop", tracker.send) as source:
        ...     source.emit("order-1", price.s("a hat"))
        ...     source.join()
        pricing a hat
        True

    """

    def __init__(self, app: Celery, acker: Acker) -> None:
        check_is(acker, Acker, "a TaskTracker")
        if id(app) in _tracked:
            raise ConfigError("this Celery app has a TaskTracker: create it once, beside the app")
        _tracked[id(app)] = self
        self.app = app
        self.acker = acker
        self._ids = acker.fresh_ids
        self._sink = Producer(acker, linger=LINGER)
        self._received: WeakValueDictionary[str, Any] = WeakValueDictionary()
        """The tasks that this worker has taken from the broker, by their ids."""
        self._connected = (
            (signals.before_task_publish, self._on_publish),
            (signals.task_received, self._on_received),
            (signals.task_prerun, self._on_start),
            (signals.task_success, self._on_end),
            (signals.task_retry, self._on_retry),
            (signals.task_failure, self._on_failure),
            (signals.task_postrun, self._on_finish),
            (signals.task_revoked, self._on_revoked),
            (signals.worker_process_shutdown, self._on_exit),
        )
        for signal, handler in self._connected:
            # Without a dispatch_uid, Celery takes the handlers of two trackers for one. The
            # references are not weak, because handlers must outlive this call.
            signal.connect(handler, weak=False, dispatch_uid=(id(self), handler.__name__))

    @property
    def current(self) -> Handle:
        """The handle of the task that runs, for ``reset_timeout()``; without effect if untracked.

        Raises:
            ConfigError: No task runs in this context.

        """
        work = current(Task)
        if work is None and self.app.current_task is None:
            raise ConfigError("current is the task that runs: use it in a task")
        return Current(work.processing if work else Processing(""), self._sink)

    def send(self, record: Record, ids: Any) -> None:
        """Publish the signature that is the value of a record; the ``send`` of a :class:`Source`.

        The value is a task's signature (``price.s(order)``), a chain, a group or a chord. The tree
        of the record holds all messages that follow. Each attempt publishes a new copy.

        Raises:
            ConfigError: The value is no signature.
            Exception: What publishing raises, or, with ``task_always_eager``, the task.

        """
        if not isinstance(record.value, Signature):
            raise ConfigError(
                f"the value of a record is a signature, such as task.s(1), not {record.value!r}"
            )
        signature = copied(record.value)
        if isinstance(ids, OpenTree):
            with self.publishing(ids):
                signature.apply_async()
            return
        for each in ids:
            # A plain task is one message. Of others, the record's message is to publish them.
            plain = type(signature) is Signature and not self.app.conf.task_always_eager
            task = Task(self, self._edge_of, only=each if plain else None)
            work = Work(task, each, self._ids)
            with self._at_work(work):
                signature.apply_async()
            if not plain:
                self._sink.add(work.rows())
            elif not task.published:
                raise ConfigError(f"{signature!r} published no message")

    @contextmanager
    def publishing(self, tree: OpenTree | Handle) -> Iterator[None]:
        """Publish children of a tree, or of a message in process, in a ``with`` block.

        Args:
            tree: From :meth:`Source.track`, or from :meth:`Bolt.process`. Leave its own ``with``
                block after this one.

        Raises:
            AckerError: A message was published without an id: the tree must fail.

        Examples:
            >>> with source.track("import-7") as tree, tracker.publishing(tree):  # doctest: +SKIP
            ...     chord([load.s(part) for part in parts])(report.s())

        """
        processing = tree.processing if isinstance(tree, Handle) else tree
        with self._at_work(Work(Task(self, self._edge_of), processing)):
            yield

    def close(self) -> None:
        """Follow the app no longer, and send all rows. Programs need not call it.

        Raises:
            AckerError: As :meth:`Producer.close`.

        """
        for signal, handler in self._connected:
            signal.disconnect(dispatch_uid=(id(self), handler.__name__))
        _tracked.pop(id(self.app), None)
        self._sink.close()

    @contextmanager
    def _at_work(self, work: Work[Task]) -> Iterator[None]:
        with work:
            yield
        if isinstance(work.error, BaseException):
            raise work.error

    def _edge_of(self, name: str) -> str:
        edges = self._ids().edges
        names = (name, name.rpartition(".")[2]) if edges else ()
        return next((each for each in names if each in edges), "")

    def _owns(self, task: Any) -> bool:
        return _tracked.get(id(getattr(task, "app", None))) is self

    def _on_publish(self, sender: str, headers: Any, body: Any, **_: object) -> None:
        work = current(Task)
        if work is not None:
            if work.message.owner is self:
                work.message.publish(work, sender, headers, body)
        elif headers.pop(PROMISE, None):
            log.error("the body of a chord is published outside of its header: its tree expires")

    def _on_received(self, request: Any, **_: object) -> None:
        if HEADER in request.request_dict and self._owns(request.task):
            self._received[request.id] = request

    def _on_start(self, task_id: str, task: Any, **_: object) -> None:
        request = task.request
        ids = None if request.is_eager or not self._owns(task) else request.get(HEADER)
        if ids:
            Work(Task(self, self._edge_of, task_id), ids, self._ids).__enter__()

    def _on_end(self, sender: Any, result: Any, **_: object) -> None:
        """Note that a task has succeeded, and that Celery has published what follows."""
        work = self._current()
        if work is None:
            return
        try:
            # Celery takes a coroutine or generator as the result if the task ignores its result.
            check_done(sender.run, result)
        except Exception as error:
            work.failed(error)
        task = work.message
        task.ended = task.ended or task.task_id == sender.request.id

    def _on_retry(self, sender: Any, **_: object) -> None:
        """Note that a task has raised Retry: self.retry() has published it, a program need not."""
        work = self._current(sender.request.id)
        if work is not None:
            work.message.ended = work.message.retried

    def _on_failure(self, sender: Any, task_id: str, exception: Any, **_: object) -> None:
        if not self._owns(sender):
            return
        work = current(Task)
        if work is None:
            # In the worker's main process; failures in pool processes were sent there.
            if isinstance(exception, TimeLimitExceeded | WorkerLostError):
                self._fail_received(sender, task_id, exception)
        elif work.message.task_id == task_id:
            work.failed(exception)
        elif sender.request.is_eager and self.app.conf.task_always_eager:
            # delay() has run the task at once, and its caller does not see the exception.
            work.failed(exception)

    def _on_finish(self, task: Any, task_id: str, retval: Any, state: Any, **_: object) -> None:
        work = self._current(task_id)
        if work is None:
            return
        work.__exit__()
        if state is None:
            return  # the process ends, and the broker or the worker decides about the task
        if state == REJECTED and retval.requeue and task.acks_late:
            return  # the broker delivers it again
        if not work.processing.open:
            return  # the task has settled it itself
        if work.error is None and not work.message.ended:
            work.error = _unended(task.request, state, retval)
        if work.error is not None:
            work.error = _why(task, task_id, work.error)
        self._sink.add(work.rows(), wait=work.error is None)

    def _on_revoked(self, sender: Any, request: Any, terminated: bool, expired: bool,
                    **_: object) -> None:  # fmt: skip
        if self._owns(sender) and (ids := request.get(HEADER)):
            why = "terminated" if terminated else "expired" if expired else "revoked"
            self._fail(ids, _why(sender, request.id, why))

    def _on_exit(self, **_: object) -> None:
        """Send the rows of a pool process that ends: it runs no exit handlers of Python."""
        try:
            self._sink.close(CLOSING)
        except AckerError as error:
            log.warning("rows had no reply when a pool process ended: %s", error)

    def _current(self, task_id: str | None = None) -> Work[Task] | None:
        """Return the work of this app that runs, if it is that of a task, or of any."""
        work = current(Task)
        if work is None or work.message.owner is not self:
            return None
        return work if task_id in (None, work.message.task_id) else None

    def _fail_received(self, task: Any, task_id: str, error: BaseException) -> None:
        request = self._received.get(task_id)
        if request is not None:
            self._fail(request.request_dict[HEADER], _why(task, task_id, error))

    def _fail(self, ids: str, why: str) -> None:
        self._sink.add(Processing(MessageId.parse(ids)).failed(why), wait=False)


def _unended(request: Any, state: str, retval: Any) -> str | None:
    """Return why a task that neither succeeded nor failed must fail; None if it is done."""
    if state == REJECTED:
        return f"rejected: {retval.reason}"
    if state == RETRY:
        return "Retry was raised, and no retry published: use self.retry()"
    if state != IGNORED:
        return UNDONE
    # replace() hands the tasks that follow to the new task, and raises Ignore.
    follows = request.chain or request.callbacks
    return "ignored: the tasks after it do not run" if follows and not _replaced(retval) else None


def _replaced(ignore: Ignore) -> bool:
    return str(ignore) == "Replaced by new task"


def _why(task: Any, task_id: str, error: BaseException | str) -> str:
    text = error if isinstance(error, str) else words(error)
    return clipped(f"{task.name}[{task_id}]: {text}")
