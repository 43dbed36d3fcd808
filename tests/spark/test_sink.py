"""The sink ``acker``: each batch is applied once, also after crashes, and acks nothing falsely."""

import json
import os
import pickle
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import StructType

from acker_redis.batching.batch import Batch
from acker_redis.embedded import EmbeddedRedis
from acker_redis.errors import (
    AckerError,
    ConfigError,
    InvalidBatchError,
    WrongShardError,
)
from acker_redis.spark import Ids
from acker_redis.spark.fold.target import URL_VARIABLE
from acker_redis.spark.fold.terms import Kind
from acker_redis.spark.streams.sink import AckerSink, SinkWriter, register
from acker_redis.spark.streams.sink_options import SinkOptions
from acker_redis.spark.streams.sink_rows import Shape, Staged, stage
from acker_redis.spark.streams.sink_stream import SinkStreamWriter
from acker_redis.sync.client import Acker
from tests.conftest import MakeAcker
from tests.support import dump, tick, total

PLAIN = "anchor BIGINT, tuple BIGINT"
PAIRS = "ARRAY<STRUCT<anchor: BIGINT, tuple: BIGINT>>"
SECRET = "s3c%r/e:t@#?"

# Spark is needed even to parse a schema.
pytestmark = pytest.mark.usefixtures("spark")


@pytest.fixture
def acker(make_any_acker: MakeAcker) -> Acker:
    return make_any_acker(shards=2)


@pytest.fixture
def spark_(spark: SparkSession) -> Iterator[SparkSession]:
    register(spark)
    yield spark
    for query in spark.streams.active:
        query.stop()


def url_of(acker: Acker) -> str:
    found = acker.connection.client.connection_pool.connection_kwargs
    return f"redis://{found['host']}:{found['port']}"


def options(acker: Acker, **more: Any) -> dict[str, str]:
    plain = {"url": url_of(acker), "namespace": acker.namespace, "app": "shop"}
    return plain | {name: str(value) for name, value in more.items()}


def schema(ddl: str) -> StructType:
    found = StructType.fromDDL(ddl)
    assert isinstance(found, StructType)
    return found


def packed(ddl: str, *rows: Sequence[Any], most: int = 10**6, shards: int = 2) -> Staged:
    """Stage rows as a task does, in record batches of two."""
    from pyspark.sql.pandas.types import to_arrow_schema

    arrow = to_arrow_schema(schema(ddl))
    columns = [pa.array([r[i] for r in rows], f.type) for i, f in enumerate(arrow)]
    whole = pa.RecordBatch.from_arrays(columns, schema=arrow)
    batches = [whole.slice(at, 2) for at in range(0, len(rows), 2)]
    return stage(batches, Shape.of(schema(ddl)), shards, most)


def stream_writer(acker: Acker, ddl: str = PLAIN, **more: Any) -> SinkStreamWriter:
    return AckerSink(options(acker, **{"query": "q"} | more)).streamWriter(schema(ddl), False)


def begin(acker: Acker, anchor: int, *ids: int, source_id: str = "s") -> None:
    """Track a loose tree with these first messages."""
    batch = Batch("t")
    batch.track(anchor, source_id, ids)
    acker.apply(batch)


def process(acker: Acker, anchor: int, tuple_id: int) -> None:
    """Ack a message with a plain client."""
    batch = Batch()
    batch.ack(anchor, tuple_id)
    acker.apply(batch)


def verdict(acker: Acker) -> set[tuple[str, str, str]]:
    """Take the waiting verdicts of all shards, and return verdict, source id and reason."""
    return {(o.verdict, o.source_id, o.why) for o in acker.outcomes("t")}


# Rows


