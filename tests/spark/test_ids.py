"""Derived ids: they name their edge, repeat only with their message, and cannot be chosen."""

import logging
import random
from collections.abc import Sequence
from functools import reduce
from operator import xor
from typing import Any

import pytest
from pyspark.sql import Column, DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from acker_redis.errors import ConfigError, InvalidBatchError
from acker_redis.protocol.id_maker import IdMaker
from acker_redis.protocol.ids import ANCHOR_MAX, EDGE_BIT, TUPLE_MAX
from acker_redis.spark import Acker, Ids, Names, anchors_of, collect_anchors
from acker_redis.spark.fold import target as targets
from acker_redis.spark.ids import _positive
from tests.spark.conftest import MakeSparkAcker, outcomes
from tests.spark.known_ids import EDGES, EXPECTED, SALT, known_ids
from tests.spark.xxh64 import hash_text, texts_with_hash
from tests.support import tick

MILL = 1 << EDGE_BIT
SHOP = 2 << EDGE_BIT


@pytest.fixture(scope="module")
def ids(spark: SparkSession) -> Ids:
    return Ids(spark, IdMaker(salt=SALT))


@pytest.fixture(scope="module")
def named(spark: SparkSession) -> Ids:
    """Return the ids of a namespace with two edges."""
    return Ids(spark, IdMaker(edges=EDGES, salt=SALT))


def only(df: DataFrame, *columns: Column) -> Row:
    [row] = df.select(*columns).collect()
    return row


def values(spark: SparkSession, rows: list[tuple[Any, ...]], schema: str, column: Any) -> list[Any]:
    return [r[0] for r in spark.createDataFrame(rows, schema).select(column).collect()]


# The ids


def test_ids_are_bigint_in_range_and_distinct(spark: SparkSession, ids: Ids) -> None:
    df = spark.range(100_000).select(
        ids.anchor("id").alias("a"), ids.tuple_id("id", "e").alias("t"),
        ids.tuple_id(F.lit(7), "e", "id").alias("k"),
    )  # fmt: skip
    assert [kind for _, kind in df.dtypes] == ["bigint"] * 3
    for name, most in (("a", ANCHOR_MAX), ("t", TUPLE_MAX), ("k", TUPLE_MAX)):
        low, high, distinct = only(df, F.min(name), F.max(name), F.count_distinct(name))
        assert 1 <= low < most // 1000
        assert most - most // 1000 < high <= most
        assert distinct == 100_000


def test_ids_of_an_edge_have_its_code_and_55_other_bits(spark: SparkSession, named: Ids) -> None:
    for edge, code in (("mill", MILL), ("shop", SHOP), ("other", 0)):
        for id_ in (named.tuple_id("id", edge), named.tuple_id(F.lit(7), edge, "id")):
            df = spark.range(10_000).select(id_.alias("t"))
            low, high, distinct = only(df, F.min("t"), F.max("t"), F.count_distinct("t"))
            assert code < low < code + MILL // 100
            assert code + MILL - MILL // 100 < high < code + MILL
            assert distinct == 10_000


def test_ids_do_not_change_from_run_to_run(spark: SparkSession) -> None:
    row = known_ids(spark)
    assert row == EXPECTED
    assert [row[4] - MILL, row[5] - MILL] == [row[2] % MILL, row[3] % MILL]


def test_names_and_columns_give_the_same_ids(spark: SparkSession, ids: Ids) -> None:
    """Names, columns and SQL take different code paths; the ids are equal for all values."""
    texts = [None, "", "\\N", "\\", "|", "'", "a|b", "`", "\n", "é", "-", "1:a"]
    rows = [(n, x, y) for n, (x, y) in enumerate((x, y) for x in texts for y in texts)]
    df = spark.createDataFrame(rows, "n BIGINT, x STRING, `y z` STRING").where("n % 7 < 3")
    for edge in ("e", "it's", 'a "b"', "\\", "|", "e@q/7", "\n", "é", ""):
        by_name = ids.tuple_id("n", edge, "x", "n")
        by_column = ids.tuple_id(F.col("n"), edge, F.col("x"), F.col("n"))
        assert df.where(~by_name.eqNullSafe(by_column)).count() == 0
        for key in ((), ("x", F.col("n"))):
            added = ids.add_messages(df, "n", {"made": edge}, key)
            same = F.col("made").eqNullSafe(ids.tuple_id("n", edge, *key))
            assert added.where(~same).count() == 0
    added = ids.add_anchor(df.withColumn("tried", F.lit(3)), "made", "x", "tried", "it's")
    assert added.where(F.col("made") != ids.anchor("x", attempt=3, source="it's")).count() == 0
    by_name = ids.anchor("x", "n", attempt=3)
    assert df.where(by_name != ids.anchor(F.col("x"), "n", attempt=F.lit(3))).count() == 0


