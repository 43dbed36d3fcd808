"""The records of a source as messages of an SQS queue."""

from typing import Any

from acker_redis.integrations.core.sender import Sender
from acker_redis.integrations.sqs.queue import MOST, add, entry
from acker_redis.sync.client import Acker
from acker_redis.trees.record import Record


class SqsSender(Sender):
    """The ``send`` of a :class:`Source` whose records go to an SQS queue: a thread sends them.

    The value of a record is the body of its message, a text. While one call is under way, further
    records wait, and travel together, up to ten in a call.

    **If SQS refuses a message**, or does not answer, the attempt fails with its words. If the
    process dies between tracking a record and sending it, the tree expires.

    Args:
        acker: The client of the namespace.
        client: A client of boto3, ``boto3.client("sqs")``.
        url: The URL of the queue.
        **options: Fields of each entry of ``send_message_batch``, such as ``MessageGroupId``.

    Raises:
        ConfigError: ``acker`` is no Acker.

    """

    def __init__(self, acker: Acker, client: Any, url: str, **options: Any) -> None:
        self._url, self._options = url, options
        super().__init__(acker, lambda children: add(client, children), MOST)

    def __call__(self, record: Record, ids: Any) -> None:
        """Put the messages of a record into the buffer."""
        entries = [entry(record.value, self._options, each) for each in ids]
        anchors = [anchor for each in ids for anchor in each]
        self._put([(a, (self._url, e)) for a, e in zip(anchors, entries, strict=True)])