@pytest.mark.parametrize(
    ("ddl", "words"),
    [
        ("anchor BIGINT", "column tuple is missing; the columns are anchor: keep the columns"),
        ("tuple BIGINT, why STRING", "column anchor is missing"),
        ("anchor INT, tuple BIGINT", "column anchor is int, but must be bigint: keep"),
        ("anchor BIGINT, tuple STRING", "column tuple is string, but must be bigint"),
        (PLAIN + ", children STRING", "children is string, but must be bigint or array<bigint>"),
        (PLAIN + ", children ARRAY<INT>", "children is array<int>.*acker.ids"),
        (f"{PLAIN}, children {PAIRS}", "column children is array<struct"),
        (PLAIN + ", why INT", "column why is int, but must be string: null if the row is done"),
        (PLAIN + ", source_id STRING", "source_id: this sink does not track.*TrackWriter"),
        (PLAIN + ", Source_Id STRING", "source_id: this sink does not track"),
        (PLAIN + ", child BIGINT", "column child is unknown: acker has anchor.*select"),
        (PLAIN + ", Children BIGINT", "column Children must be written children"),
        (PLAIN + ", tuple BIGINT", "column tuple occurs more than once"),
        (f"anchor BIGINT, anchors {PAIRS}", "and not both"),
        ("anchors ARRAY<BIGINT>", "column anchors is array<bigint>.*anchors_of"),
        (f"anchors {PAIRS}, children ARRAY<BIGINT>", "column children .* one id in each"),
    ],
)
def test_wrong_columns_are_named(ddl: str, words: str) -> None:
    with pytest.raises(InvalidBatchError, match=words):
        Shape.of(schema(ddl))


@pytest.mark.parametrize(
    ("ddl", "wrong", "words"),
    [
        (PLAIN, (None, 5), "column anchor is null in 1 rows"),
        (PLAIN, (5, None), "column tuple is null in 1 rows"),
        (PLAIN, (5, 0), "column tuple has 1 values below 1"),
        (PLAIN, (-5, 5), "column anchor has 1 values below 1"),
        (PLAIN, (1 << 62 | 4095, 5), "an anchor must be a number"),
        (PLAIN + ", children BIGINT", (5, 6, 0), "column children has 1 values below 1"),
        (PLAIN + ", children ARRAY<BIGINT>", (5, 6, [7, -7]), "column children has 1"),
        (PLAIN + ", children BIGINT", (5, 6, 6), "own tuple among their children .anchor 5"),
        (PLAIN + ", children ARRAY<BIGINT>", (5, 6, [7, 6]), "own tuple among their children"),
        (f"anchors {PAIRS}", (None,), "column anchors is null in 1 rows"),
        (f"anchors {PAIRS}", ([None],), "column anchors is null"),
        (f"anchors {PAIRS}", ([{"anchor": 5, "tuple": None}],), "column anchors is null"),
        (
            f"anchors {PAIRS}, children {PAIRS}",
            ([{"anchor": 5, "tuple": 6}], [{"anchor": 5, "tuple": 0}]),
            "column children has 1 values below 1",
        ),
    ],
)
def test_wrong_ids_are_named(ddl: str, wrong: tuple[Any, ...], words: str) -> None:
    pair = [{"anchor": 1, "tuple": 2}]
    right = {3: (1, 2, None), 2: (1, 2), 1: (pair,)}[len(wrong)]
    right = (pair, []) if ddl.count("ARRAY<STRUCT") == 2 else right
    with pytest.raises(InvalidBatchError, match=words):
        packed(ddl, right, right, right, wrong)


def test_inputs_are_folded_and_children_stay_separate() -> None:
    ddl = f"{PLAIN}, children ARRAY<BIGINT>, why STRING"
    rows = [(8, 1, [2, None, 4], None), (8, 16, None, "no"), (9, 1, [], "")]
    found = {(r.shard, r.kind): r for r in packed(ddl, *rows).rows}
    assert found.keys() == {
        (0, Kind.INPUT),
        (1, Kind.INPUT),
        (0, Kind.CHILD),
        (0, Kind.FAIL),
        (1, Kind.FAIL),
    }
    assert np.frombuffer(found[0, Kind.INPUT].deltas, ">i8").tolist() == [17]
    assert np.frombuffer(found[0, Kind.CHILD].deltas, ">i8").tolist() == [2, 4]
    assert found[0, Kind.FAIL].texts == b"no"
    assert found[1, Kind.FAIL].texts == b""


