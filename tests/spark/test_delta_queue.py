"""The calls of ``DeltaQueue`` to Delta, which a fake replaces.

The fake does what ``versions/test_delta.py`` finds on Delta itself: an append whose ``txnVersion``
is not above the last one of its ``txnAppId`` is skipped, and ``replaceWhere`` overwrites the rows
that match.
"""

from typing import Any
from unittest.mock import MagicMock

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from acker_redis.errors import ConfigError, DataLossError
from acker_redis.spark import BoltWriter, DeltaQueue, TrackWriter
from tests.spark.conftest import MakeSparkAcker

PATH = "s3://shop/queue"
MARKS = "_query STRING, _batch BIGINT"


class FakeDelta:
    """One Delta table, and Spark's reader and writer of it."""

    def __init__(self) -> None:
        self.rows: list[Any] = []
        self.schema: Any = None
        self.versions: dict[str, int] = {}
        self.writes: list[dict[str, Any]] = []
        self.reads: list[dict[str, Any]] = []
        self.errors: list[Exception] = []
        self.commits: list[tuple[int, str, dict[str, str]]] = []

    def write(self, df: DataFrame, options: dict[str, Any]) -> None:
        if self.errors:
            raise self.errors.pop()
        token = options.pop("userMetadata", "")
        self.writes.append(options)
        if app := options.get("txnAppId"):
            if self.versions.get(app, -1) >= int(options["txnVersion"]):
                return
            self.versions[app] = int(options["txnVersion"])
        if where := options.get("replaceWhere"):
            assert options["mode"] == "overwrite"
            assert df.where(f"NOT ({where})").isEmpty(), "Delta refuses such rows"
            self.rows = self.read(df.sparkSession).where(f"NOT ({where})").collect()
        self.schema = df.schema
        new = df.collect()
        self.rows += new
        self.commits.append((len(self.commits), token, {"numOutputRows": str(len(new))}))

    def read(self, spark: SparkSession) -> DataFrame:
        return spark.createDataFrame(self.rows, self.schema or MARKS)


class Options:
    """A reader or a writer: each call notes an option, the last one reads or writes.

    Other formats than Delta go to that of Spark.
    """

    def __init__(self, delta: FakeDelta, owner: Any, real: Any) -> None:
        self._delta, self._owner, self._real = delta, owner, real
        self._options: dict[str, Any] = {}

    def __getattr__(self, name: str) -> Any:
        options = dict(self._options)
        mode = options.pop("mode", None)
        real = self._real.options(**options)
        return getattr(real.mode(mode) if mode else real, name)

    def format(self, name: str) -> "Options":
        return self.option("format", name)

    def mode(self, name: str) -> "Options":
        return self.option("mode", name)

    def option(self, name: str, value: Any) -> "Options":
        return self.options(**{name: value})

    def options(self, **options: Any) -> "Options":
        self._options |= options
        return self

    def save(self, path: str) -> None:
        self._delta.write(self._owner, self._options | {"path": path})

    def load(self, path: str) -> DataFrame:
        self._delta.reads.append(self._options | {"path": path})
        if self._delta.schema is None:
            raise AnalysisException("DELTA_TABLE_NOT_FOUND")
        return self._delta.read(self._owner)