def test_edge_and_key_are_unambiguous(spark: SparkSession, ids: Ids) -> None:
    """Also if their concatenations are equal."""
    edges = ["a", "a|b", "1:a", ":", "", "a1:b", "b"]
    made = [ids.tuple_id("id", edge) for edge in edges]
    made += [ids.tuple_id("id", edge, F.lit(k)) for edge in edges for k in ("", "a", "b", "1:a")]
    made += [ids.tuple_id("id", edge, F.lit("a"), F.lit("b")) for edge in edges]
    assert len(set(only(spark.range(5, 6), *made))) == len(made)


def test_different_keys_give_different_anchors(spark: SparkSession, ids: Ids) -> None:
    texts = [None, "", "-", ":", "1:a", "a", "b", "ab", "a1:b", "\\N", "0:"]
    rows = [(x, y) for x in texts for y in texts]
    found = values(spark, rows, "x STRING, y STRING", ids.anchor("x", "y"))
    assert len(set(found)) == len(rows)
    assert None not in found


def test_nulls_and_negative_zero_give_different_ids(spark: SparkSession, ids: Ids) -> None:
    """xxhash64 ignores nulls, and hashes 0.0 and -0.0 alike."""
    rows = [(1, None, 0.0), (None, 1, 0.0), (1, None, -0.0), (None, None, 0.0)]
    found = values(spark, rows, "a INT, b INT, c DOUBLE", ids.anchor("a", "b", "c"))
    assert len(set(found)) == 4


def test_attempt_source_edge_key_and_parent_change_the_id(spark: SparkSession, ids: Ids) -> None:
    row = only(
        spark.range(1), ids.anchor("id"), ids.anchor("id", attempt=1), ids.anchor("id", source="s"),
        ids.anchor("id", attempt=F.lit(2)), ids.tuple_id("id", "a"), ids.tuple_id("id", "b"),
        ids.tuple_id(F.lit(1), "a"), ids.tuple_id("id", "a", F.lit(0)),
        ids.tuple_id("id", "a", F.lit(1)), ids.tuple_id("id", "a", F.lit(None)),
        ids.tuple_id(F.lit(1), "a", F.lit(1)),
    )  # fmt: skip
    assert len(set(row)) == 11


def test_null_attempt_is_attempt_0(spark: SparkSession, ids: Ids) -> None:
    row = only(spark.range(1), ids.anchor("id"), ids.anchor("id", attempt=F.lit(None)))
    assert row[0] == row[1]


def test_null_parent_gives_null_id(spark: SparkSession, named: Ids) -> None:
    for id_ in (named.tuple_id("p", "mill"), named.tuple_id("p", "mill", F.lit(1))):
        assert values(spark, [(None,)], "p BIGINT", id_) == [None]


def test_hash_of_zero_becomes_id_one(spark: SparkSession) -> None:
    rows = [(0,), (5,)]
    assert values(spark, rows, "h BIGINT", _positive(F.col("h"))) == [1, 5]


def test_ids_without_a_salt_are_refused(spark: SparkSession) -> None:
    with pytest.raises(ConfigError, match="needs the salt"):
        Ids(spark, IdMaker())


# Messages of many trees


def test_least_input_of_each_tree_carries_the_code(spark: SparkSession, named: Ids) -> None:
    """So the XOR of the ids in a tree has the code once; also with ids that have codes."""
    chance = random.Random(5)
    rows: list[tuple[int, list[tuple[int, int]]]] = []
    for n in range(60):
        trees = [chance.randrange(1, 5) for _ in range(chance.randrange(7))]
        pairs = [(a, chance.getrandbits(54) + 1 | chance.choice((0, MILL, SHOP))) for a in trees]
        rows.append((n, pairs))
    schema = "n INT, anchors ARRAY<STRUCT<anchor: BIGINT, tuple: BIGINT>>"
    df = spark.createDataFrame(rows, schema)
    for key in ([], ["n"]):
        made = named.with_children(df, "shop", key=key)
        assert made.columns == ["n", "anchors", "children"]
        plain = named.with_children(df, "other", key=key)
        ids_of = {r["n"]: r["children"] for r in plain.collect()}
        for n, inputs, children in made.collect():
            assert sorted(a for a, _ in children) == sorted(a for a, _ in inputs)
            assert len({id_ for _, id_ in [*children, *ids_of[n]]}) == 2 * len(inputs)
            by_input = dict(zip(sorted(map(tuple, inputs)), children, strict=True))
            for anchor in {a for a, _ in inputs}:
                least = min(i for a, i in inputs if a == anchor)
                codes = {i: by_input[a, i][1] >> EDGE_BIT for a, i in by_input if a == anchor}
                assert codes == {i: 2 if i == least else 0 for i in codes}


