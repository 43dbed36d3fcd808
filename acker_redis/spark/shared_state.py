"""What the queries of an application share: settings, batch reports, kept rows.

:class:`~acker_redis.spark.acker.Acker` passes one :class:`SharedState` to each micro-batch.
"""

import logging
import threading
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, get_args

from pyspark.sql import DataFrame, SparkSession

from acker_redis.errors import ConfigError
from acker_redis.protocol.keys import check_name
from acker_redis.spark.fold.apply import OnChanged, Place, Terms
from acker_redis.spark.fold.lanes import lane_of
from acker_redis.spark.fold.report import Report
from acker_redis.spark.fold.target import Target
from acker_redis.spark.fold.vanished import Unmentioned
from acker_redis.spark.ids import Ids
from acker_redis.spark.ledger import Ledger
from acker_redis.spark.names import Names
from acker_redis.spark.queries import context_of, is_local
from acker_redis.spark.stream_plans import troubles
from acker_redis.sync import client

log = logging.getLogger(__name__)

Mode = Literal["auto", "driver", "executors"]
DRIVER_MOST = 1_000_000
"""Maximum messages of a batch that ``auto`` folds in the driver."""
FILES_MOST = 10_000_000
"""Maximum terms of a batch that ``auto`` folds in the driver if it reads all of them from committed
files: some 240 MB."""
_KEPT = 100


@dataclass(frozen=True)
class Application:
    """Settings of an application's queries; see ``Acker``. Raises ConfigError for invalid ones."""

    target: Target
    app_id: str
    mode: Mode
    on_changed_batch: OnChanged
    max_wait: float
    names: Names
    ledger: Ledger | None
    unmentioned: Unmentioned
    staging: str | None = None

    def __post_init__(self) -> None:
        if self.mode not in ("auto", "driver", "executors"):
            raise ConfigError(f"mode must be 'auto', 'driver' or 'executors', not {self.mode!r}")
        if self.on_changed_batch not in ("raise", "fail_trees"):
            raise ConfigError(
                f"on_changed_batch must be 'raise' or 'fail_trees', not {self.on_changed_batch!r}"
            )
        check_unmentioned(self.unmentioned)
        if self.ledger and self.on_changed_batch == "fail_trees":
            raise ConfigError(
                "on_changed_batch='fail_trees' nacks trees that are not in the ledger, so their "
                "verdicts would name no record: use it without a ledger"
            )
        check_name("app id", self.app_id)

    @property
    def namespace(self) -> str:
        """The name of the namespace."""
        return self.target.namespace

    @property
    def client(self) -> client.Acker:
        """The client of the driver."""
        return self.target.client()

    def lane(self, query_id: str) -> str:
        """Return the name of a query's lane."""
        return lane_of(self.app_id, query_id)


def check_unmentioned(unmentioned: str) -> None:
    """Raise ConfigError for an unknown treatment of messages that a job does not mention."""
    if unmentioned not in get_args(Unmentioned):
        raise ConfigError(f"unmentioned must be 'fail', 'leave' or 'ack', not {unmentioned!r}")


class Kept(Protocol):
    """Folders of a batch."""

    def delete(self) -> None:
        """Delete the folders that were not published."""


