"""Job A: track each order with all its lines, and hand the lines on to job B.

python ingest.py WORK URL
"""

import sys
from pathlib import Path

from session import session

from acker_redis.spark import Acker, FileQueue, TrackWriter

LINE = "order_id STRING, line INT, product STRING, pieces INT"


def main(work: Path, url: str) -> None:
    """Read each file of order lines as one batch, and end after the last file."""
    spark = session("ingest", work)
    acker = Acker(spark, "order-lines", app_id="ingest", url=url)
    queue = FileQueue(work / "queue")
    # An order is one tree, and each of its lines is a first message of the tree.
    track = TrackWriter(acker, "shop", {"price": queue}, source_id="order_id", key="line")
    files = spark.readStream.schema(LINE).option("header", True).option("maxFilesPerTrigger", 1)
    stream = files.csv(str(work / "lines")).writeStream.foreachBatch(track)
    stream = stream.option("checkpointLocation", str(work / "checkpoints" / "ingest"))
    stream.trigger(availableNow=True).start().awaitTermination()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
