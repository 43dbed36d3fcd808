"""The SQL of derived ids.

A micro-batch adds ids with these texts, because each operator of a ``Column`` costs some ten calls
into the JVM, and a text costs three. ``constant`` is the name of a column: see
:meth:`~acker_redis.spark.ids.Ids.add_messages`. :class:`~acker_redis.spark.ids.Ids` makes the same
ids as columns.
"""

from collections.abc import Iterable

from acker_redis.protocol.ids import ANCHOR_MAX


def message(cause: str, constant: str, parts: str, low: int, code: int) -> str:
    """Return the id of a message: BIGINT, null if ``cause`` is null.

    Args:
        cause: The id of the message that caused the new one.
        constant: A text that depends on the secret, and on the edge.
        parts: :func:`sized` of the columns of a key; empty without a key.
        low: The bits of the id that are random.
        code: The code of the edge.

    """
    number = f"cast({cause} AS BIGINT)"
    if parts:
        hashed = sha(constant, f"cast({number} AS STRING), ':', {parts}")
    else:
        hashed = f"xxhash64({number}, {constant})"
    return f"CASE WHEN {number} IS NOT NULL THEN {positive(hashed, low)} | {code}L END"


def anchor(constant: str, parts: str) -> str:
    """Return the anchor of a record, from :func:`sized` of its attempt and its source id."""
    return positive(sha(constant, parts), ANCHOR_MAX)


def positive(hashed: str, bits: int) -> str:
    """Return these bits of a hash, at least 1."""
    return f"greatest({hashed} & {bits}L, 1L)"


def sha(constant: str, parts: str) -> str:
    """Return 64 bits of SHA-256 of the texts."""
    return f"xxhash64(sha2(concat({constant}, {parts}), 256))"


def sized(names: Iterable[str]) -> str:
    """Return the texts of columns, each after its length; null differs from each text."""
    texts = [f"cast(`{name}` AS STRING)" for name in names]
    return ", ".join(
        f"coalesce(cast(octet_length({t}) AS STRING), '-'), ':', coalesce({t}, '')" for t in texts
    )


def text(value: str) -> str:
    """Return any text as a literal."""
    return f"cast(X'{value.encode().hex()}' AS STRING)"
