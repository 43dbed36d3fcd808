"""The acker in a Spark application: opens a micro-batch, and keeps what became of it."""

import logging
import threading
import time
from collections import deque
from typing import Any, Literal

from pyspark.sql import Column, DataFrame, SparkSession

from acker_redis.errors import ConfigError
from acker_redis.protocol.config import AckerConfig
from acker_redis.protocol.keys import check_name
from acker_redis.spark.fold.apply import OnChanged, Place
from acker_redis.spark.fold.report import Report
from acker_redis.spark.fold.target import Target
from acker_redis.spark.fold.turns import lane_of
from acker_redis.spark.ledger import Ledger
from acker_redis.spark.micro_batch import MicroBatch
from acker_redis.spark.names import Names
from acker_redis.spark.queries import is_local, query_id_of, release
from acker_redis.spark.streams.formats import register
from acker_redis.sync import client

log = logging.getLogger(__name__)

Mode = Literal["auto", "driver", "executors"]
DRIVER_MOST = 1_000_000
"""Messages up to which ``auto`` folds in the driver."""
_KEPT = 100


class Acker:
    """A namespace, for the streaming queries of one application.

    ``app_id`` names the application for ever: its queries' lanes are called after it. ``url`` is
    that of Redis, as the executors reach it; by default that in ``ACKER_REDIS_URL``.

    ``mode`` says where a batch is folded and sent: ``driver`` collects 16 bytes a message (and
    texts), ``executors`` sends from tasks, whatever the size; ``auto`` takes the driver for up to a
    million messages. ``on_changed_batch`` says what to do with a batch that comes back with other
    content than it was applied with: ``raise``, at every restart until the plan is mended, or
    ``fail_trees``: nack all its trees, so that their sources replay them, and go on (refused for a
    query that writes to a sink before its ack). ``max_wait``
    is for how many seconds a batch waits for room below the high-water mark. ``names`` are those of
    the columns, and ``ledger`` is where the source ids of trees in blocks are kept, if they do not
    count.

    Thread-safe, for several queries at once. With Spark Connect a function of ``foreachBatch`` runs
    in another process, and has a copy there that keeps its reports to itself. Raises ConfigError
    for what cannot be.
    """

    def __init__(
        self,
        spark: SparkSession,
        namespace: str,
        *,
        app_id: str,
        url: str | None = None,
        mode: Mode = "auto",
        on_changed_batch: OnChanged = "raise",
        max_wait: float = 600.0,
        names: Names | None = None,
        ledger: "Ledger | str | None" = None,
        query_id: str | None = None,
        timeout: float = 5.0,
        retry_for: float = 10.0,
    ) -> None:
        if mode not in ("auto", "driver", "executors"):
            raise ConfigError(f"mode is 'auto', 'driver' or 'executors', not {mode!r}")
        if on_changed_batch not in ("raise", "fail_trees"):
            raise ConfigError(
                f"on_changed_batch is 'raise' or 'fail_trees', not {on_changed_batch!r}"
            )
        if ledger and on_changed_batch == "fail_trees":
            raise ConfigError(
                "on_changed_batch='fail_trees' nacks trees that no ledger has: use it without one"
            )
        register(spark)
        self.target = Target.find(namespace, url, timeout, retry_for)
        self.app_id = check_name("app id", app_id)
        self.mode: Mode = mode
        self.on_changed_batch: OnChanged = on_changed_batch
        self.max_wait = max_wait
        self.names = names or Names()
        self.ledger = Ledger(ledger) if isinstance(ledger, str) else ledger
        self.reports: deque[Report] = deque(maxlen=_KEPT)
        """What became of the last batches, the latest last."""
        self._query_id = query_id
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

    @property
    def namespace(self) -> str:
        """The namespace's name."""
        return self.target.namespace

    @property
    def client(self) -> client.Acker:
        """The driver's client: create, status, show, outcomes."""
        return self.target.client()

    def create(self, config: AckerConfig | None = None) -> bool:
        """Create the namespace; False if it exists with this very configuration."""
        return self.client.create(config)

    def batch(
        self, df: DataFrame, batch_id: int, *, query_id: str | None = None, freeze: bool = True
    ) -> MicroBatch:
        """A micro-batch, as ``foreachBatch`` gives it; use it as ``with acker.batch(..) as b:``.

        With ``freeze=False`` rows are read again for each thing that is made of them, rather than
        kept: quicker, and right only where the plan gives the same rows each time, as offsets of
        Kafka or whole files do, and a join with a table that changes does not.

        ``query_id`` names the query where Spark does not (outside of a streaming query, and with
        Spark Connect): a name that no other query of this app id has, and that goes with one
        checkpoint: with a new checkpoint batch ids start over, and it needs a new name.
        """
        return MicroBatch(self, df, batch_id, query_id_of(df, query_id or self._query_id), freeze)

    def ack(
        self,
        df: DataFrame,
        batch_id: int,
        *,
        children: str | Column | None = None,
        query_id: str | None = None,
    ) -> Report:
        """Ack all messages of a batch: the last bolt, or one whose children stand in their rows.

        The DataFrame is evaluated once, and not kept. See :meth:`MicroBatch.ack`.
        """
        with self.batch(df, batch_id, query_id=query_id) as b:
            b.ack(df, children=children)
        if b.report is None:  # pragma: no cover - it is set whenever the block ends well
            raise ConfigError("the batch was not applied")
        return b.report

    def lane(self, query_id: str) -> str:
        """Name of a query's lane."""
        return lane_of(self.app_id, query_id)

    def place(self, df: DataFrame, query_id: str, frozen: bool = True) -> Place:
        """Where the next batch of a query is folded; counts its rows if nothing else tells."""
        if self.mode != "auto":
            return self.mode
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
        least = self.client.config.fence_ms
        if 3000 * (now - before) > least:
            with self._lock:
                self._warned.add(query_id)
            log.warning(
                "%s: trees live %.0f s at least, and this query's batches are %.0f s apart; a "
                "message waits for its next batch in each job, so give the namespace a longer "
                "tick_ms",
                self.namespace,
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
        log.log(level, "%s: %s", self.namespace, report)
