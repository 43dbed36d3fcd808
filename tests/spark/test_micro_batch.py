"""A micro-batch of a bolt, in the driver and in executors.

With any plan, no tree is acked while one of its messages is outstanding.
"""

import hashlib
import itertools
import logging
import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from acker_redis.batching.batch import Batch
from acker_redis.errors import (
    ChangedBatchError,
    ConfigError,
    InvalidBatchError,
    LaneError,
    NamespaceNotFoundError,
    RedisUnavailableError,
)
from acker_redis.spark import Acker, MicroBatch, Names, anchors_of, collect_anchors
from acker_redis.spark.fold.apply import Job, in_driver
from acker_redis.spark.fold.target import Target
from acker_redis.spark.fold.terms import Kind
from acker_redis.spark.fold.turns import LaneTurn, digest_of, lane_of, send
from acker_redis.sync.client import Acker as Client
from tests.conftest import MakeAcker
from tests.spark.conftest import MakeSparkAcker, Term, change, outcomes, packed, sealed, url_of
from tests.spark.test_lanes import Dying
from tests.support import tick, total, verdicts
from tests.tiers import examples

Pair = tuple[int, int]
"""Anchor and id of a message in one tree."""
SCHEMA = "anchor BIGINT, tuple BIGINT, n INT"
PLACES = [("driver", 1), ("executors", 2)]
THOROUGH = [*PLACES, ("executors", 1)]


class World:
    """The sets of written and processed messages; an acked tree has no unprocessed message."""

    def __init__(self, client: Client, seed: int = 0) -> None:
        self.client = client
        self._chance = random.Random(seed)
        self.written: set[Pair] = set()
        self.processed: set[Pair] = set()
        self.names: dict[int, str] = {}
        self.acked: set[str] = set()

    def track(self, *firsts: int, block: str = "") -> list[list[Pair]]:
        """Track a tree for each number, with this number of first messages; or one block."""
        ids = [[self._chance.getrandbits(63) | 1 for _ in range(count)] for count in firsts]
        if block:
            # Every other slot holds no tree.
            deltas = [delta for each in ids for delta in (xor(each), 0)]
            present = range(0, len(deltas), 2)
            slots = self.client.track_block("t", block, deltas, present=present)
            anchors = [slots[slot] for slot in present]
            self.names |= {slots[slot]: f"{block}#{slot}" for slot in present}
        else:
            anchors, batch = [self._chance.getrandbits(62) | 1 for _ in firsts], Batch("t")
            for anchor, each in zip(anchors, ids, strict=True):
                self.names[anchor] = f"s{len(self.names)}"
                batch.track(anchor, self.names[anchor], each)
            self.client.apply(batch)
        found = [[(a, i) for i in each] for a, each in zip(anchors, ids, strict=True)]
        self.written |= {pair for each in found for pair in each}
        return found

    def wrote(self, *frames: DataFrame) -> list[Pair]:
        """Note messages that were written to the next queue."""
        found: list[Pair] = []
        for frame in frames:
            for row in frame.collect():
                if "anchors" in frame.columns:
                    found += [(pair["anchor"], pair["tuple"]) for pair in row["anchors"] or ()]
                elif row["anchor"] is not None:
                    found.append((row["anchor"], row["tuple"]))
        self.written |= set(found)
        self.check()
        return found

    def ack(self, pairs: Iterable[Pair]) -> None:
        """Process messages with a client, one after the other."""
        for anchor, id_ in pairs:
            batch = Batch()
            batch.ack(anchor, id_)
            self.processed.add((anchor, id_))
            self.client.apply(batch)
            self.check()

    def check(self) -> None:
        """Check the new verdicts against the sets."""
        left = {self.names.get(anchor) for anchor, _ in self.written - self.processed}
        acked = {name for verdict, _, name, _ in outcomes(self.client) if verdict == "ack"}
        assert not acked & left, "a message is outstanding"
        self.acked |= acked

    def drain(self) -> set[str]:
        """Process the remaining messages in random order; return the acked source ids."""
        left = sorted(self.written - self.processed)
        self._chance.shuffle(left)
        self.ack(left)
        return self.acked


def xor(ids: Iterable[int]) -> int:
    found = 0
    for each in ids:
        found ^= each
    return found


def frame(spark: SparkSession, pairs: Sequence[Pair]) -> DataFrame:
    """Messages in two partitions, numbered by the column ``n``."""
    rows = [(anchor, id_, n) for n, (anchor, id_) in enumerate(pairs)]
    return spark.createDataFrame(rows, SCHEMA)


everywhere = pytest.mark.parametrize(
    "acker", THOROUGH, indirect=True, ids=lambda place: f"{place[0]}-{place[1]}"
)


