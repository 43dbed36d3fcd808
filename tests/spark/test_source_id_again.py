"""A source id that comes again, such as an order's next version: its anchor is that of the first.

A message of an earlier tree may be processed late, while a later tree of the same anchor is
pending. Its ack must not complete the later tree.
"""

import random
from dataclasses import dataclass
from functools import reduce
from operator import xor
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from acker_redis.protocol.config import AckerConfig
from acker_redis.protocol.ids import ANCHOR_MAX
from acker_redis.spark import (
    Acker,
    FileQueue,
    TrackWriter,
    counted,
    explain,
    read_outcomes,
    source_id,
)
from acker_redis.spark.fold import target as targets
from proof.reference.acker import Reference
from tests.spark.conftest import MakeSparkAcker, outcomes, url_of
from tests.support import config_of, row, tick
from tests.support import track as track_row
from tests.tiers import budget

ORDERS = 100
EXPIRED, ACKED = ("nack", "expired"), ("ack", "completed")
Ids = frozenset[int]


def orders(spark: SparkSession, version: int, lines: int = 1, count: int = ORDERS) -> DataFrame:
    """Return a version of each order: one row, or a row for each line."""
    return spark.range(count * lines).selectExpr(
        f"concat('o', id div {lines}) AS oid", f"id % {lines} AS line", f"{version} AS version"
    )


def track(acker: Acker, df: DataFrame, batch_id: int, **more: Any) -> DataFrame:
    query_id = more.pop("query_id", "src")
    with acker.batch(df, batch_id, query_id=query_id) as b:
        messages = b.track(source="t", **{"source_id": "oid", **more})
    return messages.localCheckpoint()


def expire(acker: Acker) -> list[tuple[str, ...]]:
    """Expire all trees; return verdict, reason and source id of those that had not ended."""
    tick(acker.client, acker.client.config.buckets)
    return [found[:3] for found in outcomes(acker.client)]


@pytest.mark.parametrize(
    ("keyed", "mode", "shards"),
    [(False, "driver", 1), pytest.param(True, "executors", 2, marks=pytest.mark.full)],
)
def test_late_ack_of_an_earlier_version_completes_no_later_version(
    spark: SparkSession, make_spark_acker: MakeSparkAcker, keyed: bool, mode: str, shards: int
) -> None:
    """Version 1 expires while the next job is down; the messages of version 2 are lost."""
    acker = make_spark_acker({"shards": shards}, mode=mode)
    more = {"key": "line"} if keyed else {}
    first = track(acker, orders(spark, 1, 1 + keyed), 0, **more)
    every = sorted((*EXPIRED, f"o{n}") for n in range(ORDERS))
    assert expire(acker) == every
    track(acker, orders(spark, 2, 1 + keyed), 1, **more)
    acker.ack(first, 0, query_id="bolt")
    assert outcomes(acker.client) == [], "a message of version 2 is outstanding"
    assert expire(acker) == every


@pytest.mark.full
def test_explain_names_no_message_of_an_earlier_version(
    spark: SparkSession, make_spark_acker: MakeSparkAcker
) -> None:
    """Whether the message of version 2 is lost before its queue, in it, or not at all."""
    acker = make_spark_acker()
    first = track(acker, orders(spark, 1, count=6), 0)
    with acker.batch(first, 0, query_id="bolt", unmentioned="leave") as b:
        b.fail(b.df.where("oid IN ('o0', 'o1', 'o2')"), "no price")
        b.ack(b.df.where("oid = 'o0'"))
    tick(acker.client, 3)
    second = track(acker, orders(spark, 2, count=6), 1)
    acker.ack(first.unionAll(second.where("oid IN ('o2', 'o5')")), 1, query_id="bolt")
    tick(acker.client, 3)
    verdicts = read_outcomes(spark, acker.namespace, "t", url=url_of(acker.client))
    assert verdicts.count() == 12
    queued = first.unionAll(second.where("oid NOT IN ('o0', 'o3')"))
    found = explain(verdicts, queued).select("anchor", "version", "found").collect()
    assert sorted(row["found"] for row in found) == 6 * ["several"]
    last = verdicts.orderBy(F.desc("at")).limit(6)
    some = explain(last, queued.where("oid IN ('o0', 'o3')")).collect()
    assert [row["found"] for row in some] == 6 * ["none"]


