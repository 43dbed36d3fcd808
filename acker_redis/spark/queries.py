"""Which streaming query a DataFrame belongs to, and what the Spark UI says of its jobs."""

import contextlib
import uuid
from collections.abc import Iterator

from pyspark.sql import DataFrame, SparkSession

from acker_redis.errors import ConfigError
from acker_redis.protocol.keys import check_name

_QUERY = "sql.streaming.queryId"
_GROUP = "spark.jobGroup.id"
_DESCRIPTION = "spark.job.description"


def query_id_of(df: DataFrame, given: str | None = None) -> str:
    """Id of the streaming query that a ``foreachBatch`` DataFrame belongs to, or ``given``.

    Raises ConfigError where Spark does not tell and none is given: outside of a streaming query,
    and with Spark Connect.
    """
    query_id = given or _local(df.sparkSession, _QUERY)
    if not query_id:
        raise ConfigError(
            "Spark does not say which query this is (it is not in foreachBatch, or goes by Spark "
            "Connect): give query_id=, a name that is this query's own for as long as it keeps its "
            "checkpoint"
        )
    return check_name("query id", query_id)


def run_id_of(df: DataFrame) -> str | None:
    """Return the id of this run of the streaming query, which a restart changes; None if unknown.

    Spark runs a query's jobs in a group of that name. A program may have set another one.
    """
    group = _local(df.sparkSession, _GROUP)
    try:
        return str(uuid.UUID(group)) if group else None
    except ValueError:
        return None


def is_local(spark: SparkSession) -> bool:
    """Whether tasks run in the driver's own process, ``local[n]``; False where it is not known."""
    try:
        return bool(spark.sparkContext._jsc.sc().isLocal())
    except Exception:
        return False


def release(df: DataFrame) -> None:
    """Give back what ``localCheckpoint`` has kept of a DataFrame, which nobody needs any more."""
    # Spark does so by itself when the driver's JVM collects garbage, which may be in hours. (With
    # Spark Connect the server sees that nobody holds it any more.)
    with contextlib.suppress(Exception):
        df._jdf.queryExecution().analyzed().rdd().unpersist(False)


@contextlib.contextmanager
def described(spark: SparkSession, words: str) -> Iterator[None]:
    """What the Spark UI says of the jobs meanwhile; with Spark Connect, nothing."""
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
