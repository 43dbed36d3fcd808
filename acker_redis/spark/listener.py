"""What Spark and the acker know of a micro-batch, in one line of the log."""

import logging
from collections.abc import Callable
from typing import Any

from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
    StreamingQueryProgress,
)

from acker_redis.spark.acker import Acker
from acker_redis.spark.fold.report import Report

log = logging.getLogger(__name__)


class AckerListener(StreamingQueryListener):
    """Joins a query's progress with what its ackers report of the same batch.

    >>> spark.streams.addListener(AckerListener(acker, on_progress=send_to_statsd))

    Of each batch it logs a line for each acker that had a part in it, at INFO, or WARNING if trees
    were rejected or failed because the batch had changed. The same as a dict of numbers and strings
    is attribute ``acker`` of the log record, and is given to ``on_progress``: ``query`` (its name,
    or None), ``query_id``, ``batch_id``, ``input_rows`` and ``trigger_ms`` as Spark counts them
    (rows as often as a plan reads them), ``namespace`` and ``app_id`` of the acker, and of its
    :class:`Report` ``tracked``, ``acked``, ``failed``, ``repeated``, ``bytes``, ``ms``,
    ``waited_ms``, ``mode``, ``changed``, and how many are ``rejected`` and ``rejected_blocks``.

    Batches of queries that are no acker's are passed over. Nothing that fails here, the callback
    included, is raised into Spark: it is logged. A query that was named by hand (``query_id=``) is
    found too if that is its ``queryName``. Spark calls its listeners one after the other, so a
    callback should be quick. Spark Connect runs ``foreachBatch`` in the server: what is reported
    there is not here.

    Whatever Redis has answered comes too late to be observed by Spark. What is known before needs
    no acker: count it on the stream itself, and read it from the same progress.

    >>> rows = kafka.observe("in", F.count("*").alias("rows"), F.max("timestamp").alias("newest"))
    >>> rows.writeStream.foreachBatch(job).start()  # .lastProgress.observedMetrics["in"].rows
    """

    def __init__(
        self, *ackers: Acker, on_progress: Callable[[dict[str, Any]], object] | None = None
    ) -> None:
        self._ackers = ackers
        self._on_progress = on_progress

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802 - Spark's
        """Nothing."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802 - Spark's
        """Tell what became of a batch. Raises nothing."""
        for acker in self._ackers:
            try:
                found = _fields(event.progress, acker)
                if found is None:
                    continue
                trouble = found["changed"] or found["rejected"] or found["rejected_blocks"]
                level = logging.WARNING if trouble else logging.INFO
                log.log(level, "%s", _line(found), extra={"acker": found})
                if self._on_progress:
                    self._on_progress(dict(found))
            except Exception:
                # Spark ends a query whose listener raises in some versions, and logs it in others.
                log.exception("%s: the progress of a batch could not be told", acker.namespace)

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802 - Spark's
        """Nothing."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802 - Spark's
        """Nothing."""


def _fields(progress: StreamingQueryProgress, acker: Acker) -> dict[str, Any] | None:
    """What is known of a batch; None if this acker had no part in it."""
    report = acker.report(str(progress.id), progress.batchId)
    if report is None and progress.name:
        report = acker.report(progress.name, progress.batchId)
    if report is None:
        return None
    return {
        "query": progress.name,
        "query_id": report.query_id,
        "batch_id": report.batch_id,
        "namespace": acker.namespace,
        "app_id": acker.application.app_id,
        "input_rows": progress.numInputRows,
        "trigger_ms": progress.durationMs.get("triggerExecution"),
        **_counts(report),
    }


def _counts(report: Report) -> dict[str, Any]:
    return {
        "tracked": report.tracked,
        "acked": report.acked,
        "failed": report.failed,
        "rejected": len(report.rejected),
        "rejected_blocks": len(report.rejected_blocks),
        "repeated": report.repeated,
        "bytes": report.bytes,
        "ms": report.ms,
        "waited_ms": report.waited_ms,
        "mode": report.mode,
        "changed": report.changed,
    }


def _line(found: dict[str, Any]) -> str:
    words = [f"{found[name]} {name}" for name in ("tracked", "acked", "failed", "rejected")]
    if found["rejected_blocks"]:
        words.append(f"{found['rejected_blocks']} blocks rejected")
    if found["repeated"]:
        words.append(f"{found['repeated']} calls repeated")
    if found["changed"]:
        words.append("came back with other content")
    return (
        f"{found['namespace']}: {found['query'] or found['query_id']} batch {found['batch_id']}: "
        f"{found['input_rows']} rows in, {', '.join(words)}; {found['bytes']} bytes in "
        f"{found['ms']} ms by the {found['mode']}, waited {found['waited_ms']} ms, "
        f"trigger {found['trigger_ms']} ms"
    )
