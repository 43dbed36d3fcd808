"""Spans and metrics of the verdicts of a source, for threads and for asyncio."""

import logging
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import fields
from typing import Any

import pytest
from opentelemetry.sdk.trace import SpanProcessor
from opentelemetry.sdk.trace.sampling import Decision, TraceIdRatioBased
from opentelemetry.trace import (
    NonRecordingSpan,
    SpanContext,
    SpanKind,
    StatusCode,
    TraceFlags,
    use_span,
)

from acker_redis import Acker, AckerConfig, ConfigError, Record, Source, Verdict
from acker_redis.embedded import EmbeddedRedis
from acker_redis.integrations.otel import trace_verdicts
from acker_redis.integrations.otel.records import Inbox, TracedRecord
from acker_redis.integrations.otel.spans import Shares
from tests.integrations import diffs
from tests.integrations.otel import Shop, names, new_name
from tests.support import tick
from tests.waiting import LIMIT, wait_until


@pytest.fixture(params=["sync", "asyncio"])
def shop(request: pytest.FixtureRequest, any_server: EmbeddedRedis) -> Iterator[Shop]:
    yield from shops(any_server, request.param)


@pytest.fixture
def sync_shop(any_server: EmbeddedRedis) -> Iterator[Shop]:
    yield from shops(any_server, "sync")


def shops(server: EmbeddedRedis, kind: str) -> Iterator[Shop]:
    with Acker.from_url(server.url, new_name(), timeout=60) as acker:
        acker.create(AckerConfig(edges=("orders", "priced")))
        made = Shop(server, acker, kind)
        yield made
        made.close()
        acker.drop()


def unsampled(trace_id: int = 7) -> NonRecordingSpan:
    """Return a span of a trace that is not sampled."""
    return NonRecordingSpan(SpanContext(trace_id, 1, is_remote=False, trace_flags=TraceFlags(0)))


def test_ack_has_a_span_with_a_link_to_the_span_of_emit(shop: Shop) -> None:
    source = shop.traced(shop.bolts.send_and_ack)
    with shop.telemetry.tracer.start_as_current_span("order") as order:
        source.emit("order-1", edge="orders")
    with shop.telemetry.tracer.start_as_current_span("the steps"):
        assert source.join(LIMIT)
    (span,) = shop.telemetry.spans()
    anchor = (span.attributes or {})["messaging.message.id"]
    assert int(str(anchor))
    assert span.attributes == {
        "messaging.system": "acker_redis",
        "messaging.destination.name": shop.acker.namespace,
        "messaging.operation.name": "ack",
        "messaging.operation.type": "settle",
        "messaging.message.id": anchor,
        "acker.source": "shop",
        "acker.source_id": "order-1",
        "acker.attempt": 1,
        "acker.final": True,
    }
    assert span.name == f"ack {shop.acker.namespace}"
    assert (span.kind, span.status.status_code) == (SpanKind.INTERNAL, StatusCode.UNSET)
    assert span.parent is None
    assert [link.context for link in span.links] == [order.get_span_context()]
    assert (span.start_time or 0) <= (span.end_time or 0)


def test_each_attempt_has_a_span_from_the_emit_on(shop: Shop) -> None:
    source = shop.traced()
    with shop.telemetry.tracer.start_as_current_span("order") as order:
        source.emit("order-1")
    source.step()
    shop.bolts.fail("no such address")
    while not shop.telemetry.spans():
        source.step()
    source.step()
    shop.bolts.ack()
    assert source.join(LIMIT)
    failed, acked = shop.telemetry.spans()
    assert names([failed, acked]) == [("nack", "order-1", 1), ("ack", "order-1", 2)]
    assert failed.start_time == acked.start_time
    for span in (failed, acked):
        assert [link.context for link in span.links] == [order.get_span_context()]
    attributes = failed.attributes or {}
    assert not attributes["acker.final"]
    assert attributes["error.type"] == "failed"
    assert attributes["acker.why"] == failed.status.description == "no such address"
    assert failed.status.status_code is StatusCode.ERROR
    assert not {"acker.cause", "acker.edges"} & set(attributes)


