"""Verdicts as rows, in batch reads and streams: each once, also after crashes."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from acker_redis.embedded import EmbeddedRedis
from acker_redis.errors import (
    SchemaError,
)
from acker_redis.protocol.keys import ShardKeys
from acker_redis.spark.streams.outcome_options import OutcomeOptions
from acker_redis.spark.streams.outcome_rows import (
    SCHEMA,
)
from acker_redis.spark.streams.outcomes_source import OutcomesReader, register
from acker_redis.spark.streams.outcomes_stream import OutcomesStreamReader
from acker_redis.sync.client import Acker
from acker_redis.transport.readers import kept_by, waiting_readers
from tests.conftest import MakeAcker
from tests.spark.waiting_verdicts import (
    SECRET,
    TASK,
    Seen,
    acked,
    add,
    ids,
    in_shards,
    options,
    stream_key,
)
from tests.support import (
    backlog,
    track_block,
)


@pytest.fixture
def acker(make_any_acker: MakeAcker) -> Acker:
    return make_any_acker(high_water=20)


@pytest.fixture
def four_shards(make_any_acker: MakeAcker) -> Acker:
    return make_any_acker(shards=4)


@pytest.fixture
def spark_(spark: SparkSession) -> Iterator[SparkSession]:
    register(spark)
    yield spark
    for query in spark.streams.active:
        query.stop()


def table(spark: SparkSession, acker: Acker, **more: Any) -> DataFrame:
    return spark.read.format("acker-outcomes").options(**options(acker, **more)).load()


class Query:
    """A streaming query, and the source ids in each of its batches."""

    def __init__(self, spark: SparkSession, acker: Acker, path: Path, **more: Any) -> None:
        self.seen: Seen = []
        self.batches: list[int] = []
        self.then: Callable[[int], None] = lambda batch_id: None
        self._path = path
        self._stream = spark.readStream.format("acker-outcomes").options(**options(acker, **more))

    def start(self, **trigger: Any) -> StreamingQuery:
        writer = self._stream.load().writeStream.foreachBatch(self._write)
        writer = writer.option("checkpointLocation", str(self._path))
        return (writer.trigger(**trigger) if trigger else writer).start()

    def _write(self, df: DataFrame, batch_id: int) -> None:
        self.seen.append(sorted(r.source_id for r in df.select("source_id").collect()))
        self.batches.append(batch_id)
        self.then(batch_id)


def test_batch_read_shows_waiting_verdicts_and_deletes_nothing(
    spark_: SparkSession, four_shards: Acker
) -> None:
    nothing = table(spark_, four_shards)
    assert nothing.collect() == []
    in_shards(four_shards, 1, 3, 5, 9)
    track_block(four_shards, 4, [0] * 5, label="p@10")
    zone = str(spark_.conf.get("spark.sql.session.timeZone"))
    spark_.conf.set("spark.sql.session.timeZone", "America/New_York")
    try:
        df = table(spark_, four_shards).withColumn("ms", F.unix_millis("at"))
        rows = df.withColumn("part", F.spark_partition_id()).orderBy("source_id").collect()
    finally:
        spark_.conf.set("spark.sql.session.timeZone", zone)
    assert [(r.source_id, r.trees, r.label) for r in rows] == [
        ("p/10", 5, "p@10"),
        *((f"s{i}", 1, None) for i in (1, 3, 5, 9)),
    ]
    stamps = {int(id_[:-2]) for shard in range(4) for id_ in ids(four_shards, shard)}
    assert {r.ms for r in rows} == stamps
    assert df.rdd.getNumPartitions() == 3
    assert len({r.part for r in rows}) == 3
    assert df.drop("ms").schema.simpleString() == "struct<{}>".format(
        ",".join(f"{n}:{k.lower()}" for n, k in (c.split() for c in SCHEMA.split(", ")))
    )
    assert backlog(four_shards) == 9
    expanded = table(spark_, four_shards, Expand=True)
    assert expanded.count() == 9


def test_a_stream_over_several_batches_and_restarts(
    spark_: SparkSession, acker: Acker, tmp_path: Path
) -> None:
    acked(acker, "a", "b", "c")
    query = Query(spark_, acker, tmp_path, maxEntriesPerTrigger=2)
    running = query.start()
    running.processAllAvailable()
    assert query.seen == [["a", "b"], ["c"]]
    assert backlog(acker) == 1, "the last batch is taken when the next one is planned"
    acked(acker, "d")
    running.processAllAvailable()
    assert query.seen[2:] == [["d"]]
    running.stop()
    assert backlog(acker) == 1
    acked(acker, "e", "f", "g")
    running = query.start()
    running.processAllAvailable()
    assert query.seen[3:] == [["e", "f"], ["g"]]
    # A failover: the new stream has smaller ids than all entries before.
    acker.connection.client.delete(stream_key(acker))
    add(acker, "1-0", "after")
    running.processAllAvailable()
    running.stop()
    assert query.seen[5:] == [["after"]]
    assert query.batches == [0, 1, 2, 3, 4, 5]


@pytest.mark.full
@pytest.mark.parametrize("join", [True, pytest.param(False, marks=pytest.mark.nightly)])
def test_two_readers_of_a_source_in_one_application_are_refused(
    spark_: SparkSession, acker: Acker, tmp_path: Path, join: bool
) -> None:
    """A self-join or two queries: each would delete entries that the other has only planned."""
    acked(acker, "a", "b", "c")
    loader = spark_.readStream.format("acker-outcomes").options(**options(acker))
    if join:
        one, two = loader.load().alias("one"), loader.load().alias("two")
        df = one.join(two, F.expr("one.source_id = two.source_id"))
    else:
        first = Query(spark_, acker, tmp_path / "first")
        running = first.start()
        running.processAllAvailable()
        df = loader.load()
    writer = df.writeStream.format("noop").option("checkpointLocation", str(tmp_path / "query"))
    query = writer.start()
    with pytest.raises(StreamingQueryException, match="two readers of source t of namespace"):
        query.awaitTermination(300)
    if not join:
        acked(acker, "d")
        running.processAllAvailable()
        running.stop()
        assert first.seen == [["a", "b", "c"], ["d"]]
        return
    assert backlog(acker) == 3
    again = Query(spark_, acker, tmp_path / "again")
    again.start().processAllAvailable()
    assert again.seen == [["a", "b", "c"]]


def test_a_stream_that_is_read_once_and_used_twice_has_one_reader(
    spark_: SparkSession, acker: Acker, tmp_path: Path
) -> None:
    acked(acker, "a", "b")
    seen: list[int] = []

    def join(df: DataFrame, _: int) -> None:
        kept = df.localCheckpoint()
        seen.append(kept.alias("x").join(kept.alias("y"), "source_id").count())

    stream = spark_.readStream.format("acker-outcomes").options(**options(acker)).load()
    writer = stream.writeStream.foreachBatch(join)
    query = writer.option("checkpointLocation", str(tmp_path)).start()
    query.processAllAvailable()
    query.stop()
    assert seen == [2]


def test_crash_between_sink_and_commit_repeats_the_batch(
    spark_: SparkSession, acker: Acker, tmp_path: Path
) -> None:
    def die(batch_id: int) -> None:
        if batch_id == 1:
            raise OSError("the disk is full")

    acked(acker, "a", "b", "c")
    query = Query(spark_, acker, tmp_path, maxEntriesPerTrigger=1)
    query.then = die
    running = query.start()
    with pytest.raises(Exception, match="the disk is full"):
        running.processAllAvailable()
    acked(acker, "d")
    query.then = lambda batch_id: None
    running = query.start()
    running.processAllAvailable()
    running.stop()
    assert query.seen == [["a"], ["b"], ["b"], ["c"], ["d"]]
    assert query.batches == [0, 1, 1, 2, 3]
    assert backlog(acker) == 1


def test_crash_before_the_commit_repeats_no_finished_batch(
    spark_: SparkSession, acker: Acker, tmp_path: Path
) -> None:
    """The log has the next batch, and the entries of the last one are not deleted yet."""
    meta = ShardKeys(acker.namespace, 0).meta
    client = acker.connection.client

    def refuse(batch_id: int) -> None:
        client.hset(meta, "schema", 99)

    acked(acker, "a", "b", "c")
    query = Query(spark_, acker, tmp_path, maxEntriesPerTrigger=1)
    query.then = refuse
    running = query.start()
    with pytest.raises(Exception, match=SchemaError.__name__):
        running.processAllAvailable()
    assert query.seen == [["a"]]
    client.hset(meta, "schema", 2)
    query.then = lambda batch_id: None
    running = query.start()
    running.processAllAvailable()
    running.stop()
    assert query.seen == [["a"], ["b"], ["c"]]
    assert backlog(acker) == 1


def test_the_doctor_knows_the_reader_of_an_idle_query(
    spark_: SparkSession, acker: Acker, tmp_path: Path
) -> None:
    """The verdicts of its last micro-batch wait for the next one; that is no stalled backlog."""
    acked(acker, "a")
    query = Query(spark_, acker, tmp_path)
    running = query.start()
    running.processAllAvailable()
    assert backlog(acker) == 1
    clients = acker.connection.client.client_list()
    assert kept_by(waiting_readers(clients), acker.status()) == {TASK}
    running.stop()


def test_available_now_query_ends_after_the_waiting_verdicts(
    spark_: SparkSession, acker: Acker, tmp_path: Path
) -> None:
    acked(acker, "a", "b", "c")
    query = Query(spark_, acker, tmp_path, maxEntriesPerTrigger=2)
    query.then = lambda batch_id: acked(acker, f"late{batch_id}")
    query.start(availableNow=True).awaitTermination()
    assert query.seen == [["a", "b"], ["c"]]
    query.then = lambda batch_id: None
    query.start(availableNow=True).awaitTermination()
    assert query.seen[2:] == [["late0", "late1"]]
    query.start(availableNow=True).awaitTermination()
    assert len(query.seen) == 3
    assert backlog(acker) == 2


def test_data_loss_ends_the_query_unless_it_is_allowed(
    spark_: SparkSession, acker: Acker, tmp_path: Path
) -> None:
    def die(batch_id: int) -> None:
        raise OSError("the disk is full")

    acked(acker, "a", "b")
    query = Query(spark_, acker, tmp_path)
    query.then = die
    with pytest.raises(Exception, match="the disk is full"):
        query.start().processAllAvailable()
    acker.connection.client.xdel(stream_key(acker), ids(acker)[0])
    acked(acker, "c")
    with pytest.raises(Exception, match="1 of 2 entries of shard 0 .*failOnDataLoss=false"):
        query.start().processAllAvailable()
    patient = Query(spark_, acker, tmp_path, failOnDataLoss=False)
    running = patient.start()
    running.processAllAvailable()
    running.stop()
    assert patient.seen == [["b"], ["c"]]


@pytest.fixture
def login(any_server: EmbeddedRedis, acker: Acker) -> Iterator[dict[str, str]]:
    """Create a Redis user with a password."""
    client = acker.connection.client
    client.execute_command("ACL", "SETUSER", "reader", "on", f">{SECRET}", "~*", "+@all")
    yield {"username": "reader", "password": SECRET}
    client.execute_command("ACL", "DELUSER", "reader")


def test_no_password_is_shown(
    spark_: SparkSession,
    acker: Acker,
    login: dict[str, str],
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:
    acked(acker, "a")
    df = table(spark_, acker, **login)
    assert [r.source_id for r in df.collect()] == ["a"]
    shown = [repr(df), str(df.schema)]
    df.explain(True)
    df.explain("formatted")
    query = Query(spark_, acker, tmp_path, **login)
    running = query.start()
    running.processAllAvailable()
    running.explain(True)
    shown += [str(running.lastProgress), str(running.status)]
    running.stop()
    assert query.seen == [["a"]]
    for source in (OutcomesReader, OutcomesStreamReader):
        made = source(OutcomeOptions.parse(options(acker, **login)))
        shown += [repr(made), repr(made._options), str(made._options.target)]
    for wrong, words in (
        ({"username": "unknown"}, "WRONGPASS|invalid username"),
        ({"namespace": "unknown"}, "NamespaceNotFoundError"),
        ({"expand": "?"}, "option expand"),
    ):
        with pytest.raises(Exception, match=words) as raised:
            table(spark_, acker, **(login | wrong)).collect()
        shown.append(str(raised.value))
    shown += [path.read_text() for path in tmp_path.glob("*/[0-9]*")]
    out, err = capfd.readouterr()
    shown += [out, err]
    text = "\n".join(shown)
    assert "Scan" in out, "the plans were printed"
    for secret in (SECRET, "s3c", "%23%3F"):
        assert secret not in text


def test_spark_says_which_option_is_wrong(spark_: SparkSession, acker: Acker) -> None:
    with pytest.raises(Exception, match="option task.* is the option source"):
        table(spark_, acker, task="t")
    with pytest.raises(Exception, match="leave out .schema()"):
        spark_.read.schema("verdict STRING").format("acker-outcomes").options(
            **options(acker)
        ).load().collect()
