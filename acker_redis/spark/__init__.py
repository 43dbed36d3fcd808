"""Spark Structured Streaming: track, ack and fail the records of streaming queries, across jobs.

It needs the extra ``spark``. This wing may import ``sync`` and the wings below it. Begin
with ``micro_batch.py``, the terms of one batch. The folder ``fold`` turns these terms into calls,
and ``streams`` has the data sources and sinks. See docs/how-to/write-a-spark-job.md.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from acker_redis.errors import needs

if TYPE_CHECKING:
    from acker_redis.spark.acker import Acker
    from acker_redis.spark.fold.report import Report
    from acker_redis.spark.functions import (
        Counted,
        anchors_of,
        collect_anchors,
        counted,
        kafka_source_id,
        source_id,
    )
    from acker_redis.spark.headers import from_headers, to_headers
    from acker_redis.spark.ids import Ids
    from acker_redis.spark.ledger import Ledger
    from acker_redis.spark.listener import AckerListener
    from acker_redis.spark.lost_rows import explain
    from acker_redis.spark.micro_batch import MicroBatch
    from acker_redis.spark.names import Names
    from acker_redis.spark.queries import query_id_of
    from acker_redis.spark.replays.attempts import with_attempt
    from acker_redis.spark.replays.writer import ReplayWriter
    from acker_redis.spark.splitting import Split
    from acker_redis.spark.streams.delta_queue import DeltaQueue
    from acker_redis.spark.streams.formats import register
    from acker_redis.spark.streams.outcome_batches import OutcomeBatches
    from acker_redis.spark.streams.outcome_frames import read_outcomes
    from acker_redis.spark.streams.queue import FileQueue, Queue
    from acker_redis.spark.streams.sql_table import SqlTable
    from acker_redis.spark.writers import BoltWriter, TrackWriter

__all__ = [
    "Acker",
    "AckerListener",
    "BoltWriter",
    "Counted",
    "DeltaQueue",
    "FileQueue",
    "Ids",
    "Ledger",
    "MicroBatch",
    "Names",
    "OutcomeBatches",
    "Queue",
    "ReplayWriter",
    "Report",
    "Split",
    "SqlTable",
    "TrackWriter",
    "anchors_of",
    "collect_anchors",
    "counted",
    "explain",
    "from_headers",
    "kafka_source_id",
    "query_id_of",
    "read_outcomes",
    "register",
    "source_id",
    "to_headers",
    "with_attempt",
]

_MODULES = {
    "Acker": "acker",
    "AckerListener": "listener",
    "BoltWriter": "writers",
    "Counted": "functions",
    "DeltaQueue": "streams.delta_queue",
    "FileQueue": "streams.queue",
    "Ids": "ids",
    "Ledger": "ledger",
    "MicroBatch": "micro_batch",
    "Names": "names",
    "OutcomeBatches": "streams.outcome_batches",
    "Queue": "streams.queue",
    "ReplayWriter": "replays.writer",
    "Report": "fold.report",
    "Split": "splitting",
    "SqlTable": "streams.sql_table",
    "TrackWriter": "writers",
    "anchors_of": "functions",
    "collect_anchors": "functions",
    "counted": "functions",
    "explain": "lost_rows",
    "from_headers": "headers",
    "kafka_source_id": "functions",
    "query_id_of": "queries",
    "read_outcomes": "streams.outcome_frames",
    "register": "streams.formats",
    "source_id": "functions",
    "to_headers": "headers",
    "with_attempt": "replays.attempts",
}


def __getattr__(name: str) -> Any:
    """Import a public name on first use: Spark starts many processes that need little of it."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    with needs("spark", __name__, pyspark="spark-local"):
        module = import_module(f"{__name__}.{_MODULES[name]}")
    value = getattr(module, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
