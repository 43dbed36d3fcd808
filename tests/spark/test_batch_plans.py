"""Transformations that a plan may apply to the rows of a batch.

With any plan, no tree is acked while one of its messages is outstanding.
"""

import random
from collections.abc import Callable, Sequence

import pytest
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from acker_redis.errors import (
    InvalidBatchError,
)
from acker_redis.spark import Acker, MicroBatch, anchors_of, collect_anchors
from tests.spark.conftest import MakeSparkAcker, outcomes
from tests.spark.world import PLACES, World, frame
from tests.support import tick, total

Trick = Callable[[MicroBatch, DataFrame], Sequence[DataFrame]]
"""A function of a batch, and of messages of an earlier batch; returns the messages it writes."""


def renamed(df: DataFrame) -> DataFrame:
    return df.select("n", F.col("anchor").alias("a2"), F.col("tuple").alias("t2"))


def swapped(b: MicroBatch, old: DataFrame) -> Sequence[DataFrame]:
    other = b.df.select((F.lit(3) - F.col("n")).alias("n"), F.col("anchor").alias("a2"))
    rows = b.df.join(other, "n").drop("anchor").withColumnRenamed("a2", "anchor")
    return [b.emit(rows, edge="e")]


def nested(b: MicroBatch, old: DataFrame) -> Sequence[DataFrame]:
    first = b.emit(b.df, edge="e")
    second = b.emit(first.where("n > 0"), edge="f")
    return [first, second, b.emit(second.union(first), edge="e2", key=["n", "tuple"])]


def shuffled(b: MicroBatch, old: DataFrame) -> Sequence[DataFrame]:
    ranked = b.df.withColumn("rank", F.row_number().over(Window.orderBy(F.desc("tuple"))))
    wide = b.freeze(ranked.join(ranked.groupBy("rank").count(), "rank").repartition(4, "tuple"))
    return [b.emit(wide.orderBy("anchor"), edge="e"), b.emit(wide.distinct(), edge="f")]


def at_random(b: MicroBatch, old: DataFrame) -> Sequence[DataFrame]:
    dice = F.udf(lambda _: random.random(), "double").asNondeterministic()
    some = b.df.where(F.rand() < 0.5).where(dice("n") < 0.8)
    return [b.emit(some, edge="e"), b.emit(b.freeze(b.df.where(dice("n") < 0.5)), edge="f")]


def overwritten(b: MicroBatch, old: DataFrame) -> Sequence[DataFrame]:
    rows = b.df.dropDuplicates(["anchor"]).withColumn("tuple", F.lit(5).cast("bigint"))
    return [b.emit(rows, edge="e")]


def window(b: MicroBatch, old: DataFrame) -> Sequence[DataFrame]:
    over = Window.partitionBy(F.col("n") % 2).orderBy("n").rowsBetween(-1, 0)
    pairs = collect_anchors().over(over)
    return [b.emit(b.df, edge="e", anchors=pairs, key=["n"])]


def acked_and_emitted(b: MicroBatch, old: DataFrame) -> Sequence[DataFrame]:
    out = b.emit(b.df, edge="e")
    b.ack(b.df.join(renamed(out), "n"), children="t2")
    return [out]


def half_a_pair(b: MicroBatch, old: DataFrame) -> Sequence[DataFrame]:
    following = renamed(b.df).withColumn("n", F.col("n") - 1)
    pairs = anchors_of(("anchor", F.when(F.col("n") > 0, F.col("tuple"))), ("a2", "t2"))
    return [b.emit(b.df.join(following, "n"), edge="e", anchors=pairs)]


def no_pair(b: MicroBatch, old: DataFrame) -> Sequence[DataFrame]:
    pairs = F.when(F.col("n") > 0, anchors_of(("anchor", "tuple")))
    return [b.emit(b.df, edge="e", anchors=pairs)]


def empty_pairs(b: MicroBatch, old: DataFrame) -> Sequence[DataFrame]:
    pairs = F.filter(anchors_of(("anchor", "tuple")), lambda pair: F.col("n") > 0)
    return [b.emit(b.df, edge="e", anchors=pairs)]