def test_a_message_of_many_trees() -> None:
    ddl = f"anchors {PAIRS}, children {PAIRS}, why STRING"
    two = [{"anchor": 8, "tuple": 1}, {"anchor": 10, "tuple": 2}]
    rows = [(two, [{"anchor": 10, "tuple": 4}], "no"), (two[:1], None, None), ([], [], "no")]
    found = {r.kind: r for r in packed(ddl, *rows).rows}
    assert np.frombuffer(found[Kind.INPUT].anchors, ">i8").tolist() == [8, 10]
    assert np.frombuffer(found[Kind.INPUT].deltas, ">i8").tolist() == [0, 2]
    assert np.frombuffer(found[Kind.CHILD].anchors, ">i8").tolist() == [10]
    assert np.frombuffer(found[Kind.FAIL].anchors, ">i8").tolist() == [8, 10]


def test_staged_bytes_are_counted_and_bounded() -> None:
    ddl = f"{PLAIN}, children BIGINT, why STRING"
    rows = [(2 * i, 1, 1000 + i, "why" if i % 2 else None) for i in range(1, 9)]
    # 8 inputs and 8 children of 16 bytes, 4 failures of 16 bytes and 3 characters.
    size = 8 * 16 + 8 * 16 + 4 * 19
    staged = packed(ddl, *rows, most=size)
    assert staged.size == size
    parts = [(r.anchors, r.deltas, r.ends, r.texts) for r in staged.rows]
    assert sum(len(each) for part in parts for each in part) == size
    with pytest.raises(ConfigError, match=f"stages {size} .*BoltWriter.*Acker.batch"):
        packed(ddl, *rows, most=size - 1)
    folded = [(2, i, None, None) for i in range(1, 100)]
    assert packed(ddl, *folded, most=16).size == 16


def test_children_count_as_staged_before_they_are_packed() -> None:
    def batches() -> Iterator[pa.RecordBatch]:
        for i in range(1, 4):
            yield pa.RecordBatch.from_pydict({"anchor": [2], "tuple": [9], "children": [i]})
        raise AssertionError("the limit was reached before")

    shape = Shape.of(schema(PLAIN + ", children BIGINT"))
    with pytest.raises(ConfigError, match="stages 48 bytes"):
        stage(batches(), shape, 1, 40)


# Commit


def test_the_sum_of_all_tasks_is_bounded(acker: Acker) -> None:
    begin(acker, 2, 5)
    before = dump(acker)
    tasks = [packed(PLAIN, (2 * i, 5)) for i in (1, 2, 3)]
    with pytest.raises(ConfigError, match="the batch stages 48 bytes.*Nothing was applied"):
        stream_writer(acker, maxStagedBytes=47).commit(tasks, batchId=0)
    assert dump(acker) == before
    stream_writer(acker, maxStagedBytes=48).commit(tasks, batchId=0)
    assert verdict(acker) == {("ack", "s", "")}


@pytest.mark.parametrize("streaming", [True, False])
def test_task_that_ran_twice_is_applied_once(acker: Acker, streaming: bool) -> None:
    """Spark commits only the messages of the successful attempts."""
    begin(acker, 2, 5)
    begin(acker, 3, 6, source_id="other")
    writer = stream_writer(acker) if streaming else None
    run = AckerSink(options(acker, run="r")).writer(schema(PLAIN), False)
    rows = pa.RecordBatch.from_pydict({"anchor": [2], "tuple": [5]})
    other = pa.RecordBatch.from_pydict({"anchor": [3], "tuple": [6]})
    for each in [writer] if writer else [run]:
        lost, won = each.write(iter([rows])), each.write(iter([rows]))
        assert lost == won
        assert total(acker)["acked"] == 0, "nothing is applied before all tasks are done"
        messages = [
            pickle.loads(pickle.dumps(won)),
            each.write(iter([other])),
            each.write(iter([])),
        ]
        if isinstance(each, SinkWriter):
            each.abort([won, None])
            each.commit(messages)
        else:
            each.abort([won, None], 0)
            assert total(acker)["acked"] == 0
            each.commit(messages, 0)
    assert total(acker)["acked"] == 2


