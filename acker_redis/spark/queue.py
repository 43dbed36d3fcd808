"""A queue between two streaming queries: a directory with one subdirectory per batch."""

import contextlib
import shutil
import time
import uuid
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from acker_redis.keys import check_name

_ABANDONED_SECONDS = 3600.0


class FileQueue:
    """Parquet files in a directory on a file system with atomic rename.

    A batch is written aside and then renamed to ``batch-<query>-<id>``: a reader sees all of it or
    nothing, and a batch that is run again is not written again. The query's id is in the name:
    batch ids start over with a new checkpoint, and must not pass for batches of the old one.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.path.mkdir(parents=True, exist_ok=True)

    def write(self, df: DataFrame, query_id: str, batch_id: int) -> bool:
        """Write a batch of a query; False if it is there already."""
        name = f"{check_name('query id', query_id)}-{batch_id:012d}"
        done = self.path / f"batch-{name}"
        if done.exists():
            return False
        # Names with a leading underscore are not seen by Spark's file sources. Each writer has one
        # of its own: what another driver has half written must not get the batch's name.
        for left in self.path.glob(f"_writing-{name}-*"):
            with contextlib.suppress(FileNotFoundError):  # its writer is at work after all
                if time.time() - left.stat().st_mtime > _ABANDONED_SECONDS:
                    shutil.rmtree(left, ignore_errors=True)
        aside = self.path / f"_writing-{name}-{uuid.uuid4().hex}"
        df.write.parquet(str(aside))
        try:
            aside.rename(done)
        except OSError:
            if not done.exists():
                raise
            shutil.rmtree(aside)
            return False
        return True

    def replace(self, df: DataFrame, query_id: str, batch_id: int) -> None:
        """Write a batch anew, whatever there was."""
        name = f"{check_name('query id', query_id)}-{batch_id:012d}"
        shutil.rmtree(self.path / f"batch-{name}", ignore_errors=True)
        self.write(df, query_id, batch_id)

    def read_stream(self, spark: SparkSession, schema: StructType | str) -> DataFrame:
        """The messages, as a streaming DataFrame."""
        reader = spark.readStream.schema(schema).option("recursiveFileLookup", "true")
        return reader.parquet(str(self.path))

    def read(self, spark: SparkSession, schema: StructType | str) -> DataFrame:
        """All messages there are now."""
        reader = spark.read.schema(schema).option("recursiveFileLookup", "true")
        return reader.parquet(str(self.path))
