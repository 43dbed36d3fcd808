"""Attaches to a source: every verdict that counts is measured, and may have a span.

**When.** A verdict counts when its callbacks have returned, or when ``verdicts()`` is asked for the
next one. Then its span is made, once. If the program dies in between, the verdict is delivered to
the next program, and has its span there. If it dies right after the span, there may be two.

**Errors.** An exception of OpenTelemetry, or of an exporter, is logged once for each source. The
verdict counts all the same.

**Forks.** A forked child begins with an empty source, which is traced, too.
"""

import logging
import time
from collections.abc import Iterable, Iterator
from typing import TypeVar

from opentelemetry.context import Context
from opentelemetry.metrics import MeterProvider
from opentelemetry.trace import Link, SpanKind, Status, StatusCode, TracerProvider, get_tracer

from acker_redis.aio.source import AsyncSource
from acker_redis.errors import ConfigError
from acker_redis.flows.namespace import Flows
from acker_redis.flows.source import SourceFlows
from acker_redis.flows.steps import Flow
from acker_redis.integrations.otel.meters import Meters, meters_of
from acker_redis.integrations.otel.records import Inbox
from acker_redis.integrations.otel.spans import (
    Names,
    Shares,
    began_ns,
    context_of,
    names_of,
    span_attributes,
    why_of,
)
from acker_redis.sync.source import Source
from acker_redis.trees.record import Verdict
from acker_redis.trees.source_settings import SourceSettings

log = logging.getLogger(__name__)

S = TypeVar("S", bound=Source | AsyncSource)


def trace_verdicts(
    source: S,
    *,
    acks: float = 1.0,
    nacks: float = 1.0,
    tracer_provider: TracerProvider | None = None,
    meter_provider: MeterProvider | None = None,
) -> S:
    """Trace a source from now on, and return it: a span for each verdict, and two metrics.

    The span begins when the record is emitted, and ends with the verdict. It is the root of a new
    trace, with a link to the span in which ``emit()`` or ``track()`` was called.

    Args:
        source: A source that has no thread, no step, no record and no group yet.
        acks: Share of the acks that have a span, from 0 to 1. An ack whose record was emitted in a
            trace that is not sampled has none.
        nacks: Share of the nacks that have a span. The metrics count all verdicts.
        tracer_provider: By default the global one. Its sampler has the last word, because the span
            is the root of a new trace.
        meter_provider: By default the global one.

    Raises:
        ConfigError: The source has begun, or is traced; or a share is invalid.

    Examples:
        >>> from acker_redis.integrations.otel import trace_verdicts
        >>> bolt = Bolt(Producer(Acker.from_url(url, "orders"), linger=0))
        >>> def send(record, ids):
        ...     bolt.process(*ids).ack()
        >>> source = trace_verdicts(Source(Acker.from_url(url, "orders"), "shop", send), acks=0.01)
        >>> with source:
        ...     source.emit("order-1")
        ...     source.join()
        True

    """
    if not isinstance(source, Source | AsyncSource):
        raise ConfigError(f"trace_verdicts takes a Source or an AsyncSource, not {source!r}")
    if isinstance(source._flows, TracedFlows):
        raise ConfigError(f"source {source.name} is traced: call trace_verdicts once")
    if source._flows.begun or source._pumped():
        raise ConfigError(f"source {source.name} has begun: call trace_verdicts before that")
    shares = Shares(acks, nacks)
    shares.check()
    flows = source.acker.flows
    names = names_of(flows.namespace, source.name)
    tracer = VerdictTracer(names, shares, tracer_provider, meters_of(meter_provider))
    source._forgotten.detach()
    source.use(TracedFlows(flows, source.name, source._settings, tracer))
    return source


class VerdictTracer:
    """Makes the spans of the verdicts of one source, and counts them."""

    def __init__(
        self, names: Names, shares: Shares, provider: TracerProvider | None, meters: Meters
    ) -> None:
        self._names, self._shares, self._meters = names, shares, meters
        self._tracer = get_tracer("acker_redis", tracer_provider=provider)
        self._failed = False

    def watch(self, source: SourceFlows) -> None:
        """Observe the open records of the source."""
        self._meters.watch(source, self._names)

    def counted(self, verdicts: Iterable[Verdict]) -> Iterator[Verdict]:
        """Yield verdicts, and measure each when the caller asks for the next one."""
        for verdict in verdicts:
            ended_ns = time.time_ns()
            yield verdict
            try:
                self._meters.count(self._names, verdict, ended_ns)
                if self._shares.include(verdict):
                    self._span(verdict, ended_ns)
            except Exception:
                level = logging.DEBUG if self._failed else logging.ERROR
                self._failed = True
                name = self._names["acker.source"]
                log.log(level, "source %s: a verdict is not traced", name, exc_info=True)

    def _span(self, verdict: Verdict, ended_ns: int) -> None:
        emitted_in = context_of(verdict.record)
        span = self._tracer.start_span(
            f"{verdict.verdict} {self._names['messaging.destination.name']}",
            # The span that is current where the source runs has nothing to do with the record.
            Context(),
            SpanKind.INTERNAL,
            span_attributes(self._names, verdict),
            [Link(emitted_in)] if emitted_in else [],
            began_ns(verdict, ended_ns),
        )
        if verdict.verdict == "nack":
            span.set_status(Status(StatusCode.ERROR, why_of(verdict)))
        span.end(ended_ns)


class TracedFlows(SourceFlows):
    """The steps of a traced source."""

    def __init__(
        self, flows: Flows, name: str, settings: SourceSettings, tracer: VerdictTracer
    ) -> None:
        super().__init__(flows, name, settings)
        self.inbox = Inbox()
        self._tracer = tracer
        tracer.watch(self)

    def fresh(self) -> SourceFlows:
        """Return the flows of the same source without records."""
        return TracedFlows(self.given, self.name, self.settings, self._tracer)

    def _tell(self, verdicts: Iterable[Verdict]) -> Flow[None]:
        yield from super()._tell(self._tracer.counted(verdicts))
