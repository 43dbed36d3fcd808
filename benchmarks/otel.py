"""What tracing costs a source: records per second without it, and with spans for some or all acks.

A source and a bolt in one process, on a separate server. Each record is emitted in a trace of its
own, tracked, acked, and its verdict read. The exporter drops the spans. The kinds of source take
turns.
"""

import argparse
import secrets
import statistics
import time
from collections.abc import Sequence

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags, use_span

from acker_redis import Acker, Batch, MessageId, Record, Source
from acker_redis.embedded import EmbeddedRedis
from acker_redis.integrations.otel import trace_verdicts

SHARES = {"off": None, "metrics, no acks": 0.0, "1 % of acks": 0.01, "all acks": 1.0}
"""The kinds of source: not traced, and with a share of the acks traced."""
SAMPLED = TraceFlags(TraceFlags.SAMPLED)


class Dropped(SpanExporter):
    """Counts spans, and drops them."""

    spans = 0

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Accept spans."""
        self.spans += len(spans)
        return SpanExportResult.SUCCESS


class Shop:
    """A source whose messages are acked in batches."""

    def __init__(self, acker: Acker, name: str) -> None:
        self._acker, self._batch = acker, Batch()
        self.source = Source(acker, name, self._send, max_pending=10**9)

    def run(self, records: int) -> tuple[float, float]:
        """Return the emits per second, and the records per second from the emit to the verdict."""
        traces = [
            NonRecordingSpan(SpanContext(secrets.randbits(128) | 1, 1, False, SAMPLED))
            for _ in range(records)
        ]
        began = time.perf_counter()
        for number, trace in enumerate(traces):
            with use_span(trace):
                self.source.emit(f"order-{number}")
        emitted = time.perf_counter()
        while self.source.pending:
            self.source.step()
            self._flush()
        ended = time.perf_counter()
        return records / (emitted - began), records / (ended - began)

    def _send(self, _: Record, ids: tuple[MessageId, ...]) -> None:
        for anchor, tuple_id in ids[0].items():
            self._batch.ack(anchor, tuple_id)
        if self._batch.full:
            self._flush()

    def _flush(self) -> None:
        if self._batch:
            self._acker.apply(self._batch)
            self._batch = Batch()


def main() -> None:
    """Read the arguments and measure."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--records", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=7)
    args = parser.parse_args()
    exporter, tracers = Dropped(), TracerProvider()
    tracers.add_span_processor(BatchSpanProcessor(exporter, max_queue_size=10**6))
    meters = MeterProvider([InMemoryMetricReader()])
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in SHARES}
    spans = dict.fromkeys(SHARES, 0)
    with (
        EmbeddedRedis(tcp=True) as server,
        Acker.from_url(server.url, "bench", timeout=60) as acker,
    ):
        acker.create()
        shops = {}
        for number, (name, share) in enumerate(SHARES.items()):
            shop = shops[name] = Shop(acker, f"shop-{number}")
            if share is not None:
                trace_verdicts(
                    shop.source, acks=share, tracer_provider=tracers, meter_provider=meters
                )
        for number in range(args.rounds + 1):  # the first warms up
            for name in SHARES if number % 2 else reversed(SHARES):
                before = exporter.spans
                rates = shops[name].run(args.records)
                tracers.force_flush()
                if number:
                    found[name].append(rates)
                    spans[name] += exporter.spans - before
    print(f"{args.records:,} records, {args.rounds} rounds")
    print(f"{'':16} {'emits/s':>10} {'of off':>7} {'records/s':>10} {'of off':>7} {'spans':>8}")
    medians = {
        name: [statistics.median(column) for column in zip(*rates, strict=True)]
        for name, rates in found.items()
    }
    for name, (emits, records) in medians.items():
        off_emits, off_records = medians["off"]
        print(f"{name:16} {emits:10,.0f} {emits / off_emits:7.2f} {records:10,.0f} "
              f"{records / off_records:7.2f} {spans[name]:8,}")  # fmt: skip


if __name__ == "__main__":
    main()
