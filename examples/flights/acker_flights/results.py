"""The end of the line: verdicts become two tables, what is done and what must be replayed."""

from pathlib import Path

import pyarrow as pa
import pyarrow.dataset as ds
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from acker_redis.spark import FileQueue, query_id_of

_TABLES = {"ack": "done", "nack": "replay"}
_COLUMNS = ("source_id", "anchor", "reason", "why", "age_ms", "at")
_EVERY = "2 seconds"


class Results:
    """The tables ``done`` and ``replay``, below a directory."""

    def __init__(self, path: Path) -> None:
        self._tables = {verdict: FileQueue(path / name) for verdict, name in _TABLES.items()}
        self._path = path

    def start(
        self, spark: SparkSession, url: str, namespace: str, source: str, checkpoint: Path
    ) -> StreamingQuery:
        """Start the query that writes them, each batch of verdicts once."""
        verdicts = spark.readStream.format("acker-outcomes").option("url", url)
        verdicts = verdicts.option("namespace", namespace).option("source", source)
        stream = verdicts.load().writeStream.queryName("verdicts").foreachBatch(self._write)
        stream = stream.option("checkpointLocation", str(checkpoint))
        return stream.trigger(processingTime=_EVERY).start()

    def read(self, table: str) -> pa.Table:
        """The table ``done`` or ``replay``, whole."""
        found = sorted((self._path / table).glob("batch-*/*.parquet"))
        if not found:
            return pa.table({"source_id": pa.array([], pa.string()), "reason": [], "why": []})
        return ds.dataset(found, format="parquet").to_table()

    def _write(self, verdicts: DataFrame, batch_id: int) -> None:
        for verdict, table in self._tables.items():
            rows = verdicts.where(verdicts.verdict == verdict).select(*_COLUMNS)
            table.write(rows, query_id_of(verdicts), batch_id)
