"""Columns: source ids, anchors and tuple ids, the same whenever a batch is run again.

All are plain expressions, evaluated by Spark where the rows are; nothing talks to Redis.
"""

from functools import reduce

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 - its usual name

ANCHOR_MASK = 2**62 - 1
TUPLE_MASK = 2**63 - 1


def source_id(*cols: str | Column) -> Column:
    r"""STRING that names a record by its natural key; different keys give different strings.

    The values as text, joined by ``|``; a null is written ``\N``, and ``|`` and ``\`` in a
    value are escaped. It must fit 255 bytes of UTF-8 (the writers check that).

    For numbers, strings, booleans and dates. The text of a timestamp depends on the session's
    time zone: set ``spark.sql.session.timeZone`` for good, or format it yourself. Give binary
    as ``hex(col)``, and arrays, maps and structs as ``to_json(col)``.
    """
    if not cols:
        raise ValueError("name the columns of the record's natural key")
    return F.concat_ws("|", *[_text(c) for c in cols])


def anchor(*cols: str | Column, attempt: int | Column = 0) -> Column:
    """BIGINT anchor of the tree of the record with this natural key: ``1 .. 2**62 - 1``.

    An anchor serves one attempt: give a replay another ``attempt``, or its tree would
    meet what is left of the first. Never null: null is a value of a key column.
    """
    tried = attempt if isinstance(attempt, Column) else F.lit(attempt)
    return _in_range(F.xxhash64(F.lit("anchor"), _hashable(cols), tried.cast("int")), ANCHOR_MASK)


def tuple_id(parent: str | Column, edge: str, *key: str | Column) -> Column:
    """BIGINT id of a message: ``1 .. 2**63 - 1``, null if ``parent`` is.

    ``parent`` is the id of the message that caused it, or the anchor for a first message;
    ``edge`` names the way it takes; ``key`` tells several children on one edge apart.
    Derived, so it repeats only when the very same message repeats.
    """
    cause = F.col(parent) if isinstance(parent, str) else parent
    derived = F.xxhash64(F.lit("tuple"), cause, F.lit(edge), _hashable(key))
    return F.when(cause.isNotNull(), _in_range(derived, TUPLE_MASK))


def xor(*cols: Column) -> Column:
    """BIGINT XOR of columns; 0 if there are none."""
    return reduce(lambda a, b: a.bitwiseXOR(b), cols, F.lit(0).cast("bigint"))


def _text(column: str | Column) -> Column:
    # xxhash64 passes over nulls and takes 0.0 and -0.0 for one: text has neither flaw.
    text = (F.col(column) if isinstance(column, str) else column).cast("string")
    escaped = F.replace(F.replace(text, F.lit("\\"), F.lit("\\\\")), F.lit("|"), F.lit("\\|"))
    return F.coalesce(escaped, F.lit("\\N"))


def _hashable(cols: tuple[str | Column, ...]) -> Column:
    return F.concat_ws("|", *[_text(c) for c in cols]) if cols else F.lit("")


def _in_range(hashed: Column, mask: int) -> Column:
    low = hashed.bitwiseAND(F.lit(mask))
    return F.when(low == 0, F.lit(1).cast("bigint")).otherwise(low)
