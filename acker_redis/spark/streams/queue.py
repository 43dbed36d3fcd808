"""A queue between two streaming queries, and one in a directory of Parquet files."""

import contextlib
import re
from collections.abc import Mapping
from itertools import combinations
from pathlib import Path
from typing import Protocol, TypeGuard
from urllib.parse import unquote, urlsplit

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - its usual name
from pyspark.sql.types import StructType

from acker_redis.errors import ConfigError
from acker_redis.spark.streams.aside import Aside, holds

_QUERY = re.compile(r"[A-Za-z0-9_.@-]{1,128}")
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:/")


class Queue(Protocol):
    """A protocol for the output of a job: it writes all rows of a batch, or none.

    A batch has the name of its query (``APP@QUERY``) and its number. A batch may arrive more than
    once, because Spark runs a batch again if the query dies before its commit. The acker decides
    which run counts, and calls ``write`` or ``replace`` accordingly.

    A queue may also have ``prepare(df)``, which raises if it does not take rows with the columns of
    ``df``: ``track`` and ``emit`` call it with their ``queue``, before anything is applied.
    """

    def write(self, df: DataFrame, query_id: str, batch_id: int) -> object:
        """Write the rows of a batch; a no-op if the queue has this batch.

        Args:
            df: The rows.
            query_id: The name of the query, ``APP@QUERY``.
            batch_id: The number of the batch.

        """

    def replace(self, df: DataFrame, query_id: str, batch_id: int) -> object:
        """Write the rows of a batch in place of the rows that the queue has of this batch.

        Args:
            df: The rows.
            query_id: The name of the query, ``APP@QUERY``.
            batch_id: The number of the batch.

        """


def check_query(query_id: str) -> str:
    """Return the name of a query; raise ConfigError if it is invalid in the name of a batch."""
    if not _QUERY.fullmatch(query_id):
        raise ConfigError(
            f"a query's name must be 1 to 128 of A-Z a-z 0-9 _ . - @, not {query_id!r}"
        )
    return query_id


def check_queues(queues: Mapping[str, Queue]) -> None:
    """Raise ConfigError if a queue cannot replace a batch, or if two names share one queue."""
    for name, queue in queues.items():
        for method in ("write", "replace"):
            if not callable(getattr(queue, method, None)):
                raise ConfigError(
                    f"the queue of {name!r} has no {method}(df, query_id, batch_id): a batch that "
                    "the acker has not applied must replace the rows of an earlier run"
                )
    for (one, queue), (other, same) in combinations(queues.items(), 2):
        if queue is same or queue == same:
            raise ConfigError(
                f"{one!r} and {other!r} share one queue, which accepts a batch once: the rows of "
                "the second would be lost; give each its own queue"
            )


def prepare(queue: Queue | None, df: DataFrame, *ids: str) -> None:
    """Raise an error of the queue if it does not take rows with these columns, and those of ids."""
    check = getattr(queue, "prepare", None)
    if check is not None:
        check(df.withColumns(dict.fromkeys(ids, F.lit(0).cast("bigint"))) if ids else df)


