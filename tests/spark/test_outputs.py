"""Outputs of one block that share rows: together they have each row, or the block is refused."""

import contextlib
import random
import uuid
from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from acker_redis.errors import InvalidBatchError
from acker_redis.spark import Acker, FileQueue, MicroBatch
from tests.spark.conftest import outcomes
from tests.spark.world import World, firsts, frame

Plan = Callable[[DataFrame], DataFrame]
ALL = {f"s{n}" for n in range(12)}


def lines(df: DataFrame) -> DataFrame:
    """Return four rows of each message."""
    return df.withColumn("k", F.explode(F.sequence(F.lit(0), F.lit(3))))


def by_chance(df: DataFrame) -> DataFrame:
    """Return four rows of each message, with a choice that differs each time."""
    # Not random.random(): forked workers may have one state.
    chance = F.udf(lambda _: random.SystemRandom().random() < 0.5, "boolean").asNondeterministic()
    return lines(df).withColumn("kept", chance("k"))


@pytest.fixture
def messages(spark: SparkSession, by_driver: Acker) -> DataFrame:
    return frame(spark, firsts(World(by_driver.client).track(*[1] * 12)))


def held(*queues: FileQueue) -> set[tuple[int, int]]:
    """Return the lines in queues."""
    files = [file for queue in queues for file in queue.path.glob("batch-*/*.parquet")]
    return {(row["n"], row["k"]) for file in files for row in pq.read_table(file).to_pylist()}


WAYS: dict[str, Callable[[MicroBatch, DataFrame], list[DataFrame]]] = {
    "none": lambda b, rows: [rows, rows],
    "both": lambda b, rows: [b.freeze(rows)] * 2,
    "first": lambda b, rows: [b.freeze(rows), rows],
    "second": lambda b, rows: [rows, b.freeze(rows)],
    "apart": lambda b, rows: [b.freeze(rows.where("kept")), b.freeze(rows.where("NOT kept"))],
    "first alone": lambda b, rows: [b.freeze(rows.where("kept")), rows],
}
"""What the two outputs are made of."""


@pytest.mark.parametrize("frozen", WAYS)
def test_no_tree_is_acked_whose_row_is_in_no_output(
    spark: SparkSession,
    by_driver: Acker,
    messages: DataFrame,
    tmp_path: Path,
    frozen: tuple[int, ...],
) -> None:
    """Of a plan that changes, with several rows of one message: mentions do not show the loss."""
    queues = [FileQueue(tmp_path / name) for name in "ab"]
    with contextlib.suppress(InvalidBatchError):
        with by_driver.batch(messages, 0) as b:
            rows = by_chance(b.df)
            one, other = WAYS[frozen](b, rows)
            out = [
                b.emit(one.where("kept"), edge="a", key=["k"]),
                b.emit(other.where("NOT kept"), edge="b", key=["k"]),
            ]
        for each, queue in zip(out, queues, strict=True):
            b.hand_on(each, queue)
            by_driver.ack(each, 0, query_id=f"last-{queue.path.name}")
    whole = {f"s{n}" for n in range(12) if {(n, k) for k in range(4)} <= held(*queues)}
    acked = {name for verdict, _, name, _ in outcomes(by_driver.client) if verdict == "ack"}
    assert acked == (ALL if frozen == "both" else set())
    assert acked <= whole


def of_table(df: DataFrame) -> DataFrame:
    """Return a join with a table that may change."""
    table = df.sparkSession.createDataFrame([(0, True), (1, False)], "k INT, kept BOOLEAN")
    return lines(df).join(table, "k")


CHANGING: dict[str, Plan] = {
    "chance": by_chance,
    "random": lambda df: lines(df).withColumn("kept", F.rand() < 0.5),
    "time": lambda df: lines(df).withColumn("kept", F.expr("second(now()) + k > 30")),
    "ties": lambda df: lines(df).dropDuplicates(["n"]).withColumn("kept", F.expr("k > 1")),
    "limit": lambda df: lines(df).limit(9).withColumn("kept", F.expr("k > 1")),
    "table": of_table,
    "subquery": lambda df: lines(df).withColumn("kept", F.expr("k > (SELECT min(1))")),
}
STABLE: dict[str, Plan] = {
    "computed": lambda df: lines(df).withColumn("kept", F.udf(lambda k: k > 1, "boolean")("k")),
    "joined": lambda df: lines(df).join(df.selectExpr("n", "n > 3 AS kept"), "n").orderBy("k"),
    "subquery": lambda df: lines(df).withColumn("kept", F.expr("k > (SELECT 1)")),
    "observed": lambda df: lines(df.observe("seen", F.count("*"))).selectExpr("*", "k > 1 AS kept"),
    "with": lambda df: df.sparkSession.sql(
        "WITH x AS (SELECT *, 1 AS k FROM {df}) SELECT *, n > 3 AS kept FROM x", df=df
    ),
    "unpivot": lambda df: (
        df.selectExpr("*", "n AS x", "n + 1 AS y")
        .unpivot(["anchor", "tuple", "n"], ["x", "y"], "name", "k")
        .selectExpr("*", "k > 3 AS kept")
    ),
    "union": lambda df: lines(df.union(df.where("n < 0"))).withColumn("kept", F.expr("k > 1")),
}


