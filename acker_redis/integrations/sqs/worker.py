"""A worker of an SQS queue: processes messages, acks them, and deletes them."""

from typing import Any

from acker_redis.errors import ConfigError
from acker_redis.integrations.core.ended import Ended
from acker_redis.integrations.core.failures import OnFailure
from acker_redis.integrations.core.worker import Worker
from acker_redis.integrations.sqs.queue import Sqs, entry
from acker_redis.sync.client import Acker


class SqsWorker(Worker):
    """A worker that processes the messages of an SQS queue.

    :meth:`run` calls a handler with each message, as boto3 returns it. The message is acked when
    the handler has returned, and fails with the exception's words if it raises. Then it is deleted.
    Start several workers to use several cores.

    **A failed message** is deleted: its source decides about a replay. With ``on_failure`` the
    application is told, too.

    **Dead workers.** A message that was neither acked nor failed for ``lease`` seconds is delivered
    again. The redrive policy of the queue says how often; its tree expires after that.

    **Without an id** (the attribute ``acker-tuple``) a message is processed and not tracked, and so
    are its children. If it fails and there is no ``on_failure``, no source is told: the exception
    ends :meth:`run`, and the message is delivered again. The same holds for a malformed id.

    Args:
        acker: The client of the namespace.
        client: A client of boto3, ``boto3.client("sqs")``.
        url: The URL of the queue.
        lease: The visibility timeout: whole seconds after which a message goes to another worker,
            4 to 43,200. Longer than the slowest handler, else the handler calls :meth:`renew`.
        wait: Whole seconds that a call waits for messages, 0 to 20, and at most a quarter of
            ``lease``. :meth:`run` notices a signal after that.
        on_failure: ``on_failure(message, error)`` is called for each message that failed, for
            example to send it to another queue. What it sends is not tracked. If it raises, the
            message is delivered again, and the exception ends :meth:`run`.
        skip_ended: Right only where a record that expires is sent again: in the queue into which a
            :class:`Source` or an outbox sends. Anywhere else it loses records. With True, messages
            of ended trees are deleted before their handler, and counted in ``skipped``: messages
            that are older than a tree lives, and ten minutes more, as SQS has another clock, of
            which no tree is pending, unless Redis may have lost trees of that time. In doubt a
            message is processed.

    Raises:
        ConfigError: An argument is invalid.

    Examples:
        >>> import boto3
        >>> from acker_redis.integrations.sqs import SqsWorker
        >>> def price(message):
        ...     worker.send(priced, message["Body"], child="priced")
        >>> client = boto3.client("sqs")  # doctest: +SKIP
        >>> worker = SqsWorker(acker, client, orders)  # doctest: +SKIP
        >>> worker.run(price)  # doctest: +SKIP

    """

    def __init__(
        self,
        acker: Acker,
        client: Any,
        url: str,
        *,
        lease: int = 60,
        wait: int = 5,
        on_failure: OnFailure | None = None,
        skip_ended: bool = False,
    ) -> None:
        for name, given, least, most in (("lease", lease, 4, 43_200), ("wait", wait, 0, 20)):
            if type(given) is not int or not least <= given <= most:
                raise ConfigError(f"{name} is {least} to {most} whole seconds, not {given!r}")
        queue = Sqs(client, url, lease, wait)
        ended = Ended(acker.flows) if skip_ended else None
        super().__init__(acker, queue, queue, lease, on_failure, ended)

    @property
    def key(self) -> str:
        """SQS's id of the message in process: the same in each delivery, see :meth:`drop`."""
        return str(self._in_process().message.body["MessageId"])

    def send(
        self, url: str, body: str, *, child: str | None = None, edge: str = "", **options: Any
    ) -> None:
        """Send a message that the message in process has caused.

        It is sent after the handler has returned, together with others; see :meth:`flush`. An
        ``acker-tuple`` in its attributes is replaced, so a handler may pass on those it got. If SQS
        refuses the message, the tree fails with its words.

        Args:
            url: The URL of the queue.
            body: The text.
            child: Says which child of the processed message this is. Its id is then derived, and
                the same when the message is delivered again: see :meth:`Handle.emit`.
            edge: The name of the edge that the message travels on.
            **options: The other fields of an entry of ``send_message_batch``, such as
                ``MessageAttributes``, ``DelaySeconds`` or ``MessageGroupId``.

        Raises:
            ConfigError: No handler of this worker runs in this context.
            ClosedError: The handler has returned.

        """
        self._emit(lambda ids: (url, entry(body, options, ids)), child, edge)
