"""The files of a micro-batch whose rows are a Parquet source's, unchanged.

Such rows need no copy: their files are committed already. Spark gives ``foreachBatch`` an RDD, so
the list of files comes from the plan that the query runs. A read of these files fails if one of
them was deleted meanwhile, so it never gives a part of the batch; the next run copies the rows.
Files whose names a later write may use again are copied, because they may change between two reads.
"""

import contextlib
import re
from collections.abc import Callable
from typing import Any, TypeVar

import pyarrow.parquet as pq
from pyspark.sql import DataFrame
from pyspark.sql.types import StructField, StructType

from acker_redis.spark.folders import local_path
from acker_redis.spark.plans import attributes, through_project
from acker_redis.spark.queries import execution_of
from acker_redis.spark.staging import Staged, read

Found = TypeVar("Found")
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
    return of_plan(df, _committed)


def number_range(df: DataFrame) -> tuple[int, int, int] | None:
    """Return the least and the highest value of the only column, and the number of rows.

    They come from the footers of the files. None if the column is not a BIGINT of a file source as
    it is, if a value is null, or if the plan drops or adds rows.
    """
    return of_plan(df, _number_range)


def of_plan(df: DataFrame, find: Callable[[DataFrame, Any], Found | None]) -> Found | None:
    """Return what a function finds in the plan of the query of this batch; None if unknown.

    It gets the rows, and what the JVM runs.
    """
    # Spark's internal classes: of a plan that is not exactly as expected, nothing is known.
    with contextlib.suppress(Exception):
        execution = execution_of(df)
        if execution is not None:
            return find(df, execution)
    return None


def _committed(df: DataFrame, execution: Any) -> Staged | None:
    given = df._jdf.queryExecution().analyzed()
    below = None
    if given.nodeName() == "LogicalRDD":
        below = source_of(df, execution, "LogicalRelation")
    found = below and _files(*below)
    if not found:
        return None
    files, columns = found
    if len(set(columns)) < len(columns):
        return None
    fields = zip(columns, df.schema.fields, strict=True)
    schema = StructType([StructField(name, field.dataType) for name, field in fields])
    rows = read(df.sparkSession, schema, *files)
    plain = columns == df.columns
    return Staged(rows if plain else rows.toDF(*df.columns), files[0], plain)


def _number_range(df: DataFrame, execution: Any) -> tuple[int, int, int] | None:
    below = source_of(df, execution, "LogicalRelation")
    found = below and _files(*below)
    if found is None:
        return None
    files, [column] = found
    least, most, rows = [], [], 0
    for file in files:
        footer = pq.read_metadata(local_path(file))
        # A path, because a column inside of a struct may have the same name.
        leaves = [footer.schema.column(n) for n in range(footer.num_columns)]
        place = [leaf.path for leaf in leaves].index(column)
        plain = leaves[place].logical_type.type == "NONE" and "." not in column
        for group in (footer.row_group(n) for n in range(footer.num_row_groups)):
            held = group.column(place)
            known = held.statistics
            whole = plain and held.physical_type == "INT64"
            if not whole or known.null_count != 0 or not known.has_min_max:
                return None
            least.append(known.min)
            most.append(known.max)
        rows += footer.num_rows
    return min(least), max(most), rows


def source_of(df: DataFrame, execution: Any, kind: str) -> tuple[Any, list[Any]] | None:
    """Return the source of a batch, and its attributes that the columns of ``df`` are.

    None if ``df`` computes one of them, or may drop or add rows, or the source is of another kind.
    """
    plan = df._jdf.queryExecution().analyzed()
    wanted = attributes(plan, df, df.columns)
    found = _through(plan, wanted, "LogicalRDD")
    # A checkpoint of other rows, such as df.where(..).localCheckpoint(), is an RDD with these ids.
    if found is None or not found[0].rdd().equals(execution.toRdd()):
        return None  # not the rows that Spark gave to foreachBatch
    plan = execution.logical()
    if plan.nodeName() == "WriteToMicroBatchDataSourceV1":
        plan = plan.child()
    return _through(plan, found[1], kind)


def _through(plan: Any, wanted: list[Any], kind: str) -> tuple[Any, list[Any]] | None:
    while plan.nodeName() != kind:
        below = through_project(plan, wanted)
        if below is None:
            return None
        plan, wanted = below
    return plan, wanted


def _files(plan: Any, wanted: list[Any]) -> tuple[list[str], list[str]] | None:
    """Return the files of a source, and the columns there for these attributes."""
    relation = plan.relation()
    keys = relation.options().keys().toSeq()
    options = {keys.apply(n).lower() for n in range(keys.size())}
    if (
        relation.fileFormat().getClass().getSimpleName() != "ParquetFileFormat"
        or not relation.partitionSchema().isEmpty()
        or not options <= _OPTIONS
    ):
        return None
    columns = [each.name() for each in wanted]
    files = list(relation.location().inputFiles())
    if not set(relation.dataSchema().fieldNames()).issuperset(columns):
        return None
    # FileQueue.replace() may have deleted one, and then the source leaves it out.
    paths = [local_path(each) for each in files]
    if not paths or not all(path and _WRITTEN_ONCE.fullmatch(path.name) for path in paths):
        return None
    return (files, columns) if all(path and path.exists() for path in paths) else None
