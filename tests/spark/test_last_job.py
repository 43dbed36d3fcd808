"""``b.write(rows, sink, ack=True)`` acks exactly the messages whose rows the sink holds."""

import contextlib
import random
import sqlite3
from collections.abc import Callable
from pathlib import Path
from unittest.mock import MagicMock

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from acker_redis.errors import InvalidBatchError
from acker_redis.spark import Acker, BoltWriter, FileQueue, SqlTable
from acker_redis.spark.staging import Staged, Staging
from tests.spark.conftest import MakeSparkAcker, outcomes
from tests.spark.world import PLACES, World, firsts, frame

ALL = {f"s{n}" for n in range(12)}
EVEN = {f"s{n}" for n in range(0, 12, 2)}
Plan = Callable[[DataFrame], DataFrame]


def two_of_three(df: DataFrame) -> DataFrame:
    """Return two rows of each message with an even number, and none of the others."""
    other = df.sparkSession.range(0, 12, 2).selectExpr("cast(id AS INT) AS n")
    return df.join(other.union(other), "n")


def by_chance(df: DataFrame) -> DataFrame:
    """Return other rows each time."""
    chance = F.udf(lambda _: random.random() < 0.5, "boolean").asNondeterministic()
    return df.where(chance("n"))


def even_items(df: DataFrame) -> DataFrame:
    """Return a row for each even element of an array."""
    return df.withColumn("k", F.explode(F.expr("filter(array(n), k -> k % 2 = 0)")))


ONE_WRITE: dict[str, Plan] = {
    "unchanged": lambda df: df,
    "computed": lambda df: df.withColumn("twice", F.col("n") * 2).alias("t").select("t.*"),
    "random": lambda df: df.withColumn("chance", F.rand()),
    "renamed": lambda df: df.withColumnsRenamed({"n": "m"}).select("tuple", "m", "anchor"),
    "python": lambda df: df.withColumn("text", F.udf(str)("n")),
}
TWO_WRITES: dict[str, tuple[Plan, set[str] | None]] = {
    "filter": (lambda df: df.where("n % 2 = 0"), EVEN),
    "join": (two_of_three, EVEN),
    "limit": (lambda df: df.orderBy("n").limit(3), {"s0", "s1", "s2"}),
    "sort": (lambda df: df.orderBy("n"), ALL),
    "lines": (lambda df: df.withColumn("k", F.explode(F.expr("sequence(0, n % 2)"))), ALL),
    "no line": (even_items, EVEN),
    "one id computed": (lambda df: df.withColumn("anchor", F.col("anchor") + 0), ALL),
    "by chance": (by_chance, None),
    "union": (lambda df: df.where("n = 0").union(df.where("n = 2")), {"s0", "s2"}),
}


@pytest.fixture(params=PLACES, ids=lambda place: f"{place[0]}-{place[1]}")
def acker(request: pytest.FixtureRequest, make_spark_acker: MakeSparkAcker) -> Acker:
    mode, shards = request.param
    return make_spark_acker({"shards": shards}, mode=mode)


@pytest.fixture
def writes(monkeypatch: pytest.MonkeyPatch) -> list[DataFrame]:
    """Return the rows with ids that a batch has written aside."""
    found: list[DataFrame] = []
    write = Staging.write

    def noted(self: Staging, df: DataFrame) -> Staged:
        if "anchor" in df.columns:
            found.append(df)
        return write(self, df)

    monkeypatch.setattr(Staging, "write", noted)
    return found


def judged(acker: Acker, world: World, sink: FileQueue, place: str = "n") -> set[str]:
    """Return the acked source ids; check them against the rows of the sink."""
    rows = [row for file in sink.path.rglob("*.parquet") for row in pq.read_table(file).to_pylist()]
    assert not rows or not {"anchor", "tuple"} & rows[0].keys()
    found = outcomes(acker.client)
    acked = {name for verdict, _, name, _ in found if verdict == "ack"}
    assert acked == {f"s{row[place]}" for row in rows}
    assert {name for verdict, _, name, _ in found if verdict == "nack"} == ALL - acked
    return acked


