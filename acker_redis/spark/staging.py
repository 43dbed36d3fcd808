"""One evaluation of a DataFrame, kept as committed files.

A plan may give other rows each time that Spark computes it, so rows that two steps use must come
from one evaluation. :class:`Staging` writes the rows once, to Parquet files in a folder that has a
random name and that no other run writes to. All later steps read these files.

**One evaluation is one set of committed files.** Spark's driver lets one attempt of each task
commit. The committer's first algorithm, which the write asks for, shows no file of an attempt
before the whole job commits. So speculative twins, retried stages and executors that are lost add
and change no rows, on any number of hosts. The list of files is read once, after the commit; no
writer adds a file to the folder after that.

**Committed files may be incomplete, and Spark says nothing**: if the folder was deleted during the
write, by an operator or a clean-up, or if the executors have another disk than the driver. So a
hidden mark of the driver must still be there after the write, and so must the file of the first
partition, which exists even without rows. If not, the batch fails.

Folders: ``<root>/<app>@<query>/<batch>-<run>/<n>``. The root is ``staging=`` of the Acker, or a
folder inside of the query's checkpoint. The files hold whole rows, so protect them like the
checkpoint.

**Clean-up.** A query deletes the folders of a batch when its next batch begins. Folders that dead
runs left are deleted a day later, by the clock of the file system: another driver of the query may
still be using younger ones.
"""

import atexit
import contextlib
import functools
import shutil
import tempfile
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - its usual name
from pyspark.sql.types import NullType, StructField, StructType

from acker_redis.errors import ConfigError, DataLossError
from acker_redis.spark import folders
from acker_redis.spark.folders import local_path
from acker_redis.spark.queries import checkpoint_of, is_classic, is_local

ABANDONED_MS = 24 * 3600 * 1000
"""Milliseconds after which a folder of another run is deleted."""
_FOLDER = "acker-staging"
_LOSSY = {
    "spark.sql.parquet.outputTimestampType": ("TIMESTAMP_MILLIS", "TIMESTAMP_MICROS"),
    "spark.sql.parquet.datetimeRebaseModeInWrite": ("EXCEPTION", "CORRECTED"),
    "spark.sql.parquet.int96RebaseModeInWrite": ("EXCEPTION", "CORRECTED"),
}
"""Settings with a value that changes or refuses rows, and the value that keeps all rows as they
are."""


@dataclass(eq=False)
class Staged:
    """Committed files with the rows of one evaluation."""

    df: DataFrame
    """The rows, read from these files only."""
    folder: str
    """The folder of the files, as a path or a URI."""
    plain: bool = True
    """Whether the columns of the files have the names of the columns of ``df``."""

    @functools.cached_property
    def files(self) -> tuple[Path, ...] | None:
        """The files, if they are on this machine and the driver can read them by itself."""
        if not self.plain or local_path(self.folder) is None:
            return None
        paths = [local_path(each) for each in self.df.inputFiles()]
        return tuple(path for path in paths if path is not None)

    def count(self) -> int:
        """Return the number of rows: from the footers, or by a Spark job."""
        if self.files is None:
            return self.df.count()
        return sum(int(pq.read_metadata(file).num_rows) for file in self.files)


class Staging:
    """The staging folders of one run of one batch of a query.

    Args:
        df: The DataFrame of the batch, whose session writes and reads.
        root: The folder ``staging=`` of the Acker; None for a folder inside of the checkpoint.
        query: The name of the query, ``APP@QUERY``.
        batch_id: The number of the batch.

    """

    def __init__(self, df: DataFrame, root: str | None, query: str, batch_id: int) -> None:
        self._df, self._root, self._query = df, root, query
        self._run = f"{batch_id:012d}-{uuid.uuid4().hex}"
        self._count = 0

    @functools.cached_property
    def query_folder(self) -> str:
        """The folder of all runs of the query.

        Raises ConfigError if no root is known.
        """
        root = self._root or _root_of(self._df)
        return f"{root.rstrip('/')}/{self._query}"

    @property
    def folder(self) -> str:
        """The folder of this run of the batch; it exists after the first :meth:`write`."""
        return f"{self.query_folder}/{self._run}"

    def write(self, df: DataFrame) -> Staged:
        """Evaluate a DataFrame once, and return its rows as committed files."""
        self._count += 1
        # On the disk of this machine, to compress the rows costs more than to write them.
        options = {"compression": "none"} if is_local(df.sparkSession) else {}
        staged = written(df, f"{self.folder}/{self._count}", **options)
        if self._count == 1:
            self._sweep()
        return staged

    def delete(self) -> None:
        """Delete the folder of this run."""
        folders.delete(self._df.sparkSession, self.folder)

    def _sweep(self) -> None:
        """Delete folders that dead runs of the query left a day ago or earlier."""
        spark = self._df.sparkSession
        for folder, age_ms in folders.aged(spark, self.query_folder, self._run):
            if age_ms > ABANDONED_MS:
                folders.delete(spark, folder)


