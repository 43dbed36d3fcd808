"""A micro-batch of a bolt, in the driver and in executors."""

import logging
from dataclasses import replace

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from acker_redis.errors import (
    ChangedBatchError,
    ConfigError,
    InvalidBatchError,
    LaneError,
)
from acker_redis.spark import Acker, Names, anchors_of, collect_anchors
from acker_redis.spark.fold.lanes import LaneTurn, digest_of, send
from acker_redis.spark.fold.terms import Kind
from tests.spark.conftest import MakeSparkAcker, Term, change, outcomes, sealed
from tests.spark.world import PLACES, SCHEMA, Pair, World, firsts, frame
from tests.support import tick, total, verdicts

THOROUGH = [*PLACES, pytest.param(("executors", 1), marks=pytest.mark.nightly)]

everywhere = pytest.mark.parametrize(
    "acker", THOROUGH, indirect=True, ids=lambda place: f"{place[0]}-{place[1]}"
)


@pytest.fixture(params=PLACES, ids=lambda place: f"{place[0]}-{place[1]}")
def acker(request: pytest.FixtureRequest, make_spark_acker: MakeSparkAcker) -> Acker:
    mode, shards = request.param
    return make_spark_acker({"shards": shards}, mode=mode)


@pytest.fixture
def world(acker: Acker) -> World:
    return World(acker.client)


@pytest.mark.parametrize("acker", [("driver", 1), ("executors", 4)], indirect=True)
def test_key_separates_several_messages_of_one_input(
    spark: SparkSession, acker: Acker, world: World
) -> None:
    """A batch with two edges, one with several rows per input, and with a filter."""
    inputs = firsts([*world.track(1, 1), *world.track(1, 1, block="b")])
    with acker.batch(frame(spark, inputs), 0) as b:
        many = b.df.where("n > 0").withColumn("k", F.explode(F.array(F.lit("x"), F.lit(None))))
        one = b.emit(many, edge="many", key=["k"])
        other = b.emit(b.df.where("n < 2").repartition(3, "n"), edge="few")
    assert b.report
    assert (b.report.messages, b.report.mode, b.report.repeated) == (4, acker.application.mode, 0)
    world.processed |= set(inputs)
    written = world.wrote(one, other)
    assert len(set(written)) == len(written) == 6 + 2
    assert not set(written) & set(inputs)
    assert world.acked == set()
    assert world.drain() == set(world.names.values())


def test_message_of_a_group_belongs_to_all_its_trees(
    spark: SparkSession, acker: Acker, world: World
) -> None:
    """This also holds in the next bolt, and for two inputs of one tree."""
    inputs = firsts([*world.track(2, 1, 1), *world.track(1, 2, block="b")])
    with acker.batch(frame(spark, inputs), 0) as b:
        groups = b.df.groupBy((F.col("n") % 3).alias("g")).agg(collect_anchors().alias("anchors"))
        out = b.emit(groups, edge="sum", anchors="anchors")
    assert "anchor" not in out.columns
    world.processed |= set(inputs)
    passed = world.wrote(out)
    assert len(passed) == len(inputs)
    assert world.acked == set()
    with acker.batch(out, 0, query_id="next") as b:
        again = b.emit(b.df.where("g > 0"), edge="on", key=["g"])
        b.ack(b.df.where("g = 0"))
        b.fail(b.df.where("g = 2"), F.col("g").cast("string"))
    world.processed |= set(passed)
    world.wrote(again)
    for anchor, _ in world.wrote(again):
        assert world.names[anchor] not in world.acked
    done = world.drain()
    of_2 = {world.names[pair[0]] for n, pair in enumerate(inputs) if n % 3 == 2}
    tick(world.client, 3)
    world.check()
    assert world.acked == set(world.names.values()) - of_2
    assert done <= world.acked