class Sink:
    """A sink that only evaluates its rows."""

    def write(self, df: DataFrame, name: str, batch_id: int) -> None:
        df.collect()

    replace = write


Output = Callable[[MicroBatch, DataFrame], object]
OUTPUTS: dict[str, Output] = {
    "emit": lambda b, df: b.emit(df, edge=uuid.uuid4().hex, key=["k"]),
    "ack": lambda b, df: b.ack(df),
    "fail": lambda b, df: b.fail(df, "bad"),
    "write": lambda b, df: b.write(df.drop("anchor", "tuple"), Sink()),
    "write and ack": lambda b, df: b.write(df, Sink(), ack=True),
    "split": lambda b, df: b.split(df.withColumn("a", F.array("k")), "a", key="k"),
}


@pytest.mark.parametrize(
    ("plan", "first"),
    [*((plan, "emit") for plan in CHANGING), *(("chance", first) for first in OUTPUTS)],
)
def test_two_outputs_of_rows_that_may_change_are_refused(
    by_driver: Acker, messages: DataFrame, plan: str, first: str
) -> None:
    with by_driver.batch(messages, 0) as b:
        rows = CHANGING[plan](b.df)
        OUTPUTS[first](b, rows.where("kept"))
        for name in ("ack", "fail", "write", "split", "emit", "write and ack"):
            with pytest.raises(InvalidBatchError, match=r"rows = b.freeze\(rows\)"):
                OUTPUTS[name](b, rows.where("NOT kept"))
        b.ack(b.df)


@pytest.mark.parametrize("place", range(3))
def test_output_of_the_rows_given_to_the_block_is_refused_beside_those_of_df(
    by_driver: Acker, messages: DataFrame, place: int
) -> None:
    """Each is one evaluation, and a message that has other lines may lack one in both."""
    messages = messages.withColumn("kept", F.rand() < 0.5)
    with by_driver.batch(messages, 0) as b:
        outputs: list[Callable[[], object]] = [
            lambda: b.emit(lines(b.df).where("kept"), edge="a", key=["k"]),
            lambda: b.ack(b.df.where("kept")),
        ]
        outputs.insert(place, lambda: b.emit(lines(messages).where("kept"), edge="b", key=["k"]))
        with pytest.raises(InvalidBatchError, match="computed twice"):
            for output in outputs:
                output()
        b.ack()


@pytest.mark.parametrize("plan", [*STABLE, "frozen", "declared", "covered", "given", "apart"])
def test_outputs_that_have_each_row_are_accepted(
    by_driver: Acker, messages: DataFrame, plan: str
) -> None:
    with by_driver.batch(messages, 0, freeze=plan != "declared") as b:
        if plan == "apart":
            table = b.df.sparkSession.createDataFrame([(n, 1) for n in range(12)], "n INT, p INT")
            some, rest = (b.df.where(f"n % 2 = {m}").join(table, "n") for m in range(2))
            rows = lines(b.freeze(rest)).withColumn("kept", F.lit(False))
            written = b.emit(b.freeze(lines(some)), edge="some", key=["k"])
            b.write(written.drop("anchor", "tuple"), Sink())
        elif plan == "given":
            rows = b.df.withColumn("kept", F.expr("n > 3"))
            b.emit(messages.withColumn("x", F.rand()), edge="all")
            b.emit(b.df, edge="all, too")
        elif plan == "covered":
            rows = b.df.withColumn("kept", F.rand() < 0.5).withColumn("k", F.lit(0))
            b.emit(rows, edge="all")
        else:
            rows = STABLE.get(plan, by_chance)(b.df)
            rows = b.freeze(rows) if plan == "frozen" else rows
            b.emit(rows.where("kept"), edge="some", key=["k"])
        b.ack(rows.where("NOT kept"))


def test_split_evaluates_its_rows_once(
    by_driver: Acker, messages: DataFrame, tmp_path: Path
) -> None:
    """Also those without a part, which it acks: else a row could have neither."""
    folder = str(tmp_path)

    def noted(n: int, k: int) -> list[int]:
        with Path(folder, f"{n}-{k}").open("a") as file:
            file.write("x")
        return [k] * (k % 2)

    with by_driver.batch(messages, 0) as b:
        rows = lines(b.df).withColumn(
            "a", F.udf(noted, "array<int>").asNondeterministic()("n", "k")
        )
        b.ack(b.split(rows, "a", key="k", empty="ack"))
    assert [each.read_text() for each in tmp_path.iterdir()] == ["x"] * 48
    assert {verdict for verdict, *_ in outcomes(by_driver.client)} == {"ack"}
