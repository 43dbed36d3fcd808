"""Job B, in another process: prices orders, and fails those that it cannot price.

python price.py WORK URL
"""

import sys
from pathlib import Path

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - its usual name
from session import run_until_told, session

from acker_redis.spark import Acker, BoltWriter, FileQueue, query_id_of

MESSAGE = "order_id STRING, item STRING, pieces INT, anchor BIGINT, tuple BIGINT"
PRICE = "item STRING, price DOUBLE"


def main(work: Path, url: str) -> None:
    """Process what job A and the replays have written."""
    spark = session("price", work)
    acker = Acker(spark, "orders", app_id="price", url=url)
    priced = FileQueue(work / "priced")

    def process(messages: DataFrame, batch_id: int) -> DataFrame:
        # The list may change at any time: one look at it for all that is made of this batch.
        prices = spark.createDataFrame(
            spark.read.schema(PRICE).json(str(work / "prices")).toPandas(), PRICE
        )
        found = messages.join(prices, "item", "left")
        total = F.col("pieces") * F.col("price")
        done = found.where("price IS NOT NULL").select("order_id", total.alias("total"))
        # This bolt is the last: what it does with a batch is done when process() returns.
        priced.write(done, query_id_of(messages), batch_id)
        why = F.when(F.col("price").isNull(), F.concat(F.lit("no price for "), "item"))
        return found.withColumn("why", why)

    messages = FileQueue(work / "queue").read_stream(spark, MESSAGE)
    stream = messages.writeStream.foreachBatch(BoltWriter(acker, process))
    checkpoint = str(work / "checkpoints" / "price")
    run_until_told(stream.option("checkpointLocation", checkpoint).start(), work)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
