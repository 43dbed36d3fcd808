"""One running query for each lane of a process.

Two queries with one ``query_id=`` share the lane in Redis, where each looks like a run of the
other. Those of two processes do not see each other here. Their batches meet in the lane: one below
the other's number is a LaneError, and one of the same number and other content a ChangedBatchError.
"""

import threading

from pyspark.sql import DataFrame

from acker_redis.errors import ConfigError
from acker_redis.spark.fold.target import Target
from acker_redis.spark.queries import is_running, stream_id_of

_lock = threading.Lock()
_owners: dict[tuple[str, str, str], str] = {}
"""Spark's id of the query whose batch used a lane last, by URL, namespace and lane."""


def claim(df: DataFrame, target: Target, lane: str, query_id: str) -> None:
    """Note the query of a batch. Raise ConfigError if another one that still runs has this lane."""
    mine = stream_id_of(df)
    if mine is None or mine == query_id:
        return
    key = (target.url, target.namespace, lane)
    with _lock:
        other = _owners.get(key)
        if other not in (None, mine) and is_running(df.sparkSession, other):
            raise ConfigError(
                f"query_id {query_id!r} has two running queries, which Spark calls {other} and "
                f"{mine}: give each query its own query_id, or another app_id"
            )
        _owners[key] = mine