def test_nack_of_an_expired_tree_has_its_edges_and_cause(shop: Shop) -> None:
    source = shop.traced(attempts=1)
    source.emit("order-1", edge="orders")
    source.step()
    tick(shop.acker, 3)
    assert source.join(LIMIT)
    (span,) = shop.telemetry.spans()
    attributes = span.attributes or {}
    assert attributes["error.type"] == "expired"
    assert attributes["acker.edges"] == ("orders",)
    assert attributes["acker.cause"] == "idle"
    assert str(attributes["acker.why"]).startswith("no ack on edge orders")
    assert attributes["acker.final"]
    assert {name.rpartition(".")[2] for name in attributes} == {
        "system", "name", "type", "id", "source", "source_id", "attempt", "final", "why", "cause",
        "edges",
    }, "the residual, which may be an id, is in no span"  # fmt: skip
    assert span.links == ()


def test_tracked_record_has_a_link_to_the_span_of_track(shop: Shop) -> None:
    source = shop.traced()
    with (
        shop.telemetry.tracer.start_as_current_span("order") as order,
        source.track("order-1") as tree,
    ):
        shop.bolts.send(Record("order-1"), (tree.emit(),))
    shop.bolts.ack()
    assert source.join(LIMIT)
    (span,) = shop.telemetry.spans()
    assert [link.context for link in span.links] == [order.get_span_context()]


def test_ack_of_an_unsampled_trace_has_no_span_and_its_nack_has(shop: Shop) -> None:
    source = shop.traced(attempts=1)
    with use_span(unsampled()):
        source.emit("order-1")
        source.step()
        shop.bolts.ack()
        source.emit("order-2")
        source.step()
        shop.bolts.fail("no")
    assert source.join(LIMIT)
    assert names(shop.telemetry.spans()) == [("nack", "order-2", 1)]


def test_shares_are_of_spans_only(shop: Shop) -> None:
    source = shop.traced(attempts=1, trace={"acks": 0, "nacks": 0.0})
    source.emit("order-1")
    source.step()
    shop.bolts.ack()
    source.emit("order-2")
    source.step()
    shop.bolts.fail("no")
    assert source.join(LIMIT)
    assert shop.telemetry.spans() == []
    assert sum(point.count for point in shop.telemetry.points("acker.source.duration")) == 2


def verdict_in(trace_id: int | None, source_id: str = "order-1") -> Verdict:
    record = TracedRecord(source_id)
    if trace_id is not None:
        flags = TraceFlags(TraceFlags.SAMPLED)
        record.emitted_in = SpanContext(trace_id, 1, is_remote=False, trace_flags=flags)
    return Verdict(record, "ack", "completed", "", 9, final=True, anchor=7)


def test_share_of_traces_is_that_of_the_sampler_of_the_sdk() -> None:
    shares, sampler = Shares(acks=0.3, nacks=1.0), TraceIdRatioBased(0.3)
    edge = round(0.3 * (1 << 64))
    for trace_id in (1, edge - 1, edge, (1 << 64) - 1, 1 << 64 | 1, 1 << 100 | edge + 1):
        sampled = sampler.should_sample(None, trace_id, "x").decision is Decision.RECORD_AND_SAMPLE
        assert shares.include(verdict_in(trace_id)) == sampled


def test_share_of_records_without_a_trace_is_chosen_by_source_id() -> None:
    shares = Shares(acks=0.3, nacks=1.0)
    first, second = (
        [shares.include(verdict_in(None, f"order-{number}")) for number in range(2000)]
        for _ in range(2)
    )
    assert first == second
    assert 500 < sum(first) < 700


def test_verdict_on_a_record_of_an_earlier_program_has_no_link(shop: Shop) -> None:
    earlier = shop.traced()
    with shop.telemetry.tracer.start_as_current_span("order"):
        earlier.emit("order-1")
        earlier.emit("order-2")
    earlier.step()
    earlier.stop()
    sent, shop.bolts.sent = shop.bolts.sent, shop.bolts.sent[:1]
    shop.bolts.ack()
    shop.bolts.sent = sent[1:]
    shop.bolts.fail("no")
    later = shop.traced(reload=lambda source_id: Record(source_id, "again"))
    while not shop.bolts.sent:
        later.step()
    shop.bolts.ack()
    assert later.join(LIMIT)
    spans = shop.telemetry.spans()
    assert sorted(names(spans)) == [
        ("ack", "order-1", 0), ("ack", "order-2", 1), ("nack", "order-2", 0)
    ]  # fmt: skip
    assert not any(span.links for span in spans)
    for span in spans:
        assert (span.start_time or 0) <= (span.end_time or 0)
    assert sum(point.count for point in shop.telemetry.points("acker.source.duration")) == 3