def test_commit_without_the_rows_of_a_task_applies_nothing(acker: Acker) -> None:
    begin(acker, 2, 5)
    with pytest.raises(AckerError, match="nothing was applied"):
        stream_writer(acker).commit([packed(PLAIN, (2, 5)), None], 0)
    assert total(acker)["acked"] == 0


def test_write_across_a_reshard_is_refused(acker: Acker) -> None:
    with pytest.raises(WrongShardError, match="created again"):
        stream_writer(acker).commit([packed(PLAIN, (2, 5), shards=1)], 0)


CHILDREN = PLAIN + ", children ARRAY<BIGINT>"


@pytest.mark.parametrize(
    "tasks",
    [
        [[(2, 5, [7, 7])]],
        [[(2, 5, [7]), (2, 6, [7])]],
        [[(2, 5, [7])], [(2, 6, [7])]],
        [[(2, 5, [7])], [(2, 5, [7])], [(2, 5, [7])]],
        [[(2, 5, [7])], [(2, 5, None)]],
    ],
    ids=["in a row", "in two rows", "in two tasks", "a row thrice", "an input twice"],
)
@pytest.mark.parametrize("lane", ["query", "run", "no run"])
def test_children_that_would_cancel_are_refused(
    acker: Acker, tasks: list[list[Any]], lane: str
) -> None:
    """Two messages of id 7 are outstanding, but their ids cancel in the checksum."""
    begin(acker, 2, 5, 6)
    before = dump(acker)
    staged = [packed(CHILDREN, *rows) for rows in tasks]
    with pytest.raises(InvalidBatchError, match="share an id|an input occurs twice"):
        if lane == "query":
            stream_writer(acker, CHILDREN).commit(staged, 0)
        else:
            names = {"run": "r"} if lane == "run" else {}
            AckerSink(options(acker, **names)).writer(schema(CHILDREN), False).commit(staged)
    assert dump(acker) == before


def test_equal_ids_in_different_trees_are_harmless(acker: Acker) -> None:
    begin(acker, 2, 5)
    begin(acker, 4, 5, source_id="other")
    stream_writer(acker, CHILDREN).commit([packed(CHILDREN, (2, 5, [7]), (4, 5, [7]))], 0)
    process(acker, 2, 7)
    assert verdict(acker) == {("ack", "s", "")}


def test_query_and_run_of_one_name_are_independent(acker: Acker) -> None:
    begin(acker, 2, 5, 6)
    stream_writer(acker, query="x").commit([packed(PLAIN, (2, 5))], 0)
    run = AckerSink(options(acker, run="x")).writer(schema(PLAIN), False)
    run.commit([packed(PLAIN, (2, 6))])
    assert verdict(acker) == {("ack", "s", "")}