def test_message_of_a_join_belongs_to_both_trees(spark: SparkSession, by_driver: Acker) -> None:
    """Of two trees, or of one (a diamond): one message then has two ids in one tree."""
    world = World(by_driver.client)
    left, right, both = world.track(1, 1, 2)
    diamond = frame(spark, [left[0], both[0], right[0], both[1]])
    with by_driver.batch(diamond, 0) as b:
        half = b.df.where("n >= 2").select(
            (F.col("n") - 2).alias("n"), F.col("anchor").alias("a2"), F.col("tuple").alias("t2")
        )
        pairs = anchors_of(("anchor", "tuple"), ("a2", "t2"))
        out = b.emit(b.df.join(half, "n"), edge="joined", anchors=pairs)
    world.processed |= set(firsts([left, right, both]))
    found = world.wrote(out)
    assert sorted(a for a, _ in found) == sorted([left[0][0], right[0][0], both[0][0], both[0][0]])
    assert len({id_ for _, id_ in found}) == 4
    by_driver.ack(out.where("n = 1"), 0, query_id="last")
    world.processed |= {pair for pair in found if pair[0] == both[0][0]}
    world.check()
    assert world.acked == {world.names[both[0][0]]}
    world.drain()
    assert world.acked == set(world.names.values())


def test_message_left_out_on_purpose_is_acked_alone(spark: SparkSession, by_driver: Acker) -> None:
    world = World(by_driver.client)
    inputs = firsts(world.track(1, 1, 1))
    with by_driver.batch(frame(spark, inputs), 0) as b:
        out = b.emit(b.df.where("n = 1"), edge="kept")
        b.ack(b.df.where("n <> 1"))
    world.processed |= set(inputs)
    world.wrote(out)
    assert world.acked == {"s0", "s2"}


def test_unanchored_messages_need_a_flag(spark: SparkSession, by_driver: Acker) -> None:
    """With ``unanchored`` they are emitted, and acked in the next bolt; without it, an error."""
    world = World(by_driver.client)
    inputs = firsts(world.track(1))
    with by_driver.batch(frame(spark, inputs), 0) as b:
        more = b.freeze(spark.createDataFrame([(None, None, 7), (None, None, 7)], SCHEMA))
        out = b.emit(b.df.union(more), edge="e", unanchored=True)
        groups = b.df.union(more).groupBy("n").agg(collect_anchors().alias("anchors"))
        many = b.emit(groups, edge="f", anchors="anchors", unanchored=True)
    world.processed |= set(inputs)
    written = world.wrote(out, many)
    assert [r.n for r in out.where("tuple IS NULL").collect()] == [7, 7]
    assert len(written) == 2
    for query, df in (("one", out), ("many", many)):
        with (
            pytest.raises(InvalidBatchError, match="rows have no anchor"),
            by_driver.batch(df, 0, query_id=query),
        ):
            pass
        with by_driver.batch(df, 0, query_id=query) as b:
            b.ack(unanchored=True)
    world.processed |= set(written)
    world.check()
    assert world.acked == {"s0"}


def test_fail_and_touch(spark: SparkSession, by_driver: Acker) -> None:
    """A failed message is acked, too; otherwise its block would stay pending."""
    world = World(by_driver.client)
    inputs = firsts([*world.track(1, 1, 2), *world.track(1, 1, block="b")])
    words = F.when(F.col("n") == 0, F.lit("bad\x01" + "x" * 300))
    with by_driver.batch(frame(spark, inputs), 0, unmentioned="leave") as b:
        b.fail(b.df.where("n = 0"), words)
        b.fail(b.df.where("n = 1"), F.lit(None))
        b.fail(b.df.where("n = 4"), "no")
        b.touch(b.df.where("n = 2"))
        b.ack(b.df.where("n <> 3"))
    found = sorted((v[0], v[1], v[3], v[4]) for v in verdicts(world.client))
    assert found == [
        ("ack", "completed", "b", ""),
        ("nack", "failed", "b", "no"),
        ("nack", "failed", "s0", "bad " + "x" * 251),
        ("nack", "failed", "s1", ""),
        ("touch", "reset", "s2", ""),
    ]
    assert b.report
    assert (b.report.failed, b.report.acked, b.report.messages) == (3, 1, 6)


