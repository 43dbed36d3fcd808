"""The commands of SQS, ten messages each, and the entries that it takes."""

import logging
import time
from collections.abc import Iterator
from hashlib import sha256
from typing import Any

from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    ConnectionError,
    HTTPClientError,
    ParamValidationError,
)

from acker_redis.errors import AckerError
from acker_redis.integrations.core.headers import with_id
from acker_redis.integrations.core.pace import Pace
from acker_redis.integrations.core.queues import Fail, Given
from acker_redis.trees.message_id import MessageId

log = logging.getLogger(__name__)

MOST = 10
"""Messages of one call: the limit of SQS."""
_BUSY = {"RequestThrottled", "Throttling", "ThrottlingException", "OverLimit"}
Child = tuple[str, dict[str, Any]]
"""The URL of a queue, and the entry of a message for it."""


class Sqs:
    """One queue, as the worker's queue and reader.

    Args:
        client: A client of boto3.
        url: The URL of the queue.
        lease: The visibility timeout of messages, in seconds.
        wait: Seconds of a long poll.

    """

    errors: tuple[type[Exception], ...] = (BotoCoreError, ClientError)

    def __init__(self, client: Any, url: str, lease: int, wait: int) -> None:
        self._client, self.name = client, url
        self._lease, self._wait = lease, min(wait, lease // 4)  # else a message is late at once
        self.read_at = 0.0
        self._pace = Pace()

    def read(self, count: int, block: float, fail: Fail) -> list[Given]:
        """Return up to ten messages, each with the receipt of its delivery; see ``Reader``."""
        self._pace.fit(self.read_at)
        self.read_at = time.monotonic()
        count = min(count, self._pace.fits, MOST)
        found = self._client.receive_message(
            QueueUrl=self.name, MaxNumberOfMessages=count, WaitTimeSeconds=self._wait,
            VisibilityTimeout=self._lease, MessageAttributeNames=["All"], AttributeNames=["All"],
        )  # fmt: skip
        messages = found.get("Messages", ())
        self._pace.given = len(messages)
        return [(each["ReceiptHandle"], each) for each in messages]

    def id_of(self, body: Any) -> MessageId:
        """Return the id of a message; raise InvalidBatchError if it is malformed."""
        attributes = body.get("MessageAttributes", {})
        return MessageId.from_headers(
            {
                name: each.get("StringValue", each.get("BinaryValue", ""))
                for name, each in attributes.items()
            }
        )

    def sent_ms(self, _: Any, body: Any) -> int | None:
        """Return when SQS received a message, in ms since 1970."""
        return int(body.get("Attributes", {}).get("SentTimestamp", 0)) or None

    def add(self, children: list[Child]) -> list[Exception | None]:
        """Send messages; see :func:`add`."""
        return add(self._client, children)

    def owns(self, _: Any, since: float) -> bool:
        """Return whether the visibility timeout has not passed: SQS cannot be asked."""
        return time.monotonic() - since < self._lease

    def keep(self, key: Any) -> None:
        """Let the visibility timeout of a message begin again."""
        self._client.change_message_visibility(
            QueueUrl=self.name, ReceiptHandle=key, VisibilityTimeout=self._lease
        )

    def give_back(self, keys: list[Any]) -> None:
        """Let other workers have these messages at once."""
        self._settle(self._client.change_message_visibility_batch, keys, VisibilityTimeout=0)

    def done(self, keys: list[Any]) -> None:
        """Delete messages."""
        self._settle(self._client.delete_message_batch, keys)

    def leave(self) -> None:
        """Do nothing: SQS knows no workers."""

    def passes(self, error: Exception) -> bool:
        """Return whether SQS did not answer, or is overloaded."""
        return _is_doubt(error) or isinstance(error, ConnectionError | HTTPClientError)

    def _settle(self, command: Any, keys: list[Any], **more: Any) -> None:
        for some in _tens(keys):
            entries = [{"Id": str(n), "ReceiptHandle": key, **more} for n, key in enumerate(some)]
            for each in command(QueueUrl=self.name, Entries=entries).get("Failed", ()):
                log.warning("%s: a message is delivered again: %s", self.name, each)


def entry(body: str, options: dict[str, Any], ids: MessageId) -> dict[str, Any]:
    """Return the entry of a message with an id.

    In a FIFO queue the id is also what SQS removes duplicates by. So each attempt of a record is
    another message, and a child with a derived id is the same one in each delivery of its parent.

    >>> entry("a hat", {}, MessageId({7: 40}))["MessageAttributes"]
    {'acker-tuple': {'DataType': 'String', 'StringValue': '7:40'}}
    """
    value = {"DataType": "String", "StringValue": str(ids)} if ids else None
    attributes = dict(with_id(options.get("MessageAttributes"), value))
    own = {"MessageBody": body, "MessageAttributes": attributes}
    if ids and "MessageGroupId" in options:
        own["MessageDeduplicationId"] = sha256(str(ids).encode()).hexdigest()
    return {**options, **own}


def add(client: Any, children: list[Child]) -> list[Exception | None]:
    """Send messages, up to ten in one call; return for each why SQS refuses it, or None.

    Raises:
        botocore.exceptions.BotoCoreError, ClientError: No reply: some may have been sent.

    """
    refused: list[Exception | None] = [None] * len(children)
    places: dict[str, list[int]] = {}
    for place, (url, _) in enumerate(children):
        places.setdefault(url, []).append(place)
    for url, several in places.items():
        for some in _tens(several):
            entries = [{"Id": str(place), **children[place][1]} for place in some]
            for place, error in _send(client, url, entries):
                refused[place] = error
    return refused


def _send(client: Any, url: str, entries: list[Any]) -> Iterator[tuple[int, Exception]]:
    try:
        reply = client.send_message_batch(QueueUrl=url, Entries=entries)
    except (ClientError, ParamValidationError) as error:
        if _is_doubt(error):
            raise
        if len(entries) > 1:  # all were refused, perhaps because of one, or of their size together
            for each in entries:
                yield from _send(client, url, [each])
        else:
            yield int(entries[0]["Id"]), error
        return
    for each in reply.get("Failed", ()):
        yield int(each["Id"]), AckerError(f"{each['Code']}: {each.get('Message', '')}")


def _is_doubt(error: Exception) -> bool:
    """Return whether SQS has answered that it had no time, or may have done a part."""
    if not isinstance(error, ClientError):
        return False
    status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 500)
    return bool(status >= 500) or error.response["Error"]["Code"] in _BUSY


def _tens(items: list[Any]) -> Iterator[list[Any]]:
    return (items[at : at + MOST] for at in range(0, len(items), MOST))
