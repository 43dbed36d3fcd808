"""SqlTable: rows are upserted by the executors, and a batch that runs again doubles none."""

import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from acker_redis.errors import ConfigError
from acker_redis.spark import Acker, SqlTable
from tests.spark.conftest import MakeSparkAcker, outcomes

UPSERT = (
    "INSERT INTO done (name, price) VALUES (?, ?) "
    "ON CONFLICT (name) DO UPDATE SET price = excluded.price"
)


class Shop:
    """A database in a file, of which the executors use the same path."""

    def __init__(self, path: Path) -> None:
        self.path = str(path)
        self.run("CREATE TABLE done (name TEXT PRIMARY KEY, price INT CHECK (price >= 0))")
        self.table = SqlTable(connecting(self.path), UPSERT, ["name", "price"])

    def run(self, statement: str) -> list[Any]:
        with sqlite3.connect(self.path) as connection:
            return connection.execute(statement).fetchall()

    @property
    def rows(self) -> list[Any]:
        return self.run("SELECT name, price FROM done ORDER BY name")


def connecting(path: str) -> Callable[[], sqlite3.Connection]:
    return lambda: sqlite3.connect(path, timeout=600)


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    return Shop(tmp_path / "shop.db")


def prices(spark: SparkSession, **prices: int) -> DataFrame:
    return spark.createDataFrame(list(prices.items()), "name STRING, price INT")


def messages(spark: SparkSession, acker: Acker) -> DataFrame:
    """Track three records; return their messages."""
    records = spark.createDataFrame([("one",), ("two",), ("six",)], "name STRING")
    with acker.batch(records, 0, query_id="first") as b:
        sent: DataFrame = b.track(source="t", source_id="name")
    return sent


def test_last_job_acks_the_rows_that_it_has_written(
    spark: SparkSession, make_spark_acker: MakeSparkAcker, shop: Shop
) -> None:
    """The inner join drops a row: its tree fails, and only the others are acked."""
    acker = make_spark_acker(query_id=None)
    sent = messages(spark, acker)
    with acker.batch(sent, 0, query_id="last") as b:
        out = b.freeze(b.df.join(prices(spark, one=1, two=2), "name"))
        b.write(out, shop.table)
        b.ack(out)
    assert shop.rows == [("one", 1), ("two", 2)]
    found = {name: (verdict, why) for verdict, _, name, why in outcomes(acker.client)}
    assert (found["one"][0], found["two"][0]) == ("ack", "ack")
    assert found["six"][1].startswith("vanished in batch 0 of query ")


def test_batch_that_runs_again_with_other_rows_replaces_them(
    spark: SparkSession, make_spark_acker: MakeSparkAcker, shop: Shop
) -> None:
    """The first run wrote its rows and died before its ack."""
    acker = make_spark_acker(query_id=None)
    sent = messages(spark, acker)
    for one, dies in ((1, True), (5, False), (5, False)):
        priced = prices(spark, one=one, two=2, six=6)
        try:
            with acker.batch(sent, 0, query_id="last") as b:
                out = b.freeze(b.df.join(priced, "name"))
                b.write(out, shop.table)
                if dies:
                    raise ZeroDivisionError
                b.ack(out)
        except ZeroDivisionError:
            assert outcomes(acker.client) == []
    assert shop.rows == [("one", 5), ("six", 6), ("two", 2)]
    assert [verdict for verdict, *_ in outcomes(acker.client)] == ["ack"] * 3


def test_many_rows_in_many_partitions_and_none(spark: SparkSession, shop: Shop) -> None:
    df = spark.range(2500).select(F.col("id").cast("string").alias("name"), F.lit(1).alias("price"))
    shop.table.replace(df.repartition(3), "q", 0)
    shop.table.write(df.withColumn("price", F.lit(2)).repartition(2), "q", 0)
    assert shop.run("SELECT count(*), sum(price) FROM done") == [(2500, 5000)]
    nowhere = SqlTable(connecting("/nonexistent/shop.db"), UPSERT, ["name", "price"])
    nowhere.replace(df.where("name = 'x'"), "q", 0)  # no row needs a connection


def test_a_row_that_the_database_refuses_fails_the_batch(
    spark: SparkSession, make_spark_acker: MakeSparkAcker, shop: Shop
) -> None:
    acker = make_spark_acker(query_id=None)
    sent = messages(spark, acker)
    with (
        pytest.raises(PySparkException, match="CHECK constraint failed"),
        acker.batch(sent, 0, query_id="last") as b,
    ):
        b.write(b.df.withColumn("price", F.lit(-1)).coalesce(1), shop.table)
        b.ack()
    assert (shop.rows, outcomes(acker.client)) == ([], [])


@pytest.mark.parametrize(
    "statement",
    [
        "INSERT INTO done (name, price) VALUES (?, ?)",
        "INSERT INTO done (name, price) VALUES (?, ?) ON CONFLICT DO NOTHING",
        "insert or ignore into done values (?, ?)",
        "UPDATE done SET price = ? WHERE name = ?",
        # It skips rows whose key is there, without a word; the other one skips those whose is not.
        "MERGE INTO done USING new ON done.name = new.name WHEN NOT MATCHED THEN INSERT VALUES (?)",
        "MERGE INTO done USING new ON done.name = new.name WHEN MATCHED THEN UPDATE SET price = ?",
    ],
)
def test_statement_that_does_not_replace_rows_is_refused(shop: Shop, statement: str) -> None:
    with pytest.raises(ConfigError, match="upsert adds a row, or replaces"):
        SqlTable(connecting(shop.path), statement, ["name", "price"])


def test_merge_that_updates_and_inserts_is_accepted(shop: Shop) -> None:
    merge = (
        "MERGE INTO done .. WHEN MATCHED THEN UPDATE SET price = ? WHEN NOT MATCHED THEN INSERT("
    )
    SqlTable(connecting(shop.path), f"{merge}name, price) VALUES (?, ?)", ["name", "price"])


def test_columns_that_do_not_fit_are_refused(spark: SparkSession, shop: Shop) -> None:
    nothing: list[str] = []
    for columns in (nothing, "name"):
        with pytest.raises(ConfigError, match="sequence of the names"):
            SqlTable(connecting(shop.path), UPSERT, columns)
    with pytest.raises(ConfigError, match="no column price; their columns are name"):
        shop.table.write(prices(spark, one=1).select("name"), "q", 0)
