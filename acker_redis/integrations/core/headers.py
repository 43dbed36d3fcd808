"""Ids in the headers of messages."""

from collections.abc import Iterable, Mapping
from typing import Any

from acker_redis.trees.message_id import HEADER

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


def is_id(name: Any) -> bool:
    """Return whether a header has an id, by its name: text, or what ``bytes()`` takes."""
    text = name if isinstance(name, str) else bytes(name).decode("latin-1")
    return text.lower() == HEADER