@pytest.fixture(params=PLACES, ids=lambda place: f"{place[0]}-{place[1]}")
def acker(request: pytest.FixtureRequest, make_spark_acker: MakeSparkAcker) -> Acker:
    mode, shards = request.param
    return make_spark_acker({"shards": shards}, mode=mode)


@pytest.fixture
def by_driver(make_spark_acker: MakeSparkAcker) -> Acker:
    return make_spark_acker()


@pytest.fixture
def world(acker: Acker) -> World:
    return World(acker.client)


def firsts(trees: list[list[Pair]]) -> list[Pair]:
    return [pair for each in trees for pair in each]


# What a batch does


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
        more = spark.createDataFrame([(None, None, 7), (None, None, 7)], SCHEMA)
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
        b.ack(rows.where("n = 0"), children="one")
        b.ack(rows.where("n > 0"), children="more")
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


def test_auto_mode_chooses_by_batch_size(
    spark: SparkSession, make_spark_acker: MakeSparkAcker, monkeypatch: pytest.MonkeyPatch
) -> None:
    from acker_redis.spark import memory as module

    monkeypatch.setattr(module, "DRIVER_MOST", 4)
    acker = make_spark_acker(mode="auto")
    modes = []
    for batch_id, count in enumerate([4, 5, 1, 1, 9, 4]):
        pairs = [(100 * batch_id + n, 9) for n in range(1, count + 1)]
        with acker.batch(frame(spark, pairs), batch_id) as b:
            b.emit(b.df, edge="e")
        assert b.report
        modes.append(b.report.mode)
    # After a batch far below the limit, the next one is not counted and uses the same mode.
    assert modes == ["driver", "executors", "executors", "driver", "driver", "executors"]
    report = acker.ack(frame(spark, [(7, 7)]), 0, query_id="other")
    assert report.mode == "executors", "rows that are not kept are not counted"
    assert [each.batch_id for each in acker.reports] == [0, 1, 2, 3, 4, 5, 0]


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


# Errors


def columns(**kinds: str) -> str:
    return ", ".join(f"{name} {kind}" for name, kind in kinds.items())


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        ("anchor BIGINT", "column tuple is missing; the columns are anchor. .*Names"),
        ("tuple BIGINT, n INT", "column anchor is missing; the columns are tuple, n"),
        ("anchor INT, tuple BIGINT", "column anchor is int, but must be bigint"),
        ("anchor BIGINT, tuple STRING", "column tuple is string, but must be bigint"),
        ("Anchor BIGINT, tuple BIGINT", "column Anchor must be written anchor"),
        ("anchor BIGINT, TUPLE BIGINT", "column TUPLE must be written tuple"),
        ("anchors BIGINT", "column anchors is bigint, but must be array"),
        ("anchors ARRAY<STRUCT<a: BIGINT, b: BIGINT>>", "made? it with|make it with anchors_of"),
        ("anchors ARRAY<STRUCT<anchor: BIGINT, tuple: INT>>", "make it with anchors_of"),
    ],
)
def test_wrong_columns_are_refused(
    spark: SparkSession, by_driver: Acker, schema: str, words: str
) -> None:
    df = spark.createDataFrame([], schema)
    uses: list[Callable[[MicroBatch], object]] = [
        lambda b: b.ack(df), lambda b: b.emit(df, edge="e"), lambda b: b.fail(df),
        lambda b: b.touch(df),
    ]  # fmt: skip
    for use in uses:
        with pytest.raises(InvalidBatchError, match=words), by_driver.batch(df, 0) as b:
            use(b)
    with pytest.raises(InvalidBatchError, match=words):
        by_driver.ack(df, 0)


def test_duplicate_column_is_refused(spark: SparkSession, by_driver: Acker) -> None:
    df = frame(spark, [(7, 8)])
    twice = df.alias("x").join(df.alias("y"), "n")
    with pytest.raises(InvalidBatchError, match="column anchor occurs more than once, as after"):
        by_driver.ack(twice, 0)


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("INT", r"children must be bigint or array<bigint>, not int"),
        ("ARRAY<INT>", "not array<int>"),
        ("STRING", "not string: make them with acker.ids.tuple_id"),
    ],
)
def test_children_of_wrong_types_are_refused(
    spark: SparkSession, by_driver: Acker, kind: str, words: str
) -> None:
    df = frame(spark, [(7, 8)]).withColumn("kids", F.lit(None).cast(kind))
    with pytest.raises(InvalidBatchError, match=words):
        by_driver.ack(df, 0, children="kids")


