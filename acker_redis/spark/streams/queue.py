"""A queue between two streaming queries; one that is a directory with a subdirectory per batch."""

import contextlib
import re
import shutil
import time
import uuid
from collections.abc import Mapping
from itertools import combinations
from pathlib import Path
from typing import Protocol

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from acker_redis.errors import ConfigError

_ABANDONED_SECONDS = 3600.0
_QUERY = re.compile(r"[A-Za-z0-9_.@-]{1,128}")


class Queue(Protocol):
    """Where rows go, by batches: all rows of a batch or none.

    A batch is named by its query (``APP@QUERY``) and its number, and may come more than once: Spark
    runs a batch again if the query dies before its commit. The acker decides which run counts, and
    so which method is called.
    """

    def write(self, df: DataFrame, query_id: str, batch_id: int) -> object:
        """Write the rows of a batch; do nothing if the queue has this batch."""

    def replace(self, df: DataFrame, query_id: str, batch_id: int) -> object:
        """Write the rows of a batch, in place of what the queue has of this batch."""


def check_queues(queues: Mapping[str, Queue]) -> None:
    """Raise ConfigError if a queue cannot replace a batch, or if two names share one queue."""
    for name, queue in queues.items():
        for method in ("write", "replace"):
            if not callable(getattr(queue, method, None)):
                raise ConfigError(
                    f"the queue of {name!r} has no {method}(df, query_id, batch_id): a batch that "
                    "the acker has not applied must replace what an earlier run has written"
                )
    for (one, queue), (other, same) in combinations(queues.items(), 2):
        if queue is same or queue == same:
            raise ConfigError(
                f"{one!r} and {other!r} share one queue, which takes a batch once: the rows of the "
                "second would be lost; give each its own queue"
            )


class FileQueue:
    """Parquet files in a directory on a file system with atomic rename.

    A batch is written aside and then renamed to ``batch-<query>-<id>``: a reader sees all of it or
    nothing. The query's id is in the name: batch ids start over with a new checkpoint, and must not
    pass for batches of the old one. Two queues are equal if they write to the same directory.
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
        """Write a batch of a query; return False, and write nothing, if the queue has it."""
        done = self.batch_path(query_id, batch_id)
        if done.exists():
            return False
        aside = self._write_aside(df, done)
        try:
            aside.rename(done)
        except OSError:
            if not done.exists():
                raise
            shutil.rmtree(aside)
            return False
        return True

    def replace(self, df: DataFrame, query_id: str, batch_id: int) -> None:
        """Write a batch of a query in place of what the queue has of it.

        The new rows are complete before the old ones are deleted. If the process dies between the
        two steps, the queue has neither, until the batch is run again. Raises OSError if another
        driver writes the batch at the same moment.
        """
        done = self.batch_path(query_id, batch_id)
        aside = self._write_aside(df, done)
        # Not deleted under its name: a reader would see half of it.
        old = self.path / f"_replaced-{aside.name}"
        with contextlib.suppress(FileNotFoundError):
            done.rename(old)
        aside.rename(done)
        shutil.rmtree(old, ignore_errors=True)

    def batch_path(self, query_id: str, batch_id: int) -> Path:
        """Return the directory of a batch of a query, which exists once the batch is written."""
        if not _QUERY.fullmatch(query_id):
            raise ConfigError(
                f"a query is named by 1 to 128 of A-Z a-z 0-9 _ . - @ and not by {query_id!r}"
            )
        return self.path / f"batch-{query_id}-{batch_id:012d}"

    def _write_aside(self, df: DataFrame, done: Path) -> Path:
        # Spark's file sources ignore names with a leading underscore. Each writer has a directory
        # of its own: what another driver has half written must not get the batch's name.
        name = done.name.removeprefix("batch-")
        left = [*self.path.glob(f"_writing-{name}-*")]
        if done.exists():  # else these may be the only rows of the batch
            left += self.path.glob(f"_replaced-_writing-{name}-*")
        for each in left:
            with contextlib.suppress(FileNotFoundError):  # its writer is at work after all
                if time.time() - each.stat().st_mtime > _ABANDONED_SECONDS:
                    shutil.rmtree(each, ignore_errors=True)
        aside = self.path / f"_writing-{name}-{uuid.uuid4().hex}"
        df.write.parquet(str(aside))
        return aside

    def read_stream(self, spark: SparkSession, schema: StructType | str) -> DataFrame:
        """The messages, as a streaming DataFrame."""
        reader = spark.readStream.schema(schema).option("recursiveFileLookup", "true")
        # A batch that replace() has deleted since must not stop the reader for good.
        return reader.option("ignoreMissingFiles", "true").parquet(str(self.path))

    def read(self, spark: SparkSession, schema: StructType | str) -> DataFrame:
        """All messages there are now."""
        reader = spark.read.schema(schema).option("recursiveFileLookup", "true")
        return reader.parquet(str(self.path))
