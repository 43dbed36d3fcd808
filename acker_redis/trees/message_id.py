"""The id that a message carries: its tuple id in each tree it belongs to (Storm's MessageId).

The id travels with the message, as text in a field or in the header ``acker-tuple``. The emitter
of the message makes it (:mod:`acker_redis.trees.processing`), and the next bolt reads it.
"""

from collections.abc import ItemsView, Iterable, Iterator, Mapping
from typing import Any, Protocol, Self

from acker_redis.errors import InvalidBatchError
from acker_redis.protocol.ids import (
    ANCHOR_MAX,
    PAIR,
    TUPLE_MAX,
    check_anchor,
    check_tuple_id,
    parse_tuple,
)

HEADER = "acker-tuple"
"""Name of the header; upper and lower case are equal when it is read."""

# From lua/spec.json, by python -m proof.spec
MAX_MESSAGE = 65_536
"""Maximum characters of a text form; longer text is refused without parsing."""
MAX_TREES = 1638
"""Maximum trees that a message may belong to. A pair and its comma have at most 40
characters, so every emitted id can be parsed."""

_BLANK = " \t"
_Header = tuple[str | bytes, str | bytes | None]


class _Items(Protocol):
    """A mapping, or the headers of ``http.client``, werkzeug, .., which may contain duplicates."""

    def items(self) -> Iterable[tuple[Any, Any]]: ...


class MessageId(Mapping[int, int]):
    """An immutable mapping of anchor to tuple id; empty, and false, for an unanchored message.

    It is compared by value, hashable and picklable, and has at most 1638 anchors. Its text form is
    ``"<anchor>:<tuple>"`` pairs, decimal, ordered by anchor and joined by commas; the text of an
    unanchored message is empty.

    Args:
        ids: A mapping of anchor to tuple id, or pairs.

    Raises:
        InvalidBatchError: A number is no anchor or no tuple id, an anchor occurs twice, or there
            are more than 1638 anchors.

    Examples:
        >>> message_id = MessageId({7: 40, 3: 41})
        >>> str(message_id)
        '3:41,7:40'
        >>> MessageId.parse("7:40, 3:41") == message_id
        True
        >>> message_id[7]
        40
        >>> bool(MessageId())
        False

    """

    __slots__ = ("_ids",)
    _ids: dict[int, int]

    def __init__(self, ids: Mapping[int, int] | Iterable[tuple[int, int]] = ()) -> None:
        given: object = ids
        if isinstance(given, str):
            raise InvalidBatchError("MessageId() takes a mapping or pairs; for text use parse()")
        pairs = ids.items() if isinstance(ids, Mapping) else ids
        self._ids = _distinct(
            (check_anchor(anchor), check_tuple_id(tuple_id)) for anchor, tuple_id in pairs
        )

    @classmethod
    def trusted(cls, ids: dict[int, int]) -> Self:
        """Return a message id of valid ids: no validation, and the dict itself is kept.

        >>> MessageId.trusted({7: 40})
        MessageId.parse('7:40')
        """
        self = cls.__new__(cls)
        self._ids = ids
        return self

    @classmethod
    def parse(cls, text: str | bytes) -> Self:
        """Return the message id of a text form; blanks around a pair are ignored, as in a header.

        Args:
            text: The text, or its bytes, which Redis, Kafka and ASGI return.

        Raises:
            InvalidBatchError: The text is malformed, or longer than 64 Ki characters.

        Examples:
            >>> dict(MessageId.parse("7:40")), dict(MessageId.parse(b"7:40"))
            ({7: 40}, {7: 40})

        """
        return cls.trusted(parse_ids(text))

    @classmethod
    def of(cls, given: "AnyId") -> "MessageId":
        """Return a message id that was given as a MessageId, or as its text or bytes.

        Raises:
            InvalidBatchError: The value is none of them, or the text is malformed.

        Examples:
            >>> MessageId.of("7:40") == MessageId.of(MessageId({7: 40}))
            True

        """
        if isinstance(given, MessageId):
            return given
        if isinstance(given, str | bytes | bytearray | memoryview):
            return cls.parse(given)
        raise InvalidBatchError(
            f"a message id is text, bytes or a MessageId, not {type(given).__name__}; "
            "for an unanchored message, ''"
        )

    @classmethod
    def from_headers(
        cls,
        headers: _Items | Iterable[_Header] | None,
    ) -> Self:
        """Return the message id in the header ``acker-tuple``; empty if the header is missing.

        A repeated header is joined into one list, as in HTTP.

        Args:
            headers: A mapping, or pairs as ASGI and Kafka give them, of text or of bytes. None is
                accepted too, because some Kafka clients use it for no headers.

        Raises:
            InvalidBatchError: The header is no message id, or longer than 64 Ki characters.

        Examples:
            >>> MessageId.from_headers([(b"Acker-Tuple", b"3:41"), (b"acker-tuple", b"7:40")])
            MessageId.parse('3:41,7:40')
            >>> MessageId.from_headers({"content-type": "text/plain"})
            MessageId.parse('')

        """
        if isinstance(headers, str | bytes):
            raise InvalidBatchError("headers are a mapping, or pairs; for text use parse()")
        pairs: Any = headers or ()
        if hasattr(pairs, "items"):
            pairs = pairs.items()
        names = "names and values of headers are"
        found = [
            _text(value, names)
            for name, value in pairs
            if len(name) == len(HEADER) and _text(name, names).lower() == HEADER
        ]
        _check_length(sum(map(len, found)) + len(found) - 1)  # before they are taken apart
        if len(found) > 1 or (found and "," in found[0]):
            # An empty element of a list means nothing (RFC 9110, 5.6.1).
            found = [",".join(e for text in found for e in text.split(",") if e.strip(_BLANK))]
        return cls.parse(found[0] if found else "")

    def to_headers(self) -> dict[str, str]:
        """Return the header to send with the message; empty for an unanchored message.

        >>> MessageId({7: 40}).to_headers()
        {'acker-tuple': '7:40'}
        >>> MessageId().to_headers()
        {}
        """
        return {HEADER: str(self)} if self._ids else {}

    def __getitem__(self, anchor: int) -> int:
        return self._ids[anchor]

    def __iter__(self) -> Iterator[int]:
        return iter(self._ids)

    def __len__(self) -> int:
        return len(self._ids)

    def items(self) -> ItemsView[int, int]:
        """Return the pairs of anchor and tuple id."""
        return self._ids.items()

    def __eq__(self, other: object) -> bool:
        return self._ids == other._ids if isinstance(other, MessageId) else NotImplemented

    def __hash__(self) -> int:
        return hash(frozenset(self._ids.items()))

    def __str__(self) -> str:
        if len(self._ids) == 1:
            for anchor, tuple_id in self._ids.items():
                return f"{anchor}:{tuple_id}"
        return ",".join([f"{anchor}:{self._ids[anchor]}" for anchor in sorted(self._ids)])

    def __repr__(self) -> str:
        return f"MessageId.parse({str(self)!r})"

    def __reduce__(self) -> tuple[object, ...]:
        return type(self).parse, (str(self),)