def test_failed_message_fails_all_its_trees(spark: SparkSession, by_driver: Acker) -> None:
    world = World(by_driver.client)
    inputs = firsts(world.track(1, 1, 1))
    df = frame(spark, inputs).groupBy((F.col("n") > 1).alias("g")).agg(
        collect_anchors().alias("anchors")
    )  # fmt: skip
    with by_driver.batch(df, 0) as b:
        b.fail(b.df.where("NOT g"), "no")
        b.touch(b.df.where("NOT g"))
        b.ack(b.df.where("g"))
    assert outcomes(world.client) == [
        ("ack", "completed", "s2", ""), ("nack", "failed", "s0", "no"),
        ("nack", "failed", "s1", "no"),
    ]  # fmt: skip


def test_ack_with_children_in_the_row(spark: SparkSession, by_driver: Acker) -> None:
    """A row has one child, several, or none; rows are evaluated once and not kept."""
    world = World(by_driver.client)
    inputs = firsts(world.track(1, 1, 1, 1))
    tuple_id = by_driver.ids.tuple_id
    rows = frame(spark, inputs).withColumns(
        {
            "one": F.when(F.col("n") < 2, tuple_id("tuple", "e")),
            "more": F.when(
                F.col("n") > 0,
                F.array(tuple_id("tuple", "f", F.lit(1)), F.lit(None), tuple_id("tuple", "g")),
            ),
        }
    )
    with by_driver.batch(rows, 0) as b:
        b.ack(b.df.where("n = 0"), children="one")
        b.ack(b.df.where("n > 0"), children="more")
    world.processed |= set(inputs)
    for row in rows.collect():
        if row.n == 0:
            world.written.add((row.anchor, row.one))
        else:
            world.written |= {(row.anchor, id_) for id_ in row.more if id_}
    assert len(world.written) == 4 + 1 + 6
    assert world.drain() == {"s0", "s1", "s2", "s3"}


def test_children_of_one_row_with_equal_ids_are_refused(
    spark: SparkSession, by_driver: Acker
) -> None:
    world = World(by_driver.client)
    rows = frame(spark, firsts(world.track(1)))
    twice = F.array(*[by_driver.ids.tuple_id("tuple", edge) for edge in ("e", "f", "e")])
    with pytest.raises(InvalidBatchError, match="2 messages of this batch share an id"):
        by_driver.ack(rows.withColumn("kids", twice), 0, children="kids")
    assert total(world.client)["pending"] == 1
    report = by_driver.ack(rows.withColumn("kid", F.lit(None).cast("bigint")), 0, children="kid")
    assert report.acked == 1


def test_exception_in_the_block_applies_nothing(spark: SparkSession, by_driver: Acker) -> None:
    world = World(by_driver.client)
    inputs = firsts(world.track(1, 1))
    df = frame(spark, inputs)
    with pytest.raises(OSError, match="disk"), by_driver.batch(df, 0) as b:
        b.emit(b.df, edge="e")
        b.fail(b.df, "no")
        raise OSError("the disk is full")
    assert b.report is None
    assert outcomes(world.client) == []
    assert total(world.client)["pending"] == 2
    with pytest.raises(InvalidBatchError, match="opened once"), b:
        pass
    with by_driver.batch(df, 0) as b:
        out = b.emit(b.df, edge="e")
    with pytest.raises(InvalidBatchError, match="opened once"), b:
        pass
    with pytest.raises(InvalidBatchError, match="use it as: with"):
        b.emit(out, edge="f")
    world.processed |= set(inputs)
    world.wrote(out)
    assert world.drain() == {"s0", "s1"}