def written(df: DataFrame, folder: str, **options: str) -> Staged:
    """Write the rows to a new folder; return them as committed files.

    ``options`` are those of Spark's writer.

    Column names that differ in nothing or in case only are kept, and so are columns of type VOID,
    which Parquet cannot hold.
    """
    fields = df.schema.fields
    held = [n for n, field in enumerate(fields) if not isinstance(field.dataType, NullType)]
    names = [fields[n].name for n in held]
    if len({name.lower() for name in names}) == len(names) == len(fields):
        _write(df, folder, options)
        return Staged(_rows(df.sparkSession, df.schema, folder), folder)
    placed = df.toDF(*(f"c{n}" for n in range(len(fields))))
    _write(placed.select(*(f"c{n}" for n in held)), folder, options)
    schema = StructType([StructField(f"c{n}", fields[n].dataType) for n in held])
    rows = _rows(df.sparkSession, schema, folder)
    each = [f"c{n}" if n in set(held) else F.lit(None).alias(f"c{n}") for n in range(len(fields))]
    return Staged(rows.select(*each).toDF(*df.columns), folder, plain=False)


def _write(df: DataFrame, folder: str, options: Mapping[str, str]) -> None:
    # The second algorithm moves files of a task to the folder before the job commits. If its
    # executor is lost meanwhile, files of two attempts may stay.
    writer = df.write.options(**options)
    writer = writer.option("mapreduce.fileoutputcommitter.algorithm.version", "1")
    folders.mark(df.sparkSession, folder)
    with _exact(df.sparkSession):
        writer.mode("append").parquet(folder)


@contextlib.contextmanager
def _exact(spark: SparkSession) -> Iterator[None]:
    """Set what keeps the values of all rows, during a write."""
    lossy = {name: bad for name, (bad, _) in _LOSSY.items() if spark.conf.get(name) == bad}
    for name in lossy:
        spark.conf.set(name, _LOSSY[name][1])
    try:
        yield
    finally:
        for name, value in lossy.items():
            spark.conf.set(name, value)


def _rows(spark: SparkSession, schema: StructType, folder: str) -> DataFrame:
    """Return the rows of a folder that was written now.

    Raises DataLossError if files are missing.
    """
    rows = read(spark, schema, folder)
    first = any("/part-00000-" in each for each in rows.inputFiles())
    if not folders.unmark(spark, folder) or not first:
        raise DataLossError(
            f"files of {folder} are missing after the write of them: the folder was deleted "
            "meanwhile, or the executors do not share it with the driver; staging= of the Acker, "
            "and a FileQueue, need a folder that all of them mount"
        )
    return rows


def read(spark: SparkSession, schema: StructType, *paths: str) -> DataFrame:
    """Return the rows of committed files; an error, if one of the files is missing or damaged."""
    reader = spark.read.schema(schema).option("__globPaths__", "false")
    reader = reader.option("ignoreMissingFiles", "false").option("ignoreCorruptFiles", "false")
    return reader.parquet(*paths)


def _root_of(df: DataFrame) -> str:
    checkpoint = checkpoint_of(df)
    local = is_local(df.sparkSession)
    on_disk = checkpoint is not None and checkpoint.startswith("file:")
    if on_disk and not local and is_classic(df.sparkSession):
        raise ConfigError(
            f"the checkpoint {checkpoint} may be on the disk of the driver only, and the executors "
            "of a cluster would write its rows to other disks, where they are lost: give "
            "Acker(.., staging=), a folder that the driver and the executors share"
        )
    if checkpoint:
        return f"{checkpoint}/{_FOLDER}"
    if local:
        return _temporary()
    raise ConfigError(
        "the checkpoint of this query is not known (outside of foreachBatch, or with Spark "
        "Connect): give Acker(.., staging=), a folder that the driver and the executors share"
    )


@functools.cache
def _temporary() -> str:
    """Return a folder for batches outside of queries; it is deleted when the process ends."""
    path = Path(tempfile.mkdtemp(prefix="acker-staging-"))
    atexit.register(shutil.rmtree, path, ignore_errors=True)
    return str(path)