@pytest.mark.full
def test_ids_of_trees_in_blocks_depend_on_no_run(
    spark: SparkSession, make_spark_acker: MakeSparkAcker
) -> None:
    """Their anchors do. The loose trees of the same batch come again with their numbers."""
    acker = make_spark_acker()
    df = spark.range(60).where("id < 50 OR id = 55").union(spark.range(9000, 9001))
    ids = counted(F.lit("p"), number="id")
    for query in ("q", "new"):
        out = track(acker, df, 0, query_id=query, source_id=ids, edges="x")
        alike = out.where(F.col("tuple") == acker.ids.tuple_id("anchor", "x"))
        assert sorted(row["id"] for row in alike.collect()) == [*range(50), 55]
        assert alike.where(F.col("anchor") <= F.lit(ANCHOR_MAX)).isEmpty()
        expire(acker)
    acker.ack(track(acker, df, 1, source_id=ids, edges="x"), 0, query_id="bolt")
    assert {verdict[:2] for verdict in outcomes(acker.client)} == {ACKED}


@pytest.mark.full
def test_versions_in_the_source_id_have_separate_trees(
    spark: SparkSession, make_spark_acker: MakeSparkAcker
) -> None:
    """Without it, two versions that are pending at the same time are both nacked."""
    acker = make_spark_acker()
    plain = [track(acker, orders(spark, version, count=3), version) for version in (1, 2)]
    acker.ack(plain[0].unionAll(plain[1]), 0, query_id="bolt")
    assert [v[:2] for v in outcomes(acker.client)] == 3 * [("nack", "conflict")]
    named = {"source_id": source_id("oid", "version")}
    both = [track(acker, orders(spark, n, count=3), n, query_id="named", **named) for n in (1, 2)]
    acker.ack(both[0], 1, query_id="bolt")
    assert [v[:3] for v in outcomes(acker.client)] == [(*ACKED, f"o{n}|1") for n in range(3)]
    acker.ack(both[1], 2, query_id="bolt")
    assert [v[:3] for v in outcomes(acker.client)] == [(*ACKED, f"o{n}|2") for n in range(3)]


def generations(spark: SparkSession, make: MakeSparkAcker) -> dict[int, list[Ids]]:
    """Return, for some anchors, the ids of the first messages of each of their trees.

    Each source id comes in two batches of three queries, two of which have one name, and as two
    attempts. Half of the trees have two rows, on two edges.
    """
    acker = make({"high_water": 10_000})
    other = make(client=acker.client, app_id="other")
    found: dict[int, list[Ids]] = {}
    tries = spark.range(2).withColumnRenamed("id", "attempt")
    for app, query in ((acker, "q"), (acker, "new"), (other, "q")):
        for batch_id in range(4):
            keyed = batch_id > 1
            rows = orders(spark, batch_id, 1 + keyed, count=1).crossJoin(tries)
            rows = rows.withColumn("oid", F.concat("oid", F.lit("k" if keyed else "")))
            more = {"key": "line", "edges": ["x", "y"]} if keyed else {}
            out = track(app, rows, batch_id, query_id=query, attempt="attempt", **more)
            ids: dict[int, set[int]] = {}
            for each in out.collect():
                ids.setdefault(each["anchor"], set()).add(each["tuple"])
            for anchor, its in ids.items():
                assert len(its) == (4 if keyed else 1)
                found.setdefault(anchor, []).append(frozenset(its))
    assert [len(each) for each in found.values()] == 4 * [6]
    return found


@dataclass(eq=False)
class Message:
    """A message, which differs from others of its anchor, also if its id does not."""

    anchor: int
    id: int
    children: "list[Message] | None" = None
    """The messages that it has caused; None if it was not processed."""

    def is_done(self) -> bool:
        """Return whether it and all that it caused were processed."""
        return self.children is not None and all(child.is_done() for child in self.children)


