"""What an application's queries share: their settings, and what became of their batches.

One object goes down from :class:`~acker_redis.spark.acker.Acker` to each micro-batch.
"""

import logging
import threading
import time
from collections import deque
from dataclasses import dataclass
from typing import Any, Literal

from pyspark.sql import DataFrame

from acker_redis.errors import ConfigError
from acker_redis.protocol.keys import check_name
from acker_redis.spark.fold.apply import OnChanged, Place
from acker_redis.spark.fold.report import Report
from acker_redis.spark.fold.target import Target
from acker_redis.spark.fold.turns import lane_of
from acker_redis.spark.ledger import Ledger
from acker_redis.spark.names import Names
from acker_redis.spark.queries import is_local, release
from acker_redis.sync import client

log = logging.getLogger(__name__)

Mode = Literal["auto", "driver", "executors"]
DRIVER_MOST = 1_000_000
"""Messages up to which ``auto`` folds in the driver."""
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

    def __post_init__(self) -> None:
        if self.mode not in ("auto", "driver", "executors"):
            raise ConfigError(f"mode is 'auto', 'driver' or 'executors', not {self.mode!r}")
        if self.on_changed_batch not in ("raise", "fail_trees"):
            raise ConfigError(
                f"on_changed_batch is 'raise' or 'fail_trees', not {self.on_changed_batch!r}"
            )
        if self.ledger and self.on_changed_batch == "fail_trees":
            raise ConfigError(
                "on_changed_batch='fail_trees' nacks trees that no ledger has: use it without one"
            )
        check_name("app id", self.app_id)

    @property
    def namespace(self) -> str:
        """The namespace's name."""
        return self.target.namespace

    @property
    def client(self) -> client.Acker:
        """The driver's client."""
        return self.target.client()

    def lane(self, query_id: str) -> str:
        """Return the name of a query's lane."""
        return lane_of(self.app_id, query_id)


class Memory:
    """What became of the batches of an application's queries. Thread-safe."""

    def __init__(self, application: Application) -> None:
        self.application = application
        self.reports: deque[Report] = deque(maxlen=_KEPT)
        """Reports of the last batches, the latest last."""
        self._lock = threading.Lock()
        self._messages: dict[str, int] = {}
        self._began: dict[str, float] = {}
        self._kept: dict[str, list[DataFrame]] = {}
        self._warned: set[str] = set()
        self._applied: dict[str, tuple[str, int]] = {}

    def __getstate__(self) -> dict[str, Any]:
        state = self.__dict__.copy()
        del state["_lock"]
        state["_kept"] = {}
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, _lock=threading.Lock())

    def place(self, df: DataFrame, query_id: str, frozen: bool = True) -> Place:
        """Where the next batch of a query is folded; counts its rows if nothing else tells."""
        if self.application.mode != "auto":
            return self.application.mode
        last = self._messages.get(query_id)
        kept = frozen and not is_local(df.sparkSession)  # computed already: to count costs nothing
        # What was far below stays below, mostly; and if not, Spark limits what is collected.
        if kept or last is None or DRIVER_MOST / 4 < last <= DRIVER_MOST:
            last = df.count() if frozen else DRIVER_MOST + 1
        return "driver" if last <= DRIVER_MOST else "executors"

    def keep(self, query_id: str, df: DataFrame) -> None:
        """Note rows that a query has kept, to be given back when its next batch begins."""
        with self._lock:
            self._kept.setdefault(query_id, []).append(df)

    def forget(self, query_id: str) -> None:
        """Forget how large a query's batches are: one has failed, and that may be why."""
        with self._lock:
            self._messages.pop(query_id, None)

    def begins(self, query_id: str) -> None:
        """Note that a batch begins, and warn once if trees live too short for such a query."""
        now = time.monotonic()
        with self._lock:
            before, self._began[query_id] = self._began.get(query_id), now
            kept = self._kept.pop(query_id, [])
            warned = query_id in self._warned
        for df in kept:
            release(df)
        if before is None or warned:
            return
        least = self.application.client.config.fence_ms
        if 3000 * (now - before) > least:
            with self._lock:
                self._warned.add(query_id)
            log.warning(
                "%s: trees live %.0f s at least, and this query's batches are %.0f s apart; a "
                "message waits for its next batch in each job, so give the namespace a longer "
                "tick_ms",
                self.application.namespace,
                least / 1000,
                now - before,
            )

    def has_applied(self, query_id: str, run_id: str | None, batch_id: int) -> bool:
        """Return whether this very run of a query has applied this batch."""
        with self._lock:
            return self._applied.get(query_id) == (run_id, batch_id)

    def report(self, query_id: str, batch_id: int) -> Report | None:
        """What became of a batch when it was last run; None if it is none of the last 100."""
        with self._lock:
            kept = list(self.reports)
        for report in reversed(kept):
            if (report.query_id, report.batch_id) == (query_id, batch_id):
                return report
        return None

    def note(self, report: Report, run_id: str | None = None) -> None:
        """Keep what became of a batch, and which run of its query applied it, if known."""
        with self._lock:
            self.reports.append(report)
            self._messages[report.query_id] = report.messages
            if run_id:
                self._applied[report.query_id] = (run_id, report.batch_id)
        level = logging.WARNING if report.rejected or report.changed else logging.INFO
        log.log(level, "%s: %s", self.application.namespace, report)
