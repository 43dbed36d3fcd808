"""A listener that joins Spark's progress and the acker's report of a batch in one log line."""

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
from acker_redis.terminal import count_of

log = logging.getLogger(__name__)


class AckerListener(StreamingQueryListener):
    """A listener that logs one line per batch: Spark's progress and the report of the acker.

    For each batch the listener logs a line for each acker that took part in it. The level is INFO,
    or WARNING if trees were rejected, if messages vanished, if rows were bad, or if trees failed
    because the batch had changed. The same values are a dict: the attribute ``acker`` of the log
    record, and the argument of ``on_progress``:

    - ``query`` (the query's name, or None), ``query_id``, ``batch_id``;
    - ``trigger_ms`` as Spark measures it;
    - ``namespace`` and ``app_id`` of the acker;
    - ``input_rows``, the ``messages`` of its :class:`Report`: each row that the job gave to this
      acker, once. A row of several trees counts for each of them, and rows of one source id
      (``key=``) count once. Spark's own ``numInputRows`` is larger, because Spark counts a row each
      time that the job reads it;
    - from the report, too: ``tracked``, ``acked``, ``failed``, ``vanished``, ``bad``, ``repeated``,
      ``bytes``, ``ms``, ``waited_ms``, ``mode``, ``changed``, the numbers of ``rejected`` and
      ``rejected_blocks``, and ``timings`` as a dict.

    The listener ignores batches of queries that use none of the ackers. It logs every error,
    including those of the callback, and raises none into Spark. A query with its own ``query_id=``
    is found if that id is its ``queryName``. Spark Connect runs ``foreachBatch`` in the server, so
    the reports are there, and this listener does not see them.

    Spark observes columns of a plan, and neither Redis's replies nor the driver's clock, so these
    values are no observed metrics. Numbers that are known before need no acker: count them on the
    stream itself, and read them from the same progress, as in the second example.

    Args:
        *ackers: The ackers of the queries.
        on_progress: Called with the dict of each batch. Spark calls its listeners one after the
            other, so it should return quickly.

    Examples:
        >>> spark.streams.addListener(AckerListener(acker, on_progress=send_to_statsd))

        >>> newest = F.max("timestamp").alias("newest")
        >>> rows = kafka.observe("in", F.count("*").alias("rows"), newest)
        >>> rows.writeStream.foreachBatch(job).start()  # .lastProgress.observedMetrics["in"].rows

    """

    def __init__(
        self, *ackers: Acker, on_progress: Callable[[dict[str, Any]], object] | None = None
    ) -> None:
        self._ackers = ackers
        self._on_progress = on_progress

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802 - Spark's
        """Do nothing."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802 - Spark's
        """Log the report of a batch and pass it to the callback. Raises nothing."""
        for acker in self._ackers:
            try:
                found = _fields(event.progress, acker)
                if found is None:
                    continue
                signs = ("changed", "rejected", "rejected_blocks", "vanished", "bad")
                trouble = any(found[sign] for sign in signs)
                level = logging.WARNING if trouble else logging.INFO
                log.log(level, "%s", _line(found), extra={"acker": found})
                if self._on_progress is not None:
                    self._on_progress(dict(found))
            except Exception:
                # Some versions of Spark end a query whose listener raises; others log the error.
                log.exception("%s: the progress of a batch could not be reported", acker.namespace)

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802 - Spark's
        """Do nothing."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802 - Spark's
        """Do nothing."""


def _fields(progress: StreamingQueryProgress, acker: Acker) -> dict[str, Any] | None:
    """Return the values of a batch; None if this acker took no part in it."""
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
        "input_rows": report.messages,
        "trigger_ms": progress.durationMs.get("triggerExecution"),
        **_counts(report),
    }


def _counts(report: Report) -> dict[str, Any]:
    return {
        "tracked": report.tracked,
        "acked": report.acked,
        "failed": report.failed,
        "vanished": report.vanished,
        "bad": report.bad,
        "rejected": len(report.rejected),
        "rejected_blocks": len(report.rejected_blocks),
        "repeated": report.repeated,
        "bytes": report.bytes,
        "ms": report.ms,
        "waited_ms": report.waited_ms,
        "mode": report.mode,
        "changed": report.changed,
        "timings": report.timings._asdict(),
    }


def _line(found: dict[str, Any]) -> str:
    words = [f"{found[name]} {name}" for name in ("tracked", "acked", "failed", "rejected")]
    if found["vanished"]:
        words.append(f"{found['vanished']} vanished")
    if found["bad"]:
        words.append(count_of(found["bad"], "bad row"))
    if found["rejected_blocks"]:
        words.append(f"{count_of(found['rejected_blocks'], 'block')} rejected")
    if found["repeated"]:
        words.append(f"{count_of(found['repeated'], 'call')} repeated")
    if found["changed"]:
        words.append("came back with other content")
    steps = ", ".join(f"{name.replace('_', ' ')} {ms}" for name, ms in found["timings"].items())
    return (
        f"{found['namespace']}: {found['query'] or found['query_id']} batch {found['batch_id']}: "
        f"{count_of(found['input_rows'], 'row')} in, {', '.join(words)}; {found['bytes']} bytes in "
        f"{found['ms']} ms by the {found['mode']} ({steps}), waited {found['waited_ms']} ms, "
        f"trigger {found['trigger_ms']} ms"
    )
