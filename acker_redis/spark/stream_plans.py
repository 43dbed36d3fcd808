"""Warnings about the plan of a streaming query, in its first batch.

The reader of a log hears here of what else would only be seen as nacks, hours later.
"""

import contextlib
from collections.abc import Iterator
from typing import Any

from pyspark.sql import DataFrame

from acker_redis.spark.plans import nodes_of
from acker_redis.spark.queries import execution_of


def troubles(df: DataFrame, least_ms: int) -> list[str]:
    """Return what in the plan of a query lets trees expire, or acks them again.

    Args:
        df: The DataFrame that ``foreachBatch`` gives; of others nothing is known.
        least_ms: Milliseconds after which a tree may expire.

    """
    # Spark's internal classes: a plan that is not as expected gives no warning.
    with contextlib.suppress(Exception):
        execution = execution_of(df)
        if execution is not None:
            return list(_troubles(execution, df.sparkSession.sparkContext._jvm, least_ms))
    return []


def _troubles(execution: Any, jvm: Any, least_ms: int) -> Iterator[str]:
    nodes = list(nodes_of(execution.logical()))
    names = [node.nodeName() for node in nodes]
    marks = [node for node, name in zip(nodes, names, strict=True) if name == "EventTimeWatermark"]
    delay_of = jvm.org.apache.spark.sql.catalyst.plans.logical.EventTimeWatermark.getDelayMs
    delay_ms = max((delay_of(mark.delay()) for mark in marks), default=0)
    if delay_ms > least_ms:
        yield (
            f"the watermark of this query is {delay_ms / 1000:.0f} s, and a tree may expire after "
            f"{least_ms / 1000:.0f} s, before its window is closed: give the namespace a longer "
            "tick_ms, or the query a shorter watermark"
        )
    if "Aggregate" in names and str(execution.outputMode()) == "Update":
        yield (
            "this query is in update mode, which gives a group again each time that it changes, "
            "with messages that were acked before, and their trees are nacked: use append mode, "
            "with a watermark"
        )