def test_children_of_rows_without_trees_and_of_half_pairs(spark: SparkSession, named: Ids) -> None:
    schema = "anchors ARRAY<STRUCT<anchor: BIGINT, tuple: BIGINT>>"
    df = spark.createDataFrame([([],), (None,), ([(3, None)],)], schema)
    for edge in ("mill", "other"):
        found = [r[0] for r in named.with_children(df, edge).select("children").collect()]
        assert found == [[], None, [(3, None)]]


def test_children_of_plain_rows_and_renamed_columns(spark: SparkSession) -> None:
    ids = Ids(spark, IdMaker(salt=SALT), Names(anchor="a", tuple="t"))
    df = spark.createDataFrame([(1, 2, 3)], "a BIGINT, t BIGINT, k INT")
    made = ids.with_children(df, "e", key=["k"], column="kids")
    row = only(made, F.col("kids"), ids.tuple_id("t", "e", "k"))
    assert row[0] == row[1]
    with pytest.raises(InvalidBatchError, match="column anchor is missing"):
        Ids(spark, IdMaker(salt=SALT)).with_children(df, "e")


def rows_of(spark: SparkSession, *ids: str) -> DataFrame:
    return spark.createDataFrame([(i,) for i in ids], "sid STRING")


def track(acker: Acker, df: DataFrame, batch_id: int = 0, **more: Any) -> DataFrame:
    with acker.batch(df, batch_id, query_id="src") as b:
        messages = b.track(source="t", **{"source_id": "sid", **more})
    return messages.localCheckpoint()


def residuals(acker: Acker) -> dict[str, tuple[int, tuple[str, ...]]]:
    """Expire all trees; return residual and edges by source id, of the trees that had any."""
    tick(acker.client, acker.client.config.buckets)
    return {o.source_id: (o.residual, o.edges) for o in acker.client.outcomes("t") if o.residual}


@pytest.mark.parametrize("mode", ["driver", "executors"])
def test_lost_message_names_its_edge(
    spark: SparkSession, make_spark_acker: MakeSparkAcker, mode: str
) -> None:
    """On each way to emit: first messages, children, children in the row, joins and windows."""
    edges = ("first", "child", "row", "join", "window", "spare")
    acker = make_spark_acker({"edges": edges, "shards": 2}, mode=mode)
    names = ["a", "b", "c", "d", "e", "f"]
    first = track(acker, rows_of(spark, *names), edges="first")
    lost: dict[str, int] = {}

    def lose(df: DataFrame, name: str, column: str = "tuple") -> DataFrame:
        [row] = df.where(F.col("sid") == name).collect()
        found = row[column]
        lost[name] = found if isinstance(found, int) else reduce(xor, (p["tuple"] for p in found))
        return df.where(F.col("sid") != name)

    with acker.batch(lose(first, "a"), 0, query_id="one") as b:
        children = b.emit(b.df, edge="child")
    left = lose(children, "b").withColumn("kid", acker.ids.tuple_id("tuple", "row"))
    acker.ack(left, 0, query_id="two", children="kid")
    left = lose(left, "c", "kid").withColumn("tuple", F.col("kid"))
    # Each of the others twice, so that a message has two inputs of one tree.
    with acker.batch(left, 0, query_id="three") as b:
        twice = b.emit(b.df.crossJoin(spark.range(2)), edge="spare", key=["id"])
    with acker.batch(twice, 0, query_id="four") as b:
        ones, others = b.df.where("id = 0"), b.df.where("id = 1").alias("o")
        joined = ones.alias("m").join(others, F.expr("m.sid = o.sid"))
        pairs = anchors_of(("m.anchor", "m.tuple"), ("o.anchor", "o.tuple"))
        joined = b.emit(joined.select("m.sid", pairs.alias("anchors")), edge="join")
    assert [len(r["anchors"]) for r in joined.collect()] == [2, 2, 2]
    left = lose(joined, "d", "anchors")
    with acker.batch(left, 0, query_id="five") as b:
        flat = b.df.select("sid", F.explode("anchors").alias("p")).select("sid", "p.*")
        windows = flat.groupBy("sid").agg(collect_anchors().alias("anchors"))
        windows = b.emit(windows, edge="window", anchors="anchors")
    acker.ack(lose(windows, "e", "anchors"), 0, query_id="six")
    found = residuals(acker)
    assert found == {
        name: (lost[name], (edge,))
        for name, edge in zip("abcde", ("first", "child", "row", "join", "window"), strict=True)
    }
    assert acker.client.status().counters["acked"] == 1