@everywhere
def test_retried_batch_is_applied_once(
    spark: SparkSession, acker: Acker, world: World, make_spark_acker: MakeSparkAcker
) -> None:
    """In each mode, and with other partitions: no call is applied twice."""
    inputs = firsts([*world.track(1, 1), *world.track(1, 1, block="b")])
    other = make_spark_acker(client=world.client, mode="driver")
    before: list[Pair] = []
    for turn, (by, df) in enumerate(
        [
            (acker, frame(spark, inputs)),
            (acker, frame(spark, inputs).orderBy(F.desc("n")).repartition(3)),
            (other, frame(spark, inputs).coalesce(1)),
        ]
    ):
        with by.batch(df, 0) as b:
            out = b.emit(b.df.where("n < 3"), edge="e")
            b.ack(b.df.where("n = 3").union(b.df.where("n > 1")))
        world.processed |= set(inputs)
        assert b.report
        assert b.report.repeated == (b.report.calls if turn else 0)
        assert b.report.calls > 0
        written = sorted(world.wrote(out))
        assert before in ([], written)
        before = written
    assert world.drain() == set(world.names.values())
    assert total(world.client)["conflict"] == 0


@pytest.mark.parametrize("place", [("driver", 1), ("executors", 1), ("executors", 2)])
def test_retry_after_a_crash_between_calls_applies_the_rest(
    spark: SparkSession, make_spark_acker: MakeSparkAcker, place: tuple[str, int]
) -> None:
    """Some calls of one shard were applied before; the retry applies only the others."""
    mode, shards = place
    acker = make_spark_acker({"shards": shards}, mode=mode)
    terms: list[Term] = [(Kind.INPUT, 1 + n, 9 + n, "") for n in range(3000 * shards)]
    contents = sealed(terms, shards)
    digest = digest_of((shard, each.digest) for shard, each in contents.items())
    some = replace(contents[shards - 1], parts=contents[shards - 1].parts[:2])
    send(acker.client, LaneTurn(acker.application.lane("q"), 4, 0, digest), some)
    rows = spark.range(3000 * shards).selectExpr("id + 1 AS anchor", "id + 9 AS tuple")
    report = acker.ack(rows, 4)
    assert (report.calls, report.repeated) == (3 * shards, 2)
    assert acker.ack(rows.repartition(3), 4).repeated == 3 * shards
    assert total(acker.client)["pending"] == 3000 * shards


@everywhere
def test_changed_batch_is_refused_or_fails_its_trees(
    spark: SparkSession, acker: Acker, world: World, caplog: pytest.LogCaptureFixture
) -> None:
    trees = [*world.track(1, 1), *world.track(2, 1, block="b")]
    inputs = [each[0] for each in trees]
    df = frame(spark, inputs)
    with acker.batch(df, 0) as b:
        b.emit(b.df, edge="e", key=["n"])
    with pytest.raises(ChangedBatchError, match="fail_trees"), acker.batch(df, 0) as b:
        b.emit(b.df, edge="e", key=[F.col("n") + 1])
    assert outcomes(world.client) == []
    change(acker, on_changed_batch="fail_trees")
    for turn in range(2):
        with caplog.at_level(logging.WARNING), acker.batch(df, 0) as b:
            b.emit(b.df, edge="e", key=[F.col("n") + 1])
        assert b.report
        assert b.report.changed
        assert (b.report.repeated > 0) == bool(turn)
    assert "changed=True" in caplog.text
    words = "batch 0 came back with other content"
    assert outcomes(world.client) == [
        ("nack", "failed", name, words) for name in sorted(world.names.values())
    ]
    change(acker, on_changed_batch="raise")
    with pytest.raises(ChangedBatchError), acker.batch(df, 0) as b:
        pass
    acker.ack(frame(spark, firsts(world.track(1))), 1)
    assert [v[:2] for v in outcomes(world.client)] == [("ack", "completed")], "the query continues"
    with pytest.raises(LaneError, match="set back"):
        acker.ack(df, 0)