# Options


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"namespace": None}, "option namespace is missing"),
        ({"app": None}, "option app is missing.*must never change"),
        ({"query": None}, "option query is missing.*does not give a sink the id"),
        ({"query": ""}, "option query"),
        ({"namespace": "a b"}, "option namespace"),
        ({"app": "a/b"}, "option app"),
        ({"app": "a" * 64, "query": "q" * 64}, "at most 120 characters together"),
        ({"url": None}, "option url is missing.*ACKER_REDIS_URL"),
        ({"url": "http://x"}, "option url: "),
        ({"username": "me"}, "option password is missing"),
        ({"onChangedBatch": "ignore"}, "onChangedBatch must be 'raise' or 'fail_trees'"),
        ({"maxStagedBytes": "64m"}, "option maxStagedBytes must be a number"),
        ({"run": "r"}, "option run: .*a streaming query has the option query"),
        ({"path": "x"}, "option path: acker has no such option"),
        ({"asyncProgressTrackingEnabled": "true"}, "option asyncprogresstrackingenabled"),
    ],
)
def test_wrong_options_are_named(
    given: Mapping[str, str | None], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(URL_VARIABLE, raising=False)
    right = {"url": "redis://localhost", "namespace": "n", "app": "a", "query": "q"}
    merged = {name: value for name, value in {**right, **given}.items() if value is not None}
    with pytest.raises(ConfigError, match=words):
        SinkOptions.parse(merged, streaming=True)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"run": ""}, "option run"),
        ({"query": "q"}, "option query: .*df.write has the option run"),
        ({"run": "r", "app": ""}, "option app"),
        ({"run": "r"}, "option app is missing"),
        ({"app": "a" * 64, "run": "r" * 53}, "at most 116 characters together, not 117"),
    ],
)
def test_wrong_options_of_a_run_are_named(given: dict[str, str], words: str) -> None:
    right = {"url": "redis://localhost", "namespace": "n"}
    with pytest.raises(ConfigError, match=words):
        SinkOptions.parse(right | given, streaming=False)


def test_valid_options_are_parsed() -> None:
    plain = {"URL": "redis://h", "Namespace": "n", "App": "a", "checkpointLocation": "/c"}
    found = SinkOptions.parse(plain | {"QUERY": "q", "password": "p"}, streaming=True)
    assert (found.lane, found.on_changed, found.most) == ("@spark/a/q", "raise", 64 << 20)
    assert found.target.url == "redis://:p@h"
    more = {"run": "r", "onchangedbatch": "fail_trees", "MAXSTAGEDBYTES": "5"}
    found = SinkOptions.parse(plain | more, streaming=False)
    assert (found.lane, found.on_changed, found.most) == ("@spark-run/a/r", "fail_trees", 5)
    one, other = (SinkOptions.parse(plain, streaming=False).lane for _ in range(2))
    assert one.startswith("@spark-run/")
    assert one != other


# With Spark


def write(df: DataFrame, acker: Acker, **more: Any) -> None:
    df.write.format("acker").mode("append").options(**options(acker, **more)).save()


def frame(spark: SparkSession, ddl: str, *rows: Sequence[Any]) -> DataFrame:
    return spark.createDataFrame([tuple(r) for r in rows], ddl)


class Stream:
    """A directory of files with rows, and a query that acks the rows."""

    def __init__(self, spark: SparkSession, acker: Acker, path: Path, ddl: str = PLAIN) -> None:
        self.spark, self.acker, self.path, self.ddl = spark, acker, path, ddl
        (path / "in").mkdir()
        self.files = 0

    def put(self, *rows: Mapping[str, Any]) -> None:
        text = "".join(json.dumps(each) + "\n" for each in rows)
        hidden = self.path / "hidden"
        hidden.write_text(text)
        # Spark reads the oldest file first.
        os.utime(hidden, (1_700_000_000 + self.files,) * 2)
        hidden.rename(self.path / "in" / f"{self.files:03}.json")
        self.files += 1

    def read(self) -> DataFrame:
        reader = self.spark.readStream.schema(self.ddl).option("maxFilesPerTrigger", 1)
        return reader.json(str(self.path / "in"))

    def start(self, *, df: DataFrame | None = None, **more: Any) -> StreamingQuery:
        name = more.pop("name", "acker")
        mode = more.pop("mode", "append")
        writer = (self.read() if df is None else df).writeStream.format(name).outputMode(mode)
        writer = writer.options(**options(self.acker, query="last", **more))
        return writer.option("checkpointLocation", str(self.path / "checkpoint")).start()

    def drain(self, **more: Any) -> StreamingQuery:
        query = self.start(**more)
        try:
            query.processAllAvailable()
        finally:
            query.stop()
        return query