def test_unlisted_edge_is_logged_once_and_has_no_code(
    spark: SparkSession, make_spark_acker: MakeSparkAcker, caplog: pytest.LogCaptureFixture
) -> None:
    acker = make_spark_acker({"edges": ("mill",)})
    with caplog.at_level(logging.WARNING, "acker_redis.protocol.id_maker"):
        for batch_id in range(2):
            messages = track(acker, rows_of(spark, f"s{batch_id}"), batch_id, edges="bakery")
            assert [r["tuple"] >> EDGE_BIT for r in messages.collect()] == [0]
    assert [r.getMessage() for r in caplog.records] == [
        "the namespace does not list edge bakery (it lists mill): verdicts cannot name it"
    ]


# The same ids in another run


@pytest.mark.parametrize("edges", [(), ("x", "y")])
def test_restarted_driver_derives_the_same_ids(
    spark: SparkSession, make_spark_acker: MakeSparkAcker, edges: tuple[str, ...]
) -> None:
    """A batch runs again in another process: it is a repeat, and its messages have equal ids."""
    acker = make_spark_acker({"edges": edges})
    other = make_spark_acker({"edges": edges})

    def run(acker: Acker) -> tuple[list[Row], list[Row], int]:
        targets._clients.clear()  # a new process reads the salt again
        acker.shared._ids = None
        first = track(acker, rows_of(spark, "a", "b"), edges=["x", "y"])
        with acker.batch(first, 0, query_id="bolt") as b:
            out = b.emit(b.df.crossJoin(spark.range(2)), edge="y", key=["id"])
        assert b.report
        made = sorted(out.collect()), sorted(first.collect())
        return *made, b.report.repeated

    one = run(acker)
    again = run(make_spark_acker(client=acker.client))
    assert (one[2], again[2]) == (0, 1)
    assert again[:2] == one[:2]
    assert {r["tuple"] for r in one[0]}.isdisjoint(r["tuple"] for r in run(other)[0])


# An author of data without the salt cannot choose ids


def old_id(kind: str, name: str, first: Column, text: str) -> Column:
    """Return a hash of public inputs, as ids were derived before there was a salt."""
    return F.xxhash64(first, F.concat_ws("|", F.lit(f"{kind}|{name}|"), F.col(text)))


def colliding(spark: SparkSession, prefix: str, first: Column, wanted: int) -> str:
    """Return a text that gives an id of one's own choice, if ids are hashes of public inputs."""
    seed = only(spark.range(1), F.xxhash64(first))[0]
    text = next(texts_with_hash(prefix, wanted, seed % 2**64, random.Random(1)))
    assert hash_text(text, seed % 2**64) == wanted
    return text.removeprefix(prefix)


def emitted(acker: Acker, parent: DataFrame, keys: DataFrame, batch_id: int) -> DataFrame:
    with acker.batch(parent, batch_id, query_id="bolt") as b:
        return b.emit(b.df.crossJoin(keys), edge="e", key=["k"])


def made_by_emit(ids: Ids, parent: int, keys: DataFrame) -> DataFrame:
    """Return the ids that :func:`emitted` gives in batch 0, in the column ``id``."""
    df = keys.withColumn("parent", F.lit(parent))
    return ids.add_messages(df, "parent", {"id": "e"}, ["k"], "test@bolt/0")


def check_no_false_ack(acker: Acker, parent: DataFrame, keys: DataFrame) -> None:
    """Emit the children of these keys: their tree is acked with the last of them, not before."""
    children = emitted(acker, parent, keys, 0)
    expected = made_by_emit(acker.ids, parent.collect()[0]["tuple"], keys)
    assert expected.join(children, F.col("id") == F.col("tuple"), "left_anti").isEmpty()
    assert outcomes(acker.client) == []
    [last, *others] = [r["tuple"] for r in children.collect()]
    acker.ack(children.where(F.col("tuple").isin(others)), 0, query_id="last")
    assert outcomes(acker.client) == []
    acker.ack(children.where(F.col("tuple") == last), 1, query_id="last")
    assert [o[0] for o in outcomes(acker.client)] == ["ack"]


