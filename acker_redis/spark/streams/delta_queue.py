"""A queue in a table of Delta Lake.

The package ``delta-spark`` is not imported: the queue only sets options of Spark's readers and
writers. ``tests/spark/versions/test_delta.py`` runs it on Delta itself.

**A batch is one append** with ``txnAppId`` and ``txnVersion``: it reads nothing of the table, so it
does not conflict with other writers or with OPTIMIZE, and of two drivers that append one batch only
one succeeds. Rows of the batch that the table has are overwritten instead (``replaceWhere``), which
reads the table and is retried if Delta finds a conflict.

**Delta skips an append of which it knows the application and the version**, and says nothing. It
does not look whether the rows are still there, nor whose they are. So each commit has a token, by
which the queue finds it in the history of the table.
"""

import re
import uuid
from collections.abc import Callable

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - its usual name
from pyspark.sql.types import StructType

from acker_redis.errors import ConfigError, DataLossError, LaneError
from acker_redis.spark.streams.queue import check_query

_QUERY, _BATCH = "_query", "_batch"
_SESSION = "spark.databricks.delta.write.txnAppId"
"""With it, Delta takes each write of the session for one of this application."""
_ATTEMPTS = 10
_COMMITS = 100
"""Commits of the history among which an append looks for its own."""
_CONFLICT = re.compile(
    r"Concurrent\w+Exception|(Metadata|Protocol)ChangedException"
    r"|DELTA_(CONCURRENT_|METADATA_CHANGED|PROTOCOL_CHANGED)"
)


