"""The context in which a record was emitted, kept with the record itself.

A source keeps each open record until its final verdict, and at most ``max_pending`` of them. So the
contexts need no table and no limit.
"""

import logging
import time
from collections import deque
from dataclasses import dataclass, field, fields
from operator import attrgetter

from opentelemetry.trace import SpanContext, get_current_span

from acker_redis.trees.record import Record

log = logging.getLogger(__name__)

_fields = attrgetter(*(each.name for each in fields(Record)))


@dataclass(slots=True, eq=False)
class TracedRecord(Record):
    """A record that this program has emitted."""

    emitted_ns: int = field(default=0, repr=False)
    """When the source admitted the record, in nanoseconds since 1970."""
    emitted_in: SpanContext | None = field(default=None, repr=False)
    """The span in which it was emitted; None if there was none."""


class Inbox(deque[tuple[Record, int | None]]):
    """The inbox of a traced source: notes when, and in which span, each record is emitted.

    ``emit()`` and ``track()`` append to it in the thread, or in the task, of their caller.
    """

    def append(self, item: tuple[Record, int | None]) -> None:
        """Append a record, with the anchor if it is tracked already."""
        record, anchor = item
        traced = TracedRecord(*_fields(record))
        traced.emitted_ns, traced.emitted_in = time.time_ns(), _current()
        super().append((traced, anchor))


def _current() -> SpanContext | None:
    try:
        context = get_current_span().get_span_context()
        return context if context.is_valid else None
    except Exception:  # emit() must not depend on a plug-in of OpenTelemetry
        log.exception("cannot read the current span")
        return None
