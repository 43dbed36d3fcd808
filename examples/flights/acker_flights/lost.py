"""The expired flights: the edge that a message is unaccounted for on, and the message itself."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import reduce
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - its usual name
from rich.console import Console
from rich.table import Table

from acker_flights import pipeline
from acker_flights.data import Expected
from acker_redis.spark import explain

_EXAMPLES = 5
DROPPED_ON = "plane"
"""The edge whose messages a bolt drops if the flight has no tail number."""


@dataclass(frozen=True, slots=True)
class Message:
    """The row of a message that is unaccounted for."""

    edge: str
    source_id: str
    carrier: str
    tailnum: str | None


def find(spark: SparkSession, replay: Path, work: Path, messages: list[Message]) -> None:
    """Add the messages that are unaccounted for, among the rows of all queues."""
    expired = spark.read.option("recursiveFileLookup", "true").parquet(str(replay))
    found = explain(expired, _messages(spark, work)).where("found = 'found'")
    columns = ("edge", "source_id", "carrier", "tailnum")
    messages += [Message(*row) for row in found.select(*columns).sort("source_id").collect()]


def _messages(spark: SparkSession, work: Path) -> DataFrame:
    """Return the rows of all queues, with the edge that they travelled on."""
    rows = [
        queue.read(spark, pipeline.SCHEMA_OF[edge]).withColumn("edge", F.lit(edge))
        for edge, queues in pipeline.queues(work).items()
        for queue in queues
    ]
    return reduce(lambda one, other: one.unionByName(other, allowMissingColumns=True), rows)


def show(console: Console, replay: pa.Table, messages: list[Message]) -> None:
    """Print the expired flights by edge, and some of the messages."""
    by_edge = Counter(edges for _, edges in _expired(replay))
    console.print("Expired flights, by the edges that a message is unaccounted for on:")
    drawn = Table("edges")
    drawn.add_column("flights", justify="right")
    for edges, count in by_edge.most_common():
        drawn.add_row(", ".join(edges) or "none", f"{count:,}")
    console.print(drawn)
    console.print(f"Some of the {len(messages):,} messages, found in the queues by explain():")
    some = Table("edge", "flight", "carrier", "tail number")
    for each in messages[:_EXAMPLES]:
        some.add_row(each.edge, each.source_id, each.carrier, each.tailnum or "none")
    console.print(some)


def check(console: Console, replay: pa.Table, messages: list[Message], expected: Expected) -> bool:
    """Return whether each expired flight names the edge and the message that was dropped."""
    wrong = [flight for flight, edges in _expired(replay) if edges != (DROPPED_ON,)]
    named = Counter(each.source_id for each in messages)
    wrong += [each.source_id for each in messages if each.edge != DROPPED_ON or each.tailnum]
    wrong += (named - Counter(expected.expired)).elements()
    wrong += (Counter(expected.expired) - named).elements()
    if wrong:
        some = ", ".join(sorted(set(wrong))[:_EXAMPLES])
        console.print(
            f"[red]the wrong edge or message of {len(set(wrong)):,} flights, e.g. {some}[/red]"
        )
    return not wrong


def _expired(replay: pa.Table) -> Iterable[tuple[str, tuple[str, ...]]]:
    for row in replay.to_pylist():
        if row["reason"] == "expired":
            yield row["source_id"], tuple(row["edges"])
