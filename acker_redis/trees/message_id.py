"""What a message carries: its id in each tree it belongs to (Storm's MessageId).

It travels with the message, as text in a field or in the header ``acker-tuple``. Whoever emits
the message makes it (:mod:`acker_redis.trees.processing`), whoever processes the message reads it.
"""

from collections.abc import ItemsView, Iterable, Iterator, Mapping
from typing import Any, Protocol, Self

from acker_redis.errors import InvalidBatchError
from acker_redis.protocol.ids import check_anchor, check_tuple_id, parse_tuple

HEADER = "acker-tuple"
"""Name of the header; it is read in any case."""
MAX_TEXT = 64 * 1024
"""Characters of a text form at most; longer text is refused unread."""
MAX_ANCHORS = MAX_TEXT // 40
"""Trees a message may belong to: 1638. A pair and its comma have at most 40 characters, so what
was emitted can always be read."""
_BLANK = " \t"
_Header = tuple[str | bytes, str | bytes | None]


class _Items(Protocol):
    """A mapping, or the headers of ``http.client``, werkzeug, .., which may repeat."""

    def items(self) -> Iterable[tuple[Any, Any]]: ...


class MessageId(Mapping[int, int]):
    """Immutable mapping of anchor to tuple id; empty, and false, for an unanchored message.

    Compared by value, hashable, picklable. Its text is ``"<anchor>:<tuple>"``, decimal, joined by
    commas and ordered by anchor; that of an unanchored message is empty. At most 1638 anchors.

    >>> message_id = MessageId({7: 40, 3: 41})
    >>> str(message_id)
    '3:41,7:40'
    >>> MessageId.parse("7:40, 3:41") == message_id
    True
    >>> message_id[7]
    40
    >>> bool(MessageId())
    False

    Raises InvalidBatchError for a number that is no anchor or no tuple id, for an anchor given
    twice and for too many of them.
    """

    __slots__ = ("_ids",)
    _ids: dict[int, int]

    def __init__(self, ids: Mapping[int, int] | Iterable[tuple[int, int]] = ()) -> None:
        given: object = ids
        if isinstance(given, str):
            raise InvalidBatchError("text is read by MessageId.parse()")
        pairs = ids.items() if isinstance(ids, Mapping) else ids
        self._ids = _distinct(
            (check_anchor(anchor), check_tuple_id(tuple_id)) for anchor, tuple_id in pairs
        )

    @classmethod
    def trusted(cls, ids: dict[int, int]) -> Self:
        """Of ids that are known to be right: nothing is checked, and the dict itself is kept.

        >>> MessageId.trusted({7: 40})
        MessageId.parse('7:40')
        """
        self = cls.__new__(cls)
        self._ids = ids
        return self

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read the text form; blanks around a pair are passed over, as in a header.

        >>> dict(MessageId.parse("7:40"))
        {7: 40}

        Raises InvalidBatchError for what is no such text, or longer than 64 KiB.
        """
        if len(text) > MAX_TEXT:
            raise InvalidBatchError(f"a message id has at most {MAX_TEXT} characters of text")
        text = text.strip(_BLANK)
        if not text:
            return cls.trusted({})
        if "," not in text:
            anchor, tuple_id = parse_tuple(text)
            return cls.trusted({anchor: tuple_id})
        return cls.trusted(_distinct(parse_tuple(p.strip(_BLANK)) for p in text.split(",")))

    @classmethod
    def of(cls, given: "str | MessageId") -> "MessageId":
        """A message id as users pass it: itself, or its text.

        >>> MessageId.of("7:40") == MessageId.of(MessageId({7: 40}))
        True
        """
        if isinstance(given, MessageId):
            return given
        if isinstance(given, str):
            return cls.parse(given)
        raise InvalidBatchError(
            f"a message id is text or a MessageId, not {given!r}; of an unanchored message it is ''"
        )

    @classmethod
    def from_headers(
        cls,
        headers: _Items | Iterable[_Header] | None,
    ) -> Self:
        """Read the header ``acker-tuple``: unanchored if there is none.

        ``headers`` is a mapping, or pairs as ASGI and Kafka give them, of text or of bytes; None,
        as some Kafka clients say for no headers, will do. A header that is there more than once is
        one list, as in HTTP.

        >>> MessageId.from_headers([(b"Acker-Tuple", b"3:41"), (b"acker-tuple", b"7:40")])
        MessageId.parse('3:41,7:40')
        >>> MessageId.from_headers({"content-type": "text/plain"})
        MessageId.parse('')

        Raises InvalidBatchError for a header that is no message id.
        """
        if isinstance(headers, str | bytes):
            raise InvalidBatchError("headers are a mapping, or pairs; text is read by parse()")
        pairs: Any = headers or ()
        if hasattr(pairs, "items"):
            pairs = pairs.items()
        found = [
            _text(value)
            for name, value in pairs
            if len(name) == len(HEADER) and _text(name).lower() == HEADER
        ]
        if len(found) > 1 or (found and "," in found[0]):
            # An empty element of a list means nothing (RFC 9110, 5.6.1).
            found = [",".join(e for text in found for e in text.split(",") if e.strip(_BLANK))]
        return cls.parse(found[0] if found else "")

    def to_headers(self) -> dict[str, str]:
        """The header to send with the message; none for an unanchored one.

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
        """Pairs of anchor and tuple id."""
        return self._ids.items()

    def __eq__(self, other: object) -> bool:
        return self._ids == other._ids if isinstance(other, MessageId) else NotImplemented

    def __hash__(self) -> int:
        return hash(frozenset(self._ids.items()))

    def __str__(self) -> str:
        return ",".join([f"{anchor}:{self._ids[anchor]}" for anchor in sorted(self._ids)])

    def __repr__(self) -> str:
        return f"MessageId.parse({str(self)!r})"

    def __reduce__(self) -> tuple[object, ...]:
        return type(self).parse, (str(self),)


def check_size(ids: dict[int, int]) -> dict[int, int]:
    """Return ``ids``, or raise InvalidBatchError if no message may belong to so many trees."""
    if len(ids) > MAX_ANCHORS:
        raise InvalidBatchError(
            f"a message belongs to at most {MAX_ANCHORS} trees, not {len(ids)}; "
            "emit several, each anchored to some of the inputs"
        )
    return ids


def _distinct(pairs: Iterable[tuple[int, int]]) -> dict[int, int]:
    ids: dict[int, int] = {}
    for anchor, tuple_id in pairs:
        if anchor in ids:
            raise InvalidBatchError(f"anchor {anchor} is there twice in one message id")
        ids[anchor] = tuple_id
    return check_size(ids)


def _text(part: object) -> str:
    """Name or value of a header; latin-1 as in HTTP, so that any bytes can be read and refused."""
    if isinstance(part, bytes | bytearray | memoryview):  # bytearray: PySpark's binary columns
        return bytes(part).decode("latin-1")
    if isinstance(part, str):
        return part
    raise InvalidBatchError(f"names and values of headers are text or bytes, not {part!r}")
