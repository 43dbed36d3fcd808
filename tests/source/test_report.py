"""A source reports its windows beside its steps, and nothing of it disturbs a step."""

import logging
from typing import Any

import pytest

from acker_redis import Acker, Source
from acker_redis.flows import report as reporting
from acker_redis.flows.steps import Run
from acker_redis.protocol.keys import ShardKeys
from tests.conftest import MakeAcker
from tests.source.bolts import Bolts
from tests.source.conftest import AnySource, Clock, MakeSource
from tests.support import tick
from tests.waiting import wait_until

LIFE = 3 * 3600.0


def figures(acker: Acker) -> list[tuple[Any, ...]]:
    report = acker.status().reports.get("t")
    return [(e.edge, e.window, e.in_flight, e.waiting) for e in report.windows] if report else []


def stepped(source: AnySource, clock: Clock, seconds: float = 1.0) -> None:
    clock.advance(seconds)
    source.step()


def test_source_reports_each_edge(
    make_source: MakeSource, make_any_acker: MakeAcker, clock: Clock
) -> None:
    acker = make_any_acker(edges=("parts", "dead"))
    bolts = Bolts(acker)
    source = make_source(acker, bolts.send, max_pending=50)
    source.step()
    for number in range(3):
        source.emit(f"r{number}", edge="parts")
    source.emit("d", edge="dead")
    stepped(source, clock)
    wait_until(lambda: figures(acker) == [("parts", 50, 3, 0), ("dead", 50, 1, 0)])
    bolts.ack()
    stepped(source, clock)
    stepped(source, clock)
    wait_until(lambda: figures(acker) == [("dead", 50, 0, 0), ("parts", 50, 0, 0)])


def test_collapsed_window_is_reported(
    make_source: MakeSource, acker: Acker, bolts: Bolts, clock: Clock
) -> None:
    source = make_source(acker, bolts.send)
    for number in range(20):
        source.emit(f"r{number}")
    source.step()
    for _ in range(3):
        tick(acker, 4)
        clock.advance(acker.config.timeout_ms / 1000 + 1)
        for _ in range(3):
            source.step()
    stepped(source, clock)

    def down() -> bool:
        found = acker.status().reports["t"].windows[0]
        return found.down_for is not None and found.window == 1 and found.waiting > 15

    wait_until(down)


def sent(source: Source) -> list[object]:
    """Return the reports that a source sends from now on."""
    made: list[object] = []
    take = source.acker.connection.take

    def noted(step: Any) -> Any:
        if isinstance(step, Run) and step.call.script == "report":
            made.append(step.call.args)
        return take(step)

    source.acker.connection.take = noted  # type: ignore[method-assign]
    return made


@pytest.mark.parametrize("kind", ["sync"])
def test_report_is_sent_once_a_second_if_something_changed_and_every_ten_seconds(
    make_source: MakeSource, acker: Acker, bolts: Bolts, clock: Clock
) -> None:
    source = make_source(acker, bolts.send)
    made = sent(source)

    def after(seconds: float) -> int:
        stepped(source, clock, seconds)
        running = source._flows._reporter._running
        wait_until(lambda: running is None or running.done())
        return len(made)

    assert [after(1) for _ in range(3)] == [0, 0, 0], "a source without records says nothing"
    source.emit("a")
    assert [after(1.1), after(0.5), after(0.6), after(8), after(1), after(1)] == [1, 1, 1, 1, 2, 2]
    for number in range(10):
        source.emit(f"b{number}")
        after(0.3)
    assert len(made) == 4


@pytest.mark.parametrize("how", ["no right", "full"])
def test_refused_report_is_logged_once_and_no_step_fails(
    how: str, make_source: MakeSource, acker: Acker, bolts: Bolts, clock: Clock,
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    client, reports = acker.connection.client, ShardKeys(acker.namespace, 0).reports
    if how == "full":
        now = acker.status().shards[0].now_ms
        client.hset(reports, mapping={f"p{n}": f"{now}:{{}}" for n in range(64)})
    else:
        client.set(reports, "an old server, or a user without the right, refuses a command, too")
    source = make_source(acker, bolts.send)
    with caplog.at_level(logging.WARNING):
        for number in range(5):
            source.emit(f"r{number}")
            stepped(source, clock, reporting.REFUSED + 1)
            running = source._flows._reporter._running
            wait_until(lambda: running.done())  # noqa: B023
            bolts.ack()
            source.step()
    assert source.pending == 0
    said = [each for each in caplog.messages if "cannot report" in each]
    assert len(said) == (how == "no right")


@pytest.mark.parametrize("kind", ["sync"])
def test_report_that_hangs_delays_no_step_and_is_given_up(
    make_source: MakeSource, acker: Acker, bolts: Bolts, clock: Clock
) -> None:
    source = make_source(acker, bolts.send)
    source.emit("a")
    begun = []

    class Hanging:
        def done(self) -> bool:
            return False

    source.acker.connection._begin = lambda work: begun.append(work) or Hanging()  # type: ignore[method-assign]
    for number in range(70):
        source.emit(f"r{number}")
        stepped(source, clock)
        bolts.ack()
    assert source.pending <= 1
    assert len(begun) == 2, "the second one after a minute"