@pytest.mark.parametrize("plan", ONE_WRITE)
def test_rows_that_are_one_for_each_message_are_written_once(
    spark: SparkSession, acker: Acker, tmp_path: Path, writes: list[DataFrame], plan: str
) -> None:
    world, sink = World(acker.client), FileQueue(tmp_path)
    with acker.batch(frame(spark, firsts(world.track(*[1] * 12))), 0) as b:
        b.write(ONE_WRITE[plan](b.df), sink, ack=True)
    assert len(writes) == 1, "the rows of the batch"
    assert judged(acker, world, sink, "m" if plan == "renamed" else "n") == ALL


@pytest.mark.parametrize("plan", TWO_WRITES)
def test_other_rows_are_evaluated_once_and_exactly_they_are_acked(
    spark: SparkSession, acker: Acker, tmp_path: Path, writes: list[DataFrame], plan: str
) -> None:
    make, names = TWO_WRITES[plan]
    world, sink = World(acker.client), FileQueue(tmp_path)
    with acker.batch(frame(spark, firsts(world.track(*[1] * 12))), 0) as b:
        b.write(make(b.df), sink, ack=True)
    assert len(writes) == 2
    acked = judged(acker, world, sink)
    assert acked == names if names is not None else acked < ALL


@pytest.mark.parametrize("column", ["anchor", "tuple"])
def test_swapped_ids_are_no_proof(
    spark: SparkSession, acker: Acker, tmp_path: Path, column: str
) -> None:
    """Each row has the id of the row before it; the plan has as many rows as the batch."""
    world = World(acker.client)
    with (
        contextlib.suppress(InvalidBatchError),
        acker.batch(frame(spark, firsts(world.track(1, 1))), 0) as b,
    ):
        other = F.lag(column, 1, 5).over(Window.orderBy("n"))
        b.write(b.df.withColumn(column, other), FileQueue(tmp_path), ack=True)
    assert "ack" not in {verdict for verdict, *_ in outcomes(acker.client)}


def test_frozen_rows_that_are_all_messages_need_no_look_at_their_ids(
    spark: SparkSession, acker: Acker, tmp_path: Path
) -> None:
    """The steps by hand: ``freeze``, ``write``, ``ack(rows)``. A later filter is seen."""
    world, sink = World(acker.client), FileQueue(tmp_path)
    with acker.batch(frame(spark, firsts(world.track(*[1] * 12))), 0) as b:
        out = b.freeze(b.df.withColumn("chance", F.rand()))
        some = out.where("n % 2 = 0")
        b.write(some.drop("anchor", "tuple"), sink)
        b.ack(some)
    assert judged(acker, world, sink) == EVEN


def test_messages_keep_no_id_of_their_input_if_each_input_has_one(
    spark: SparkSession, make_spark_acker: MakeSparkAcker, tmp_path: Path
) -> None:
    acker = make_spark_acker(mode="driver")
    world = World(acker.client)
    queues = [FileQueue(tmp_path / name) for name in ("all", "some")]
    for batch_id, plan in enumerate(["n >= 0", "n % 2 = 0"]):
        with acker.batch(frame(spark, firsts(world.track(*[1] * 12))), batch_id) as b:
            rows = b.df.withColumn("m", F.col("n") + 1)
            rows = rows if batch_id == 0 else rows.where(plan)
            messages = b.emit(rows, edge="e", queue=queues[batch_id])
        b.hand_on(messages, queues[batch_id])
        assert b.report
        assert b.report.vanished == (0 if batch_id == 0 else 6)
    for queue, held in zip(queues, ({"n", "m", "anchor", "tuple"}, None), strict=True):
        [file, *_] = queue.path.rglob("*.parquet")
        assert held is None or set(pq.read_schema(file).names) == held


@pytest.mark.parametrize("queued", [True, False])
def test_parts_are_looked_for_although_each_message_has_a_row(
    spark: SparkSession, acker: Acker, tmp_path: Path, queued: bool
) -> None:
    world = World(acker.client)
    with acker.batch(frame(spark, firsts(world.track(*[1] * 12))), 0) as b:
        lines = b.split(b.df.withColumn("k", F.expr("array(0, 1)")), "k")
        done = lines.where("NOT (k = 1 AND n % 2 = 1)")
        if queued:
            b.emit(b.df, edge="all")
        else:
            b.write(b.df, FileQueue(tmp_path), ack=True)
        b.ack(done)
    assert b.report
    assert b.report.vanished == 6
    assert {name for verdict, _, name, _ in outcomes(acker.client) if verdict == "nack"} == (
        ALL - EVEN
    )