def test_wrong_calls_of_a_batch_are_refused(spark: SparkSession, by_driver: Acker) -> None:
    df = frame(spark, [(7, 8)])
    b = by_driver.batch(df, 0)
    for use in (
        lambda: b.emit(df, edge="e"), lambda: b.ack(df), lambda: b.fail(df), lambda: b.touch(df),
        lambda: b.track(source="t", source_id="n"),
    ):  # fmt: skip
        with pytest.raises(InvalidBatchError, match="use it as: with acker.batch"):
            use()
    with pytest.raises(InvalidBatchError, match="children= does not support messages of many"):
        many = df.select(anchors_of(("anchor", "tuple")).alias("anchors"), "n")
        by_driver.ack(many, 0, children="n")
    with pytest.raises(InvalidBatchError, match="edge 'e' is empty or was already emitted"), b:
        b.emit(df, edge="e")
        b.emit(df, edge="e")
    with pytest.raises(InvalidBatchError, match="edge '' is empty"), by_driver.batch(df, 0) as b:
        b.emit(df, edge="")
    with pytest.raises(ValueError, match="needs the columns"):
        anchors_of()
    assert total(by_driver.client)["pending"] == 0


@pytest.mark.parametrize("place", PLACES)
def test_invalid_ids_are_refused_and_no_shard_is_changed(
    spark: SparkSession, make_spark_acker: MakeSparkAcker, place: tuple[str, int]
) -> None:
    """A task finds the row, the driver raises the error, and no shard applies a call."""
    acker = make_spark_acker({"shards": place[1]}, mode=place[0])
    good = [(n, 9) for n in range(1, 9)]
    for anchor, id_, words in (
        (2**62 | 4095, 5, "an anchor must be a number"),
        (7, -5, "an id of a message"),
        (None, 5, "1 rows have no anchor"),
        (7, None, "1 rows have no tuple"),
    ):
        rows = frame(spark, [*good, (anchor, id_)])  # type: ignore[list-item]
        with pytest.raises(InvalidBatchError, match=words):
            acker.ack(rows, 0)
        assert total(acker.client)["pending"] == 0


def test_query_id_is_required_outside_a_streaming_query(
    spark: SparkSession, make_spark_acker: MakeSparkAcker
) -> None:
    acker = make_spark_acker(query_id=None)
    df = frame(spark, [(7, 8)])
    with pytest.raises(ConfigError, match="give query_id="):
        acker.batch(df, 0)
    with pytest.raises(ConfigError, match="query id"):
        acker.batch(df, 0, query_id="not a name")
    assert acker.batch(df, 0, query_id="given").query_id == "given"


def test_invalid_spark_acker_settings_are_refused(
    spark: SparkSession, make_spark_acker: MakeSparkAcker, monkeypatch: pytest.MonkeyPatch
) -> None:
    for wrong in ({"mode": "both"}, {"on_changed_batch": "ignore"}, {"app_id": "a/b"}):
        with pytest.raises(ConfigError):
            make_spark_acker(**wrong)
    monkeypatch.delenv("ACKER_REDIS_URL", raising=False)
    with pytest.raises(ConfigError, match="ACKER_REDIS_URL"):
        Acker(spark, "n", app_id="a")


@pytest.mark.parametrize("mode", ["driver", "executors"])
def test_batch_of_an_unknown_namespace_is_refused(
    spark: SparkSession, make_spark_acker: MakeSparkAcker, mode: str
) -> None:
    acker = make_spark_acker(mode=mode)
    url, mode = acker.application.target.url, acker.application.mode
    acker = Acker(spark, "missing", app_id="a", url=url, mode=mode, query_id="q")
    with pytest.raises(NamespaceNotFoundError):
        acker.ack(frame(spark, [(7, 8)]), 0)


# Tricks: transformations that a plan may apply to the rows of a batch

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
    wide = ranked.join(ranked.groupBy("rank").count(), "rank").repartition(4, "tuple")
    return [b.emit(wide.orderBy("anchor"), edge="e"), b.emit(wide.distinct(), edge="f")]


def at_random(b: MicroBatch, old: DataFrame) -> Sequence[DataFrame]:
    dice = F.udf(lambda _: random.random(), "double").asNondeterministic()
    some = b.df.where(F.rand() < 0.5).where(dice("n") < 0.8)
    return [b.emit(some, edge="e"), b.emit(b.df.where(dice("n") < 0.5), edge="f")]


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
    "evaluated again": lambda b, old: [b.emit(b._given.rows, edge="e")],
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


# Random plans, without Spark


def derived(parent: int, *way: object) -> int:
    """Return the id of a child, derived like those of :class:`Ids`."""
    text = ",".join(map(str, (parent, *way))).encode()
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "big") >> 1 or 1


