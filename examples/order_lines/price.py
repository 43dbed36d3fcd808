"""Job B: price each line, write it to the table, and ack the lines that were written.

python price.py WORK URL
"""

import sqlite3
import sys
from pathlib import Path

from ingest import LINE
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - its usual name
from session import run_until_stopped, session

from acker_redis.spark import Acker, FileQueue, SqlTable

UPSERT = """
    INSERT INTO priced (order_id, line, product, pieces, cents) VALUES (?, ?, ?, ?, ?)
    ON CONFLICT (order_id, line) DO UPDATE
    SET product = excluded.product, pieces = excluded.pieces, cents = excluded.cents
"""


def main(work: Path, url: str) -> None:
    """Process the lines of job A and of the replays, until a file ``stop`` exists."""
    spark = session("price", work)
    acker = Acker(spark, "order-lines", app_id="price", url=url)
    database = str(work / "shop.db")
    columns = ["order_id", "line", "product", "pieces", "cents"]
    table = SqlTable(lambda: sqlite3.connect(database, timeout=60), UPSERT, columns)

    def price(lines: DataFrame, batch_id: int) -> None:
        listed = spark.read.schema("product STRING, cents BIGINT").option("header", True)
        prices = listed.csv(str(work / "prices.csv"))
        with acker.batch(lines, batch_id) as b:
            # The planted bug: an inner join drops the lines of a product without a price.
            found = b.df.join(prices, "product").withColumn("cents", F.expr("pieces * cents"))
            b.write(found, table, ack=True)

    messages = FileQueue(work / "queue").read_stream(
        spark, f"{LINE}, anchor BIGINT, tuple BIGINT", maxFilesPerTrigger="1"
    )
    stream = messages.writeStream.foreachBatch(price)
    stream = stream.option("checkpointLocation", str(work / "checkpoints" / "price"))
    run_until_stopped(stream.start(), work)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
