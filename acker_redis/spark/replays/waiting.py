"""Nacks that wait for their replay, in Parquet files below one directory.

::

    nacks/2/batch-<query>-<batch>/      nacks whose records get attempt 2, as a batch had them
    nacks/dead/batch-<query>-<batch>/   nacks of a last attempt, which do not wait
    plans/<query>/<batch>.json          the files that a batch replays or gives up
    records/batch-<query>-<batch>/      the records that the batch replays

A file waits from the time that it was written. Its folder says for how long. So the files that are
due are found without Spark.

**Each nack is replayed once, however often a batch runs.** A batch writes its nacks once. Its plan
is written before its first replay, and a batch that runs again finds its plan and its records. When
the next batch begins, Spark has committed this batch: its files are deleted, then its records, then
its plan. If the driver dies in between, the next batch finds the plan and deletes the rest.

A query with a new checkpoint cannot know whether the last batch of the old query was complete. The
nacks of that batch are replayed again: at least once.
"""

import json
import os
import shutil
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

from acker_redis.errors import DataLossError
from acker_redis.spark.streams.queue import FileQueue

DEAD = "dead"
MAX_FILES = 1000
"""Maximum number of files in a plan."""


@dataclass(frozen=True)
class _File:
    """A file of nacks."""

    path: Path

    @property
    def attempt(self) -> int | None:
        """The attempt that the records get; None if they are given up."""
        kind = self.path.parent.parent.name
        return None if kind == DEAD else int(kind)

    @property
    def since(self) -> float:
        """When it was written, in seconds since 1970."""
        return self.path.stat().st_mtime

    @property
    def rows(self) -> int:
        """The number of nacks."""
        return int(pq.read_metadata(self.path).num_rows)

    def delete(self) -> None:
        """Delete the file, and its folder with the last one."""
        self.path.unlink(missing_ok=True)
        if not any(self.path.parent.glob("*.parquet")):
            shutil.rmtree(self.path.parent, ignore_errors=True)


class Waiting:
    """The nacks that wait, for one batch of a query; ``query`` is its name ``APP@QUERY``."""

    def __init__(self, folder: Path, query: str, batch_id: int) -> None:
        self._folder, self._query, self._batch_id = folder, query, batch_id
        self._records = FileQueue(folder / "records")
        self._plan = folder / "plans" / query / f"{batch_id}.json"

    def begin(self) -> None:
        """Delete what finished batches have replayed.

        Raises DataLossError if a later batch of the query has replayed nacks.
        """
        for plan in sorted(self._folder.glob("plans/*/*.json")):
            query, number = plan.parent.name, int(plan.stem)
            if query == self._query and number > self._batch_id:
                raise DataLossError(
                    f"batch {self._batch_id} of query {query} comes after batch {number} in "
                    f"{self._folder}: the checkpoint was set back. Start the query with a new "
                    "checkpoint: it replays what waits, and the nacks of that batch again"
                )
            if query == self._query and number < self._batch_id:
                for file in self._planned(plan):
                    file.delete()
            if query != self._query or number < self._batch_id:
                self._forget(plan)
        for left in self._folder.glob("records/_old-*"):
            shutil.rmtree(left, ignore_errors=True)

    def put(self, nacks: DataFrame, attempt: int | None) -> None:
        """Keep nacks of this batch, unless an earlier run has kept them.

        ``attempt`` is what their records get; with None, they are given up.
        """
        queue = FileQueue(self._folder / "nacks" / (DEAD if attempt is None else str(attempt)))
        queue.write(nacks, self._query, self._batch_id)

    def plan(self, seconds: Callable[[int], float], room: Callable[[], int]) -> list[str]:
        """Return the files that this batch replays or gives up.

        ``seconds`` is how long nacks wait for an attempt, ``room`` the number of records that may
        be replayed now. A batch that runs again gets the same files.
        """
        if not self._plan.exists():
            chosen = list(self._choose(seconds, room))
            if not chosen:
                return []
            _save(self._plan, [str(file.path.relative_to(self._folder)) for file in chosen])
        return [str(file.path) for file in self._planned(self._plan)]

    def postpone(self) -> None:
        """Forget the plan of this batch, which has replayed and given up nothing."""
        self._forget(self._plan)

    def records(self, spark: SparkSession, look_up: Callable[[], DataFrame]) -> DataFrame:
        """Return the records that this batch replays, which are looked up once."""
        path = self._records.batch_path(self._query, self._batch_id)
        if not path.exists():
            self._records.write(look_up(), self._query, self._batch_id)
        return spark.read.parquet(str(path))

    def _choose(self, seconds: Callable[[int], float], room: Callable[[], int]) -> Iterator[_File]:
        now, left = time.time(), None
        due = [
            file
            for file in files(self._folder)
            if file.attempt is None or now - file.since >= seconds(file.attempt)
        ]
        for file in sorted(due, key=lambda file: file.since)[:MAX_FILES]:
            if file.attempt is not None:
                left = room() if left is None else left
                if file.rows > left:
                    left = 0  # the oldest first: none overtakes this file
                    continue
                left -= file.rows
            yield file

    def _planned(self, plan: Path) -> list[_File]:
        return [_File(self._folder / name) for name in json.loads(plan.read_text())]

    def _forget(self, plan: Path) -> None:
        path = self._records.batch_path(plan.parent.name, int(plan.stem))
        if path.exists():
            # At once: a batch that runs again must not take a part of the records for all.
            aside = path.with_name(f"_old-{uuid.uuid4().hex}")
            path.rename(aside)
            shutil.rmtree(aside, ignore_errors=True)
        plan.unlink(missing_ok=True)


def files(folder: Path) -> list[_File]:
    """Return all files of nacks, also those that a batch has planned."""
    return [_File(path) for path in folder.glob("nacks/*/batch-*/*.parquet")]


def _save(path: Path, names: list[str]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_suffix(".writing")
    with aside.open("w") as file:
        json.dump(names, file)
        file.flush()
        os.fsync(file.fileno())
    aside.rename(path)