class Plans:
    """Random batches of bolts, correct and wrong, over the trees of a world."""

    def __init__(self, client: Client, seed: int) -> None:
        self.world, self.chance = World(client, seed), random.Random(seed)
        chance = self.chance
        self.client = Dying(client.connection.client, client.namespace)
        self.target = Target(client.namespace, url_of(client), timeout=60)
        self.shards = client.config.shards
        self.batch_ids = itertools.count()
        self.again: set[int] = set()
        """Trees of messages that were delivered again after processing; they may be complete."""
        counts = [chance.randint(1, 3) for _ in range(chance.randint(1, 4))]
        trees = [*self.world.track(*counts), *self.world.track(*counts[::-1], block="b")]
        self.messages: list[tuple[Pair, ...]] = [(pair,) for each in trees for pair in each]
        """All messages that were written; some belong to several trees."""

    def waiting(self) -> list[tuple[Pair, ...]]:
        return [m for m in self.messages if not set(m) <= self.world.processed]

    def rarely(self, of: int = 8) -> bool:
        return self.chance.randrange(of) == 0

    def step(self) -> None:
        """Run one batch until it is applied or refused; some drivers die before the end."""
        chance, batch_id = self.chance, next(self.batch_ids)
        pool = self.messages if self.rarely() else self.waiting()
        rows = chance.sample(pool, min(len(pool), chance.randint(1, 5)))
        if self.rarely() and rows:
            rows.append(rows[0])
        self.again |= {a for row in rows for a, i in row if (a, i) in self.world.processed}
        plan = self.plan(rows, batch_id)
        for attempt in range(5):
            self.client.calls_left = chance.choice([-1, -1, 0, 1]) if attempt < 4 else -1
            terms, children = plan
            job = Job(
                self.target, self.shards, lane_of("a", "q"), batch_id, "fail_trees"
            )  # fmt: skip
            # From here on the inputs may be acked: their children are decided.
            before = set(self.world.processed)
            self.world.processed |= {(a, i) for kind, a, i, _ in terms if kind is Kind.INPUT}
            try:
                with pytest.MonkeyPatch.context() as patch:
                    patch.setattr(Target, "client", lambda target: self.client)
                    done = in_driver(job, packed(terms, self.shards, chance, 2))
            except InvalidBatchError as error:
                event(str(error)[:40].lstrip("0123456789 "))
                self.world.processed = before
                break
            except RedisUnavailableError:
                self.world.check()
                if self.rarely(3):
                    plan = self.plan(rows, batch_id)
                continue
            self.world.check()
            event(f"applied, changed={done.changed}")
            if done.changed:
                break  # its messages are not written
            anchors = {anchor for child in children for anchor, _ in child} - self.again
            assert not {self.world.names[anchor] for anchor in anchors} & self.world.acked
            self.messages += children
            self.world.written |= {pair for child in children for pair in child}
            break
        self.world.check()

    def plan(
        self, rows: list[tuple[Pair, ...]], batch_id: int
    ) -> tuple[list[Term], list[tuple[Pair, ...]]]:
        """Return terms, and the messages to write after the terms were applied."""
        chance = self.chance
        acked = rows[1:] if self.rarely() else rows
        terms: list[Term] = [(Kind.INPUT, a, i, "") for row in acked for a, i in row]
        children: list[tuple[Pair, ...]] = []
        for ordinal in range(chance.choice([0, 0, 1, 2, 4])):
            parents = self.messages if self.rarely() else rows
            many = chance.sample(parents, min(len(parents), chance.choice([1, 1, 2])))
            key = 0 if self.rarely() else ordinal
            pairs = [(a, derived(i, "e", batch_id, key)) for row in many for a, i in row]
            if self.rarely():
                anchors = [a for a, _ in pairs]
                chance.shuffle(anchors)
                pairs = list(zip(anchors, (i for _, i in pairs), strict=True))
            children.append(tuple(pairs))
            terms += [(Kind.CHILD, a, i, "") for a, i in pairs]
        for a, _ in {pair for row in rows for pair in row}:
            if self.rarely(12):
                terms.append((Kind.FAIL, a, 0, "no"))
            if self.rarely(12):
                terms.append((Kind.TOUCH, a, 0, ""))
        return terms, children


@given(seed=st.integers(0, 2**32), shards=st.sampled_from([1, 2]))
@settings(max_examples=examples(0.3), suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_random_plans_never_ack_falsely(make_any_acker: MakeAcker, seed: int, shards: int) -> None:
    client = make_any_acker(shards=shards)
    plans = Plans(client, seed)
    for _ in range(8):
        plans.step()
    plans.world.drain()
    event(f"acked {len(plans.world.acked) > 0}")
    tick(client, 3)
    plans.world.check()
    assert total(client)["pending"] == 0