def test_stream_applies_each_batch_once_after_a_crash(
    spark_: SparkSession, acker: Acker, tmp_path: Path
) -> None:
    """The query dies after Redis has applied the batch, and before Spark has logged it."""
    died = tmp_path / "died"

    class DyingWriter(SinkStreamWriter):
        def commit(self, messages: Any, batchId: int) -> None:
            super().commit(messages, batchId)
            if batchId == 1 and not died.exists():
                died.touch()
                raise OSError("the power failed")

    class DyingSink(AckerSink):
        @classmethod
        def name(cls) -> str:
            return "acker-dying"

        def streamWriter(self, schema: StructType, overwrite: bool) -> SinkStreamWriter:
            return DyingWriter(SinkOptions.parse(self.options, True), Shape.of(schema))

    spark_.dataSource.register(DyingSink)
    # All trees need a second message, so a batch that is applied twice would cancel.
    for anchor in (2, 3, 4, 5):
        begin(acker, anchor, 100 + anchor, 200 + anchor, source_id=f"s{anchor}")
    stream = Stream(spark_, acker, tmp_path)
    stream.put({"anchor": 2, "tuple": 102}, {"anchor": 3, "tuple": 103})
    stream.put({"anchor": 4, "tuple": 104}, {"anchor": 5, "tuple": 105})
    with pytest.raises(Exception, match="the power failed"):
        stream.drain(name="acker-dying")
    assert total(acker)["repeated"] == 0
    stream.put(*({"anchor": anchor, "tuple": 200 + anchor} for anchor in (2, 3, 4, 5)))
    stream.drain(name="acker-dying")
    assert died.exists()
    assert total(acker)["repeated"] == 2, "one call for each shard"
    assert verdict(acker) == {("ack", f"s{anchor}", "") for anchor in (2, 3, 4, 5)}


def test_changed_batch_of_a_stream_is_refused_or_fails_its_trees(
    spark_: SparkSession, acker: Acker, tmp_path: Path
) -> None:
    """It ends the query, or fails its trees."""
    begin(acker, 2, 5, 6, source_id="two")
    begin(acker, 4, 5, 6, source_id="four")
    stream = Stream(spark_, acker, tmp_path)
    stream_writer(acker, query="last").commit([packed(PLAIN, (2, 5))], 0)
    stream.put({"anchor": 2, "tuple": 5}, {"anchor": 4, "tuple": 5})
    with pytest.raises(Exception, match="query last was applied before: .*option onChangedBatch"):
        stream.drain()
    assert verdict(acker) == set()
    stream.drain(onChangedBatch="fail_trees")
    why = "batch 0 came back with other content"
    assert verdict(acker) == {("nack", "two", why), ("nack", "four", why)}


def test_new_checkpoint_under_the_same_query_name_is_refused(
    spark_: SparkSession, acker: Acker, tmp_path: Path
) -> None:
    stream_writer(acker, query="last").commit([packed(PLAIN, (2, 5))], 7)
    stream = Stream(spark_, acker, tmp_path)
    stream.put({"anchor": 2, "tuple": 6})
    with pytest.raises(Exception, match="batch 0 runs although batch 7"):
        stream.drain()


def test_named_run_is_applied_once(spark_: SparkSession, acker: Acker) -> None:
    begin(acker, 2, 5, 6)
    rows = frame(spark_, PLAIN, (2, 5))
    for _ in range(2):
        write(rows, acker, run="monday")
    assert total(acker)["repeated"] == 1
    with pytest.raises(Exception, match="run monday was applied before"):
        write(rows.union(frame(spark_, PLAIN, (3, 5))), acker, run="monday")
    write(frame(spark_, PLAIN, (2, 6)), acker, run="tuesday")
    assert verdict(acker) == {("ack", "s", "")}


def test_unnamed_run_cancels_when_it_is_repeated(spark_: SparkSession, acker: Acker) -> None:
    """A tree that one run would have completed expires; that is not a false ack."""
    begin(acker, 2, 5, 6)
    rows = frame(spark_, PLAIN, (2, 5))
    for _ in range(2):
        write(rows, acker)
    process(acker, 2, 6)
    assert verdict(acker) == set()
    tick(acker, 3)
    assert verdict(acker) == {("nack", "s", "")}


