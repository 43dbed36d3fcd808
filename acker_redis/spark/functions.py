"""Columns of source ids, and of the anchors of rows that several messages caused.

All are plain expressions, which Spark evaluates on the executors. None accesses Redis.
"""

from dataclasses import dataclass, replace

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 - its usual name

from acker_redis.protocol.texts import MAX_TEXT


def source_id(*cols: str | Column) -> Column:
    r"""Return a STRING column that names each record by its natural key.

    Different keys give different strings. The string contains the values as text, joined by ``|``.
    A null is written ``\N``, and ``|`` and ``\`` in a value are escaped. A source id must fit 255
    bytes of UTF-8; the writers check that.

    Args:
        *cols: Columns of the natural key: numbers, strings, booleans and dates. The text of a
            timestamp depends on the session's time zone: fix ``spark.sql.session.timeZone``, or
            format the timestamp yourself. Pass binary values as ``hex(col)``, and arrays, maps and
            structs as ``to_json(col)``.

    Raises:
        ValueError: No column is given.

    Examples:
        >>> named = flights.withColumn("source_id", source_id("day", "carrier", "flight"))

    """
    if not cols:
        raise ValueError("source_id() needs the columns of the record's natural key")
    return F.concat_ws("|", *[_text(c) for c in cols])


@dataclass(frozen=True)
class Counted:
    """Source ids of numbered records; made by :func:`counted`."""

    prefix: Column
    """STRING: distinguishes one numbering from another."""
    number: Column
    """The record's number, a whole number from 0."""
    kafka: tuple[Column, Column, Column] | None = None
    """Topic, partition and offset, of which prefix and number are made."""


def counted(*prefix: str | Column, number: str | Column) -> Counted:
    """Return the source ids ``<prefix>/<number>`` of numbered records: offsets, row numbers.

    Trees of such records are tracked in blocks, at 8 bytes for each number: the number gives the
    slot. Gaps between the numbers are allowed. Where a batch has fewer than 16 records of a window
    of 4095 numbers, or less than an eighth of the numbers between them, they are loose trees.

    Args:
        *prefix: Columns that distinguish one numbering from another, or ``lit(name)``.
        number: The column of the record's number: a whole number from 0, unique under its prefix.

    Raises:
        ValueError: No prefix is given.

    Examples:
        >>> messages = b.track(source="shop", source_id=counted(lit("table"), number="row_index"))

    """
    if not prefix:
        raise ValueError("counted() needs the columns that distinguish numberings, or lit(name)")
    column = F.col(number) if isinstance(number, str) else number
    # A slash inside a value is written as \\/, so two numberings never get the same prefix.
    texts = [F.replace(_text(c), F.lit("/"), F.lit("\\/")) for c in prefix]
    return Counted(F.concat_ws("/", *texts), column)


def kafka_source_id(
    topic: str | Column = "topic",
    partition: str | Column = "partition",
    offset: str | Column = "offset",
) -> Counted:
    """Return the source ids ``<topic>/<partition>/<offset>`` of the rows of Spark's Kafka source.

    A source id has up to 255 bytes, and a topic up to 249. If the three parts together are longer,
    the topic is replaced by its first 180 characters, ``#`` (which no topic contains), and 32 hex
    digits of its SHA-256.

    Args:
        topic: The column of the topic.
        partition: The column of the partition.
        offset: The column of the offset.

    """
    name, part, number = (F.col(c) if isinstance(c, str) else c for c in (topic, partition, offset))
    whole = counted(name, partition, number=offset)
    text = F.concat_ws("/", whole.prefix, whole.number.cast("string"))
    short = F.concat(F.substring(name, 1, 180), F.lit("#"), F.substring(F.sha2(name, 256), 1, 32))
    named = F.when(F.octet_length(text) > F.lit(MAX_TEXT), short).otherwise(name)
    return replace(counted(named, partition, number=offset), kafka=(name, part, number))


def anchors_of(*pairs: tuple[str | Column, str | Column]) -> Column:
    """Return the column ``anchors`` of rows that several messages caused, such as rows of a join.

    The column is an ARRAY of (anchor, tuple). A pair of two nulls is left out.

    Args:
        *pairs: The columns of anchor and tuple of each input.

    Raises:
        ValueError: No pair is given.

    Examples:
        >>> anchors = anchors_of(("anchor", "tuple"), ("other_anchor", "other_tuple"))
        >>> messages = b.emit(joined, edge="invoice", anchors=anchors)

    """
    if not pairs:
        raise ValueError("anchors_of() needs the columns (anchor, tuple) of each input")
    return F.filter(F.array(*[_pair(*pair) for pair in pairs]), _present)


def collect_anchors(anchor: str | Column = "anchor", tuple: str | Column = "tuple") -> Column:
    """Return an aggregate: the ARRAY of (anchor, tuple) of all messages in a group or window.

    Args:
        anchor: The column of the anchor.
        tuple: The column of the message's id.

    Examples:
        >>> sums = b.df.groupBy("day").agg(collect_anchors().alias("anchors"), F.sum("price"))
        >>> messages = b.emit(sums, edge="report", anchors="anchors")

    """
    pair = _pair(anchor, tuple)
    # Without an expression around the aggregate, because it must work over a window, too.
    return F.collect_list(F.when(_present(pair), pair))


def _pair(one: str | Column, other: str | Column) -> Column:
    first, second = (F.col(c) if isinstance(c, str) else c for c in (one, other))
    return F.struct(first.cast("bigint").alias("anchor"), second.cast("bigint").alias("tuple"))


def _present(pair: Column) -> Column:
    # A pair with one null stays: it is an error, and not an untracked message.
    return pair["anchor"].isNotNull() | pair["tuple"].isNotNull()


def _text(column: str | Column) -> Column:
    text = (F.col(column) if isinstance(column, str) else column).cast("string")
    escaped = F.replace(F.replace(text, F.lit("\\"), F.lit("\\\\")), F.lit("|"), F.lit("\\|"))
    return F.coalesce(escaped, F.lit("\\N"))
