"""The streaming query of a DataFrame, its checkpoint, and descriptions of jobs in the Spark UI."""

import contextlib
import uuid
from collections.abc import Iterator
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from acker_redis.errors import ConfigError
from acker_redis.protocol.keys import check_name

_QUERY = "sql.streaming.queryId"
_GROUP = "spark.jobGroup.id"
_DESCRIPTION = "spark.job.description"


def query_id_of(df: DataFrame, given: str | None = None) -> str:
    """Return the id of the streaming query that a ``foreachBatch`` DataFrame belongs to.

    Args:
        df: The DataFrame that ``foreachBatch`` gives.
        given: A name to return instead of Spark's id.

    Raises:
        ConfigError: Spark gives no id (outside of a streaming query, or with Spark Connect) and
            ``given`` is missing; or ``given`` is an invalid name.

    """
    query_id = given or _local(df.sparkSession, _QUERY)
    if not query_id:
        raise ConfigError(
            "Spark gives no id of the query (outside of foreachBatch, or with Spark Connect): give "
            "query_id=, a name that no other query has and that belongs to one checkpoint"
        )
    return check_name("query id", query_id)


def stream_id_of(df: DataFrame) -> str | None:
    """Return Spark's id of the streaming query of a batch; None outside of one, or with Connect."""
    return _local(df.sparkSession, _QUERY)


def is_running(spark: SparkSession, stream_id: str) -> bool:
    """Return whether a streaming query of this Spark application runs; False if unknown."""
    with contextlib.suppress(Exception):
        return _query(spark, stream_id) is not None
    return False


def run_id_of(df: DataFrame) -> str | None:
    """Return the id of this run of the streaming query, which a restart changes; None if unknown.

    Spark runs the jobs of a query in a job group of that name. A program may have set another
    group.
    """
    group = _local(df.sparkSession, _GROUP)
    try:
        return str(uuid.UUID(group)) if group else None
    except ValueError:
        return None


def context_of(spark: SparkSession) -> object:
    """Return what the sessions share whose DataFrames may meet in a plan."""
    try:
        return spark.sparkContext
    except Exception:  # a session of Spark Connect has none
        return spark


def is_classic(spark: SparkSession) -> bool:
    """Return whether the session has its driver in this process; False with Spark Connect."""
    return context_of(spark) is not spark


def is_local(spark: SparkSession) -> bool:
    """Return whether tasks run in the process of the driver, ``local[n]``; False if unknown."""
    try:
        return bool(spark.sparkContext._jsc.sc().isLocal())
    except Exception:
        return False


def checkpoint_of(df: DataFrame) -> str | None:
    """Return the checkpoint of the query that a DataFrame belongs to, as a URI; None if unknown.

    With Spark Connect it is the default of the session, if one is set.
    """
    with contextlib.suppress(Exception):
        running = _running(df.sparkSession)
        if running is not None:
            return str(running.resolvedCheckpointRoot())
    return df.sparkSession.conf.get("spark.sql.streaming.checkpointLocation", None)


def execution_of(df: DataFrame) -> Any:
    """Return what the JVM runs for the current batch of a query; None outside of one."""
    running = _running(df.sparkSession)
    return None if running is None else running.lastExecution()


def _running(spark: SparkSession) -> Any:
    """Return the running query of the JVM; None outside of one, and with Spark Connect."""
    stream_id = _local(spark, _QUERY)
    return _query(spark, stream_id) if stream_id else None


def _query(spark: SparkSession, stream_id: str) -> Any:
    jvm: Any = spark.sparkContext._jvm
    running = spark._jsparkSession.sharedState().activeStreamingQueries()
    return running.get(jvm.java.util.UUID.fromString(stream_id))


@contextlib.contextmanager
def described(spark: SparkSession, words: str) -> Iterator[None]:
    """Describe the jobs of the block in the Spark UI; a no-op with Spark Connect."""
    before = _local(spark, _DESCRIPTION)
    _describe(spark, words)
    try:
        yield
    finally:
        _describe(spark, before)


def _local(spark: SparkSession, name: str) -> str | None:
    # A session of Spark Connect has no context.
    try:
        found = spark.sparkContext.getLocalProperty(name)
    except Exception:
        return None
    return str(found) if found else None


def _describe(spark: SparkSession, words: str | None) -> None:
    with contextlib.suppress(Exception):
        spark.sparkContext.setLocalProperty(_DESCRIPTION, words)  # type: ignore[arg-type]
