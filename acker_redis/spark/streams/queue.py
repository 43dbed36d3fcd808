"""A queue between two streaming queries, and one in a directory of Parquet files."""

import contextlib
import fcntl
import platform
import re
import shutil
import time
import uuid
from collections.abc import Iterator, Mapping
from functools import cache
from itertools import combinations
from pathlib import Path
from typing import IO, Protocol

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from acker_redis.errors import ConfigError, DataLossError

_QUERY = re.compile(r"[A-Za-z0-9_.@-]{1,128}")
_ABANDONED_SECONDS = 24 * 3600.0
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


class Queue(Protocol):
    """A protocol for the output of a job: it writes all rows of a batch, or none.

    A batch has the name of its query (``APP@QUERY``) and its number. A batch may arrive more than
    once, because Spark runs a batch again if the query dies before its commit. The acker decides
    which run counts, and calls ``write`` or ``replace`` accordingly.
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
        path: The directory; it is created if it does not exist.

    Examples:
        >>> queue = FileQueue("/data/queue")
        >>> schema = "item STRING, anchor BIGINT, tuple BIGINT"
        >>> messages = queue.read_stream(spark, schema)  # for the next query
        >>> lost = explain(verdicts, queue.read(spark, schema))

    """

    def __init__(self, path: str | Path) -> None:
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
        done = self.batch_path(query_id, batch_id)
        if done.exists():
            # A batch without rows has a file, too.
            if not any(done.glob("*.parquet")):
                raise DataLossError(
                    f"{done} has no Parquet file: the files of this batch were deleted without "
                    "their folder, so its rows are missing. Delete the folder to write the batch "
                    "again; to delete old data, delete whole folders"
                )
            return False
        with self._written_aside(df, done) as aside:
            try:
                aside.rename(done)
            except OSError:
                if not done.exists():
                    raise
                return False
        return True

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
        done = self.batch_path(query_id, batch_id)
        with self._written_aside(df, done) as aside:
            # Renamed before it is deleted: otherwise a reader could see a part of the batch.
            old = self.path / f"_replaced-{aside.name}"
            with contextlib.suppress(FileNotFoundError):
                done.rename(old)
            aside.rename(done)
            shutil.rmtree(old, ignore_errors=True)

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

    @contextlib.contextmanager
    def _written_aside(self, df: DataFrame, done: Path) -> Iterator[Path]:
        """Write the rows under a temporary name, which the caller renames."""
        # Spark's file sources ignore names with a leading underscore. Each writer has its own
        # directory: a batch that another driver has partially written must not get the final name.
        name = f"{done.name.removeprefix('batch-')}-{uuid.uuid4().hex}-{_machine()}"
        aside = self.path / f"_writing-{name}"
        with self._writing():
            try:
                df.write.parquet(str(aside))
                yield aside
            finally:
                shutil.rmtree(aside, ignore_errors=True)

    @contextlib.contextmanager
    def _writing(self) -> Iterator[None]:
        """Share the lock of all writes; first remove leftovers if no other write has the lock.

        The kernel releases the lock of a process that is killed.
        """
        with (self.path / "_lock").open("a") as file:
            if _locked(file, fcntl.LOCK_EX | fcntl.LOCK_NB):
                for folder in [*self.path.glob("_writing-*"), *self.path.glob("_replaced-*")]:
                    if self._is_left(folder):
                        shutil.rmtree(folder, ignore_errors=True)
            _locked(file, fcntl.LOCK_SH)
            yield

    def _is_left(self, folder: Path) -> bool:
        """Return whether a killed write left this folder, if no other write has the lock."""
        aside = folder.name.removeprefix("_replaced-")
        batch = f"batch-{aside.removeprefix('_writing-').rsplit('-', 2)[0]}"
        if aside != folder.name and not (self.path / batch).exists():
            return False  # these may be the only rows of the batch
        if aside.endswith(f"-{_machine()}"):
            return True
        with contextlib.suppress(FileNotFoundError):
            return time.time() - folder.stat().st_mtime > _ABANDONED_SECONDS
        return False


@cache
def _machine() -> str:
    """Return letters and digits that name the running kernel: its processes share all locks."""
    try:
        name = _BOOT_ID.read_text()
    except OSError:
        name = platform.node()  # not on Linux
    return re.sub(r"[^A-Za-z0-9]", "", name) or "unknown"


def _locked(file: IO[str], how: int) -> bool:
    """Return whether this process has the lock now; never, on a file system without locks."""
    with contextlib.suppress(OSError):
        fcntl.flock(file, how)
        return True
    return False
