"""Job C: keep every verdict, and replay the nacked orders with all their lines.

python replay.py WORK URL
"""

import sys
from pathlib import Path

from ingest import LINE
from pyspark.sql import DataFrame
from session import run_until_stopped, session

from acker_redis import Backoff
from acker_redis.spark import Acker, FileQueue, ReplayWriter, query_id_of


def main(work: Path, url: str) -> None:
    """Read the verdicts as a stream, until a file ``stop`` exists."""
    spark = session("replay", work)
    acker = Acker(spark, "order-lines", app_id="replay", url=url)
    lines = spark.read.schema(LINE).option("header", True).csv(str(work / "lines"))
    verdicts = FileQueue(work / "verdicts")
    replay = ReplayWriter(
        acker,
        "shop",
        {"price": FileQueue(work / "queue")},
        source_id="order_id",
        key="line",
        lookup=lambda nacks: lines,
        attempts=3,
        backoff=Backoff(first=1, most=60),  # of a real job: minutes
        dead_letters=FileQueue(work / "given_up"),
        folder=work / "replays",
    )

    def keep_and_replay(found: DataFrame, batch_id: int) -> None:
        verdicts.write(found, query_id_of(found), batch_id)
        replay(found, batch_id)

    stream = replay.read_stream(spark).writeStream.foreachBatch(keep_and_replay)
    stream = stream.option("checkpointLocation", str(work / "checkpoints" / "replay"))
    run_until_stopped(stream.trigger(processingTime="1 second").start(), work)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
