"""Measure the cost of tracking in the demo: its pipeline with and without the acker, in turns.

    python benchmarks/spark_demo.py [--days 31] [--rounds 3]

Both sides run the same four queries on the same files, with the same queues between them. Without
the acker, the queries write their rows unchanged. Every turn starts with empty queues and new
checkpoints, in one session. The first turn of each side is a warm-up and does not count.
"""

import argparse
import contextlib
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - its usual name

from acker_flights import data, pipeline, session
from acker_redis import AckerConfig
from acker_redis.embedded import EmbeddedRedis
from acker_redis.spark import Acker, query_id_of
from acker_redis.sync import client


class PlainTrack:
    """A writer that writes each row to each queue, and tracks nothing."""

    last_report = None

    def __init__(self, acker: Any, source: str, queues: Mapping[str, Any]) -> None:
        self._queues = queues

    def __call__(self, df: DataFrame, batch_id: int) -> None:
        """Write a batch."""
        for queue in self._queues.values():
            queue.write(df, query_id_of(df), batch_id)


class PlainBolt:
    """A writer that processes rows, writes those that have not failed, and acks nothing."""

    last_report = None

    def __init__(
        self,
        acker: Any,
        process: Callable[[DataFrame, int], DataFrame],
        queues: Mapping[str, Any] | None = None,
    ) -> None:
        self._process, self._queues = process, queues or {}

    def __call__(self, df: DataFrame, batch_id: int) -> None:
        """Process a batch and write the result."""
        out = self._process(df, batch_id)
        if "why" in out.columns:
            out = out.where(F.col("why").isNull()).drop("why")
        for queue in self._queues.values():
            queue.write(out, query_id_of(df), batch_id)


class PlainDelays:
    """A writer that writes the sums of each batch, and acks nothing."""

    last_report = None

    def __init__(self, acker: Any, table: Any) -> None:
        self._table = table

    def __call__(self, df: DataFrame, batch_id: int) -> None:
        """Write the sums of a batch."""
        sums = df.groupBy("kind", "carrier", "hour")
        sums = sums.agg(F.count("delay").alias("flights"), F.sum("delay").alias("minutes"))
        self._table.write(sums, query_id_of(df), batch_id)


def run(spark: SparkSession, acker: Acker, days: Path, folder: Path) -> float:
    """Return the seconds from the start of the queries until all rows are processed."""
    work = folder / "work"
    work.mkdir()
    (work / "days").symlink_to(days)
    began = time.perf_counter()
    running = pipeline.start(spark, acker, work, work / "tables", 1)
    running.drain()
    seconds = time.perf_counter() - began
    running.stop()
    shutil.rmtree(work)
    return seconds


def main() -> None:
    """Run both sides in turns."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--days", type=int, default=31)
    arguments.add_argument("--rounds", type=int, default=3)
    given = arguments.parse_args()
    advice = session.missing_java()
    if advice:
        raise SystemExit(advice)
    ours = pipeline.TrackWriter, pipeline.BoltWriter, pipeline.DelaysWriter
    times: dict[str, list[float]] = {"plain": [], "acker": []}
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(EmbeddedRedis(tcp=True))
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="acker-bench-")))
        data.split_by_day(data.Selection((1,), given.days), folder / "days")
        spark = stack.enter_context(session.started(folder / "spark"))
        direct = client.Acker.from_url(server.url, "flights", timeout=60)
        for turn in range(given.rounds + 1):
            for side in times:
                direct.connection.client.flushall()
                direct.create(AckerConfig(tick_ms=3_600_000, edges=tuple(pipeline.SCHEMA_OF)))
                acker = Acker(spark, "flights", app_id="bench", url=server.url)
                plain = side == "plain"
                pipeline.TrackWriter = PlainTrack if plain else ours[0]  # type: ignore[misc,assignment]
                pipeline.BoltWriter = PlainBolt if plain else ours[1]  # type: ignore[misc,assignment]
                pipeline.DelaysWriter = PlainDelays if plain else ours[2]  # type: ignore[misc,assignment]
                seconds = run(spark, acker, folder / "days", folder)
                if turn:
                    times[side].append(seconds)
                print(f"{side}: {seconds:.1f} s" + ("" if turn else " (warming up)"), flush=True)
    plain_seconds, acker_seconds = (statistics.median(column) for column in times.values())
    print(
        f"{given.days} days, medians of {given.rounds}: {plain_seconds:.1f} s plain, "
        f"{acker_seconds:.1f} s with the acker, {acker_seconds / plain_seconds - 1:+.0%}"
    )


if __name__ == "__main__":
    main()