def fanned(b: MicroBatch, key: list[str]) -> Sequence[DataFrame]:
    copies = b.df.sparkSession.createDataFrame([(0, "x"), (0, "y"), (1, "z")], "n INT, k STRING")
    return [b.emit(b.df.join(copies, "n"), edge="e", key=key)]


def outer(b: MicroBatch, unanchored: bool) -> Sequence[DataFrame]:
    more = b.df.sparkSession.createDataFrame([(0,), (77,)], "n INT")
    return [b.emit(b.df.join(more, "n", "full"), edge="e", unanchored=unanchored)]


def fewer(b: MicroBatch, old: DataFrame) -> Sequence[DataFrame]:
    b.ack(b.df.where("n > 0"))
    return [b.emit(b.df.where("n < 2"), edge="e")]


def twice_acked(b: MicroBatch, old: DataFrame) -> Sequence[DataFrame]:
    b.ack(b.df)
    b.ack(b.df)
    return [b.emit(b.df, edge="e")]


def rows_twice(b: MicroBatch, old: DataFrame) -> Sequence[DataFrame]:
    rows = b.df.union(b.df.where("n = 1"))
    b.ack(rows)
    return [b.emit(rows.dropDuplicates(), edge="e")]


def with_old_ones(b: MicroBatch, old: DataFrame) -> Sequence[DataFrame]:
    """Emit rows of an earlier batch, too; some of their trees have an input in this batch."""
    here = b.df.select("anchor").distinct()
    return [b.emit(old.join(here, "anchor").union(b.df), edge="old")]


def joined_with_old_ones(b: MicroBatch, old: DataFrame) -> Sequence[DataFrame]:
    pairs = anchors_of(("anchor", "tuple"), ("a2", "t2"))
    return [b.emit(b.df.join(renamed(old), "n"), edge="e", anchors=pairs)]


NO_INPUT, SHARED, NO_ANCHOR = "no input of these trees", "share an id", "rows have no"
REFUSED: dict[str, tuple[Trick, str]] = {
    "rows of another batch": (lambda b, old: [b.emit(old, edge="e")], NO_INPUT),
    "joined with another batch": (joined_with_old_ones, NO_INPUT),
    "fan-out without a key": (lambda b, old: fanned(b, []), SHARED),
    "union of one frame": (lambda b, old: [b.emit(b.df.union(b.df), edge="e")], SHARED),
    "exploded": (
        lambda b, old: [
            b.emit(b.df.select("*", F.explode(F.sequence(F.lit(0), "n"))), edge="e")
        ],
        SHARED,
    ),
    "outer join": (lambda b, old: outer(b, unanchored=False), NO_ANCHOR),
    "children acked and emitted": (acked_and_emitted, SHARED),
    "half a pair": (half_a_pair, NO_ANCHOR),
    "no pair": (no_pair, NO_ANCHOR),
    "empty pairs": (empty_pairs, NO_ANCHOR),
    "unknown anchor": (
        lambda b, old: [b.emit(b.df.withColumn("anchor", F.lit(77).cast("bigint")), edge="e")],
        NO_INPUT,
    ),
}  # fmt: skip
HARMLESS: dict[str, Trick] = {
    "on two edges": lambda b, old: [b.emit(b.df, edge="e"), b.emit(b.df, edge="f")],
    "evaluated again": lambda b, old: [b.emit(b._input.rows, edge="e")],
    "fan-out with a key": lambda b, old: fanned(b, ["k"]),
    "swapped anchors": swapped,
    "outer join, unanchored": lambda b, old: outer(b, unanchored=True),
    "nested": nested,
    "shuffled": shuffled,
    "at random": at_random,
    "one id in all trees": overwritten,
    "window": window,
    "with rows of another batch": with_old_ones,
    "fewer acked than emitted": fewer,
    "acked twice": twice_acked,
    "rows acked twice": rows_twice,
}


