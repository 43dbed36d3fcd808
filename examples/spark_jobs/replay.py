"""Job C: take the verdicts, and replay nacked orders, up to three attempts in all.

python replay.py WORK URL
"""

import sys
from pathlib import Path

from ingest import ORDER
from pyspark.sql import DataFrame
from session import run_until_stopped, session

from acker_redis import Backoff
from acker_redis.spark import Acker, FileQueue, ReplayWriter


def main(work: Path, url: str) -> None:
    """Read the verdicts as a stream."""
    spark = session("replay", work)
    acker = Acker(spark, "orders", app_id="replay", url=url)

    def lookup(nacks: DataFrame) -> DataFrame:
        return spark.read.schema(ORDER).json(str(work / "orders"))

    replay = ReplayWriter(
        acker,
        "shop",
        {"price": FileQueue(work / "queue")},
        source_id="order_id",
        lookup=lookup,
        attempts=3,
        backoff=Backoff(first=2, most=60),  # of a real job: minutes
        dead_letters=FileQueue(work / "given_up"),
        folder=work / "replays",
    )
    stream = replay.read_stream(spark).writeStream.foreachBatch(replay)
    checkpoint = str(work / "checkpoints" / "replay")
    run_until_stopped(stream.option("checkpointLocation", checkpoint).start(), work)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