def test_span_follows_the_callback_that_returns(shop: Shop) -> None:
    """The callback that raises is called again; the verdict counts, and is traced, once."""
    source = shop.traced(shop.bolts.send_and_ack)
    shop.called.raises = [ValueError("no disk")]
    source.emit("order-1")
    with pytest.raises(ValueError, match="no disk"):
        source.join(LIMIT)
    assert shop.telemetry.spans() == []
    assert source.join(LIMIT)
    assert shop.called.take() == ["ack order-1", "ack order-1"]
    assert names(shop.telemetry.spans()) == [("ack", "order-1", 1)]


class Broken(SpanProcessor):
    """A processor of spans that raises."""

    def on_end(self, span: Any) -> None:
        raise OSError("no collector")


def test_error_of_telemetry_is_logged_once_and_changes_no_verdict(
    shop: Shop, caplog: pytest.LogCaptureFixture
) -> None:
    shop.telemetry.tracers.add_span_processor(Broken())
    source = shop.traced(shop.bolts.send_and_ack)
    with caplog.at_level(logging.WARNING):
        for number in range(3):
            source.emit(f"order-{number}")
        assert source.join(LIMIT)
    assert shop.called.take() == [f"ack order-{number}" for number in range(3)]
    assert len([each for each in caplog.messages if "not traced" in each]) == 1
    assert shop.acker.status().pending == 0


class Unreadable(NonRecordingSpan):
    """A span of a plug-in that raises."""

    def get_span_context(self) -> SpanContext:
        raise OSError("no context")


def test_span_that_cannot_be_read_is_no_link(sync_shop: Shop) -> None:
    source = sync_shop.traced(sync_shop.bolts.send_and_ack)
    with use_span(Unreadable(unsampled().get_span_context())):
        source.emit("order-1")
    assert source.join(LIMIT)
    (span,) = sync_shop.telemetry.spans()
    assert span.links == ()


def test_metrics_count_verdicts_and_open_records(shop: Shop) -> None:
    source = shop.traced()
    shop.traced(name="idle")
    source.emit("order-1")
    source.emit("order-2")
    source.step()

    def pending() -> dict[Any, int]:
        points = shop.telemetry.points("acker.source.pending")
        return {point.attributes["acker.source"]: point.value for point in points}

    assert pending() == {"shop": 2, "idle": 0}
    sent, shop.bolts.sent = shop.bolts.sent, shop.bolts.sent[:1]
    shop.bolts.ack()
    shop.bolts.sent = sent[1:]
    shop.bolts.fail("no")
    while not shop.bolts.sent:
        source.step()
    shop.bolts.ack()
    assert source.join(LIMIT)
    assert pending() == {"shop": 0, "idle": 0}
    common = {
        "messaging.system": "acker_redis",
        "messaging.destination.name": shop.acker.namespace,
        "acker.source": "shop",
    }
    ack = common | {"messaging.operation.name": "ack", "acker.final": True}
    nack = common | {
        "messaging.operation.name": "nack", "acker.final": False, "error.type": "failed"
    }  # fmt: skip
    counted = [(p.attributes, p.count) for p in shop.telemetry.points("acker.source.duration")]
    assert sorted(counted, key=str) == sorted([(ack, 2), (nack, 1)], key=str)
    seconds = sum(point.sum for point in shop.telemetry.points("acker.source.duration"))
    spans = shop.telemetry.spans()
    assert seconds * 1e9 == pytest.approx(sum(s.end_time - s.start_time for s in spans))


def test_group_of_a_traced_source_completes(shop: Shop) -> None:
    results: list[Any] = []
    source = shop.traced(shop.bolts.send_and_ack, on_group=results.append)
    with (
        shop.telemetry.tracer.start_as_current_span("import") as block,
        source.group("import") as group,
    ):
        group.emit("order-1")
        group.emit("order-2")
    assert source.join(LIMIT)
    while not results:
        source.step()
    assert results[0].acked == 2
    links = [link.context for span in shop.telemetry.spans() for link in span.links]
    assert links == [block.get_span_context()] * 2


def test_forked_child_traces_its_own_records_only(sync_shop: Shop) -> None:
    source = sync_shop.traced(sync_shop.bolts.send)
    with source:
        source.emit("parent")
        wait_until(lambda: sync_shop.bolts.sent, "it is sent")
        child = os.fork()
        if child == 0:
            code = 1
            try:
                sync_shop.bolts.sent.clear()
                assert source.pending == 0
                with sync_shop.telemetry.tracer.start_as_current_span("order"):
                    source.emit("child")
                source.step()
                assert sync_shop.bolts.ack() == ["child"]
                assert source.join(LIMIT)
                (span,) = sync_shop.telemetry.spans()
                assert names([span]) == [("ack", "child", 1)]
                assert len(span.links) == 1
                code = 0
            finally:
                os._exit(code)
        _, status = os.waitpid(child, 0)
        assert os.waitstatus_to_exitcode(status) == 0
        sync_shop.bolts.ack()
        assert source.join(LIMIT)
    # Both read the verdicts of the source, so the parent may have met that of the child's record.
    traced = names(sync_shop.telemetry.spans())
    assert [each for each in traced if each != ("ack", "child", 0)] == [("ack", "parent", 1)]