def test_keys_that_cancelled_without_a_salt_do_not_cancel(
    spark: SparkSession, make_spark_acker: MakeSparkAcker
) -> None:
    """The third key has the id of the first XOR that of the second, if ids are a plain hash."""
    acker = make_spark_acker()
    parent = track(acker, rows_of(spark, "a"))
    id_ = parent.collect()[0]["tuple"]
    way = "e@bolt/0"
    keys = spark.createDataFrame([("a",), ("b",)], "k STRING")
    plain = old_id("tuple", way, F.lit(id_), "k").bitwiseAND(F.lit(TUPLE_MAX))
    one, two = (r[0] for r in keys.select(plain).collect())
    key = colliding(spark, f"tuple|{way}||", F.lit(id_), one ^ two)
    keys = keys.union(spark.createDataFrame([(key,)], "k STRING"))
    assert only(keys, F.bit_xor(plain)) == (0,), "three messages cancelled"
    made = made_by_emit(acker.ids, id_, keys)
    assert only(made, F.bit_xor("id"))[0] != 0
    check_no_false_ack(acker, parent, keys)


def test_source_id_that_shared_an_anchor_without_a_salt_has_its_own(
    spark: SparkSession, make_spark_acker: MakeSparkAcker
) -> None:
    """A forged source id had the anchor of another record, and the query stopped for good."""
    acker = make_spark_acker()
    old = old_id("anchor", "t", F.lit(0), "sid").bitwiseAND(F.lit(ANCHOR_MAX))
    victim = only(rows_of(spark, "victim"), old)[0]
    forged = colliding(spark, "anchor|t||", F.lit(0), victim)
    both = rows_of(spark, "victim", forged)
    assert only(both, F.count_distinct(old)) == (1,)
    messages = track(acker, both)
    assert messages.select("anchor").distinct().count() == 2
    acker.ack(messages, 0, query_id="bolt")
    assert {(o[0], o[2]) for o in outcomes(acker.client)} == {("ack", "victim"), ("ack", forged)}


def cancelling(ids: Sequence[int]) -> list[int]:
    """Return the positions of some ids whose XOR is zero; there are some among 64 or more."""
    basis: dict[int, tuple[int, int]] = {}
    for position, id_ in enumerate(ids):
        members = 1 << position
        while id_ and (pivot := basis.get(id_.bit_length())):
            id_, members = id_ ^ pivot[0], members ^ pivot[1]
        if not id_:
            return [k for k in range(len(ids)) if members >> k & 1]
        basis[id_.bit_length()] = id_, members
    raise AssertionError("no ids cancel")


@pytest.mark.parametrize("edges", [(), ("e",)])
def test_author_of_data_without_the_salt_gets_no_false_ack(
    spark: SparkSession, make_spark_acker: MakeSparkAcker, edges: tuple[str, ...]
) -> None:
    """The author knows the code, the names, and the ids of all messages so far, and guesses a salt.

    Among 70 ids that can be computed, some cancel. So keys can be chosen whose messages cancel for
    the guessed salt. For the real one they do not.
    """
    acker = make_spark_acker({"edges": edges})
    parent = track(acker, rows_of(spark, "a"))
    id_ = parent.collect()[0]["tuple"]
    maker = acker.client.ids
    names = [f"key-{n}" for n in range(70)]

    def children(ids: Ids) -> list[int]:
        df = spark.createDataFrame([(name,) for name in names], "k STRING")
        by_key = {r["k"]: r["id"] for r in made_by_emit(ids, id_, df).collect()}
        return [by_key[name] for name in names]

    guess = children(Ids(spark, IdMaker(maker.edges, "f" * 32)))
    real = children(Ids(spark, maker))
    assert not set(guess) & set(real)
    chosen = cancelling(guess)
    assert reduce(xor, (guess[k] for k in chosen)) == 0
    assert reduce(xor, (real[k] for k in chosen)) != 0
    # An author who knows the salt could do it.
    assert reduce(xor, (real[k] for k in cancelling(real))) == 0
    keys = spark.createDataFrame([(names[k],) for k in chosen], "k STRING")
    check_no_false_ack(acker, parent, keys)
