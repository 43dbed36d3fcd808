"""Columns: source ids, anchors and tuple ids, the same whenever a batch is run again.

All are plain expressions, evaluated by Spark where the rows are; nothing talks to Redis.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 - its usual name

from acker_redis.protocol.texts import MAX_TEXT

ANCHOR_MASK = 2**62 - 1
TUPLE_MASK = 2**63 - 1
_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


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


def anchor(*cols: str | Column, attempt: int | Column = 0, source: str = "") -> Column:
    """BIGINT anchor of the tree of the record with this natural key: ``1 .. 2**62 - 1``.

    An anchor serves one attempt: give a replay another ``attempt``, or its tree would
    meet what is left of the first. So it serves one ``source``: records of two may have one key.
    Never null: null is a value of a key column.
    """
    names = _names(*cols)
    if names and isinstance(attempt, int):
        key = _joined_sql("anchor", source, names)
        return F.expr(f"greatest(xxhash64({attempt}, {key}) & {ANCHOR_MASK}L, 1L)")
    tried = attempt if isinstance(attempt, Column) else F.lit(attempt)
    hashed = F.xxhash64(F.coalesce(tried.cast("int"), F.lit(0)), _joined("anchor", source, cols))
    return _in_range(hashed, ANCHOR_MASK)


def tuple_id(parent: str | Column, edge: str, *key: str | Column) -> Column:
    """BIGINT id of a message: ``1 .. 2**63 - 1``, null if ``parent`` is.

    ``parent`` is the id of the message that caused it, or the anchor for a first message;
    ``edge`` names the way it takes; ``key`` tells several children on one edge apart.
    Derived, so it repeats only when the very same message repeats.
    """
    names = _names(parent, *key)
    if names:
        # One call into the JVM in place of some thirty.
        derived = f"xxhash64({names[0]}, {_joined_sql('tuple', edge, names[1:])}) & {TUPLE_MASK}L"
        return F.expr(f"CASE WHEN {names[0]} IS NOT NULL THEN greatest({derived}, 1L) END")
    cause = F.col(parent) if isinstance(parent, str) else parent
    hashed = F.xxhash64(cause, _joined("tuple", edge, key))
    return F.when(cause.isNotNull(), _in_range(hashed, TUPLE_MASK))


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
    number from 0, unique under its prefix. Where a batch has holes, or few records, they are loose.
    """
    if not prefix:
        raise ValueError("name the columns that tell one numbering from another, or lit(name)")
    column = F.col(number) if isinstance(number, str) else number
    # Two numberings are never one: a slash inside of a value is written as \\/.
    texts = [F.replace(_text(c), F.lit("/"), F.lit("\\/")) for c in prefix]
    return Counted(F.concat_ws("/", *texts), column)


def kafka_source_id(
    topic: str | Column = "topic",
    partition: str | Column = "partition",
    offset: str | Column = "offset",
) -> Counted:
    """Source ids ``<topic>/<partition>/<offset>`` of the rows of Spark's Kafka source.

    A source id has up to 255 bytes, and a topic up to 249. Where all three are longer, 180
    characters of the topic stand for it, then ``#``, which no topic has, and 32 hex digits of its
    SHA-256.
    """
    name = F.col(topic) if isinstance(topic, str) else topic
    whole = counted(name, partition, number=offset)
    text = F.concat_ws("/", whole.prefix, whole.number.cast("string"))
    short = F.concat(F.substring(name, 1, 180), F.lit("#"), F.substring(F.sha2(name, 256), 1, 32))
    named = F.when(F.octet_length(text) > F.lit(MAX_TEXT), short).otherwise(name)
    return counted(named, partition, number=offset)


def anchors_of(*pairs: tuple[str | Column, str | Column]) -> Column:
    """ARRAY of (anchor, tuple): a row that several messages caused, as a join's; nulls left out.

    >>> anchors = anchors_of(("anchor", "tuple"), ("other_anchor", "other_tuple"))
    """
    if not pairs:
        raise ValueError("name the columns (anchor, tuple) of each input")
    return F.filter(F.array(*[_pair(*pair) for pair in pairs]), _present)


def collect_anchors(anchor: str | Column = "anchor", tuple: str | Column = "tuple") -> Column:
    """ARRAY of (anchor, tuple), an aggregate: of all messages in a group or window."""
    pair = _pair(anchor, tuple)
    # The aggregate alone, without anything around it: only so it goes over a window, too.
    return F.collect_list(F.when(_present(pair), pair))


def _pair(one: str | Column, other: str | Column) -> Column:
    first, second = (F.col(c) if isinstance(c, str) else c for c in (one, other))
    return F.struct(first.cast("bigint").alias("anchor"), second.cast("bigint").alias("tuple"))


def _present(pair: Column) -> Column:
    # Half a pair is left in: it is an error, and not a message that nobody tracks.
    return pair["anchor"].isNotNull() | pair["tuple"].isNotNull()


def _text(column: str | Column) -> Column:
    # xxhash64 passes over nulls and takes 0.0 and -0.0 for one: text has neither flaw.
    text = (F.col(column) if isinstance(column, str) else column).cast("string")
    escaped = F.replace(F.replace(text, F.lit("\\"), F.lit("\\\\")), F.lit("|"), F.lit("\\|"))
    return F.coalesce(escaped, F.lit("\\N"))


def _joined(kind: str, edge: str, cols: tuple[str | Column, ...]) -> Column:
    """One string of all that names an id: a constant, where there are no columns."""
    prefix = _prefix(kind, edge)
    return F.concat_ws("|", F.lit(prefix), *[_text(c) for c in cols]) if cols else F.lit(prefix)


def _joined_sql(kind: str, edge: str, names: Sequence[str]) -> str:
    """As :func:`_joined`, of plain columns."""
    prefix = f"cast(X'{_prefix(kind, edge).encode().hex()}' AS STRING)"
    texts = [
        f"coalesce(replace(replace(cast({name} AS STRING), chr(92), concat(chr(92), chr(92))), "
        f"'|', concat(chr(92), '|')), concat(chr(92), 'N'))"
        for name in names
    ]
    return f"concat_ws('|', {', '.join([prefix, *texts])})" if texts else prefix


def _prefix(kind: str, edge: str) -> str:
    name = edge.replace("\\", "\\\\").replace("|", "\\|")
    return f"{kind}|{name}|"


def _names(*cols: str | Column) -> list[str]:
    """Names for SQL; none, if not all are plain names of columns."""
    plain = [f"`{c}`" for c in cols if isinstance(c, str) and _PLAIN.fullmatch(c)]
    return plain if len(plain) == len(cols) else []


def _in_range(hashed: Column, mask: int) -> Column:
    return F.greatest(hashed.bitwiseAND(F.lit(mask)), F.lit(1).cast("bigint"))
