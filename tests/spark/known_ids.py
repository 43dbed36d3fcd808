"""Ids of fixed inputs. Queues of running jobs contain such ids, so they must never change."""

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from acker_redis.protocol.id_maker import IdMaker
from acker_redis.spark import Ids

SALT = "0123456789abcdef" * 2
EDGES = ("mill", "shop")

EXPECTED = (
    1857857141633047407, 3746994146359451540, 6164369491768551550, 831627915558505915,
    39473998544676990, 38994381141298619, 45655149969100209, 44789491804815272,
    45655149969100209,
)  # fmt: skip


def known_ids(spark: SparkSession) -> tuple[int, ...]:
    """Return anchors and ids; those at the end are of a namespace with edges."""
    ids, named = Ids(spark, IdMaker(salt=SALT)), Ids(spark, IdMaker(edges=EDGES, salt=SALT))
    df = spark.createDataFrame([("k", 5)], "k STRING, n INT")
    df = named.add_messages(df.withColumn("p", F.lit(7)), "p", {"one": "mill"}, run="app@query/3")
    df = named.add_messages(df, "p", {"line": "mill"}, ["n"], "app@query/3")
    df = df.withColumn("anchors", F.expr("array(struct(1L AS anchor, 7L AS tuple))"))
    df = named.children_of_many(df, "many", "mill", (), "app@query/3")
    [row] = df.select(
        ids.anchor("k", "n"), ids.anchor("k", "n", attempt=1, source="s"),
        ids.tuple_id(F.lit(7), "mill"), ids.tuple_id(F.lit(7), "mill", F.lit(1)),
        named.tuple_id(F.lit(7), "mill"), named.tuple_id(F.lit(7), "mill", F.lit(1)),
        "one", "line", F.expr("many[0].tuple"),
    ).collect()  # fmt: skip
    return tuple(row)
