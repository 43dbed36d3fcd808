"""Columns: source ids, anchors and tuple ids, the same whenever a batch is run again.

All are plain expressions, evaluated by Spark where the rows are; nothing talks to Redis.
"""

from dataclasses import dataclass
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
    hashed = F.xxhash64(F.coalesce(tried.cast("int"), F.lit(0)), _joined("anchor", "", cols))
    return _in_range(hashed, ANCHOR_MASK)


def tuple_id(parent: str | Column, edge: str, *key: str | Column) -> Column:
    """BIGINT id of a message: ``1 .. 2**63 - 1``, null if ``parent`` is.

    ``parent`` is the id of the message that caused it, or the anchor for a first message;
    ``edge`` names the way it takes; ``key`` tells several children on one edge apart.
    Derived, so it repeats only when the very same message repeats.
    """
    cause = F.col(parent) if isinstance(parent, str) else parent
    derived = F.xxhash64(cause, _joined("tuple", edge, key))
    return F.when(cause.isNotNull(), _in_range(derived, TUPLE_MASK))


@dataclass(frozen=True)
class Counted:
    """Source ids that count: a prefix, and a number that grows by one from record to record.

    See :func:`counted`.
    """

    prefix: Column
    number: Column


def counted(*prefix: str | Column, number: str | Column) -> Counted:
    """Source ids ``<prefix>/<number>``, of records that are numbered: offsets, row numbers.

    Trees of such records stand in blocks, 8 bytes each: the number says which slot. It is a whole
    number from 0, unique under its prefix; a few holes do no harm, since each costs a slot.
    """
    if not prefix:
        raise ValueError("name the columns that tell one numbering from another, or lit(name)")
    column = F.col(number) if isinstance(number, str) else number
    return Counted(F.concat_ws("/", *[_text(c) for c in prefix]), column)


def kafka_source_id(
    topic: str | Column = "topic",
    partition: str | Column = "partition",
    offset: str | Column = "offset",
) -> Counted:
    """Source ids ``<topic>/<partition>/<offset>`` of the rows of Spark's Kafka source."""
    return counted(topic, partition, number=offset)


def anchors_of(*pairs: tuple[str | Column, str | Column]) -> Column:
    """ARRAY of (anchor, tuple): a row that several messages caused, as a join's; nulls left out.

    >>> anchors = anchors_of(("anchor", "tuple"), ("other_anchor", "other_tuple"))
    """
    if not pairs:
        raise ValueError("name the columns (anchor, tuple) of each input")
    return _present(F.array(*[_pair(*pair) for pair in pairs]))


def collect_anchors(anchor: str | Column = "anchor", tuple: str | Column = "tuple") -> Column:
    """ARRAY of (anchor, tuple), an aggregate: of all messages in a group or window."""
    return _present(F.collect_list(_pair(anchor, tuple)))


def _pair(one: str | Column, other: str | Column) -> Column:
    first, second = (F.col(c) if isinstance(c, str) else c for c in (one, other))
    return F.struct(first.cast("bigint").alias("anchor"), second.cast("bigint").alias("tuple"))


def _present(pairs: Column) -> Column:
    return F.filter(pairs, lambda pair: pair["anchor"].isNotNull() & pair["tuple"].isNotNull())


def xor(*cols: Column) -> Column:
    """BIGINT XOR of columns; 0 if there are none."""
    return reduce(lambda a, b: a.bitwiseXOR(b), cols, F.lit(0).cast("bigint"))


def _text(column: str | Column) -> Column:
    # xxhash64 passes over nulls and takes 0.0 and -0.0 for one: text has neither flaw.
    text = (F.col(column) if isinstance(column, str) else column).cast("string")
    escaped = F.replace(F.replace(text, F.lit("\\"), F.lit("\\\\")), F.lit("|"), F.lit("\\|"))
    return F.coalesce(escaped, F.lit("\\N"))


def _joined(kind: str, edge: str, cols: tuple[str | Column, ...]) -> Column:
    """One string of all that names an id: a constant, where there are no columns."""
    name = edge.replace("\\", "\\\\").replace("|", "\\|")
    prefix = f"{kind}|{name}|"
    return F.concat_ws("|", F.lit(prefix), *[_text(c) for c in cols]) if cols else F.lit(prefix)


def _in_range(hashed: Column, mask: int) -> Column:
    low = hashed.bitwiseAND(F.lit(mask))
    return F.when(low == 0, F.lit(1).cast("bigint")).otherwise(low)
