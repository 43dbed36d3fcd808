"""The ids of messages in the column ``headers`` of Spark's Kafka source and sink.

The header ``acker-tuple`` has the text form of :class:`~acker_redis.MessageId`, so programs in all
languages read each other's messages. Both functions are plain expressions, which Spark evaluates on
the executors.
"""

from collections.abc import Callable

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 - its usual name

from acker_redis.protocol.ids import TUPLE_MAX
from acker_redis.spark.functions import anchors_of
from acker_redis.trees.message_id import HEADER, MAX_MESSAGE, MAX_TREES

_TYPE = "array<struct<key:string,value:binary>>"
_PAIR = r"^[ \t]*([0-9]{1,19}):([0-9]{1,19})[ \t]*$"


def to_headers(
    headers: str | Column | None = None, *, anchors: str | Column | None = None
) -> Column:
    """Return the column ``headers`` for Spark's Kafka sink, with the ids of the message.

    The column is an ARRAY<STRUCT<key STRING, value BINARY>>. A message that belongs to no tree gets
    no header ``acker-tuple``. When Spark evaluates the column, half a pair is an error.

    Args:
        headers: The column of other headers, which stay; the ids replace those in it.
        anchors: The column of :func:`anchors_of` or :func:`collect_anchors`; by default the
            message has the columns ``anchor`` and ``tuple``.

    Examples:
        >>> values = messages.select(to_json(struct("item")).alias("value"), to_headers())
        >>> values.write.format("kafka").option("topic", "priced").save()

    """
    ids = anchors_of(("anchor", "tuple")) if anchors is None else _column(anchors)
    text = F.array_join(F.transform(F.array_sort(ids), _text), ",")
    mine = F.array(F.struct(F.lit(HEADER).alias("key"), text.cast("binary").alias("value")))
    others = F.array().cast(_TYPE)
    if headers is not None:
        others = F.filter(F.coalesce(_column(headers), others), lambda each: ~_is_ours(each))
    whole = F.when(F.size(ids) > 0, F.concat(others, mine.cast(_TYPE))).otherwise(others)
    return whole.alias("headers")


def from_headers(headers: str | Column = "headers") -> Column:
    """Return the column ``anchors`` of the ids in Kafka headers; null without ids.

    The column is an ARRAY of (anchor, tuple), as the acker reads it. The name of the header may be
    in upper or lower case, and a header that occurs several times is one list. When Spark evaluates
    the column, a header ``acker-tuple`` that is no message id is an error, also one of more than
    64 Ki characters or of more than 1638 trees.

    Args:
        headers: The column of headers, which Kafka's source has with the option
            ``includeHeaders``.

    Examples:
        >>> kafka = spark.readStream.format("kafka").option("includeHeaders", True)
        >>> messages = kafka.load().withColumn("anchors", from_headers()).drop("headers")

    """
    ours = F.filter(_column(headers), _is_ours)
    texts = F.transform(ours, lambda each: F.coalesce(each["value"].cast("string"), F.lit("null")))
    return _let(F.array_join(texts, ","), _ids).alias("anchors")


def _ids(text: Column) -> Column:
    """Return the ids in a text; most have one pair, which needs no arrays of texts."""
    one = F.array(_pair(text))
    return F.when(text.rlike(_PAIR), one).when(F.length(text) > 0, _many(text))


def _many(text: Column) -> Column:
    too_long = _error(f"the header acker-tuple has at most {MAX_MESSAGE} characters")
    whole = F.when(F.length(text) > MAX_MESSAGE, too_long).otherwise(text)
    given = F.filter(F.split(whole, ","), lambda each: ~each.rlike(r"^[ \t]*$"))
    too_many = _error(f"a message belongs to at most {MAX_TREES} trees")
    wrong = _error("an anchor occurs twice in one message id: ", _hidden(text))

    def distinct(ids: Column) -> Column:
        return F.when(F.size(F.array_distinct(ids["anchor"])) == F.size(ids), ids).otherwise(wrong)

    def found(pairs: Column) -> Column:
        many = F.when(F.size(pairs) > MAX_TREES, too_many)
        return many.when(F.size(pairs) > 0, _let(F.transform(pairs, _pair), distinct))

    return _let(given, found)


def _let(value: Column, function: Callable[[Column], Column]) -> Column:
    """Return a function of a value that Spark computes once, however often it is used there."""
    return F.element_at(F.transform(F.array(value), function), 1)


def _is_ours(header: Column) -> Column:
    return F.lower(header["key"]).eqNullSafe(F.lit(HEADER))


def _text(pair: Column) -> Column:
    text = F.concat(pair["anchor"].cast("string"), F.lit(":"), pair["tuple"].cast("string"))
    return F.coalesce(text, _error("a message has only one of anchor and tuple: keep both columns"))


def _pair(text: Column) -> Column:
    """Return (anchor, tuple) of the text ``<anchor>:<tuple>``."""
    # 19 digits may be too many for a BIGINT. The cast would raise an error or return null,
    # depending on the session.
    wide = [F.regexp_extract(text, _PAIR, n).cast("decimal(19,0)") for n in (1, 2)]
    wrong = _error("the header acker-tuple needs <anchor>:<tuple>, and has: ", _hidden(text))

    def fits(pair: Column) -> Column:
        ids = [pair[name].cast("bigint").alias(name) for name in ("anchor", "tuple")]
        largest = F.greatest(pair["anchor"], pair["tuple"])
        return F.when(largest <= F.lit(TUPLE_MAX), F.struct(*ids)).otherwise(wrong)

    pair = F.struct(wide[0].alias("anchor"), wide[1].alias("tuple"))
    return F.when(text.rlike(_PAIR), _let(pair, fits)).otherwise(wrong)


def _hidden(text: Column) -> Column:
    """Return the shape of a text: errors reach logs, and an id is enough to ack its message."""
    return F.regexp_replace(F.substring(text, 1, 50), "[0-9]", "#")


def _error(words: str, value: Column | None = None) -> Column:
    said = F.lit(words) if value is None else F.concat(F.lit(words), value.substr(1, 50))
    return F.raise_error(said)


def _column(column: str | Column) -> Column:
    return F.col(column) if isinstance(column, str) else column
