"""Job C: take the verdicts, and replay nacked orders, up to three attempts in all.

python replay.py WORK URL
"""

import sys
from pathlib import Path

from ingest import ORDER
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - its usual name
from session import run_until_stopped, session

from acker_redis.spark import Acker, FileQueue, TrackWriter, query_id_of

NACK = "source_id STRING, reason STRING, why STRING"
ATTEMPTS = 3


def main(work: Path, url: str) -> None:
    """Read the verdicts as a stream."""
    spark = session("replay", work)
    acker = Acker(spark, "orders", app_id="replay", url=url)
    nacks, given_up = FileQueue(work / "nacks"), FileQueue(work / "given_up")
    queues = {"price": FileQueue(work / "queue")}
    track = TrackWriter(acker, "shop", queues, source_id="order_id", attempt="attempt")

    def again(outcomes: DataFrame, batch_id: int) -> None:
        query = query_id_of(outcomes)
        new = outcomes.where("verdict = 'nack'").select("source_id", "reason", "why")
        # Write the nacks first, and once: verdicts are deleted when the next batch is planned.
        nacks.write(new, query, batch_id)
        tried = (
            nacks.read(spark, NACK).groupBy("source_id").agg(F.count("*").cast("int").alias("n"))
        )
        now = new.join(tried, "source_id")
        given_up.write(now.where(F.col("n") >= ATTEMPTS), query, batch_id)
        orders = spark.read.schema(ORDER).json(str(work / "orders"))
        late = now.where(F.col("n") < ATTEMPTS).withColumnRenamed("source_id", "order_id")
        track(
            orders.join(late.select("order_id", F.col("n").alias("attempt")), "order_id"), batch_id
        )

    verdicts = spark.readStream.format("acker-outcomes").option("url", url)
    verdicts = verdicts.option("namespace", "orders").option("source", "shop").load()
    stream = verdicts.writeStream.foreachBatch(again)
    checkpoint = str(work / "checkpoints" / "replay")
    run_until_stopped(stream.option("checkpointLocation", checkpoint).start(), work)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
