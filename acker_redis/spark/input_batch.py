"""One micro-batch as Spark gave it: its rows, its number, and its lane in Redis."""

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import combinations

from pyspark import StorageLevel
from pyspark.sql import DataFrame

from acker_redis.errors import ChangedBatchError
from acker_redis.spark import one_query
from acker_redis.spark.fold import lanes
from acker_redis.spark.fold.apply import Job
from acker_redis.spark.fold.id_columns import IdColumns
from acker_redis.spark.fold.report import Report
from acker_redis.spark.fold.steps import Steps
from acker_redis.spark.ids import Ids
from acker_redis.spark.names import check_hidden
from acker_redis.spark.plans import keeps_rows, reads, repeats, share
from acker_redis.spark.queries import described, run_id_of
from acker_redis.spark.shared_state import Application, SharedState
from acker_redis.spark.source_files import committed
from acker_redis.spark.staging import Staged, Staging
from acker_redis.spark.streams.aside import Aside
from acker_redis.spark.streams.queue import FileQueue, Queue, can_stage


@dataclass(eq=False)
class _Cached:
    """Rows in the memory and on the disks of executors."""

    df: DataFrame

    def delete(self) -> None:
        """Take them out of the cache."""
        self.df.unpersist()


class InputBatch:
    """A micro-batch of a query; ``freezes`` says whether rows are kept or only cached."""

    def __init__(
        self, shared: SharedState, df: DataFrame, batch_id: int, query_id: str, freezes: bool
    ) -> None:
        check_hidden(df)
        self.shared = shared
        self.batch_id = batch_id
        self.query_id = query_id
        self.steps = Steps(self.described)
        self.staging = Staging(df, shared.application.staging, self.name, batch_id)
        self._df = df
        self.freezes = freezes
        self._frozen: DataFrame | None = None
        self._kept: list[Staged] = []
        self._sources: list[tuple[DataFrame, Staged]] = []
        """Rows as they were before they were kept, and the files of their evaluation."""
        self._whole = [] if freezes else [df]
        """Rows that are one for each message: those of the batch, and others made from them."""
        self._asides: list[tuple[FileQueue, Aside]] = []

    @property
    def application(self) -> Application:
        """The settings of the application."""
        return self.shared.application

    @property
    def ids(self) -> Ids:
        """What makes the ids of messages."""
        return self.shared.ids(self._df.sparkSession)

    @property
    def rows(self) -> DataFrame:
        """The rows: the frozen ones if the batch was frozen before, else those that Spark gave."""
        return self._df if self._frozen is None else self._frozen

    @property
    def is_frozen(self) -> bool:
        """Whether ``rows`` come from one evaluation."""
        return self._frozen is not None

    def is_whole(self, df: DataFrame) -> bool:
        """Return whether these are the rows of the batch, untransformed."""
        return df is self._df or df is self._frozen

    def has_all(self, df: DataFrame) -> bool:
        """Return whether these rows surely are one row for each message, with its ids."""
        return any(self.has_rows(df, each) for each in self._whole)

    def has_rows(self, df: DataFrame, base: DataFrame) -> bool:
        """Return whether these rows surely are one row for each row of ``base``, with its ids."""
        names = self.application.names
        one = [names.anchor, names.tuple]
        return keeps_rows(df, base, [names.anchors] if names.anchors in df.columns else one)

    def frozen(self) -> DataFrame:
        """Return the rows, evaluated once.

        Rows that a query reads from Parquet files unchanged are committed files already.
        """
        if self._frozen is None:
            found = committed(self._df)
            if found is not None:
                self._kept.append(found)
            self._frozen = self.freeze(self._df) if found is None else found.df
            self._whole.append(self._frozen)
        return self._frozen

    def freeze(self, df: DataFrame, output: DataFrame | None = None) -> DataFrame:
        """Evaluate rows once; return committed files, which stay until the query's next batch.

        ``output`` are the rows that the job gave, if ``df`` is made from them. A batch that does
        not freeze its rows caches them: a part of the cache that is lost is computed again.
        """
        if self.freezes:
            return self.keep(df, output)
        if df.storageLevel == StorageLevel.NONE:  # the job has not cached them
            self.shared.keep(self.query_id, _Cached(df.persist(StorageLevel.MEMORY_AND_DISK)))
        return df

    def keep(self, df: DataFrame, output: DataFrame | None = None) -> DataFrame:
        """Evaluate rows once, also in a batch that does not freeze its own."""
        self.shared.keep(self.query_id, self.staging)
        with self.steps("write"):
            staged = self.staging.write(df)
        self._kept.append(staged)
        self._sources.append((df if output is None else output, staged))
        if self.has_all(df):
            self._whole.append(staged.df)
        return staged.df

    def stage(self, df: DataFrame, queue: Queue, output: DataFrame | None = None) -> DataFrame:
        """Evaluate rows once, in a hidden folder of a queue that has one; else as :meth:`keep`.

        :meth:`aside` finds the folder again by the rows.
        """
        if not can_stage(queue):
            return self.keep(df, output)
        with self.steps("write"):
            aside = queue.stage(df, self.name, self.batch_id)
        self.shared.keep(self.query_id, aside)
        self._asides.append((queue, aside))
        self._kept.append(aside.staged)
        return aside.rows

    def returned(self, rows: DataFrame, result: DataFrame) -> DataFrame:
        """Note what the caller of the batch gets of staged rows; return it."""
        for _, aside in self._asides:
            if aside.rows is rows:
                aside.rows = result
        return result

    def aside(self, rows: DataFrame, queue: Queue) -> Aside | None:
        """Return the folder of a queue that holds exactly these rows."""
        return next((a for q, a in self._asides if a.rows is rows and q == queue), None)

    def kept(self, df: DataFrame) -> Staged | None:
        """Return the committed files that these rows are, untransformed; None for other rows."""
        return next((each for each in self._kept if each.df is df), None)

    def may_change(self, df: DataFrame) -> bool:
        """Return whether two evaluations of these rows may differ, by the plan as far as known.

        Never, if the batch was opened as one whose plan gives the same rows each time.
        """
        return self.freezes and repeats(df, [each.df for each in self._kept]) is False

    def computes_twice(self, outputs: list[DataFrame], changing: list[DataFrame]) -> bool:
        """Return whether outputs are made of two evaluations of the same rows, which may change.

        ``changing`` are those whose own rows may change; the others may be made of kept rows.
        """
        found = list(changing)
        for source, staged in self._sources if self.freezes else ():
            known = any(each is source for each in found) or self.has_all(source)
            if not known and any(reads(each, staged.df) for each in outputs):
                found.append(source)
        kept = [each.df for each in self._kept]
        return any(
            not self.has_rows(one, other)
            and not self.has_rows(other, one)
            and share(one, other, self._df, kept)
            for one, other in combinations(found, 2)
        )

    def id_columns(
        self, df: DataFrame, names: Mapping[str, str], unanchored: bool = False
    ) -> IdColumns | None:
        """Return the columns of terms in committed files; None if the driver cannot read them."""
        staged = self.kept(df)
        # pyarrow takes a dot for a path into a struct.
        if staged is None or any("." in name for name in names.values()) or not staged.files:
            return None
        return IdColumns(staged.files, names, unanchored)

    @property
    def name(self) -> str:
        """The name of the query for queues and sinks: ``APP@QUERY``.

        It includes the app id, because queries of two applications may have the same id.
        """
        return f"{self.application.app_id}@{self.query_id}"

    @property
    def run(self) -> str:
        """The application, query and batch, on which the ids of new messages depend.

        A batch that runs again has the same run.
        """
        return f"{self.name}/{self.batch_id}"

    def described(self, what: str) -> contextlib.AbstractContextManager[None]:
        """Describe the jobs of a block in the Spark UI."""
        words = f"acker {self.application.namespace}: {what} batch {self.batch_id}"
        return described(self._df.sparkSession, words)

    def claim(self) -> None:
        """Raise ConfigError if another running query of this process has the same lane."""
        lane = self.application.lane(self.query_id)
        one_query.claim(self._df, self.application.target, lane, self.query_id)

    def was_applied(self) -> bool:
        """Return whether Redis has applied any call of this batch."""
        lane = self.application.lane(self.query_id)
        return lanes.applied_content(self.application.client, lane, self.batch_id) is not None

    def job(self, source: str = "", labels: dict[int, str] | None = None) -> Job:
        """Return the settings that all calls of this batch share."""
        application = self.application
        return Job(
            target=application.target,
            shards=application.client.config.shards,
            lane=application.lane(self.query_id),
            batch_id=self.batch_id,
            on_changed=application.on_changed_batch,
            source=source,
            labels=labels or {},
        )

    def note(self, report: Report) -> None:
        """Keep the report of the batch."""
        self.shared.note(report, run_id_of(self._df))

    @contextlib.contextmanager
    def once_a_run(self) -> Iterator[None]:
        """Replace ChangedBatchError if this run of the query has already applied this batch.

        Then the cause is not a retry with other rows, but a ``foreachBatch`` that opens two batches
        under one number, as the new ChangedBatchError explains.
        """
        try:
            yield
        except ChangedBatchError as error:
            if not self.shared.has_applied(self.query_id, run_id_of(self._df), self.batch_id):
                raise
            raise ChangedBatchError(
                f"batch {self.batch_id} of query {self.query_id} was already applied by this run "
                "of the query: foreachBatch opened two batches on one lane. Do everything in one "
                "`with acker.batch(..)` block, or use an Acker with another app_id for the second"
            ) from error
