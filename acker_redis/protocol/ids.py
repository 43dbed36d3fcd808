"""Ids of anchors and tuples: 64-bit numbers, drawn at random or derived by the caller.

An *anchor* identifies a tuple tree: ``1 .. 2**62 - 1`` for a loose tree; with bit 62 set it
contains the number of a block (50 bits) and a slot in it (12 bits). A *tuple id* or *edge id*
identifies a message in its tree: ``1 .. 2**63 - 1``. A *delta* is the XOR of such ids and may also
be 0. On the wire each is 8 bytes, big-endian.
"""

import re
import secrets
from collections.abc import Iterable

from acker_redis.errors import InvalidBatchError

ANCHOR_MAX = 2**62 - 1
"""Highest anchor of a loose tree."""
TUPLE_MAX = 2**63 - 1
BLOCK_MAX = 2**50 - 1
_BLOCK_BIT = 1 << 62
_SLOT = 0xFFF
PAIR = re.compile(r"([0-9]{1,19}):([0-9]{1,19})")

# From lua/spec.json, by python -m proof.spec
SLOTS = 4095
"""Maximum trees per block; their checksums, 8 bytes each, just fit into a 32 KiB allocation."""
EDGE_BIT = 55
"""Edge k of a namespace is bit EDGE_BIT + k of the ids of the messages on it."""


def new_anchor() -> int:
    """Return a random anchor, ``1 .. 2**62 - 1``, from the system's random source (fork-safe).

    >>> 1 <= new_anchor() < 2**62
    True
    """
    return secrets.randbelow(ANCHOR_MAX) + 1


def new_tuple_id() -> int:
    """Return a random tuple or edge id, ``1 .. 2**63 - 1``, from the system's random source.

    In a namespace with edges use ``acker.ids.draw(count)`` in place of it: there the upper eight
    bits of an id are the code of an edge, and this function makes them random.

    >>> 1 <= new_tuple_id() < 2**63
    True
    """
    return secrets.randbelow(TUPLE_MAX) + 1


def check_anchor(anchor: int) -> int:
    """Return ``anchor``, loose or in a block; raise InvalidBatchError if it is out of range."""
    if type(anchor) is int and 1 <= anchor <= TUPLE_MAX:
        if anchor <= ANCHOR_MAX or anchor & _SLOT < SLOTS:
            return anchor
        raise InvalidBatchError(
            f"a block has slots 0 to {SLOTS - 1}, but the slot of anchor {anchor} is {SLOTS}"
        )
    raise InvalidBatchError(
        f"an anchor is a number from 1 to 2^62-1, or the anchor of a block's tree, not {anchor!r}"
    )


def check_loose(anchor: int) -> int:
    """Return ``anchor``, or raise InvalidBatchError if it is not in ``1 .. 2**62 - 1``."""
    if check_anchor(anchor) > ANCHOR_MAX:
        raise InvalidBatchError(
            f"anchor {anchor} is in a block; track the whole block by track_block()"
        )
    return anchor


def check_block(block: int) -> int:
    """Return ``block``, or raise InvalidBatchError if it is not in ``0 .. 2**50 - 1``."""
    if type(block) is not int or not 0 <= block <= BLOCK_MAX:
        raise InvalidBatchError(f"a block is a number from 0 to 2^50-1, not {block!r}")
    return block


def block_anchor(block: int, slot: int) -> int:
    """Return the anchor of a tree in a block: bit 62, the block (50 bits), the slot (12 bits).

    Args:
        block: Number of the block, ``0 .. 2**50 - 1``.
        slot: Slot of the tree in the block, ``0 .. 4094``.

    Raises:
        InvalidBatchError: The block or the slot is out of range.

    Examples:
        >>> split_anchor(block_anchor(5, 17))
        (5, 17)

    """
    if type(slot) is not int or not 0 <= slot < SLOTS:
        raise InvalidBatchError(f"a slot is a number from 0 to {SLOTS - 1}, not {slot!r}")
    return _BLOCK_BIT | check_block(block) << 12 | slot


def split_anchor(anchor: int) -> tuple[int, int] | None:
    """Return block and slot of an anchor in a block; None for the anchor of a loose tree.

    >>> split_anchor(7) is None
    True
    """
    return (anchor >> 12 & BLOCK_MAX, anchor & _SLOT) if anchor >> 62 == 1 else None


def check_tuple_id(tuple_id: int) -> int:
    """Return ``tuple_id``, or raise InvalidBatchError if it is not in ``1 .. 2**63 - 1``."""
    if type(tuple_id) is not int or not 1 <= tuple_id <= TUPLE_MAX:
        raise InvalidBatchError(f"a tuple id is a number from 1 to 2^63-1, not {tuple_id!r}")
    return tuple_id


def xor_ids(tuple_ids: Iterable[int]) -> int:
    """Return the XOR of distinct tuple ids; 0 if there are none.

    Raises:
        InvalidBatchError: An id is out of range or occurs twice. Two messages with one id cancel in
            the checksum, and their tree would complete without them.

    """
    ids = [check_tuple_id(i) for i in tuple_ids]
    if len(set(ids)) != len(ids):
        raise InvalidBatchError("two messages have the same tuple id; draw an id for each")
    delta = 0
    for i in ids:
        delta ^= i
    return delta


def shard_of(anchor: int, shards: int) -> int:
    """Return the shard of an anchor, ``0 .. shards - 1``; all anchors of a block have one shard.

    ``shards`` is a power of two.
    """
    return (anchor >> 12 if anchor >> 62 else anchor) % shards


def format_tuple(anchor: int, tuple_id: int) -> str:
    """Return the text form of an anchored tuple: ``"<anchor>:<tuple>"``, both decimal.

    Raises:
        InvalidBatchError: The anchor or the tuple id is out of range.

    Examples:
        >>> format_tuple(7, 40)
        '7:40'

    """
    return f"{check_anchor(anchor)}:{check_tuple_id(tuple_id)}"


def parse_tuple(text: str | bytes) -> tuple[int, int]:
    """Return anchor and tuple id from their text form, or from its bytes.

    Raises:
        InvalidBatchError: The text is malformed, or a number is out of range.

    Examples:
        >>> parse_tuple("7:40")
        (7, 40)

    """
    if isinstance(text, bytes):
        text = text.decode("latin-1")
    found = PAIR.fullmatch(text)
    if found is None:
        raise InvalidBatchError(f"an anchored tuple is <anchor>:<tuple>, not {hidden(text)!r}")
    anchor, tuple_id = found.groups()
    return check_anchor(int(anchor)), check_tuple_id(int(tuple_id))


def hidden(text: str) -> str:
    """Return the shape of a text that may contain ids, for an error: ``#`` stands for a digit.

    Errors reach logs, and an id of a log is enough to ack its message.

    >>> hidden("[7:40]")
    '[#:##]'
    """
    return re.sub("[0-9]", "#", text[:50])