def played(spark: SparkSession, acker: Acker, trick: Trick) -> tuple[World, set[str]]:
    """Apply a trick to trees that an earlier batch has partially processed; drain all trees."""
    world = World(acker.client)
    trees = [*world.track(2, 2, 1), *world.track(2, 1, block="b")]
    early = frame(spark, [each[0] for each in trees if len(each) == 2])
    if trick is with_old_ones:
        with acker.batch(early, 0) as b:
            first = b.emit(b.df, edge="old")
        world.processed |= {each[0] for each in trees if len(each) == 2}
        world.wrote(first)
    inputs = [each[-1] for each in trees][1:]
    try:
        # Rows that a trick drops are acked: here, only other mistakes can prevent a false ack.
        with acker.batch(frame(spark, inputs), 1, unmentioned="ack") as b:
            out = trick(b, early)
    except InvalidBatchError:
        assert total(world.client)["acked"] == 0
        raise
    world.processed |= set(inputs)
    world.wrote(*out)
    return world, world.drain()


@pytest.mark.parametrize("name", REFUSED)
def test_plans_that_could_ack_falsely_are_refused(
    spark: SparkSession, by_driver: Acker, name: str
) -> None:
    trick, words = REFUSED[name]
    with pytest.raises(InvalidBatchError, match=words):
        played(spark, by_driver, trick)


@pytest.mark.parametrize("name", HARMLESS)
def test_unusual_plans_complete_all_trees(spark: SparkSession, by_driver: Acker, name: str) -> None:
    world, acked = played(spark, by_driver, HARMLESS[name])
    tick(world.client, 3)
    world.check()
    assert world.acked == set(world.names.values())
    assert acked <= world.acked


DELIVERED_TWICE: dict[str, Trick] = {
    "emitted": lambda b, old: [b.emit(b.df, edge="e")],
    "emitted once": lambda b, old: [b.emit(b.df.dropDuplicates(["tuple"]), edge="e")],
    "acked by rows": lambda b, old: [
        b.emit(b.df.where("n = 0"), edge="e"), b.ack(b.df.where("n > 0")) or b.df.limit(0),
    ],
}  # fmt: skip


@pytest.mark.parametrize("place", PLACES, ids=lambda place: f"{place[0]}-{place[1]}")
@pytest.mark.parametrize("name", DELIVERED_TWICE)
def test_duplicate_inputs_fail_only_their_trees(
    spark: SparkSession, make_spark_acker: MakeSparkAcker, place: tuple[str, int], name: str
) -> None:
    """Equal inputs cancel, and so would their children: their trees fail, and no other trees."""
    acker = make_spark_acker({"shards": place[1]}, mode=place[0])
    world = World(acker.client)
    trees = [*world.track(1, 1), *world.track(2, 1, block="b")]
    inputs = [each[-1] for each in trees]
    with acker.batch(frame(spark, [*inputs, inputs[1]]), 0) as b:
        out = DELIVERED_TWICE[name](b, b.df)
    twice = world.names[inputs[1][0]]
    why = "a message was delivered twice in one batch"
    nacks = [each for each in outcomes(world.client) if each[0] == "nack"]
    assert nacks == [("nack", "failed", twice, why)]
    world.processed |= set(inputs)
    world.wrote(*out)
    assert twice not in world.drain()
    tick(world.client, 3)
    world.check()
    assert world.acked == set(world.names.values()) - {twice}


@pytest.mark.parametrize("name", ["rows of another batch", "outer join"])
def test_executors_refuse_plans_that_could_ack_falsely(
    spark: SparkSession, make_spark_acker: MakeSparkAcker, name: str
) -> None:
    trick, words = REFUSED[name]
    acker = make_spark_acker({"shards": 2}, mode="executors")
    with pytest.raises(InvalidBatchError, match=words):
        played(spark, acker, trick)


@pytest.mark.parametrize("name", ["at random", "with rows of another batch"])
def test_unusual_plans_on_executors_complete_all_trees(
    spark: SparkSession, make_spark_acker: MakeSparkAcker, name: str
) -> None:
    world, _ = played(spark, make_spark_acker({"shards": 2}, mode="executors"), HARMLESS[name])
    tick(world.client, 3)
    world.check()
    assert world.acked == set(world.names.values())