def test_from_source_to_verdict(spark_: SparkSession, acker: Acker) -> None:
    """Loose trees and blocks on two shards: children, failures, and messages of many trees."""
    loose = [10, 11]
    for anchor in loose:
        begin(acker, anchor, 1000, source_id=f"loose{anchor}")
    blocks = [*acker.track_block("t", "b20", [1000, 1000], block=20)]
    blocks += acker.track_block("t", "b21", [1000], block=21)
    ids = Ids(spark_, acker.ids)
    other = F.when(F.col("anchor") != 10, ids.tuple_id("tuple", "b"))
    edge = F.array(ids.tuple_id("tuple", "a"), other)
    first = frame(spark_, PLAIN, *((anchor, 1000) for anchor in (*loose, *blocks)))
    first = first.withColumn("children", edge).repartition(2)
    write(first.withColumn("why", F.lit(None)), acker, run="first")
    assert verdict(acker) == set(), "their children are outstanding"
    caused = first.select("anchor", F.explode("children").alias("tuple")).where("tuple IS NOT NULL")
    # One message that all of them caused, with a different id in each tree.
    pairs = F.collect_list(F.struct("anchor", "tuple")).alias("anchors")
    joined = caused.groupBy().agg(pairs)
    joined = ids.with_children(joined, "c")
    write(joined, acker, run="joined")
    assert verdict(acker) == set()
    last = joined.select(F.col("children").alias("anchors"))
    last = last.select(F.explode("anchors").alias("p")).select("p.anchor", "p.tuple")
    bad = F.when(F.col("anchor").isin(11, blocks[1]), F.lit("no weather"))
    write(last.withColumn("why", bad), acker, run="last")
    assert verdict(acker) == {
        ("ack", "loose10", ""),
        ("nack", "loose11", "no weather"),
        ("ack", "b20", ""),
        ("nack", "b20", "no weather"),
        ("ack", "b21", ""),
    }


