"""The ledger: source ids of trees in blocks, for records that are not numbered.

A tree in a block costs 8 bytes in Redis because Redis does not hold its source id. For numbered
records (offsets, row numbers) the source id follows from the block's label. For other records the
ledger keeps pairs (anchor, source id), written before the trees are tracked. Verdicts are joined to
the ledger.
"""

from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - its usual name

from acker_redis.spark.streams.queue import FileQueue

_SCHEMA = "anchor BIGINT, source_id STRING"


class Ledger:
    """A directory of Parquet files that maps anchors to source ids: one folder for each batch.

    The file system needs an atomic rename. You may delete the folder of a batch when you have
    handled all its verdicts; their column ``anchor`` says which trees have a verdict.

    Args:
        path: The directory; it is created if it does not exist.

    Examples:
        >>> acker = Acker(spark, "orders", app_id="ingest", ledger="/data/ledger")
        >>> named = Ledger("/data/ledger").name(verdicts)

    """

    def __init__(self, path: str | Path) -> None:
        self._queue = FileQueue(path)

    def write(
        self, trees: DataFrame, query_id: str, batch_id: int, *, replace: bool = False
    ) -> None:
        """Write (anchor, source_id) of a batch, unless an earlier run has written the batch.

        Args:
            trees: Rows with the columns ``anchor`` and ``source_id``.
            query_id: The name of the query.
            batch_id: The number of the batch.
            replace: Replace the rows of an earlier run, whose trees were never tracked.

        """
        write = self._queue.replace if replace else self._queue.write
        write(trees.select("anchor", "source_id"), query_id, batch_id)

    def read(self, spark: SparkSession) -> DataFrame:
        """Return all rows of the ledger: ``anchor`` BIGINT, ``source_id`` STRING."""
        return self._queue.read(spark, _SCHEMA)

    def name(self, outcomes: DataFrame) -> DataFrame:
        """Return one row per tree, with the source ids of this ledger.

        Ranges of trees are expanded. A row keeps its source id if its tree is not in the ledger.

        Args:
            outcomes: Rows of ``format("acker-outcomes")``.

        """
        places = F.sequence(F.lit(0).cast("bigint"), F.col("trees") - 1)
        each = outcomes.withColumn("_place", F.explode(places))
        each = each.withColumns(
            {"anchor": F.col("anchor") + F.col("_place"), "trees": F.lit(1).cast("bigint")}
        )
        known = self.read(outcomes.sparkSession).withColumnRenamed("source_id", "_known")
        named = each.join(known, "anchor", "left")
        named = named.withColumn("source_id", F.coalesce("_known", "source_id"))
        return named.select(*outcomes.columns)