class FileQueue:
    """A queue of Parquet files in a directory on a file system with atomic rename.

    The queue writes a batch under a temporary name and then renames it to ``batch-<query>-<id>``,
    so a reader sees the whole batch or nothing. The name contains the query's id, because batch ids
    start again at 0 with a new checkpoint, and must not be taken for batches of the old one. Two
    queues are equal if they write to the same directory.

    A killed write leaves a folder ``_writing-..`` or ``_replaced-..``, which readers ignore. The
    next write of the same machine removes it, unless another write runs: running writes share the
    lock of the file ``_lock`` (``flock``). Folders of other machines are removed after a day,
    because many network file systems do not share locks.

    Args:
        path: The directory, as a path or a ``file:`` URI; it is created if it does not exist.

    Raises:
        ConfigError: The path is a URI of another file system.

    Examples:
        >>> queue = FileQueue("/data/queue")
        >>> schema = "item STRING, anchor BIGINT, tuple BIGINT"
        >>> messages = queue.read_stream(spark, schema)  # for the next query
        >>> lost = explain(verdicts, queue.read(spark, schema))

    """

    def __init__(self, path: str | Path) -> None:
        text = str(path)
        if text.startswith("file:/"):
            path = unquote(urlsplit(text).path)
        elif _SCHEME.match(text):
            raise ConfigError(
                f"{path} may have no atomic rename, so a reader could see a part of a batch: use "
                "a directory that the driver and the executors mount, or a DeltaQueue"
            )
        self.path = Path(path)
        self.path.mkdir(parents=True, exist_ok=True)

    def __eq__(self, other: object) -> bool:
        """Return whether both write to the same directory."""
        if not isinstance(other, FileQueue):
            return NotImplemented
        return self.path.resolve() == other.path.resolve()

    def __hash__(self) -> int:
        return hash(self.path.resolve())

    def write(self, df: DataFrame, query_id: str, batch_id: int) -> bool:
        """Write a batch of a query; return False, and write nothing, if the queue has it.

        Args:
            df: The rows.
            query_id: The name of the query: 1 to 128 of ``A-Z a-z 0-9 _ . - @``.
            batch_id: The number of the batch.

        Raises:
            ConfigError: The name of the query is invalid.
            DataLossError: The queue has the folder of the batch, but its files were deleted.

        """
        if holds(self.batch_path(query_id, batch_id)):
            return False
        with self.stage(df, query_id, batch_id) as aside:
            return aside.publish()

    def replace(self, df: DataFrame, query_id: str, batch_id: int) -> None:
        """Write a batch of a query in place of the rows that the queue has of it.

        The new rows are complete before the old rows are removed. If the process dies between the
        two steps, the queue has neither until the batch runs again.

        Args:
            df: The rows.
            query_id: The name of the query: 1 to 128 of ``A-Z a-z 0-9 _ . - @``.
            batch_id: The number of the batch.

        Raises:
            ConfigError: The name of the query is invalid.
            OSError: Another driver writes the batch at the same moment.

        """
        with self.stage(df, query_id, batch_id) as aside:
            aside.publish(replace=True)

    def stage(self, df: DataFrame, query_id: str, batch_id: int) -> Aside:
        """Evaluate the rows of a batch once, in a hidden folder; return it, to be published.

        Raises ConfigError if the name of the query is invalid.
        """
        return Aside(df, self.batch_path(query_id, batch_id))

    def batch_path(self, query_id: str, batch_id: int) -> Path:
        """Return the directory of a batch of a query, which exists once the batch is written."""
        return self.path / f"batch-{check_query(query_id)}-{batch_id:012d}"

    def read_stream(
        self, spark: SparkSession, schema: StructType | str, **options: str
    ) -> DataFrame:
        """Return the rows as a streaming DataFrame: those of all batches, also of later ones.

        A query reads each batch once, and whole if no option limits its files. If :meth:`replace`
        is called for a batch that a query has read, the query reads its new rows, too.

        Args:
            spark: The session.
            schema: The columns to read; a column that the files do not have is null.
            **options: More options of Spark's file source, such as ``maxFilesPerTrigger="10"``,
                which bounds the batches of a query that starts with a backlog.

        """
        reader = spark.readStream.schema(schema).option("recursiveFileLookup", "true")
        # replace() may delete files that the reader has listed; that must not end the query.
        reader = reader.option("ignoreMissingFiles", "true").options(**options)
        return reader.parquet(str(self.path))

    def read(self, spark: SparkSession, schema: StructType | str) -> DataFrame:
        """Return all rows that the queue has now, for ``explain`` or a table of results.

        Args:
            spark: The session.
            schema: The columns to read; a column that the files do not have is null.

        """
        reader = spark.read.schema(schema).option("recursiveFileLookup", "true")
        return reader.parquet(str(self.path))


def rows_written(queue: Queue, returned: object, query_id: str, batch_id: int) -> int | None:
    """Return how many rows a queue has of a batch, if that needs no Spark job; else None.

    ``returned`` is the result of its ``write`` or ``replace``.
    """
    if can_stage(queue):
        files = queue.batch_path(query_id, batch_id).glob("*.parquet")
        with contextlib.suppress(OSError, pa.ArrowException):  # a footer may be encrypted
            return sum(int(pq.read_metadata(file).num_rows) for file in files)
        return None
    return returned if type(returned) is int else None


def can_stage(queue: Queue) -> TypeGuard[FileQueue]:
    """Return whether a rename is all that a queue does to write a batch.

    A subclass with another ``write`` or ``replace`` must be called.
    """
    kind = type(queue)
    own = isinstance(queue, FileQueue)
    return own and kind.write is FileQueue.write and kind.replace is FileQueue.replace
