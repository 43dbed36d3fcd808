"""Job A: track each order, and write it to the queue of job B.

python ingest.py WORK URL
"""

import sys
from pathlib import Path

from session import run_until_stopped, session

from acker_redis.spark import Acker, FileQueue, TrackWriter

ORDER = "order_id STRING, item STRING, pieces INT"


def main(work: Path, url: str) -> None:
    """Read the orders as a stream, one file per batch."""
    spark = session("ingest", work)
    acker = Acker(spark, "orders", app_id="ingest", url=url)
    queue = FileQueue(work / "queue")
    write = TrackWriter(acker, "shop", {"price": queue}, source_id="order_id")
    orders = spark.readStream.schema(ORDER).option("maxFilesPerTrigger", 1)
    stream = orders.json(str(work / "orders")).writeStream.foreachBatch(write)
    checkpoint = str(work / "checkpoints" / "ingest")
    run_until_stopped(stream.option("checkpointLocation", checkpoint).start(), work)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
