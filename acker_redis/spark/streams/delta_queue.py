"""A queue in a table of Delta Lake.

The package ``delta-spark`` is not imported: the queue only sets options of Spark's readers and
writers, as the documentation of Delta Lake describes them. **The tests replace Delta by a fake that
follows this documentation; the queue was not run against Delta itself.**
"""

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - its usual name

from acker_redis.spark.streams.queue import check_query

_QUERY, _BATCH = "_query", "_batch"


class DeltaQueue:
    """A queue in a Delta table: the output of a job, or the sink of a last job.

    **It was not run against Delta itself**, but only against a fake of its documented options. Each
    row has two more columns, ``_query`` STRING and ``_batch`` BIGINT, by which the queue finds the
    rows of a batch. Two queues are equal if they have the same path.

    - :meth:`replace` overwrites these rows in one transaction (``replaceWhere``).
    - :meth:`write` appends, unless the table has rows of the batch. ``txnAppId`` is the name of the
      query and ``txnVersion`` the number of the batch, so Delta skips an append that it has. It
      would skip a second :meth:`replace`, too, which therefore does without both options.

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
            ConfigError: The name of the query is invalid.

        """
        of_batch = _of_batch(query_id, batch_id)
        try:
            table = df.sparkSession.read.format("delta").load(self.path)
            if not table.where(of_batch).isEmpty():
                return
        except AnalysisException:
            pass  # there is no table yet
        writer = _marked(df, query_id, batch_id).write.format("delta").mode("append")
        writer.options(txnAppId=query_id, txnVersion=batch_id).save(self.path)

    def replace(self, df: DataFrame, query_id: str, batch_id: int) -> None:
        """Write a batch of a query in place of the rows that the table has of it.

        Args:
            df: The rows.
            query_id: The name of the query: 1 to 128 of ``A-Z a-z 0-9 _ . - @``.
            batch_id: The number of the batch.

        Raises:
            ConfigError: The name of the query is invalid.

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


def _of_batch(query_id: str, batch_id: int) -> str:
    return f"{_QUERY} = '{check_query(query_id)}' AND {_BATCH} = {batch_id}"


def _marked(df: DataFrame, query_id: str, batch_id: int) -> DataFrame:
    marks = {_QUERY: F.lit(query_id), _BATCH: F.lit(batch_id).cast("bigint")}
    return df.withColumns(marks)
