"""Rows that cannot be tracked, because their source id is missing, invalid, or not unique.

One such row makes :meth:`MicroBatch.track` raise, so the query stops, and stops again each time
that it is started. With ``bad_rows=`` these rows go to a separate queue, and the others go on.
"""

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - its usual name

from acker_redis.errors import InvalidBatchError
from acker_redis.protocol.texts import CONTROL, MAX_TEXT
from acker_redis.spark.functions import Counted
from acker_redis.spark.input_batch import InputBatch
from acker_redis.spark.names import check_case
from acker_redis.spark.streams.queue import Queue

_ID, _TRY, _TIMES = "_acker_bad_id", "_acker_bad_try", "_acker_bad_times"
_MOST = f"a source id has 1 to {MAX_TEXT} bytes"


def without_bad_rows(
    batch: InputBatch,
    df: DataFrame,
    source_id: Column | Counted,
    attempt: Column,
    key: Sequence[str | Column],
    queue: Queue,
) -> tuple[DataFrame, int]:
    """Write the bad rows to the queue; return the others, and the number of bad rows.

    In the queue they have one more column, ``why`` STRING. If one row of a source id occurs twice,
    all rows of that id are bad: without it, its tree would be complete too early.

    Args:
        batch: The batch, which keeps one evaluation of the rows.
        df: The rows.
        source_id: The STRING of each row, or its prefix and number.
        attempt: The attempt, INT.
        key: The columns that distinguish several rows of one source id.
        queue: Gets the bad rows, before anything is tracked.

    Raises InvalidBatchError if a column ``why`` exists.

    """
    why = batch.application.names.why
    check_case(df, why)
    if why in df.columns:
        raise InvalidBatchError(
            f"column {why} exists already, and bad_rows adds it: drop it first, or choose another "
            "name for the added column: Acker(.., names=Names(..))"
        )
    # Ids are made of the text of a key, and a ledger has one row for a source id.
    texts = {
        f"_acker_bad_key_{n}": (F.col(each) if isinstance(each, str) else each).cast("string")
        for n, each in enumerate(key)
    }
    same = [_ID] if batch.application.ledger else [_ID, _TRY]
    rows = batch.keep(df.withColumns({_ID: _text(source_id), _TRY: attempt, **texts}))
    times = rows.groupBy(*same, *texts).count().where("count > 1")
    twice = times.groupBy(*same).agg(F.max("count").alias(_TIMES))
    marked = rows.join(F.broadcast(twice), same, "left")
    marked = marked.withColumn(why, _why(isinstance(source_id, Counted)))
    marked = marked.drop(_ID, _TRY, _TIMES, *texts)
    bad = marked.where(F.col(why).isNotNull())
    count = bad.count()
    if count:
        write = queue.write if batch.was_applied() else queue.replace
        write(bad, batch.name, batch.batch_id)
    return marked.where(F.col(why).isNull()).drop(why), count


def _text(source_id: Column | Counted) -> Column:
    """Return the text of a source id, or null."""
    if not isinstance(source_id, Counted):
        return source_id
    number = source_id.number.cast("bigint")
    return F.concat(source_id.prefix, F.lit("/"), number.cast("string"))


def _why(counted: bool) -> Column:
    """Return why a row is bad, or null."""
    size = F.octet_length(_ID)
    why = F.when(F.col(_ID).isNull(), F.lit("the source id is null"))
    if counted:
        why = why.when(F.col(_ID).rlike("/-[0-9]+$"), F.lit("the number is below 0"))
    why = why.when((size < 1) | (size > MAX_TEXT), F.concat(F.lit(f"{_MOST}, this one "), size))
    why = why.when(F.col(_ID).rlike(CONTROL.pattern), F.lit("the source id has control characters"))
    # In Java, bytes that are not UTF-8 match this character, which they do not contain.
    broken = F.col(_ID).rlike("\ufffd") & (F.instr(F.col(_ID), "\ufffd") == 0)
    why = why.when(broken, F.lit("the source id is not UTF-8"))
    times = F.concat(F.lit("the source id occurs "), _TIMES, F.lit(" times in this batch"))
    return why.when(F.col(_TIMES) > 1, times)
