"""The header ``acker-tuple`` of AMQP messages. No I/O.

The id is a text, never a number: an integer of AMQP has 64 bits and a sign. A message that an
exchange copies into several queues has a table instead: the id of each copy, by the name of its
queue. Copies with one id would count as one message, and the first ack as that of all.
"""

import copy
from collections.abc import Mapping
from typing import Any

from acker_redis.errors import InvalidBatchError
from acker_redis.integrations.core.headers import is_id, text_of, with_id
from acker_redis.trees.message_id import HEADER, MessageId

Value = MessageId | dict[str, MessageId]
"""The id of a message; or of its copies, by queue."""


def id_of(headers: Any, queue: str) -> str | bytes:
    """Return the id of a message from a queue, which may be malformed; '' if it has none.

    Args:
        headers: The headers as pika gives them, None included. Text of other clients may come as
            bytes.
        queue: The queue. A table of ids that does not name it has no id for this copy.

    Raises:
        InvalidBatchError: The headers have no such id, or the queue is a stream.

    Examples:
        >>> id_of({"acker-tuple": b"7:40", "retries": 3}, "priced")
        b'7:40'
        >>> id_of({"acker-tuple": {"priced": "7:40", "audit": "7:41"}}, "audit")
        '7:41'

    """
    if not headers:
        return ""
    if not isinstance(headers, dict | Mapping):
        kind = type(headers).__name__
        raise InvalidBatchError(f"the headers of a message are a table, not {kind}")
    found = [value for name, value in headers.items() if is_id(name)]
    if len(found) > 1:
        raise InvalidBatchError(f"a message has the header {HEADER} once, not {len(found)} times")
    value = found[0] if found else ""
    if found and "x-stream-offset" in headers:
        raise InvalidBatchError(
            "a message of a stream is not tracked: each consumer gets it, and the first ack would "
            "count for all; consume a classic or quorum queue"
        )
    if not isinstance(value, str) and isinstance(value, Mapping):
        value = value.get(queue, "")
    return text_of([(HEADER, value)])


def anchors_of(headers: Any) -> set[int]:
    """Return the anchors of a message that was published, also of one with a table of ids.

    >>> anchors_of({"acker-tuple": {"priced": "7:40", "audit": "7:41"}})
    {7}
    """
    value = (headers or {}).get(HEADER, "")
    ids = value.values() if isinstance(value, Mapping) else [value]
    return {anchor for each in ids for anchor in MessageId.of(each)}


def is_copied(properties: Any) -> bool:
    """Return whether a header names more queues: RabbitMQ reads it on the default exchange, too.

    >>> from types import SimpleNamespace
    >>> is_copied(SimpleNamespace(headers={"CC": ["audit"]}))
    True
    """
    return bool(properties.headers) and ("CC" in properties.headers or "BCC" in properties.headers)


def stamped(properties: Any, ids: Value) -> Any:
    """Return a copy of ``pika.BasicProperties`` with the id of a message.

    >>> from types import SimpleNamespace
    >>> given = SimpleNamespace(headers={"trace": "x", "Acker-Tuple": "1:2"})
    >>> stamped(given, MessageId({7: 40})).headers
    {'trace': 'x', 'acker-tuple': '7:40'}
    >>> stamped(given, {"priced": MessageId({7: 40})}).headers
    {'trace': 'x', 'acker-tuple': {'priced': '7:40'}}
    """
    value: Any = str(ids) if isinstance(ids, MessageId) else {}
    if not isinstance(ids, MessageId) and any(ids.values()):
        value = {queue: str(each) for queue, each in ids.items()}
    properties = copy.copy(properties)
    properties.headers = dict(with_id(properties.headers, value)) or None
    return properties
