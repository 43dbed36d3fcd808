"""The last query: it writes the verdicts to two tables, ``done`` and ``replay``."""

from pathlib import Path

import pyarrow as pa
import pyarrow.dataset as ds
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.readwriter import DataStreamWriter

from acker_redis.spark import FileQueue, query_id_of

_TABLES = {"ack": "done", "nack": "replay"}
_COLUMNS = ("source_id", "anchor", "reason", "why", "age_ms", "at", "residual", "edges")
_EVERY = "2 seconds"
_RESTARTS = 3


class Results:
    """The tables ``done`` and ``replay``, below a directory."""

    def __init__(self, path: Path) -> None:
        self._tables = {verdict: FileQueue(path / name) for verdict, name in _TABLES.items()}
        self._path = path

    def start(
        self, spark: SparkSession, url: str, namespace: str, source: str, checkpoint: Path
    ) -> "Verdicts":
        """Start the query that writes the tables, each batch of verdicts once."""
        verdicts = spark.readStream.format("acker-outcomes").option("url", url)
        verdicts = verdicts.option("namespace", namespace).option("source", source)
        stream = verdicts.load().writeStream.queryName("verdicts").foreachBatch(self._write)
        stream = stream.option("checkpointLocation", str(checkpoint))
        return Verdicts(stream.trigger(processingTime=_EVERY))

    def path(self, table: str) -> Path:
        """Return the directory of the table ``done`` or ``replay``."""
        return self._path / table

    def read(self, table: str) -> pa.Table:
        """Return the whole table ``done`` or ``replay``."""
        found = sorted(self.path(table).glob("batch-*/*.parquet"))
        if not found:
            return pa.table({"source_id": pa.array([], pa.string()), "reason": [], "why": []})
        return ds.dataset(found, format="parquet").to_table()

    def _write(self, verdicts: DataFrame, batch_id: int) -> None:
        for verdict, table in self._tables.items():
            rows = verdicts.where(verdicts.verdict == verdict).select(*_COLUMNS)
            table.write(rows, query_id_of(verdicts), batch_id)


class Verdicts:
    """The running query; it is restarted from its checkpoint if a Python worker starts too late.

    Spark waits 10 seconds for the Python process of a data source to import PySpark and connect.
    No setting changes this timeout, and a busy machine or a cold disk may take longer.
    """

    def __init__(self, stream: DataStreamWriter) -> None:
        self._stream = stream
        self._query = stream.start()

    def drain(self) -> None:
        """Process all waiting verdicts. Raises StreamingQueryException if restarts do not help."""
        for _ in range(_RESTARTS):
            try:
                return self._query.processAllAvailable()
            except StreamingQueryException as error:
                if "Python worker failed to connect back" not in str(error):
                    raise
            self._query = self._stream.start()
        self._query.processAllAvailable()

    def stop(self) -> None:
        """Stop the query."""
        self._query.stop()
