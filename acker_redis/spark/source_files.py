"""The files of a micro-batch whose rows are a Parquet source's, unchanged.

Such rows need no copy: their files are committed already. Spark gives ``foreachBatch`` an RDD, so
the list of files comes from the plan that the query runs. A read of these files fails if one of
them was deleted meanwhile, so it never gives a part of the batch; the next run copies the rows.
Files whose names a later write may use again are copied, because they may change between two reads.
"""

import contextlib
import re
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql.types import StructField, StructType

from acker_redis.spark.folders import local_path
from acker_redis.spark.plans import items, through_project
from acker_redis.spark.queries import execution_of
from acker_redis.spark.staging import Staged, read

_WRITTEN_ONCE = re.compile(r"part-\d+-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\b.*\.parquet")
"""Names of Spark's files, which hold a random number: each write makes new ones."""
_OPTIONS = {
    *("path", "basepath", "recursivefilelookup", "ignoremissingfiles", "maxfilespertrigger"),
    *("maxbytespertrigger", "maxfileage", "latestfirst", "filenameonly", "cleansource"),
    "__globpaths__",
}
"""Options of a file source, in lower case, that do not change what a row holds."""


def committed(df: DataFrame) -> Staged | None:
    """Return the rows as committed files; None if they are not the rows of a file source.

    The plan may select and rename columns. With any other step, rows may differ each time that
    they are computed.
    """
    # Spark's internal classes: rows whose plan is not exactly as expected are copied.
    with contextlib.suppress(Exception):
        execution = execution_of(df)
        if execution is not None:
            return _committed(df, execution)
    return None


def _committed(df: DataFrame, execution: Any) -> Staged | None:
    plan = execution.logical()
    if plan.nodeName() == "WriteToMicroBatchDataSourceV1":
        plan = plan.child()
    given = df._jdf.queryExecution().analyzed()
    ids = _ids(plan.output())
    # A checkpoint of other rows, such as df.where(..).localCheckpoint(), is an RDD with these ids.
    if given.nodeName() != "LogicalRDD" or not given.rdd().equals(execution.toRdd()):
        return None  # not the rows that Spark gave to foreachBatch
    while plan.nodeName() != "LogicalRelation":
        found = through_project(plan, ids)
        if found is None:
            return None
        plan, ids = found
    relation = plan.relation()
    options = {key.lower() for key in items(relation.options().keys().toSeq())}
    if (
        relation.fileFormat().getClass().getSimpleName() != "ParquetFileFormat"
        or not relation.partitionSchema().isEmpty()
        or not options <= _OPTIONS
    ):
        return None
    names = {each.exprId().toString(): each.name() for each in items(plan.output())}
    columns = [names[each] for each in ids]
    files = list(relation.location().inputFiles())
    stored = set(relation.dataSchema().fieldNames())
    if not stored.issuperset(columns) or len(set(columns)) < len(columns):
        return None
    # FileQueue.replace() may have deleted one, and then the source leaves it out.
    paths = [local_path(each) for each in files]
    if not paths or not all(path and _WRITTEN_ONCE.fullmatch(path.name) for path in paths):
        return None
    if not all(path and path.exists() for path in paths):
        return None
    fields = zip(columns, df.schema.fields, strict=True)
    schema = StructType([StructField(name, field.dataType) for name, field in fields])
    rows = read(df.sparkSession, schema, *files)
    plain = columns == df.columns
    return Staged(rows if plain else rows.toDF(*df.columns), files[0], plain)


def _ids(attributes: Any) -> list[str]:
    return [each.exprId().toString() for each in items(attributes)]
