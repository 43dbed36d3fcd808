"""Job B, in another process: price orders, and fail those without a price.

python price.py WORK URL
"""

import sys
from pathlib import Path

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - its usual name
from session import run_until_stopped, session

from acker_redis.spark import Acker, BoltWriter, FileQueue, query_id_of

MESSAGE = "order_id STRING, item STRING, pieces INT, anchor BIGINT, tuple BIGINT"
PRICE = "item STRING, price DOUBLE"


def main(work: Path, url: str) -> None:
    """Process the messages of job A and of the replays."""
    spark = session("price", work)
    acker = Acker(spark, "orders", app_id="price", url=url)
    lists = FileQueue(work / "price-lists")

    def process(messages: DataFrame, batch_id: int) -> DataFrame:
        # The price list may change at any time. Each batch keeps its own copy, so a retry of the
        # batch gives the same rows and fails the same orders.
        query = query_id_of(messages)
        lists.write(spark.read.schema(PRICE).json(str(work / "prices")), query, batch_id)
        prices = spark.read.schema(PRICE).parquet(str(lists.batch_path(query, batch_id)))
        found = messages.join(prices, "item", "left")
        why = F.when(F.col("price").isNull(), F.concat(F.lit("no price for "), "item"))
        total = (F.col("pieces") * F.col("price")).alias("total")
        return found.select("order_id", total, "anchor", "tuple", why.alias("why"))

    messages = FileQueue(work / "queue").read_stream(spark, MESSAGE)
    # This is the last bolt: its rows are written to the table before their messages are acked.
    writer = BoltWriter(acker, process, sink=FileQueue(work / "priced"))
    stream = messages.writeStream.foreachBatch(writer)
    checkpoint = str(work / "checkpoints" / "price")
    run_until_stopped(stream.option("checkpointLocation", checkpoint).start(), work)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