def test_empty_batch_sends_nothing(spark: SparkSession, by_driver: Acker) -> None:
    """It leaves no fence. An empty retry of a batch that had content is a changed batch."""
    world = World(by_driver.client)
    empty = frame(spark, [])
    with by_driver.batch(empty, 0) as b:
        assert b.emit(b.df, edge="e").count() == 0
    assert b.report
    assert (b.report.calls, b.report.messages) == (0, 0)
    by_driver.ack(frame(spark, firsts(world.track(1))), 0)
    with pytest.raises(ChangedBatchError):
        by_driver.ack(empty, 0)


def test_columns_can_be_renamed(spark: SparkSession, make_spark_acker: MakeSparkAcker) -> None:
    names = Names(anchor="a", tuple="m", anchors="many", edge="way", why="reason")
    acker = make_spark_acker(names=names)
    world = World(acker.client)
    inputs = firsts(world.track(1, 1))
    df = frame(spark, inputs).toDF("a", "m", "anchor")
    with acker.batch(df, 0) as b:
        one = b.emit(b.df, edge="e")
        pairs = anchors_of(("a", "m"))
        many = b.emit(b.df, edge="f", anchors=pairs)
    assert one.columns == ["a", "m", "anchor"]
    assert many.columns == ["anchor", "many"]
    world.processed |= set(inputs)
    world.wrote(one.select(F.col("a").alias("anchor"), F.col("m").alias("tuple")))
    world.wrote(many.select(F.col("many").alias("anchors")))
    acker.ack(many, 0, query_id="next")
    world.processed |= {(p["anchor"], p["tuple"]) for r in many.collect() for p in r["many"]}
    assert world.drain() == {"s0", "s1"}
    with acker.batch(spark.range(2), 0, query_id="s") as b:
        tracked = b.track(source="t", source_id=F.col("id").cast("string"), edges=["x"])
    assert tracked.columns == ["id", "a", "way", "m"]
    for wrong in ({"anchor": "TUPLE"}, {"edge": ""}, {"anchors": "anchor"}):
        with pytest.raises(ConfigError, match="must be distinct"):
            Names(**wrong)


FILES = ["driver", "executors", "driver", "driver", "executors", "driver"]
# After a batch far below the limit, the next one is not counted and uses the same mode.
NO_FILES = ["driver", "executors", "executors", "driver", "driver", "executors"]


@pytest.mark.parametrize(("files", "expected"), [(True, FILES), (False, NO_FILES)])
def test_auto_mode_chooses_by_batch_size(
    spark: SparkSession,
    make_spark_acker: MakeSparkAcker,
    monkeypatch: pytest.MonkeyPatch,
    files: bool,
    expected: list[str],
) -> None:
    """From the footers of files that the driver can read, and else by counting."""
    from acker_redis.spark import shared_state, staging

    monkeypatch.setattr(shared_state, "DRIVER_MOST", 4)
    monkeypatch.setattr(shared_state, "FILES_MOST", 8)  # each message and its child
    if not files:
        monkeypatch.setattr(staging.Staged, "files", None)
    acker = make_spark_acker(mode="auto")
    modes = []
    for batch_id, count in enumerate([4, 5, 1, 1, 9, 4]):
        pairs = [(100 * batch_id + n, 9) for n in range(1, count + 1)]
        with acker.batch(frame(spark, pairs), batch_id) as b:
            b.emit(b.df, edge="e")
        assert b.report
        modes.append(b.report.mode)
    assert modes == expected


def test_batch_without_freeze_is_evaluated_again(spark: SparkSession, by_driver: Acker) -> None:
    """Correct here, because the plan gives the same rows each time."""
    world = World(by_driver.client)
    inputs = firsts(world.track(1, 1))
    with by_driver.batch(frame(spark, inputs), 0, freeze=False) as b:
        out = b.emit(b.df.where("n = 0"), edge="e")
        b.ack(b.df.where("n = 1"))
    world.processed |= set(inputs)
    world.wrote(out)
    assert world.drain() == {"s0", "s1"}