def test_killed_task_is_retried_and_applied_once(acker: Acker, tmp_path: Path) -> None:
    """A worker is killed after it has packed its rows; Spark retries the task."""
    for anchor in range(2, 6):
        begin(acker, anchor, 7, source_id=f"s{anchor}")
    script = tmp_path / "retried.py"
    script.write_text(_RETRIED)
    given = json.dumps(options(acker, run="r"))
    done = subprocess.run(
        [sys.executable, script, given, tmp_path],
        capture_output=True,
        text=True,
        check=False,
        timeout=900,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    assert sorted(p.name for p in tmp_path.glob("*-of-*")) == ["0-of-0", "0-of-1", "1-of-0"]
    assert verdict(acker) == {("ack", f"s{anchor}", "") for anchor in range(2, 6)}


_RETRIED = """
import json, os, sys
from pathlib import Path
from pyspark import TaskContext
from pyspark.sql import SparkSession
from acker_redis.spark.streams.sink import AckerSink, SinkWriter
from acker_redis.spark.streams.sink_options import SinkOptions
from acker_redis.spark.streams.sink_rows import Shape

options, path = json.loads(sys.argv[1]), sys.argv[2]
os.environ["PYSPARK_PYTHON"] = sys.executable
builder = SparkSession.builder.master("local[2,4]").config("spark.ui.enabled", "false")
flags = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
builder = builder.config("spark.driver.extraJavaOptions", flags)
builder = builder.config("spark.local.dir", path).config("spark.driver.bindAddress", "127.0.0.1")
spark = builder.config("spark.driver.host", "127.0.0.1").getOrCreate()


class Dying(AckerSink):
    def writer(self, schema, overwrite):
        class DyingWriter(SinkWriter):
            def write(self, iterator):
                staged = super().write(iterator)
                task = TaskContext.get()
                number, attempt = task.partitionId(), task.attemptNumber()
                Path(path, f"{number}-of-{attempt}").touch()
                if (number, attempt) == (0, 0):
                    os._exit(1)
                return staged

        return DyingWriter(SinkOptions.parse(self.options, False), Shape.of(schema))


spark.dataSource.register(Dying)
rows = spark.range(2, 6, 1, 2).selectExpr("id AS anchor", "7L AS tuple")
rows.write.format("acker").mode("append").options(**options).save()
spark.stop()
"""


def test_errors_of_tasks_and_of_modes_apply_nothing(
    spark_: SparkSession, acker: Acker, tmp_path: Path
) -> None:
    begin(acker, 2, 5, 6)
    before = dump(acker)
    right = frame(spark_, PLAIN, (2, 5), (2, 6)).repartition(2)
    children = frame(spark_, CHILDREN, (2, 5, [7]), (2, 6, [7])).repartition(2)
    for df, more, words in (
        (right.union(frame(spark_, PLAIN, (2, None))), {}, "column tuple is null in 1 rows"),
        (right, {"maxStagedBytes": 15}, "a task stages 16 bytes.*BoltWriter"),
        (children, {}, "share an id with another message of their tree"),
    ):
        with pytest.raises(Exception, match=words):
            write(df, acker, **{"run": "r", **more})
    sink = right.write.format("acker").options(**options(acker, run="r"))
    with pytest.raises(Exception, match=r"mode\('append'\), and not 'overwrite'"):
        sink.mode("overwrite").save()
    with pytest.raises(Exception, match="read with format.'acker-outcomes'"):
        spark_.read.format("acker").options(**options(acker)).load()
    stream = Stream(spark_, acker, tmp_path)
    stream.put({"anchor": 2, "tuple": 5})
    least = stream.read().groupBy("anchor").agg(F.min("tuple").alias("tuple"))
    with pytest.raises(Exception, match=r"outputMode\('append'\), and not 'complete'"):
        stream.drain(df=least, mode="complete")
    assert dump(acker) == before


def test_no_password_is_shown(
    spark_: SparkSession,
    any_server: EmbeddedRedis,
    acker: Acker,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:
    client = acker.connection.client
    client.execute_command("ACL", "SETUSER", "writer", "on", f">{SECRET}", "~*", "+@all")
    login = {"username": "writer", "password": SECRET}
    begin(acker, 2, 5, 6)
    stream = Stream(spark_, acker, tmp_path)
    stream.put({"anchor": 2, "tuple": 5})
    query = stream.start(username="writer", password=SECRET)
    query.processAllAvailable()
    query.explain(True)
    shown = [str(query.lastProgress), str(query.status)]
    query.stop()
    rows = frame(spark_, PLAIN, (2, 6))
    write(rows, acker, run="r", **login)
    assert verdict(acker) == {("ack", "s", "")}
    for wrong, words in (
        ({"username": "unknown"}, "WRONGPASS|invalid username"),
        ({"namespace": "unknown"}, "NamespaceNotFoundError"),
        ({"run": "r"}, "was applied before"),
        ({"url": url_of(acker).replace("//", f"//:{SECRET}@")}, "option url"),
    ):
        with pytest.raises(Exception, match=words) as raised:
            write(rows.union(rows), acker, **login | wrong)
        shown += [str(raised.value), repr(raised.value)]
    writer = stream_writer(acker, **login)
    shown += [repr(writer), repr(writer._options), repr(writer._shape)]
    client.execute_command("ACL", "DELUSER", "writer")
    executions = spark_._jsparkSession.sharedState().statusStore().executionsList()
    for at in range(executions.size()):
        shown.append(executions.apply(at).physicalPlanDescription())
        shown.append(executions.apply(at).details())
    assert any("WriteToDataSourceV2" in text or "AppendData" in text for text in shown)
    shown += [*capfd.readouterr()]
    hidden = {SECRET, SECRET.replace("%", "%25"), "s3c%25r%2Fe%3At%40%23%3F"}
    for text in shown:
        assert not any(each in text for each in hidden), text
