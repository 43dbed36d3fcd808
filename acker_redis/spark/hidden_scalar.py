"""A relation of one row, whose value expressions can use and no plan shows.

Since Spark 4.0 a DataFrame can be a scalar subquery. Spark 3.5 knows scalar subqueries in
SQL only, which finds relations by name: there a global temporary view of the application has the
row. Its name follows from the value, by SHA-256, so the same value has one view.
"""

import hashlib
from functools import lru_cache

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - its usual name


class HiddenScalar:
    """One row with one STRING column."""

    def __init__(self, spark: SparkSession, column: str, value: str) -> None:
        self._view = ""
        # Batches ask for the same few; to make one takes some milliseconds.
        self.scalar = lru_cache(maxsize=64)(self._scalar)
        if hasattr(DataFrame, "scalar"):
            # From Arrow: rows of Python objects would become an RDD, and each use a Spark job.
            self.df = spark.createDataFrame(pa.table({column: [value]}))
            return
        # The argument is bound to a relation that holds its rows. A literal would be shown.
        text = f"SELECT * FROM VALUES (:value) AS _acker_row({column})"  # noqa: S608 - names of ours
        self.df = spark.sql(text, args={"value": value})
        name = f"_acker_{hashlib.sha256(value.encode()).hexdigest()[:32]}"
        self.df.createOrReplaceGlobalTempView(name)
        self._view = f"{spark.conf.get('spark.sql.globalTempDatabase', 'global_temp')}.{name}"

    def _scalar(self, expression: str) -> Column:
        """Return a SQL expression of the column as a scalar subquery."""
        if not self._view:
            return self.df.selectExpr(f"{expression} AS c").scalar()
        return F.expr(f"(SELECT {expression} AS c FROM {self._view})")  # noqa: S608 - as above
