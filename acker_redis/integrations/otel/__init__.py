"""OpenTelemetry: a span for each verdict of a source, linked to the span that emitted the record.

It needs the extra ``otel``. ``tracing.py`` attaches to a source, ``records.py`` keeps the
emitting context with each record, ``spans.py`` is the content of a span, ``meters.py`` the metrics.
"""

from acker_redis.errors import needs

with needs("otel", "acker_redis.integrations.otel"):
    from acker_redis.integrations.otel.tracing import trace_verdicts

__all__ = ["trace_verdicts"]
