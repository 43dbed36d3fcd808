"""Four streaming queries, each with its own checkpoint, and the queues between them.

::

    flights ──> weather ──> delays
       └──────> plane ───────┘

- ``flights`` tracks a tree per flight and sends the flight to ``weather`` and to ``plane``.
- ``weather`` looks up the weather at the origin in that hour; if it is unknown, it fails the tree.
- ``plane`` drops flights without a tail number and reports nothing, like a job with a bug.
- ``delays`` sums delays by carrier and hour.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - its usual name
from pyspark.sql.streaming.query import StreamingQuery

from acker_flights.data import FLIGHT_SCHEMA, KEY, WEATHER_SCHEMA
from acker_flights.data import directory as data_directory
from acker_redis.spark import Acker, BoltWriter, FileQueue, Report, TrackWriter, source_id

SOURCE = "flights"
"""The name under which the verdicts are read."""

STAGES = ("flights", "weather", "plane", "delays")

FLIGHT_MESSAGE = (
    "source_id STRING, carrier STRING, origin STRING, tailnum STRING, time_hour STRING, "
    "hour INT, dep_delay DOUBLE, arr_delay DOUBLE, anchor BIGINT, tuple BIGINT"
)
DELAY_MESSAGE = "kind STRING, carrier STRING, hour INT, delay DOUBLE, anchor BIGINT, tuple BIGINT"

SCHEMA_OF = {"weather": FLIGHT_MESSAGE, "plane": FLIGHT_MESSAGE, "delays": DELAY_MESSAGE}
"""The edges, and the columns of the messages on each."""


class Writer(Protocol):
    """A function for ``foreachBatch`` that keeps the report of its last batch."""

    last_report: Report | None

    def __call__(self, df: DataFrame, batch_id: int) -> None:
        """Process a batch."""


@dataclass
class Pipeline:
    """The running queries, in the order in which messages pass them."""

    queries: dict[str, StreamingQuery] = field(default_factory=dict)
    rows: dict[str, int] = field(default_factory=lambda: dict.fromkeys(STAGES, 0))
    """Rows that each stage has processed, for the progress display."""

    def drain(self) -> None:
        """Wait until every query has processed all its input. Raises the error of a query."""
        for query in self.queries.values():
            query.processAllAvailable()

    def stop(self) -> None:
        """Stop the queries."""
        for query in self.queries.values():
            query.stop()


def queues(work: Path) -> dict[str, list[FileQueue]]:
    """Return the queues of each edge. The two bolts before ``delays`` have one each."""
    names = {
        "weather": ["weather"],
        "plane": ["plane"],
        "delays": ["weather-delays", "plane-delays"],
    }
    return {
        edge: [FileQueue(work / "queues" / name) for name in each] for edge, each in names.items()
    }


def start(
    spark: SparkSession, acker: Acker, work: Path, tables: Path, files_per_trigger: int
) -> Pipeline:
    """Start the four queries over the CSV files in ``work/days``.

    Queues and checkpoints are in ``work``. The last bolt writes the table ``delays``: for each
    batch the number of flights and the minutes of delay, by kind of message, carrier and hour.
    """
    pipeline = Pipeline()
    of = queues(work)
    [to_weather], [to_plane] = of["weather"], of["plane"]
    weather_delays, plane_delays = of["delays"]

    def begin(stage: str, df: DataFrame, writer: Writer) -> None:
        def counted(batch: DataFrame, batch_id: int) -> None:
            writer(batch, batch_id)
            if writer.last_report:
                pipeline.rows[stage] += writer.last_report.messages

        stream = df.writeStream.queryName(stage).foreachBatch(counted)
        checkpoint = str(work / "checkpoints" / stage)
        pipeline.queries[stage] = stream.option("checkpointLocation", checkpoint).start()

    begin(
        "flights",
        read_flights(spark, work / "days", files_per_trigger),
        TrackWriter(acker, SOURCE, {"weather": to_weather, "plane": to_plane}),
    )
    begin(
        "weather",
        to_weather.read_stream(spark, FLIGHT_MESSAGE),
        BoltWriter(acker, with_weather(spark), {"delays": weather_delays}),
    )
    # A bolt that drops rows fails their trees at once. These rows are lost before the batch, so
    # nothing but the expiry of their trees can show it.
    known = to_plane.read_stream(spark, FLIGHT_MESSAGE).where("tailnum IS NOT NULL")
    begin("plane", known, BoltWriter(acker, with_plane, {"delays": plane_delays}))
    both = weather_delays.read_stream(spark, DELAY_MESSAGE)
    both = both.unionByName(plane_delays.read_stream(spark, DELAY_MESSAGE))
    begin("delays", both, DelaysWriter(acker, FileQueue(tables / "delays")))
    return pipeline


def read_flights(spark: SparkSession, days: Path, files_per_trigger: int) -> DataFrame:
    """Return the flights as a stream, one file per day, oldest first."""
    reader = spark.readStream.schema(FLIGHT_SCHEMA).option("header", "true")
    reader = reader.option("nullValue", "NA").option("maxFilesPerTrigger", files_per_trigger)
    flights = reader.csv(str(days))
    return flights.select(
        source_id(*KEY).alias("source_id"),
        "carrier",
        "origin",
        "tailnum",
        "time_hour",
        "hour",
        "dep_delay",
        "arr_delay",
    )


def with_weather(spark: SparkSession) -> Callable[[DataFrame, int], DataFrame]:
    """Return the bolt ``weather``: departure delays, for hours whose weather is known."""
    reader = spark.read.schema(WEATHER_SCHEMA).option("header", "true").option("nullValue", "NA")
    hours = reader.csv(str(data_directory() / "weather.csv"))
    hours = hours.select("origin", "time_hour", "wind_speed", F.lit(True).alias("known"))
    known = F.broadcast(hours.dropDuplicates(["origin", "time_hour"]).cache())

    def process(df: DataFrame, batch_id: int) -> DataFrame:
        found = df.join(known, ["origin", "time_hour"], "left")
        missing = F.concat_ws(" ", F.lit("no weather at"), "origin", F.lit("for"), "time_hour")
        return found.select(
            F.lit("weather").alias("kind"),
            "carrier",
            "hour",
            F.col("dep_delay").alias("delay"),
            "anchor",
            "tuple",
            F.when(F.col("known").isNull(), missing).alias("why"),
        )

    return process


def with_plane(df: DataFrame, batch_id: int) -> DataFrame:
    """Process a batch of the bolt ``plane``: arrival delays of planes that are known."""
    return df.select(
        F.lit("plane").alias("kind"),
        "carrier",
        "hour",
        F.col("arr_delay").alias("delay"),
        "anchor",
        "tuple",
    )


class DelaysWriter:
    """The bolt ``delays``: writes sums of each batch by kind, carrier and hour to ``table``."""

    def __init__(self, acker: Acker, table: FileQueue) -> None:
        self._acker, self._table = acker, table
        self.last_report: Report | None = None
        """The report of the last batch."""

    def __call__(self, df: DataFrame, batch_id: int) -> None:
        """Write the sums of a batch, then ack its messages."""
        with self._acker.batch(df, batch_id) as b:
            sums = b.df.groupBy("kind", "carrier", "hour")
            b.write(
                sums.agg(F.count("delay").alias("flights"), F.sum("delay").alias("minutes")),
                self._table,
            )
            b.ack()
        self.last_report = b.report
