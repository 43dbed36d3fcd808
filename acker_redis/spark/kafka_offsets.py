"""The offsets of a micro-batch of Spark's Kafka source, from the plan that its query runs.

The query has fixed them before the batch began, and the checkpoint keeps them. So the numbers of
the records are known before any record is read. A range may have gaps, where Kafka keeps the end of
a transaction or has deleted a record: then it has fewer records than offsets.
"""

import json
from typing import Any

from pyspark.sql import Column, DataFrame

from acker_redis.protocol.texts import MAX_TEXT
from acker_redis.spark.numbering import Group
from acker_redis.spark.source_files import of_plan, source_of

_COLUMNS = ("topic", "partition", "offset")


def offset_groups(df: DataFrame, columns: tuple[Column, ...], attempt: int) -> list[Group] | None:
    """Return a numbering for each partition, as if its range had no gap.

    None if the columns are not topic, partition and offset of the Kafka source of this batch as
    they are, or if the plan drops or adds rows.
    """
    named = [column.alias(name) for column, name in zip(columns, _COLUMNS, strict=True)]
    return of_plan(df.select(*named), lambda given, execution: _groups(given, execution, attempt))


def _groups(given: DataFrame, execution: Any, attempt: int) -> list[Group] | None:
    found = source_of(given, execution, "StreamingDataSourceV2ScanRelation")
    if found is None:
        return None
    relation, wanted = found
    kafka = relation.stream().getClass().getSimpleName() == "KafkaMicroBatchStream"
    if not kafka or tuple(each.name() for each in wanted) != _COLUMNS:
        return None
    starts, ends = (
        json.loads(each.get().json()) for each in (relation.startOffset(), relation.endOffset())
    )
    groups: list[Group] = []
    for topic, partitions in ends.items():
        for partition, end in partitions.items():
            # Of a new partition the plan does not say where it begins.
            start = starts[topic][partition]
            prefix = f"{topic}/{partition}"
            if start < 0 or end < start or len(f"{prefix}/{end}") > MAX_TEXT:
                return None
            if end > start:
                groups.append((prefix, attempt, start, end - 1, end - start))
    return groups
