"""Ids in the headers of messages."""

from collections.abc import Iterable, Mapping
from typing import Any

from acker_redis.trees.message_id import HEADER, MessageId

_NAMES = (HEADER, HEADER.encode())
_LENGTH = len(HEADER)
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
    ours = [(HEADER, value)] if value else []
    if headers is None:
        return ours
    pairs = headers.items() if isinstance(headers, Mapping) else headers
    return [*(pair for pair in pairs if not is_id(pair[0])), *ours]


def text_of(headers: Headers | None) -> str | bytes:
    """Return the id in headers, as text or bytes that may be malformed; '' without one.

    Raises:
        InvalidBatchError: See :meth:`MessageId.from_headers`.

    Examples:
        >>> text_of([("trace", b"x"), ("acker-tuple", b"7:40")])
        b'7:40'

    """
    pairs: Any = headers or ()
    found = []
    for pair in pairs.items() if hasattr(pairs, "items") else pairs:
        if len(pair[0]) == _LENGTH:
            found.append(pair)  # noqa: PERF401 - a comprehension is a call
    if not found:
        return ""
    if len(found) == 1 and found[0][0] in _NAMES:  # the usual case; a list may have empty elements
        value = found[0][1]
        if isinstance(value, bytes) and b"," not in value:
            return value
        if isinstance(value, str) and "," not in value:
            return value
    return str(MessageId.from_headers(found))


def is_id(name: Any) -> bool:
    """Return whether a header has an id, by its name: text, or what ``bytes()`` takes."""
    if len(name) != _LENGTH:
        return False
    text = name if isinstance(name, str) else bytes(name).decode("latin-1")
    return text.lower() == HEADER