class SharedState:
    """The reports and sizes of the batches of an application's queries. Thread-safe."""

    def __init__(self, application: Application) -> None:
        self.application = application
        self.reports: deque[Report] = deque(maxlen=_KEPT)
        """Reports of the last batches, the latest last."""
        self._lock = threading.Lock()
        self._messages: dict[str, int] = {}
        self._began: dict[str, float] = {}
        self._kept: dict[str, dict[Kept, None]] = {}
        self._warned: set[tuple[str, str]] = set()
        self._applied: dict[str, tuple[str, int]] = {}
        self._ids: tuple[object, Ids] | None = None
        self._gaps: set[str] = set()

    def __getstate__(self) -> dict[str, Any]:
        state = self.__dict__.copy()
        del state["_lock"]
        state |= {"_kept": {}, "_ids": None}
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, _lock=threading.Lock())

    def ids(self, spark: SparkSession) -> Ids:
        """Return what makes the ids of the namespace, for DataFrames of a session."""
        maker, context = self.application.client.ids, context_of(spark)
        known = self._ids  # another thread may replace it at any time
        if known is None or known[0] is not context or known[1].maker is not maker:
            known = self._ids = context, Ids(spark, maker, self.application.names)
        return known[1]

    def place(
        self,
        df: DataFrame,
        query_id: str,
        frozen: bool = True,
        terms: Sequence[Terms] = (),
        rows: int | None = None,
    ) -> Place:
        """Return where to fold the next batch of a query; count its rows if that is necessary.

        ``rows`` is their number, if it is known.
        """
        if rows is not None:
            return self.limited(rows)
        if self.application.mode != "auto":
            return self.application.mode
        files = [each.files for each in terms]
        if files and all(files):
            read = sum(each.rows for each in files if each)
            return "driver" if read <= FILES_MOST else "executors"
        last = self._messages.get(query_id)
        kept = frozen and not is_local(df.sparkSession)  # computed already: the count is cheap
        # A batch after one far below the limit is assumed to be below it, too. If it is not, Spark
        # limits the size of the collected result.
        if kept or last is None or DRIVER_MOST / 4 < last <= DRIVER_MOST:
            last = df.count() if frozen else DRIVER_MOST + 1
        return "driver" if last <= DRIVER_MOST else "executors"

    def limited(self, rows: int) -> Place:
        """Return where to fold this number of rows, which are in no files."""
        mode = self.application.mode
        return mode if mode != "auto" else "driver" if rows <= DRIVER_MOST else "executors"

    def note_gaps(self, query_id: str) -> None:
        """Note that offsets of a query have no record."""
        with self._lock:
            self._gaps.add(query_id)

    def has_gaps(self, query_id: str) -> bool:
        """Return whether a batch of a query had offsets without a record."""
        return query_id in self._gaps

    def is_large(self, query_id: str) -> bool:
        """Return whether the last batch of a query was large; False if none is known."""
        return self._messages.get(query_id, 0) > DRIVER_MOST / 4

    def keep(self, query_id: str, kept: Kept) -> None:
        """Note the folders of a batch; they are deleted when the query's next batch begins."""
        with self._lock:
            self._kept.setdefault(query_id, {})[kept] = None

    def forget(self, query_id: str) -> None:
        """Forget the size of a query's batches: a batch failed, and its size may be the cause."""
        with self._lock:
            self._messages.pop(query_id, None)

    def begins(self, query_id: str, df: DataFrame) -> None:
        """Note that a batch begins; warn once if trees expire too early for this query.

        The warning comes if batches are more than a third of N-1 ticks apart (N: ``buckets``), or
        if the plan of the query says so in its first batch.
        """
        now = time.monotonic()
        with self._lock:
            before, self._began[query_id] = self._began.get(query_id), now
            kept = self._kept.pop(query_id, {})
            warned = ("timeout", query_id) in self._warned
        for each in kept:
            each.delete()
        if warned:
            return
        least = self.application.client.config.fence_ms
        if before is None:
            for words in troubles(df, least):
                log.warning("%s: query %s: %s", self.application.namespace, query_id, words)
            return
        if 3000 * (now - before) > least:
            with self._lock:
                self._warned.add(("timeout", query_id))
            log.warning(
                "%s: a tree may expire after %.0f s, and the batches of this query are %.0f s "
                "apart; a message waits for the next batch in each job, so give the namespace a "
                "longer tick_ms",
                self.application.namespace,
                least / 1000,
                now - before,
            )

    def is_first(self, what: str, report: Report) -> bool:
        """Return whether this warning is the first of its query."""
        with self._lock:
            known = (what, report.query_id) in self._warned
            self._warned.add((what, report.query_id))
        return not known

    def has_applied(self, query_id: str, run_id: str | None, batch_id: int) -> bool:
        """Return whether this run of a query, and not an earlier one, has applied this batch."""
        with self._lock:
            return self._applied.get(query_id) == (run_id, batch_id)

    def report(self, query_id: str, batch_id: int) -> Report | None:
        """Return the report of the last run of a batch; None if not among the last 100 reports."""
        with self._lock:
            kept = list(self.reports)
        for report in reversed(kept):
            if (report.query_id, report.batch_id) == (query_id, batch_id):
                return report
        return None

    def note(self, report: Report, run_id: str | None = None) -> None:
        """Keep the report of a batch, and which run of its query applied it, if that is known."""
        with self._lock:
            self.reports.append(report)
            self._messages[report.query_id] = report.messages
            if run_id:
                self._applied[report.query_id] = (run_id, report.batch_id)
        level = logging.WARNING if report.rejected or report.changed else logging.INFO
        log.log(level, "%s: %s", self.application.namespace, report)
