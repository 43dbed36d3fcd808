"""A shop whose nacked orders are replayed, for the tests of ReplayWriter."""

import os
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from acker_redis import Backoff
from acker_redis.batching.batch import Batch
from acker_redis.spark import Acker, FileQueue, OutcomeBatches, ReplayWriter, TrackWriter, counted
from acker_redis.spark.replays import waiting
from tests.spark.conftest import MakeSparkAcker

MESSAGE = "prefix STRING, n BIGINT, sid STRING, line INT, anchor BIGINT, tuple BIGINT"
AT_ONCE = Backoff(0, 0)
HOURS = Backoff(3600, 36_000)
KINDS = ["loose", "counted", "ledger", "keyed"]


class Shop:
    """Records ``p/0``, ``p/1``, .. of a source, a bolt, and a query that replays."""

    def __init__(
        self, spark: SparkSession, acker: Acker, folder: Path, kind: str = "loose", **more: Any
    ) -> None:
        self.spark, self.acker, self.folder, self.client = spark, acker, folder, acker.client
        self.queue, self.dead = FileQueue(folder / "queue"), FileQueue(folder / "dead")
        self.ids: dict[str, Any] = {"source_id": "sid"}
        if kind == "counted":
            self.ids = {"source_id": counted("prefix", number="n")}
        if kind == "keyed":
            self.ids["key"] = "line"
        self.lines = 2 if kind == "keyed" else 1
        self.settings: dict[str, Any] = {"lookup": lambda _: self.records(100)} | self.ids | more
        self.batch_id = 0
        self.done: set[int] = set()

    def records(self, count: int) -> DataFrame:
        rows = self.spark.range(count).selectExpr(
            "'p' AS prefix", "id AS n", "concat('p/', id) AS sid"
        )
        return rows.withColumn("line", F.expr(f"explode(sequence(1, {self.lines}))"))

    def track(self, count: int, batch_id: int = 0) -> None:
        """Track the first records."""
        writer = TrackWriter(self.acker, "t", {"out": self.queue}, query_id="source", **self.ids)
        writer(self.records(count), batch_id)

    def writer(self, **more: Any) -> ReplayWriter:
        """Return the writer of a new driver."""
        given: dict[str, Any] = {"attempts": 3, "backoff": AT_ONCE, "folder": self.folder / "state"}
        given |= {"dead_letters": self.dead, "query_id": "replay"} | self.settings | more
        return ReplayWriter(self.acker, "t", {"out": self.queue}, **given)

    def replay(self, batch_id: int | None = None, **more: Any) -> None:
        """Run the next batch, or this one again."""
        self.batch_id = self.batch_id if batch_id is None else batch_id
        verdicts = OutcomeBatches(self.acker, "t", self.writer(**more), self.folder / "planned")
        verdicts(self.spark.range(1), self.batch_id)
        self.batch_id += 1

    def messages(self) -> DataFrame:
        return self.queue.read(self.spark, MESSAGE)

    def sent(self) -> Counter[str]:
        """Return how many messages of each record were written."""
        return Counter(row["sid"] for row in self.messages().select("sid").collect())

    def bolt(self, bad: Callable[[int], bool]) -> None:
        """Process the new messages; fail some records."""
        batch = Batch()
        for each in self.messages().collect():
            if each["tuple"] not in self.done:
                self.done.add(each["tuple"])
                if bad(each["n"]):
                    batch.fail(each["anchor"], f"bad {each['n']}", each["tuple"])
                else:
                    batch.ack(each["anchor"], each["tuple"])
        self.client.apply(batch)

    def given_up(self) -> list[tuple[str, int | None, str, str]]:
        frame = self.dead.read(
            self.spark, "source_id STRING, attempt INT, gave_up STRING, why STRING"
        )
        return sorted(tuple(each) for each in frame.collect())

    def waits(self) -> Counter[int | None]:
        """Return how many nacks wait for each attempt."""
        while True:
            found: Counter[int | None] = Counter()
            try:
                for each in waiting.files(self.folder / "state" / f"{self.acker.namespace}@t"):
                    found[each.attempt] += each.rows
            except FileNotFoundError:
                continue  # a running query has just replayed these
            return found

    def age(self, seconds: float) -> None:
        """Let the nacks that wait have waited for longer."""
        for each in waiting.files(self.folder / "state" / f"{self.acker.namespace}@t"):
            os.utime(each.path, 2 * (each.since - seconds,))


@pytest.fixture
def make_shop(
    spark: SparkSession, make_spark_acker: MakeSparkAcker, tmp_path: Path
) -> Callable[..., Shop]:
    def make(
        kind: str = "loose", config: dict[str, Any] | None = None, mode: str = "driver", **more: Any
    ) -> Shop:
        ledger = str(tmp_path / "ledger") if kind == "ledger" else None
        acker = make_spark_acker(config, mode=mode, ledger=ledger, query_id=None)
        return Shop(spark, acker, tmp_path, kind, **more)

    return make


MakeShop = Callable[..., Shop]
