"""Trees of several rows: an order and its lines, tracked with ``key=``."""

import random
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from acker_redis.errors import ChangedBatchError, ConfigError, InvalidBatchError
from acker_redis.spark import Acker, FileQueue, TrackWriter, counted, tracking
from tests.spark.conftest import MakeSparkAcker, change, outcomes
from tests.support import tick, total

SEED = random.randrange(10**6)


@pytest.fixture(params=[("driver", 1), ("executors", 2)], ids=["driver-1", "executors-2"])
def acker(request: pytest.FixtureRequest, make_spark_acker: MakeSparkAcker) -> Acker:
    mode, shards = request.param
    return make_spark_acker({"shards": shards}, mode=mode)


def orders(spark: SparkSession, first: int, end: int, lines: int = 3) -> DataFrame:
    """Return the lines of some orders: order 7 has the source id ``o7``."""
    df = spark.range(first * lines, end * lines, 1, 3)
    return df.selectExpr(f"concat('o', id div {lines}) AS oid", f"id % {lines} AS line")


def track(
    acker: Acker, df: DataFrame, batch_id: int = 0, key: Any = "line", **more: Any
) -> DataFrame:
    """Track a batch; return its messages, evaluated once."""
    with acker.batch(df, batch_id) as b:
        out = b.track(source="t", source_id="oid", key=key, **more)
    return out.localCheckpoint()


def ids(messages: DataFrame) -> list[tuple[Any, ...]]:
    columns = ["oid", "line", "edge", "anchor", "tuple"]
    return sorted(tuple(row) for row in messages.select(*columns).collect())


def verdicts(acker: Acker) -> list[tuple[str, str, str]]:
    return sorted((name, verdict, reason) for verdict, reason, name, _ in outcomes(acker.client))


def test_order_is_acked_when_each_line_is_processed_on_each_edge(
    spark: SparkSession, acker: Acker
) -> None:
    """And no order before that: messages are lost, or fail, at random."""
    chance = random.Random(SEED)
    out = track(acker, orders(spark, 0, 40), edges=["price", "stock"])
    assert (acker.reports[-1].tracked, out.count()) == (40, 240)
    assert len({anchor for *_, anchor, _ in ids(out)}) == 40
    assert len({tuple_id for *_, tuple_id in ids(out)}) == 240
    lost = [row for row in ids(out) if chance.random() < 0.1]
    failed = [row for row in ids(out) if chance.random() < 0.05]
    tuples = F.col("tuple")
    for edge in ("stock", "price"):
        some = out.where((F.col("edge") == edge) & ~tuples.isin([row[-1] for row in lost]))
        with acker.batch(some, 0, query_id=f"bolt-{edge}") as b:
            b.fail(b.df.where(tuples.isin([row[-1] for row in failed])), "no")
            b.ack()
    tick(acker.client, 3)
    fates = {f"o{n}": ("ack", "completed") for n in range(40)}
    fates |= {row[0]: ("nack", "expired") for row in lost}
    fates |= {row[0]: ("nack", "failed") for row in failed if row not in lost}
    assert verdicts(acker) == sorted((name, *fate) for name, fate in fates.items()), SEED


def test_retried_batch_is_applied_once(spark: SparkSession, acker: Acker) -> None:
    """With other partitions and another order."""
    df = orders(spark, 0, 20)
    first = ids(track(acker, df))
    again = track(acker, df.orderBy(F.desc("line")).repartition(4, "line"))
    assert ids(again) == first
    assert acker.reports[-1].repeated == acker.reports[-1].calls > 0
    assert total(acker.client)["tracked"] == 20
    with pytest.raises(ChangedBatchError):
        track(acker, df.where("oid <> 'o3' OR line > 0"))


@pytest.mark.parametrize("times", [2, 3])
def test_two_rows_of_one_source_id_and_key_are_refused(
    spark: SparkSession, acker: Acker, times: int
) -> None:
    """Two would cancel, and the order would be acked without them."""
    df = orders(spark, 0, 20)
    line = df.where("oid = 'o3' AND line = 1")
    for _ in range(times - 1):
        df = df.union(line)
    with pytest.raises(InvalidBatchError, match=r"for example 'o3': make .*with key=, source id"):
        track(acker, df)
    assert total(acker.client)["tracked"] == 0


def test_key_has_several_columns_and_nulls(spark: SparkSession, by_driver: Acker) -> None:
    rows = [("a", 1, "x"), ("a", 1, "y"), ("a", 1, None), ("a", None, "x"), ("b", 1, "x")]
    df = spark.createDataFrame(rows, "oid STRING, line INT, part STRING")
    out = track(by_driver, df, key=[F.col("line"), "part"])
    assert by_driver.reports[-1].tracked == 2
    by_driver.ack(out, 0, query_id="bolt")
    assert verdicts(by_driver) == [("a", "ack", "completed"), ("b", "ack", "completed")]
    with pytest.raises(InvalidBatchError, match="2 source ids occur more than once|'[ab]'"):
        track(by_driver, df, 1, key="part", attempt=1)