@pytest.fixture
def delta(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> FakeDelta:
    """Replace the readers and writers of Spark."""
    fake = FakeDelta()
    for kind, name in (
        (type(spark), "read"),
        (type(spark), "readStream"),
        (type(spark.range(0)), "write"),
    ):
        real = vars(next(each for each in kind.__mro__ if name in vars(each)))[name].fget

        def made(owner: Any, real: Any = real) -> Options:
            return Options(fake, owner, real(owner))

        monkeypatch.setattr(kind, name, property(made))
    sql = type(spark).sql

    def history(owner: Any, statement: str, *args: Any, **kwargs: Any) -> DataFrame:
        if not statement.startswith(f"DESCRIBE HISTORY delta.`{PATH}`"):
            return sql(owner, statement, *args, **kwargs)
        columns = "version INT, userMetadata STRING, operationMetrics MAP<STRING, STRING>"
        return owner.createDataFrame(fake.commits, columns)

    monkeypatch.setattr(type(spark), "sql", history)
    return fake


def records(spark: SparkSession, *names: str) -> DataFrame:
    return spark.createDataFrame([(name,) for name in names], "source_id STRING")


def names(df: DataFrame) -> list[str]:
    return sorted(row["source_id"] for row in df.collect())


def test_write_passes_the_query_and_the_batch_to_delta(
    spark: SparkSession, delta: FakeDelta
) -> None:
    queue = DeltaQueue(PATH + "/")
    for _ in range(2):
        queue.write(records(spark, "a", "b"), "app@q", 3)
    for found in ([], [], ["c"]):
        queue.write(records(spark, *found), "app@q", 4)  # the run without rows was acked
    common = {"format": "delta", "path": PATH, "mode": "append", "txnAppId": "app@q"}
    assert delta.writes == [common | {"txnVersion": version} for version in ("3", "4", "4", "4")]
    assert names(queue.read(spark)) == ["a", "b"]


def test_append_that_delta_skips_is_an_error(spark: SparkSession, delta: FakeDelta) -> None:
    """RESTORE or DELETE has removed the rows, and Delta remembers that it had them."""
    queue = DeltaQueue(PATH)
    queue.write(records(spark, "a"), "app@q", 3)
    queue.write(records(spark, "b", "c"), "app@q", 4)
    delta.rows = [row for row in delta.rows if row["_batch"] != 4]
    for batch_id in (4, 2):
        with pytest.raises(DataLossError, match=f"no row of batch {batch_id} of query.*To append"):
            queue.write(records(spark, "b", "c"), "app@q", batch_id)
    queue.write(records(spark), "app@q", 4)  # nothing is missing
    queue.write(records(spark, "d"), "app@q", 5)
    assert names(queue.read(spark)) == ["a", "d"]


@pytest.mark.parametrize("call", ["write", "replace"])
def test_session_that_lets_delta_skip_writes_is_refused(
    spark: SparkSession, delta: FakeDelta, call: str
) -> None:
    """With its own ``txnAppId``, Delta skipped each ``replace`` but the first."""
    name = "spark.databricks.delta.write.txnAppId"
    spark.conf.set(name, "mine")
    try:
        with pytest.raises(ConfigError, match=f"sets {name}.*unset it"):
            getattr(DeltaQueue(PATH), call)(records(spark, "a"), "app@q", 0)
    finally:
        spark.conf.unset(name)
    assert not delta.writes


def test_replace_overwrites_the_rows_of_the_batch_alone(
    spark: SparkSession, delta: FakeDelta
) -> None:
    """The write of a batch that was replaced is a no-op: its first run was acked."""
    queue = DeltaQueue(PATH)
    queue.write(records(spark, "a"), "app@q", 3)
    queue.replace(records(spark, "b", "c"), "app@q", 4)
    queue.replace(records(spark, "d"), "app@q", 4)
    queue.replace(records(spark, "e"), "other@q", 4)
    assert [each["mode"] for each in delta.writes] == ["append", "append", "overwrite", "append"]
    assert delta.writes[2] == {
        "format": "delta",
        "path": PATH,
        "mode": "overwrite",
        "replaceWhere": "_query = 'app@q' AND _batch = 4",
    }
    writes = len(delta.writes)
    queue.write(records(spark, "f"), "app@q", 4)
    assert len(delta.writes) == writes
    assert names(queue.read(spark)) == ["a", "d", "e"]


@pytest.mark.parametrize("batch_id", [4, 5], ids=["overwrite", "append"])
def test_conflict_is_retried_and_other_errors_are_not(
    spark: SparkSession, delta: FakeDelta, batch_id: int
) -> None:
    queue = DeltaQueue(PATH)
    queue.write(records(spark, "a"), "app@q", 4)
    conflict = Exception("io.delta.exceptions.ConcurrentAppendException: [DELTA_CONCURRENT_APPEND]")
    delta.errors = [conflict] * 9
    queue.replace(records(spark, "b"), "app@q", batch_id)
    found = names(queue.read(spark))
    assert found == (["b"] if batch_id == 4 else ["a", "b"])
    for errors, left in (([conflict] * 11, 1), ([OSError("full"), OSError("full")], 1)):
        delta.errors = list(errors)
        with pytest.raises(type(errors[0])):
            queue.replace(records(spark, "c"), "app@q", batch_id)
        assert len(delta.errors) == left
    delta.errors = []
    assert names(queue.read(spark)) == found


def test_table_without_a_column_is_noticed_before_anything_is_tracked(
    spark: SparkSession, make_spark_acker: MakeSparkAcker, delta: FakeDelta
) -> None:
    acker, queue = make_spark_acker(), DeltaQueue(PATH)
    queue.create(spark, "source_id STRING, anchor BIGINT, tuple BIGINT")
    writer = TrackWriter(acker, "t", {"e": queue}, query_id="source")
    bolt = BoltWriter(acker, lambda df, _: df.withColumn("n", F.lit(1)), {"f": queue})
    writer(records(spark, "one"), 0)
    for late in (
        lambda: writer(records(spark, "two").withColumn("n", F.lit(1)), 1),
        lambda: bolt(queue.read(spark), 0),
    ):
        delta.errors = [AnalysisException("DELTA_METADATA_MISMATCH")]
        with pytest.raises(ConfigError, match="n:int.*merge_schema=True.*METADATA_MISMATCH"):
            late()
    counters = acker.client.status().counters
    assert (counters["tracked"], counters["acked"]) == (1, 0)
    DeltaQueue(PATH, merge_schema=True).create(spark, "n INT")
    assert delta.writes[-1] == {
        "format": "delta",
        "path": PATH,
        "mode": "append",
        "mergeSchema": "true",
    }


def test_readers_see_the_rows_as_they_were_written(spark: SparkSession, delta: FakeDelta) -> None:
    queue = DeltaQueue(PATH)
    queue.replace(records(spark, "a"), "app@q", 0)
    assert queue.read(spark).columns == ["source_id"]
    delta.reads.clear()
    assert queue.read_stream(spark).columns == ["source_id"]
    assert queue.read_stream(spark, maxFilesPerTrigger="2").columns == ["source_id"]
    expected = {"format": "delta", "skipChangeCommits": "true", "path": PATH}
    streams = [each for each in delta.reads if "skipChangeCommits" in each]
    assert streams == [expected, expected | {"maxFilesPerTrigger": "2"}]


def test_queues_are_equal_by_path_and_names_are_checked(
    spark: SparkSession, delta: FakeDelta
) -> None:
    assert DeltaQueue(PATH) == DeltaQueue(PATH + "/")
    assert len({DeltaQueue(PATH), DeltaQueue(PATH), DeltaQueue("other")}) == 2
    for call in (DeltaQueue(PATH).write, DeltaQueue(PATH).replace):
        with pytest.raises(ConfigError, match="a query's name must be"):
            call(records(spark, "a"), "x' OR '1' = '1", 0)
    assert not delta.writes


class Cut(Exception):
    """Raised where the query dies."""


def test_writers_hand_each_message_on_once(
    spark: SparkSession,
    make_spark_acker: MakeSparkAcker,
    delta: FakeDelta,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The first run dies after Redis has the batch; the second dies after its write."""
    acker, queue = make_spark_acker(), DeltaQueue(PATH)
    writer = TrackWriter(acker, "t", {"e": queue}, query_id="source")
    batch = records(spark, "one", "two")
    with monkeypatch.context() as patch:
        patch.setattr(DeltaQueue, "replace", MagicMock(side_effect=Cut))
        with pytest.raises(Cut):
            writer(batch, 0)
    for _ in range(2):
        writer(batch, 0)
    assert names(queue.read(spark)) == ["one", "two"]
    # Without a version: the check of columns, which writes no row.
    assert [each.get("txnVersion") for each in delta.writes] == ["0", None]
    last = BoltWriter(acker, lambda df, _: df, query_id="last")
    last(queue.read(spark), 0)
    assert acker.client.status().counters["acked"] == 2
