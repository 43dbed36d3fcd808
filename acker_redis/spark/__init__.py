"""Spark Structured Streaming: columns, and writers for ``foreachBatch``.

Needs the extra ``acker-redis[spark]``.
"""

from acker_redis.spark.functions import anchor, source_id, tuple_id
from acker_redis.spark.lanes import Report
from acker_redis.spark.queue import FileQueue
from acker_redis.spark.writers import BoltWriter, Queue, TrackWriter, query_id_of

__all__ = [
    "BoltWriter",
    "FileQueue",
    "Queue",
    "Report",
    "TrackWriter",
    "anchor",
    "query_id_of",
    "source_id",
    "tuple_id",
]
