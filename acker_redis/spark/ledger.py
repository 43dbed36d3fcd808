"""Which record stands where: source ids of trees in blocks, where the ids do not count.

A tree in a block costs 8 bytes in Redis because its record is not named there. Records that count
(offsets, row numbers) are named by their block's label; of others the ledger keeps (anchor, source
id), written before they are tracked, and verdicts are joined to it.
"""

from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - its usual name

from acker_redis.spark.streams.queue import FileQueue

_SCHEMA = "anchor BIGINT, source_id STRING"


class Ledger:
    """A directory of Parquet files on a file system with atomic rename: a folder for each batch.

    Drop a batch's folder when all its verdicts have been handled, ``outcomes`` say which anchors.
    """

    def __init__(self, path: str | Path) -> None:
        self._queue = FileQueue(path)

    def write(self, trees: DataFrame, query_id: str, batch_id: int, *, anew: bool = False) -> None:
        """Write (anchor, source_id) of a batch, unless it was written before.

        ``anew``: nothing of it was tracked yet, so what an earlier run has written counts nothing.
        """
        write = self._queue.replace if anew else self._queue.write
        write(trees.select("anchor", "source_id"), query_id, batch_id)

    def read(self, spark: SparkSession) -> DataFrame:
        """All there is: ``anchor`` BIGINT, ``source_id`` STRING."""
        return self._queue.read(spark, _SCHEMA)

    def name(self, outcomes: DataFrame) -> DataFrame:
        """Rows of ``format("acker-outcomes")`` with the source ids of this ledger, one a tree.

        Ranges are expanded. A row whose tree is not in the ledger keeps the source id it has.
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