def test_inbox_keeps_every_field_of_a_record() -> None:
    given: dict[str, Any] = {each.name: object() for each in fields(Record)}
    inbox = Inbox()
    inbox.append((Record(**given), 7))
    ((record, anchor),) = inbox
    assert {name: getattr(record, name) for name in given} == given
    assert anchor == 7


@pytest.mark.parametrize("shares", [{"acks": 1.1}, {"nacks": -1}, {"acks": "1"}, {"nacks": None}])
def test_invalid_share_is_refused(sync_shop: Shop, shares: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="share"):
        trace_verdicts(sync_shop.source(), **shares)


def test_source_that_has_begun_is_refused(shop: Shop) -> None:
    with pytest.raises(ConfigError, match="once"):
        shop.telemetry.trace(shop.traced())
    started = shop.source()
    started.start()
    emitted = shop.source()
    emitted.emit("order-1")
    stepped = shop.source()
    stepped.step()
    grouped = shop.source(on_group=print)
    with grouped.group("import"):
        for source in (started, emitted, stepped, grouped):
            with pytest.raises(ConfigError, match="begun"):
                shop.telemetry.trace(source)
    with pytest.raises(ConfigError, match="not None"):
        trace_verdicts(None)  # type: ignore[type-var]


def test_source_with_a_thread_that_has_no_step_yet_is_refused() -> None:
    acker = Acker.from_url("redis://127.0.0.1:1", "orders", retry_for=0)
    with Source(acker, "shop", print) as source, pytest.raises(ConfigError, match="begun"):
        trace_verdicts(source)


PROGRAM = """
import sys

sys.modules["opentelemetry"] = None  # an import raises; redis-py goes on without it

from acker_redis import Acker, Bolt, Producer, Source
from acker_redis.aio import AsyncSource

with Acker.from_url(sys.argv[1], sys.argv[2], timeout=60) as acker:
    with Producer(acker, linger=0) as producer:
        bolt = Bolt(producer)
        with Source(acker, "shop", lambda record, ids: bolt.process(*ids).ack()) as source:
            source.emit("order-1")
            assert source.join()
assert "acker_redis.integrations.otel" not in sys.modules
"""


def test_untraced_source_runs_without_opentelemetry(sync_shop: Shop) -> None:
    command = [sys.executable, "-c", PROGRAM, sync_shop.server.url, sync_shop.acker.namespace]
    subprocess.run(command, check=True)


def test_only_this_integration_names_opentelemetry() -> None:
    package = diffs.ROOT / "acker_redis"
    found = {file.parent for file in package.rglob("*.py") if "opentelemetry" in file.read_text()}
    assert found == {package / "integrations/otel"}


GLOBAL = """
from opentelemetry import metrics, trace
from opentelemetry.sdk.metrics import MeterProvider
from acker_redis import Acker, Source
from acker_redis.integrations.otel import trace_verdicts
from tests.integrations.otel import Telemetry

acker = Acker.from_url("redis://127.0.0.1:1", "orders")
before = trace_verdicts(Source(acker, "before", print))
telemetry = Telemetry()
trace.set_tracer_provider(telemetry.tracers)
metrics.set_meter_provider(telemetry.meters)
after = trace_verdicts(Source(acker, "after", print))
given = telemetry.trace(Source(acker, "given", print))
points = telemetry.points("acker.source.pending")
assert sorted(each.attributes["acker.source"] for each in points) == ["after", "before", "given"]
del before, given
assert len(telemetry.points("acker.source.pending")) == 1
"""


def test_providers_may_be_set_before_and_after() -> None:
    subprocess.run([sys.executable, "-c", GLOBAL], check=True, cwd=diffs.ROOT)


@pytest.mark.nightly
def test_tracing_changes_nothing_that_the_tests_of_sources_see() -> None:
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "tests.integrations.otel",
        "tests/source",
    ]
    done = subprocess.run(
        [*command, "-p", "no:cacheprovider", "--tier", "quick"],
        cwd=diffs.ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
