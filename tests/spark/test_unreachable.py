"""Executors that cannot reach Redis, while the driver can."""

from typing import Any

import pytest
from pyspark.sql import SparkSession

from acker_redis.errors import InvalidBatchError, RedisUnavailableError
from acker_redis.spark import Acker
from acker_redis.spark.fold import target as targets
from acker_redis.spark.fold.unreachable import of_task
from tests.spark.conftest import MakeSparkAcker, change, outcomes

NOWHERE = "redis://127.0.0.1:1"


@pytest.fixture
def isolated(spark: SparkSession, make_spark_acker: MakeSparkAcker) -> Acker:
    """Return an acker whose URL leads nowhere, but not in this process."""
    client = make_spark_acker({"shards": 2}).client
    acker = Acker(
        spark, client.namespace, app_id="a", url=NOWHERE, query_id="q", timeout=0.2, retry_for=0.1
    )
    targets._clients[acker.application.target] = client
    return acker


def track(spark: SparkSession, acker: Acker) -> None:
    rows = spark.createDataFrame([("one",), ("two",)], "source_id STRING")
    with acker.batch(rows, 0) as b:
        b.track(source="t", source_id="source_id")


def test_executors_without_a_route_say_what_to_use(spark: SparkSession, isolated: Acker) -> None:
    change(isolated, mode="executors")
    with pytest.raises(RedisUnavailableError, match="the driver reaches Redis.*mode='driver'"):
        track(spark, isolated)
    assert isolated.client.status().counters["tracked"] == 0
    change(isolated, mode="driver")
    track(spark, isolated)
    assert isolated.client.status().counters["tracked"] == 2
    assert outcomes(isolated.client) == []


def test_other_errors_stay_as_they_are(isolated: Acker, monkeypatch: pytest.MonkeyPatch) -> None:
    target, lost = isolated.application.target, RedisUnavailableError("no answer")
    other = InvalidBatchError("wrong")
    assert of_task(other, target) is other
    assert str(of_task(lost, target)).startswith("no answer. ")

    def dead(*command: Any) -> None:
        raise RedisUnavailableError("dead")

    monkeypatch.setattr(isolated.client.connection, "command", dead)
    assert of_task(lost, target) is lost