class DeltaQueue:
    """A queue in a Delta table: the output of a job, or the sink of a last job.

    Each row has two more columns, ``_query`` STRING and ``_batch`` BIGINT, by which the queue finds
    the rows of a batch. Two queues are equal if they have the same path.

    Both methods append a batch of which the table has no row. ``txnAppId`` is the name of the query
    and ``txnVersion`` the number of the batch, so Delta skips an append that it has had, for
    example by a second driver. Of a batch that the table has, :meth:`replace` overwrites the rows
    in one transaction, and :meth:`write` is a no-op.

    Args:
        path: The path of the table. :meth:`create` or the first write creates it.
        merge_schema: Add new columns of the rows to the table (``mergeSchema``).

    Examples:
        >>> queue = DeltaQueue("s3://shop/queue")
        >>> queue.create(spark, "order_id STRING, anchor BIGINT, tuple BIGINT")
        >>> writer = TrackWriter(acker, "shop", {"price": queue}, source_id="order_id")

    """

    def __init__(self, path: str, *, merge_schema: bool = False) -> None:
        self.path = path.rstrip("/")
        self.merge_schema = merge_schema
        self._accepted = ""

    def __eq__(self, other: object) -> bool:
        """Return whether both have the same path."""
        return self.path == other.path if isinstance(other, DeltaQueue) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.path)

    def create(self, spark: SparkSession, schema: StructType | str) -> None:
        """Create the table, so that a stream can read it before its first batch is written.

        If the table exists, check that it takes rows with these columns.

        Args:
            spark: The session.
            schema: The columns of the rows, with those of the ids (``anchor``, ``tuple``).

        Raises:
            ConfigError: The table exists, and lacks a column, or has one of another type.

        """
        rows = _marked(spark.createDataFrame([], schema), "create", 0)
        _retried(lambda: self._save(rows, "append"))

    def prepare(self, df: DataFrame) -> None:
        """Check that the table takes rows with these columns, before their trees are tracked.

        ``track`` and ``emit`` call it with their ``queue``. If there is no table, do nothing.

        Raises:
            ConfigError: The table lacks a column of the rows, or has one of another type.

        """
        kind = df.schema.simpleString()
        if kind != self._accepted and self._columns(df.sparkSession):
            self.create(df.sparkSession, df.schema)
            self._accepted = kind

    def write(self, df: DataFrame, query_id: str, batch_id: int) -> None:
        """Append a batch of a query; a no-op if the table has it, or its last commit had no rows.

        Args:
            df: The rows.
            query_id: The name of the query: 1 to 128 of ``A-Z a-z 0-9 _ . - @``.
            batch_id: The number of the batch.

        Raises:
            ConfigError: The name of the query is invalid, the session sets ``txnAppId``, or the
                table lacks a column of the rows, or has one of another type.
            DataLossError: Delta has skipped the append, and the table has no row of the batch:
                RESTORE or DELETE has removed the rows of an earlier append.

        """
        spark, of_batch = df.sparkSession, _of_batch(query_id, batch_id)
        if self._has(spark, of_batch) or self._append(df, query_id, batch_id):
            return
        had = self._has(spark, of_batch) or self._had_none(spark, query_id, batch_id)
        if not had and not df.isEmpty():
            raise DataLossError(
                f"the Delta table {self.path} has no row of batch {batch_id} of query {query_id}, "
                "and Delta skipped the append, because it remembers an append of this batch or of "
                "a later one: RESTORE or DELETE has removed the rows, perhaps of other batches, "
                f"too. To append this batch again: ALTER TABLE {self._name} SET "
                "TBLPROPERTIES ('delta.setTransactionRetentionDuration' = 'interval 0 seconds'); "
                "start the query; when the batch is done, UNSET the property"
            )

    def replace(self, df: DataFrame, query_id: str, batch_id: int) -> None:
        """Write a batch of a query in place of the rows that the table has of it.

        Args:
            df: The rows.
            query_id: The name of the query: 1 to 128 of ``A-Z a-z 0-9 _ . - @``.
            batch_id: The number of the batch.

        Raises:
            ConfigError: As :meth:`write`.
            LaneError: A second driver has written the batch at the same moment.

        """
        spark, of_batch = df.sparkSession, _of_batch(query_id, batch_id)
        if not self._has(spark, of_batch):
            if self._append(df, query_id, batch_id):
                return
            if self._has(spark, of_batch):
                raise LaneError(
                    f"a second driver has written batch {batch_id} of query {query_id} to the "
                    f"Delta table {self.path} at the same moment: stop one of the two, and start "
                    "the other again; the acker then decides whose rows stay"
                )
            # Delta remembers the batch of an earlier namespace, or of a run without rows.
            if df.isEmpty():
                return
        rows, token = _marked(df, query_id, batch_id), _token(query_id, batch_id, uuid.uuid4().hex)
        _retried(lambda: self._save(rows, "overwrite", userMetadata=token, replaceWhere=of_batch))

    def read_stream(self, spark: SparkSession, **options: str) -> DataFrame:
        """Return the rows as a streaming DataFrame; the table must exist.

        A stream cannot read rows that replace others (``skipChangeCommits``). If they are messages,
        their trees expire.

        Args:
            spark: The session.
            **options: More options of Delta's source, such as ``maxFilesPerTrigger="10"``.

        Raises:
            ConfigError: There is no table.

        """
        if not self._columns(spark):
            raise ConfigError(
                f"there is no Delta table {self.path} to read: create(spark, schema) creates it, "
                "before its first batch is written"
            )
        reader = spark.readStream.format("delta").option("skipChangeCommits", "true")
        return reader.options(**options).load(self.path).drop(_QUERY, _BATCH)

    def read(self, spark: SparkSession) -> DataFrame:
        """Return all rows that the table has now.

        Args:
            spark: The session.

        """
        return spark.read.format("delta").load(self.path).drop(_QUERY, _BATCH)

    @property
    def _name(self) -> str:
        return f"delta.`{self.path.replace('`', '``')}`"

    def _columns(self, spark: SparkSession) -> list[str]:
        try:
            return spark.read.format("delta").load(self.path).columns
        except AnalysisException:
            return []  # there is no table yet

    def _has(self, spark: SparkSession, of_batch: str) -> bool:
        if _QUERY not in self._columns(spark):
            return False
        return not spark.read.format("delta").load(self.path).where(of_batch).isEmpty()

    def _append(self, df: DataFrame, query_id: str, batch_id: int) -> bool:
        """Append a batch; return whether Delta has committed it, and not skipped it."""
        rows, token = _marked(df, query_id, batch_id), _token(query_id, batch_id, uuid.uuid4().hex)
        txn = {"txnAppId": query_id, "txnVersion": str(batch_id)}
        _retried(lambda: self._save(rows, "append", userMetadata=token, **txn))
        history = df.sparkSession.sql(f"DESCRIBE HISTORY {self._name} LIMIT {_COMMITS}")
        return not history.where(F.col("userMetadata") == token).isEmpty()

    def _had_none(self, spark: SparkSession, query_id: str, batch_id: int) -> bool:
        """Return whether the last commit of a batch is known, and had no rows."""
        history = spark.sql(f"DESCRIBE HISTORY {self._name}")
        mine = history.where(F.col("userMetadata").startswith(_token(query_id, batch_id, "")))
        last = mine.orderBy(F.desc("version")).first()
        metrics = last["operationMetrics"] if last is not None else {}
        return "0" in (metrics.get("numOutputRows"), metrics.get("numFiles"))

    def _save(self, rows: DataFrame, mode: str, **options: str) -> None:
        writer = rows.write.format("delta").mode(mode).options(**options)
        if self.merge_schema:
            writer = writer.option("mergeSchema", "true")
        try:
            writer.save(self.path)
        except AnalysisException as error:
            raise ConfigError(
                f"the Delta table {self.path} does not take rows with the columns "
                f"{rows.schema.simpleString()}. If they have a new column, add it by "
                "DeltaQueue(path, merge_schema=True), or select the columns of the table. Delta "
                f"says: {error}"
            ) from error


def _retried(step: Callable[[], None]) -> None:
    """Run a transaction again as long as Delta finds a conflict: then it has written nothing."""
    for _ in range(_ATTEMPTS - 1):
        try:
            step()
        except Exception as error:  # Its class depends on the kind of session.
            if not _CONFLICT.search(f"{type(error).__name__}: {error}"):
                raise
        else:
            return
    step()


def _of_batch(query_id: str, batch_id: int) -> str:
    return f"{_QUERY} = '{check_query(query_id)}' AND {_BATCH} = {batch_id}"


def _token(query_id: str, batch_id: int, commit: str = "") -> str:
    return f"{query_id}/{batch_id}/{commit}"


def _marked(df: DataFrame, query_id: str, batch_id: int) -> DataFrame:
    """Return the rows with their marks. Raise ConfigError if Delta might skip the write of them."""
    if df.sparkSession.conf.get(_SESSION, None):
        raise ConfigError(
            f"the session sets {_SESSION}, so Delta would skip writes of this queue without an "
            "error: unset it, or set it for your own statements only"
        )
    marks = (F.lit(query_id).alias(_QUERY), F.lit(batch_id).cast("bigint").alias(_BATCH))
    # Delta has statistics of the first 32 columns of a table, and by them it finds a batch.
    return df.select(*marks, "*")
