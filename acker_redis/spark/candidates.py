"""Messages that a query may have made: derived again from their inputs, for each of its batches."""

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - its usual name
from pyspark.sql.types import LongType

from acker_redis.errors import InvalidBatchError
from acker_redis.spark.ids import Ids
from acker_redis.spark.names import check_case, check_hidden, need, need_ids
from acker_redis.spark.numbering import in_blocks
from acker_redis.spark.shared_state import Application

BATCH = "batch_id"


def candidates(
    ids: Ids,
    rows: DataFrame,
    application: Application,
    edge: str,
    query_id: str,
    key: Sequence[str | Column],
    batches: range,
) -> DataFrame:
    """Return a message for each row and batch; :meth:`Acker.emitted` has the arguments."""
    names = application.names
    check_hidden(rows)
    check_case(rows, BATCH)
    if BATCH in rows.columns:
        raise InvalidBatchError(f"column {BATCH} of the rows: rename it, emitted() adds one")
    numbers = F.array(*map(F.lit, batches)) if batches.step != 1 else None
    if numbers is None:
        numbers = F.sequence(F.lit(batches[0]), F.lit(batches[-1]))
    numbers = numbers.cast("array<bigint>")
    made_by = F.lit(f"{application.app_id}@{query_id}/")
    run = F.concat(made_by, F.col(BATCH).cast("string"))
    if names.anchors in rows.columns or names.tuple in rows.columns:
        many = need_ids(rows, names)
        rows = rows.withColumn(BATCH, F.explode(numbers))
        if many:
            return ids.children_of_many(rows, names.anchors, edge, key, run)
        return ids.add_messages(rows, names.tuple, {names.tuple: edge}, key, run)
    need(rows, names.anchor, LongType, "Rows of track have it, and so have verdicts")
    # The anchor of a tree in a block depends on the batch, so the id of its message need not.
    alone = in_blocks(names.anchor)
    none = F.array(F.lit(None).cast("bigint"))
    rows = rows.withColumn(BATCH, F.explode(F.when(alone, none).otherwise(numbers)))
    return ids.add_messages(rows, names.anchor, {names.tuple: edge}, key, run, alone)