def parse_ids(text: str | bytes) -> dict[int, int]:
    """Return the ids of a text form, by anchor: see :meth:`MessageId.parse`."""
    if type(text) is bytes:
        text = text.decode("latin-1")
    if type(text) is str and (one := PAIR.fullmatch(text)):  # the usual case
        anchor, tuple_id = map(int, one.groups())
        if 0 < anchor <= ANCHOR_MAX and 0 < tuple_id <= TUPLE_MAX:
            return {anchor: tuple_id}
    text = _text(text, "a message id is")
    _check_length(len(text))
    text = text.strip(_BLANK)
    if not text:
        return {}
    return _distinct(parse_tuple(pair.strip(_BLANK)) for pair in text.split(","))


def check_size(ids: dict[int, int]) -> dict[int, int]:
    """Return ``ids``; raise InvalidBatchError if there are more than 1638 anchors."""
    if len(ids) > MAX_TREES:
        raise InvalidBatchError(
            f"a message belongs to at most {MAX_TREES} trees, not {len(ids)}; "
            "emit several, each anchored to some of the inputs"
        )
    return ids


def _distinct(pairs: Iterable[tuple[int, int]]) -> dict[int, int]:
    ids: dict[int, int] = {}
    for anchor, tuple_id in pairs:
        if anchor in ids:
            raise InvalidBatchError(f"anchor {anchor} occurs twice in one message id")
        ids[anchor] = tuple_id
    return check_size(ids)


AnyId = str | bytes | MessageId
"""A message id, or its text."""


def _check_length(size: int) -> None:
    if size > MAX_MESSAGE:
        raise InvalidBatchError(
            f"the text of a message id has at most {MAX_MESSAGE} characters, not {size}"
        )


def _text(part: object, what: str) -> str:
    """Return text or bytes as text, by latin-1 as in HTTP, so that any bytes decode."""
    if isinstance(part, str):
        return part
    if isinstance(part, bytes | bytearray | memoryview):  # bytearray: PySpark's binary columns
        return bytes(part).decode("latin-1")
    raise InvalidBatchError(f"{what} text or bytes, not {type(part).__name__}")
