"""A queue between two streaming queries: a directory with one subdirectory per batch."""

import shutil
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType


class FileQueue:
    """Parquet files in a directory on a file system with atomic rename.

    A batch is written aside and then renamed to ``batch-<id>``: a reader sees all of it or
    nothing, and a batch that is run again is not written again. One writer query per
    directory (two that write to one would take each other's batches for their own).
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.path.mkdir(parents=True, exist_ok=True)

    def write(self, df: DataFrame, batch_id: int) -> bool:
        """Write a batch; False if it is there already."""
        done = self.path / f"batch-{batch_id:012d}"
        if done.exists():
            return False
        # Names with a leading underscore are not seen by Spark's file sources.
        aside = self.path / f"_writing-{batch_id:012d}"
        if aside.exists():
            shutil.rmtree(aside)
        df.write.parquet(str(aside))
        aside.rename(done)
        return True

    def read_stream(self, spark: SparkSession, schema: StructType | str) -> DataFrame:
        """The messages, as a streaming DataFrame."""
        reader = spark.readStream.schema(schema).option("recursiveFileLookup", "true")
        return reader.parquet(str(self.path))

    def read(self, spark: SparkSession, schema: StructType | str) -> DataFrame:
        """All messages there are now."""
        reader = spark.read.schema(schema).option("recursiveFileLookup", "true")
        return reader.parquet(str(self.path))