class History:
    """Trees of these anchors in any order, on the reference; an ack is checked against sets."""

    def __init__(self, chance: random.Random, trees: dict[int, list[Ids]]) -> None:
        self._chance, self._acker = chance, Reference(AckerConfig(buckets=2))
        self._left = {anchor: list(each) for anchor, each in trees.items()}
        self._open: dict[int, list[list[Message]]] = {anchor: [] for anchor in trees}
        """Trees that were tracked since the last verdict of the anchor."""
        self._waiting: list[Message] = []
        self.acked = 0

    def step(self) -> None:
        """Tick, track a tree, or process a message; check the acks."""
        dice = self._chance.random()
        if dice < 0.15:
            tick(self._acker, 1)
        elif dice < 0.4 or not self._waiting:
            self._track(self._chance.choice(sorted(self._left)))
        else:
            self._process(self._chance.choice(self._waiting))
        for told in self._acker.take("t"):
            trees, self._open[told.anchor] = self._open[told.anchor], []
            if told.verdict == "ack":
                self.acked += 1
                [tree] = trees
                assert all(each.is_done() for each in tree), "a message is outstanding"

    def _track(self, anchor: int) -> None:
        if left := self._left[anchor]:
            ids = left.pop(self._chance.randrange(len(left)))
            tree = [Message(anchor, id_) for id_ in sorted(ids)]
            self._open[anchor].append(tree)
            self._waiting += tree
            track_row(self._acker, anchor, reduce(xor, ids))

    def _process(self, message: Message) -> None:
        """Process a message, perhaps late and perhaps not for the last time, or lose it."""
        if self._chance.random() < 0.8:
            self._waiting.remove(message)
        if self._chance.random() < 0.2:
            return
        if message.children is None:
            count = self._chance.choice((0, 0, 1, 2))
            ids = [self._chance.getrandbits(63) | 1 for _ in range(count)]
            message.children = [Message(message.anchor, id_) for id_ in ids]
            self._waiting += message.children
        row(self._acker, message.anchor, reduce(xor, (m.id for m in message.children), message.id))


@pytest.mark.full
def test_trees_of_one_anchor_are_never_acked_falsely(
    spark: SparkSession, make_spark_acker: MakeSparkAcker
) -> None:
    """Over batches, attempts, applications and checkpoints, in any order, with late messages."""
    trees = generations(spark, make_spark_acker)
    acked = 0
    for seed in range(5 * budget().seeds):
        some = dict(random.Random(seed).sample(sorted(trees.items()), 2))
        history = History(random.Random(seed), some)
        for _ in range(40):
            history.step()
        acked += history.acked
    assert acked > budget().seeds / 2, "most histories ended in conflicts"


@pytest.mark.full
def test_messages_of_an_earlier_namespace_in_the_queue_complete_no_tree(
    spark: SparkSession, make_spark_acker: MakeSparkAcker, tmp_path: Path
) -> None:
    """The namespace is created again, the checkpoint stays, and the job dies before its write.

    The queue has the batch, so the next run does not write it: its trees expire.
    """
    acker, queue = make_spark_acker(), FileQueue(tmp_path)
    rows = orders(spark, 1, count=3)
    TrackWriter(acker, "t", {"e": queue}, source_id="oid", query_id="src")(rows, 7)
    acker.client.drop()
    acker.create(config_of({}))
    targets._clients.clear()  # a new process reads the salt again
    acker = make_spark_acker(client=acker.client)
    track(acker, rows, 7, edges="e")
    TrackWriter(acker, "t", {"e": queue}, source_id="oid", query_id="src")(rows, 7)
    schema = "oid STRING, line BIGINT, version INT, anchor BIGINT, tuple BIGINT"
    acker.ack(queue.read(spark, schema), 0, query_id="bolt")
    assert expire(acker) == [(*EXPIRED, f"o{n}") for n in range(3)]
