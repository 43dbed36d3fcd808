"""A Celery task in process, and the messages that are published meanwhile. No I/O.

**Children.** Each message that is published while a task runs is its child: what the task itself
publishes, a retry, the next task of a chain, the tasks of a group, a link. Celery publishes all of
them before it reports the end of the task, and the row of the task is sent after that.

**Chords.** The worker whose task finishes a header publishes the body. If that worker dies, or the
counter of the chord is wrong, the body is never published although the whole header is acked. So
the publisher of a chord draws one more id, the *promise* of the body, and adds it to its own row.
The promise travels in the options of the body with each task of the header. The task during which
the body is published keeps the promise: its row contains it, besides the ids of the messages that
the body consists of. A body that is not published leaves the promise in the checksum, and the
tree expires. If two tasks keep one promise, the two cancel, and the tree expires, too.
"""

from collections.abc import Callable, Iterator
from typing import Any

from acker_redis.errors import ClosedError, InvalidBatchError
from acker_redis.integrations.celery import signatures
from acker_redis.integrations.core.work import Work
from acker_redis.trees.message_id import HEADER, MessageId

PROMISE = "acker-chord"
"""The header of a chord's body that has the promise. It is not sent with the body's messages."""
UNLOCK = "celery.chord_unlock"
"""The task that publishes a chord's body, with result backends that cannot count."""


class Task:
    """A task that runs, or a record that is being published.

    Args:
        owner: The tracker of its app.
        edge_of: Returns the edge of the messages of a task, by its name.
        task_id: Celery's id of the task; '' for a record.
        only: The id of the only message that may be published: the first message of a record.

    """

    __slots__ = (
        "_edge_of", "_kept", "_only", "_promised", "ended", "owner", "published", "retried",
        "task_id",
    )  # fmt: skip

    def __init__(
        self,
        owner: object,
        edge_of: Callable[[str], str],
        task_id: str = "",
        only: MessageId | None = None,
    ) -> None:
        self.owner = owner
        self.task_id = task_id
        self.ended = False
        """Whether Celery has reported the success of the task, or its retry was published."""
        self.retried = False
        """Whether a message with the id of the task was published: its retry."""
        self.published = 0
        """Messages that were published, each with a separate id."""
        self._edge_of = edge_of
        self._only = only
        self._promised: dict[str, str] = {}
        """The promise of each chord's body, by an id of the body."""
        self._kept: set[str] = set()

    def publish(self, work: "Work[Task]", name: str, headers: dict[str, Any], body: Any) -> None:
        """Set the id of a message that is published next, and the promises that it carries.

        Celery publishes a message also if this call raises. Then the message has no id, and the
        work has the error: it fails.
        """
        promise = headers.pop(PROMISE, None)
        headers.pop(HEADER, None)  # a retry has the headers of its task
        try:
            if promise:
                self._keep(work, promise)
            chords = signatures.unlocked if name == UNLOCK else signatures.bodies
            self._promise(work, chords(body))
            ids = self._next(work, name)
        except BaseException as error:
            work.failed(error)
            raise
        self.published += 1
        self.retried = self.retried or headers.get("id") == self.task_id
        headers |= ids.to_headers()

    def _next(self, work: "Work[Task]", name: str) -> MessageId:
        if self._only is None:
            return work.emit(edge=self._edge_of(name))
        if self.published:
            raise ClosedError(
                "a record with messages=1 published several messages: emit it with messages=None"
            )
        return self._only

    def _keep(self, work: "Work[Task]", promise: str) -> None:
        if self._only is not None:
            raise ClosedError("the body of a chord is published outside of its header")
        if promise not in self._kept:
            work.keep(MessageId.parse(promise))
            self._kept.add(promise)

    def _promise(self, work: "Work[Task]", bodies: Iterator[signatures.Body]) -> None:
        for body in bodies:
            headers = body["options"].get("headers") or {}
            before = headers.get(PROMISE)
            # A body that is a chord itself hands its options on to its own body. That copy of a
            # promise is kept by now: the inner body needs another one.
            if before and before not in self._kept:
                continue
            key = signatures.key_of(body)
            if key is None:
                raise InvalidBatchError("the body of a chord has no task id")
            if key not in self._promised:
                if self._only is not None:
                    raise ClosedError("emit a record that is part of a chord with messages=None")
                self._promised[key] = str(work.emit(edge=self._edge_of(body["task"])))
            body["options"]["headers"] = {**headers, PROMISE: self._promised[key]}
