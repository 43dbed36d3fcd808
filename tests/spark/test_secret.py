"""The salt, and a secret derived from it, is in no plan, event log, log or checkpoint."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from tests.spark.conftest import MakeSparkAcker
from tests.spark.faults.conftest import MakeCase, make_case
from tests.spark.faults.stage import PYTHON, Stage
from tests.spark.secret_steps import explained, found_in, run, secrets_of
from tests.spark.versions.environments import python_of

__all__ = ["make_case"]


def test_plans_show_no_secret(spark: SparkSession, make_spark_acker: MakeSparkAcker) -> None:
    acker = make_spark_acker({"edges": ("e",)})
    ids, df = acker.ids, spark.range(3).withColumn("k", F.lit("key"))
    pair = F.struct(F.col("id").alias("anchor"), F.col("id").alias("tuple"))
    many = df.withColumn("anchors", F.array(pair))
    children = [ids.tuple_id("id", "e"), ids.tuple_id("id", "e", "k")]
    plans = [
        df.select(ids.anchor("id", source="s"), *children),
        ids.with_children(many, "e"),
        ids.with_children(many, "other", key=["k"]),
        df.where(ids.tuple_id("id", "e") > 0).groupBy(ids.anchor("id")).count(),
        ids._one.df,
    ]
    shown = "".join(explained(plan) for plan in plans)
    assert "scalar-subquery" in shown
    hidden = secrets_of(ids, ("anchor", "s"), ("anchor", ""), ("message", "e"), ("child", "e"))
    assert [each for each in hidden if each in shown] == []
    shown = "".join([repr(ids), repr(acker), repr(acker.__dict__), repr(acker.shared.__dict__)])
    assert [each for each in hidden if each in shown] == []


@pytest.mark.parametrize(
    "where", ["here", "connect", pytest.param("3.5", marks=pytest.mark.nightly)]
)
def test_event_log_and_log_and_checkpoint_show_no_secret(
    make_case: MakeCase, tmp_path: Path, where: str
) -> None:
    """Spark logs at level INFO, and keeps an event log. In Spark 3.5 a view has it."""
    remote = where == "connect"
    if remote:
        pytest.importorskip("grpc", reason="Spark Connect needs pyspark[connect]")
    case, _ = make_case(2, "loose", mode="driver" if remote else "executors")
    events = tmp_path / "events"
    events.mkdir()
    conf = {
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": events.as_uri(),
        "spark.eventLog.compress": "false",
        "spark.log.level": "INFO",
        "spark.sql.codegen.wholeStage": "true",
        "spark.sql.codegen.factoryMode": "FALLBACK",
        "spark.sql.codegen.comments": "true",
    }
    master = "local[2]" if remote else "local[2,4]"
    python = python_of(where) if where == "3.5" else PYTHON
    with Stage(tmp_path / "stage", master, conf, remote=remote, python=python) as stage:
        secrets = stage.run(run, case)["secrets"]
        assert found_in(tmp_path, secrets) == []
        assert found_in(events, ["scalar-subquery"]), "the search works"
        assert "INFO" in stage.log.read_text()
