"""Ids in the headers of messages."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from acker_redis.trees.message_id import HEADER, MessageId

Headers = Mapping[Any, Any] | Iterable[tuple[Any, Any]]


def with_id(
    headers: Headers | None, ids: MessageId, value: Callable[[str], Any] = str
) -> list[tuple[Any, Any]]:
    """Return headers with the id of a message, which replaces an id that they may have.

    Args:
        headers: A mapping, or pairs; the names are text or bytes.
        ids: The id; with an empty one the headers have none.
        value: Makes the header's value of the text of the id.

    Examples:
        >>> with_id({"trace": b"x", "Acker-Tuple": b"1:2"}, MessageId({7: 40}), str.encode)
        [('trace', b'x'), ('acker-tuple', b'7:40')]
        >>> with_id([(b"acker-tuple", b"1:2")], MessageId())
        []

    """
    pairs = headers.items() if isinstance(headers, Mapping) else headers or ()
    return [
        *(pair for pair in pairs if not is_id(pair[0])),
        *([(HEADER, value(str(ids)))] if ids else []),
    ]


def is_id(name: Any) -> bool:
    """Return whether a header has an id, by its name: text, or what ``bytes()`` takes."""
    text = name if isinstance(name, str) else bytes(name).decode("latin-1")
    return text.lower() == HEADER
