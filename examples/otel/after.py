"""Track the orders of a folder, each read in a span, and ship them. Spans go to stdout."""

import json
import sys
from os import environ
from pathlib import Path
from typing import Any

from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, ConsoleSpanExporter

from acker_redis import Acker, Bolt, Producer, Record, Source
from acker_redis.integrations.otel import trace_verdicts

exporter = ConsoleSpanExporter(formatter=lambda span: span.to_json(indent=None) + "\n")
provider = TracerProvider()
provider.add_span_processor(BatchSpanProcessor(exporter))
trace.set_tracer_provider(provider)
tracer = trace.get_tracer("shop")


def ship(order: dict[str, Any]) -> None:
    """Ship an order; raise ValueError if it has no address."""
    if not order["address"]:
        raise ValueError("no address")


def main(folder: str) -> None:
    """Track each order of a folder, and wait for the verdicts."""
    with Acker.from_url(environ["ACKER_REDIS_URL"], "orders") as acker, Producer(acker) as producer:
        bolt = Bolt(producer)

        def send(record: Record, ids: Any) -> None:  # usually to a queue, or by HTTP
            with bolt.process(*ids):
                ship(record.value)

        source = trace_verdicts(Source(acker, "shop", send, attempts=1))
        with source:
            for file in sorted(Path(folder).glob("*.json")):
                with tracer.start_as_current_span(f"read {file.name}"):
                    source.emit(file.stem, json.loads(file.read_text()))
            source.join()


if __name__ == "__main__":
    main(sys.argv[1])
