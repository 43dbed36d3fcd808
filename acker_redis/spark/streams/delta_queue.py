"""A queue in a table of Delta Lake.

The package ``delta-spark`` is not imported: the queue only sets options of Spark's readers and
writers. ``tests/spark/versions/test_delta.py`` runs it on Delta itself.

**Delta skips a write of which it knows the application and the version**, and says nothing. It does
not look whether the rows are still there. So :meth:`DeltaQueue.write` looks for them.
"""

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - its usual name

from acker_redis.errors import ConfigError, DataLossError
from acker_redis.spark.streams.queue import check_query

_QUERY, _BATCH = "_query", "_batch"
_SESSION = "spark.databricks.delta.write.txnAppId"
"""With it, Delta takes each write of the session for one of this application."""


class DeltaQueue:
    """A queue in a Delta table: the output of a job, or the sink of a last job.

    Each row has two more columns, ``_query`` STRING and ``_batch`` BIGINT, by which the queue finds
    the rows of a batch. Two queues are equal if they have the same path.

    - :meth:`replace` overwrites these rows in one transaction (``replaceWhere``).
    - :meth:`write` appends, unless the table has rows of the batch. ``txnAppId`` is the name of the
      query and ``txnVersion`` the number of the batch, so Delta skips an append that it has had,
      for example by a second driver. It would skip a second :meth:`replace`, too, which therefore
      does without both options.

    Args:
        path: The path of the table. The first write creates it.

    Examples:
        >>> queue = DeltaQueue("s3://shop/queue")
        >>> writer = TrackWriter(acker, "shop", {"price": queue}, source_id="order_id")

    """

    def __init__(self, path: str) -> None:
        self.path = path.rstrip("/")

    def __eq__(self, other: object) -> bool:
        """Return whether both have the same path."""
        return self.path == other.path if isinstance(other, DeltaQueue) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.path)

    def write(self, df: DataFrame, query_id: str, batch_id: int) -> None:
        """Append a batch of a query; a no-op if the table has it.

        Args:
            df: The rows.
            query_id: The name of the query: 1 to 128 of ``A-Z a-z 0-9 _ . - @``.
            batch_id: The number of the batch.

        Raises:
            ConfigError: The name of the query is invalid, or the session sets ``txnAppId``.
            DataLossError: Delta has skipped the append, and the table has no row of the batch:
                RESTORE or DELETE has removed the rows of an earlier append.

        """
        of_batch = _of_batch(query_id, batch_id)
        if self._has(df.sparkSession, of_batch):
            return
        writer = _marked(df, query_id, batch_id).write.format("delta").mode("append")
        writer.options(txnAppId=query_id, txnVersion=batch_id).save(self.path)
        if not self._has(df.sparkSession, of_batch) and not df.isEmpty():
            raise DataLossError(
                f"the Delta table {self.path} has no row of batch {batch_id} of query {query_id}, "
                "and Delta skipped the append, because it remembers an append of this batch or of "
                "a later one: RESTORE or DELETE has removed the rows, perhaps of other batches, "
                f"too. To append this batch again: ALTER TABLE delta.`{self.path}` SET "
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
            ConfigError: The name of the query is invalid, or the session sets ``txnAppId``.

        """
        of_batch = _of_batch(query_id, batch_id)
        writer = _marked(df, query_id, batch_id).write.format("delta").mode("overwrite")
        writer.option("replaceWhere", of_batch).save(self.path)

    def read_stream(self, spark: SparkSession, **options: str) -> DataFrame:
        """Return the rows as a streaming DataFrame; the table must exist.

        A stream cannot read rows that replace others (``skipChangeCommits``). If they are messages,
        their trees expire.

        Args:
            spark: The session.
            **options: More options of Delta's source, such as ``maxFilesPerTrigger="10"``.

        """
        reader = spark.readStream.format("delta").option("skipChangeCommits", "true")
        return reader.options(**options).load(self.path).drop(_QUERY, _BATCH)

    def read(self, spark: SparkSession) -> DataFrame:
        """Return all rows that the table has now.

        Args:
            spark: The session.

        """
        return spark.read.format("delta").load(self.path).drop(_QUERY, _BATCH)

    def _has(self, spark: SparkSession, of_batch: str) -> bool:
        try:
            return not spark.read.format("delta").load(self.path).where(of_batch).isEmpty()
        except AnalysisException:
            return False  # there is no table yet


def _of_batch(query_id: str, batch_id: int) -> str:
    return f"{_QUERY} = '{check_query(query_id)}' AND {_BATCH} = {batch_id}"


def _marked(df: DataFrame, query_id: str, batch_id: int) -> DataFrame:
    """Return the rows with their marks. Raise ConfigError if Delta might skip the write of them."""
    if df.sparkSession.conf.get(_SESSION, None):
        raise ConfigError(
            f"the session sets {_SESSION}, so Delta would skip writes of this queue without an "
            "error: unset it, or set it for your own statements only"
        )
    marks = {_QUERY: F.lit(query_id), _BATCH: F.lit(batch_id).cast("bigint")}
    return df.withColumns(marks)