def test_writer_with_a_sink_writes_computed_rows_once(
    spark: SparkSession, acker: Acker, tmp_path: Path, writes: list[DataFrame]
) -> None:
    world, sink = World(acker.client), FileQueue(tmp_path)
    writer = BoltWriter(acker, lambda df, _: df.withColumn("m", F.rand()), sink=sink, query_id="q")
    writer(frame(spark, firsts(world.track(*[1] * 12))), 0)
    assert len(writes) == 1
    assert judged(acker, world, sink) == ALL


class Own:
    """A sink that does not tell how many rows it has written."""

    def write(self, df: DataFrame, name: str, batch_id: int) -> None:
        df.collect()

    replace = write


def small(df: DataFrame) -> DataFrame:
    """Return the other side of a join, in which most rows have no partner."""
    return df.sparkSession.range(2).selectExpr("cast(id AS INT) AS n")


DROPS: list[tuple[str, Plan, bool]] = [
    ("files", lambda df: df.join(small(df), "n"), True),
    ("files", lambda df: df.join(small(df), "n", "left"), False),
    ("files", lambda df: df.groupBy().agg(F.sum("n").alias("n")), False),
    ("files", lambda df: df.select((F.col("n") % 2).alias("n")).distinct(), False),
    ("frozen", lambda df: df.where("n < 2"), True),
    ("frozen", lambda df: df.groupBy().agg(F.sum("n").alias("n")), False),
    ("sql", lambda df: df.where("n < 2"), True),
    ("own", lambda df: df.where("n < 2"), False),
]


def test_ack_of_all_messages_after_rows_were_dropped_is_warned_about(
    spark: SparkSession, by_driver: Acker, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Not about sums, and not if the number of rows is not known without a job."""
    world, place = World(by_driver.client), str(tmp_path / "shop.db")
    with sqlite3.connect(place) as database:
        database.execute("CREATE TABLE done (n INT PRIMARY KEY)")
    upsert = "INSERT INTO done (n) VALUES (?) ON CONFLICT (n) DO UPDATE SET n = n"
    sql = SqlTable(lambda: sqlite3.connect(place, timeout=600), upsert, ["n"])
    sinks = {"sql": sql, "own": Own()}
    for number, (kind, plan, warned) in enumerate(DROPS):
        caplog.clear()
        sink = sinks.get(kind, FileQueue(tmp_path / str(number)))
        for batch_id in range(1 + warned):
            messages = frame(spark, firsts(world.track(*[1] * 12)))
            with by_driver.batch(messages, batch_id, query_id=f"q{number}") as b:
                rows = plan(b.df)
                b.write((b.freeze(rows) if kind == "frozen" else rows).select("n"), sink)
                b.ack()
        words = [each.getMessage() for each in caplog.records if "wrote" in each.getMessage()]
        assert len(words) == warned, (number, words)
        for each in words:
            said = f"batch 0 of query test@q{number} wrote 2 rows, and acked 12 messages by ack()"
            assert said in each
            assert "write(rows, sink, ack=True)" in each


def test_rows_are_counted_for_the_warning_alone(
    spark: SparkSession, by_driver: Acker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A footer that the driver cannot read, such as an encrypted one, stops no batch."""
    world, footers = World(by_driver.client), MagicMock(side_effect=pa.ArrowInvalid("encrypted"))
    monkeypatch.setattr(pq, "read_metadata", footers)
    for batch_id, every in enumerate([False, True]):
        messages = frame(spark, firsts(world.track(*[1] * 12)))
        with by_driver.batch(messages, batch_id) as b:
            b.write(b.df.where("n < 2").select("n"), FileQueue(tmp_path))
            b.ack(None if every else b.df.where("n >= 0"))
        assert footers.called == every
