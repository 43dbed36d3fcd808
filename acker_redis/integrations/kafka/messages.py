"""What confluent-kafka returns: headers, and errors in the form of messages."""

import logging
from collections.abc import Callable
from operator import methodcaller
from typing import Any

from confluent_kafka import TIMESTAMP_LOG_APPEND_TIME, KafkaError, KafkaException

from acker_redis.errors import InvalidBatchError
from acker_redis.integrations.core.headers import text_of
from acker_redis.integrations.kafka_messages.partitions import Place

log = logging.getLogger(__name__)

IdOf = Callable[[Any], str | bytes]
"""Returns the id of a message; '' without one. Raises InvalidBatchError."""

# For a name that is not UTF-8, confluent-kafka returns a list with a null pointer, and sets an
# exception. A call from C raises SystemError then. In code that has run often, CPython 3.11 and
# later do not look for an exception when a method returns a list: the process would crash.
_call_headers = methodcaller("headers")


def is_record(message: Any) -> bool:
    """Return whether a message is no error, which is logged, or raised if it is fatal."""
    error: KafkaError | None = message.error()
    if error is None:
        return True
    if error.fatal():
        raise KafkaException(error)
    if error.code() != KafkaError._PARTITION_EOF:
        log.warning("Kafka: %s", error)
    return False


def id_text(message: Any) -> str | bytes:
    """Return the id of a message; '' without one. Raise InvalidBatchError if it is malformed."""
    try:
        headers = _call_headers(message)
    except (SystemError, UnicodeDecodeError) as error:
        message.set_headers([])  # the next call would return the list with the null pointer
        raise InvalidBatchError(
            "the name of a header is not UTF-8, so confluent-kafka reads none of the headers"
        ) from error
    return text_of(headers)


def located(message: Any) -> tuple[Place, int]:
    """Return the partition and the offset of a message."""
    return (message.topic(), message.partition()), message.offset()


def once(id_of: IdOf) -> IdOf:
    """Return what reads the id of each message of a batch once: headers can be read only once."""
    found: dict[int, str | bytes | InvalidBatchError] = {}

    def id_or_error(message: Any) -> str | bytes | InvalidBatchError:
        try:
            return id_of(message)
        except InvalidBatchError as error:
            return error

    def known(message: Any) -> str | bytes:
        key = id(message)
        if key not in found:
            found[key] = id_or_error(message)
        its = found[key]
        if isinstance(its, InvalidBatchError):
            raise its
        return its

    return known


def appended_ms(message: Any) -> int | None:
    """Return when the broker has appended a message, in ms since 1970; None if that is unknown."""
    if message.error() is not None:
        return None
    kind, ms = message.timestamp()
    return ms if kind == TIMESTAMP_LOG_APPEND_TIME else None


def places_of(partitions: list[Any]) -> list[Place]:
    """Return the topics and numbers of partitions."""
    return [(each.topic, each.partition) for each in partitions]
