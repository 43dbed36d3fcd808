"""Ids in the headers of messages."""

from collections.abc import Iterable, Mapping
from typing import Any

from acker_redis.trees.message_id import HEADER, MessageId

Headers = Mapping[Any, Any] | Iterable[tuple[Any, Any]]


def with_id(headers: Headers | None, value: Any) -> list[tuple[Any, Any]]:
    """Return headers with the id of a message, which replaces an id that they may have.

    Args:
        headers: A mapping, or pairs; the names are text or bytes.
        value: The header's value, as the transport takes it; if it is empty, the headers have none.

    Examples:
        >>> with_id({"trace": b"x", "Acker-Tuple": b"1:2"}, b"7:40")
        [('trace', b'x'), ('acker-tuple', b'7:40')]
        >>> with_id([(b"acker-tuple", b"1:2")], b"")
        []

    """
    pairs = headers.items() if isinstance(headers, Mapping) else headers or ()
    ours = [(HEADER, value)] if value else []
    return [*(pair for pair in pairs if not is_id(pair[0])), *ours]


def text_of(headers: Iterable[tuple[Any, Any]] | None) -> str | bytes:
    """Return the id in headers that are pairs, as text or bytes; '' without one.

    Raises:
        InvalidBatchError: See :meth:`MessageId.from_headers`.

    Examples:
        >>> text_of([("trace", b"x"), ("acker-tuple", b"7:40")])
        b'7:40'

    """
    found = [pair for pair in headers or () if len(pair[0]) == len(HEADER)]
    if not found:
        return ""
    if len(found) == 1 and found[0][0] == HEADER and type(found[0][1]) is bytes:  # the usual case
        return found[0][1]
    return str(MessageId.from_headers(found))


def is_id(name: Any) -> bool:
    """Return whether a header has an id, by its name: text, or what ``bytes()`` takes."""
    text = name if isinstance(name, str) else bytes(name).decode("latin-1")
    return text.lower() == HEADER