def test_key_of_a_column_expression(spark: SparkSession, by_driver: Acker) -> None:
    out = track(by_driver, orders(spark, 0, 2), key=F.col("line") + 1)
    assert (by_driver.reports[-1].tracked, out.count()) == (2, 6)


def test_rows_without_a_source_id_are_refused(spark: SparkSession, acker: Acker) -> None:
    df = orders(spark, 0, 5).withColumn("oid", F.expr("nullif(oid, 'o3')"))
    with pytest.raises(InvalidBatchError, match="1 rows have no source id"):
        track(acker, df)


def test_row_in_a_later_batch_nacks_the_pending_tree(spark: SparkSession, acker: Acker) -> None:
    """Neither half of the order is acked. A replay has its own tree."""
    df = orders(spark, 0, 4)
    first = track(acker, df.where("oid <> 'o1' OR line < 2"))
    late = track(acker, df.where("oid = 'o1' AND line = 2"), 1)
    assert verdicts(acker) == [("o1", "nack", "conflict")]
    acker.ack(first, 0, query_id="bolt")
    acker.ack(late, 1, query_id="bolt")
    whole = track(acker, df.where("oid = 'o1'"), 2, attempt=1)
    acker.ack(whole, 2, query_id="bolt")
    tick(acker.client, 3)
    assert verdicts(acker) == [(f"o{n}", "ack", "completed") for n in range(4)]


def test_row_in_a_later_batch_is_a_tree_after_the_verdict(
    spark: SparkSession, acker: Acker
) -> None:
    """The ack of the first rows says nothing of the late row, which has its own verdict."""
    df = orders(spark, 0, 2)
    acker.ack(track(acker, df.where("oid <> 'o1' OR line < 2")), 0, query_id="bolt")
    both = [("o0", "ack", "completed"), ("o1", "ack", "completed")]
    assert verdicts(acker) == both
    track(acker, df.where("oid = 'o1' AND line = 2"), 1)
    tick(acker.client, 3)
    assert verdicts(acker) == [("o1", "nack", "expired")]


def test_rejected_tree_leaves_out_all_its_rows(
    spark: SparkSession, make_spark_acker: MakeSparkAcker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also when the batch runs again."""
    monkeypatch.setattr(tracking, "wait_for_room", lambda *_: 0.0)
    acker = make_spark_acker({"high_water": 10})
    for _ in range(2):
        out = track(acker, orders(spark, 0, 25))
        assert len(acker.reports[-1].rejected) == 5
        sizes = [row["count"] for row in out.groupBy("oid").count().collect()]
        assert sizes == 20 * [3]
    nacked = verdicts(acker)
    assert len(nacked) == 5


@pytest.mark.parametrize("mode", ["driver", "executors"])
def test_room_is_needed_for_trees_and_not_for_rows(
    spark: SparkSession, make_spark_acker: MakeSparkAcker, mode: str
) -> None:
    acker = make_spark_acker({"high_water": 12}, mode=mode)
    assert track(acker, orders(spark, 0, 12, lines=50)).count() == 600
    with pytest.raises(ConfigError, match="a batch of 13 trees does not fit"):
        track(acker, orders(spark, 20, 33), 1)


def test_changed_batch_fails_each_tree_once(spark: SparkSession, acker: Acker) -> None:
    change(acker, on_changed_batch="fail_trees")
    acker.ack(track(acker, orders(spark, 0, 5)), 0, query_id="bolt")
    assert len(verdicts(acker)) == 5
    assert track(acker, orders(spark, 3, 9)).isEmpty()
    assert verdicts(acker) == [(f"o{n}", "nack", "failed") for n in range(3, 9)]


def test_trees_in_blocks_are_refused(
    spark: SparkSession, make_spark_acker: MakeSparkAcker, tmp_path: Path
) -> None:
    """A row in a later batch would be in another block, and its tree would not conflict."""
    acker = make_spark_acker()
    df = orders(spark, 0, 20)
    with acker.batch(df, 0) as b, pytest.raises(ConfigError, match="key= needs a STRING source id"):
        b.track(source="t", source_id=counted(F.lit("p"), number="line"), key="line")
    acker = make_spark_acker(ledger=str(tmp_path))
    with pytest.raises(ConfigError, match="an Acker without a ledger"):
        track(acker, df)


def test_writer_writes_each_line_once(
    spark: SparkSession, by_driver: Acker, tmp_path: Path
) -> None:
    """Also when the batch runs again; with a namespace that has edges."""
    queues = {"price": FileQueue(tmp_path / "price"), "stock": FileQueue(tmp_path / "stock")}
    writer = TrackWriter(by_driver, "t", queues, source_id="oid", key="line")
    for _ in range(2):
        writer(orders(spark, 0, 10), 0)
    assert writer.last_report
    assert writer.last_report.repeated == 1
    schema = "oid STRING, line BIGINT, anchor BIGINT, tuple BIGINT"
    for name, queue in queues.items():
        rows = queue.read(spark, schema)
        assert rows.count() == 30
        by_driver.ack(rows, 0, query_id=name)
    assert verdicts(by_driver) == [(f"o{n}", "ack", "completed") for n in range(10)]
