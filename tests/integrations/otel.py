"""Traced sources for tests: their spans and metrics are kept in memory.

As a plugin of pytest (``-p tests.integrations.otel``), it traces every source that a test makes.
"""

import uuid
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from acker_redis import Acker, Backoff, Source
from acker_redis.aio import AsyncAcker, AsyncSource
from acker_redis.embedded import EmbeddedRedis
from acker_redis.integrations.otel import trace_verdicts
from tests.source.bolts import Bolts, CallbackLog
from tests.source.twin import Loop, Twin


class Telemetry:
    """Providers whose spans and metrics stay in memory."""

    def __init__(self) -> None:
        self._exporter, self._reader = InMemorySpanExporter(), InMemoryMetricReader()
        self.tracers = TracerProvider()
        self.tracers.add_span_processor(SimpleSpanProcessor(self._exporter))
        self.meters = MeterProvider([self._reader])
        self.tracer = self.tracers.get_tracer("a program")

    def spans(self) -> list[ReadableSpan]:
        """Return the spans of verdicts, in the order of the verdicts."""
        found = self._exporter.get_finished_spans()
        return [each for each in found if each.instrumentation_scope.name == "acker_redis"]

    def points(self, metric: str) -> list[Any]:
        """Return the data points of a metric."""
        data = self._reader.get_metrics_data()
        return [
            point
            for resource in (data.resource_metrics if data else [])
            for scope in resource.scope_metrics
            for each in scope.metrics
            if each.name == metric
            for point in each.data.data_points
        ]

    def trace(self, source: Any, **options: Any) -> Any:
        """Trace a source, or the source of a twin, and return it."""
        telemetry = {"tracer_provider": self.tracers, "meter_provider": self.meters}
        trace_verdicts(source.source if isinstance(source, Twin) else source, **telemetry | options)
        return source


class Shop:
    """A namespace with its bolts, and traced sources of one kind."""

    def __init__(self, server: EmbeddedRedis, acker: Acker, kind: str) -> None:
        self.telemetry, self.acker, self.server = Telemetry(), acker, server
        self.bolts, self.called = Bolts(acker), CallbackLog()
        self._loop = Loop() if kind == "asyncio" else None
        self._sources: list[Any] = []

    def source(self, send: Any = None, name: str = "shop", **options: Any) -> Any:
        """Make a source, which is not traced."""
        options = {"backoff": Backoff(0, 0), **self.called.callbacks, **options}
        url, namespace = self.server.url, self.acker.namespace
        send = send or self.bolts.send
        source: Any
        if self._loop is None:
            source = Source(Acker.from_url(url, namespace, timeout=60), name, send, **options)
        else:
            acker = AsyncAcker.from_url(url, namespace, timeout=60)
            source = Twin(self._loop, acker, name, send, **options)
        self._sources.append(source)
        return source

    def traced(
        self, send: Any = None, name: str = "shop", *, trace: Any = None, **options: Any
    ) -> Any:
        """Make a traced source; ``trace`` are options of ``trace_verdicts``."""
        return self.telemetry.trace(self.source(send, name, **options), **trace or {})

    def close(self) -> None:
        """Stop the sources, and close their connections."""
        for source in self._sources:
            source.stop()
            closed = source.acker.close()
            if self._loop:
                self._loop.call(closed)
        if self._loop:
            self._loop.close()


def names(spans: Sequence[ReadableSpan]) -> list[tuple[str, Any, Any]]:
    """Return the verdict, the source id and the attempt of each span."""
    return [
        (each.name.split()[0], *((each.attributes or {})[f"acker.{key}"] for key in KEYS))
        for each in spans
    ]


KEYS = ("source_id", "attempt")


def new_name() -> str:
    """Return the name of a namespace that does not exist."""
    return f"otel-{uuid.uuid4().hex[:8]}"


def pytest_configure() -> None:
    """Trace every source, also that of a twin."""
    for kind in (Source, AsyncSource):
        kind.__init__ = _traces(kind.__init__)  # type: ignore[method-assign]


def _traces(init: Callable[..., None]) -> Callable[..., None]:
    def traced(self: Any, *args: Any, **options: Any) -> None:
        init(self, *args, **options)
        _everywhere.trace(self)

    return traced


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Fail if no verdict was traced."""
    if not _everywhere.spans():
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


_everywhere = Telemetry()
