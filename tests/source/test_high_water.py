"""When too much is pending the source holds back, and what was rejected is never sent."""

from collections.abc import Iterator

import pytest

from acker_redis import Batch
from acker_redis.pending import Record
from tests.conftest import MakeAcker
from tests.source.bolts import Bolts, Told
from tests.source.conftest import Clock, MakeSource
from tests.support import backlog, total


def test_it_pauses_at_the_high_water_mark_and_goes_on_below_it(
    make_source: MakeSource, make_any_acker: MakeAcker, told: Told, clock: Clock
) -> None:
    acker = make_any_acker(high_water=3)
    bolts = Bolts(acker)
    source = make_source(acker, bolts.send)
    for name in "abc":
        source.emit(name)
    source.step()
    source.emit("d")
    for _ in range(5):
        source.step()
    assert total(acker)["tracked"] == 3, "it has not even asked"
    for _ in range(5):
        clock.advance(60)
        source.step()
    assert total(acker)["tracked"] == 3
    bolts.ack()
    for _ in range(2):
        clock.advance(60)
        source.step()
    assert bolts.attempts == [("d", 1)]
    assert sorted(told.take()) == ["ack a", "ack b", "ack c"]


@pytest.mark.parametrize("shards", [1, 4])
def test_through_a_mark_that_is_far_too_low_each_is_processed_in_the_end(
    make_source: MakeSource, make_any_acker: MakeAcker, told: Told, clock: Clock, shards: int
) -> None:
    acker = make_any_acker(high_water=4, shards=shards)
    bolts = Bolts(acker)
    sent_dead: list[str] = []

    def send(record: Record, ids: object) -> None:
        bolts.send(record, ids)
        ((anchor, _),) = bolts.sent[-1][2][0].items()
        if acker.show(anchor) is None:
            sent_dead.append(record.source_id)

    source = make_source(acker, send, attempts=1)
    for number in range(40):
        source.emit(f"record-{number}")
    for _ in range(400):
        clock.advance(60)
        source.step()
        bolts.ack()
        if not source.pending:
            break
    words = [word for word in told.take() if not word.endswith(" overflow")]
    assert sorted(words) == sorted(f"ack record-{number}" for number in range(40))
    assert sent_dead == []
    assert total(acker)["overflow"] > 0


def test_a_full_backlog_of_nacks_that_wait_for_their_replays_is_no_deadlock(
    make_source: MakeSource, make_any_acker: MakeAcker, told: Told, clock: Clock
) -> None:
    acker = make_any_acker(outcomes_limit=3)
    bolts = Bolts(acker)
    source = make_source(acker, bolts.send)
    for name in "abcd":
        source.emit(name)
    source.step()
    bolts.fail("no")
    with pytest.raises(Exception, match="take its outcomes"):
        source.step()
    for _ in range(3):
        clock.advance(60)
        source.step()
    assert sorted(bolts.attempts) == [(name, 2) for name in "abcd"]
    bolts.ack()
    source.step()
    assert sorted(told.take()) == [
        *(f"ack {name}" for name in "abcd"), *(f"fail {name} failed no" for name in "abcd"),
    ]  # fmt: skip
    assert (source.pending, backlog(acker)) == (0, 0)


def test_a_batch_that_is_refused_is_no_attempt(
    make_source: MakeSource, make_any_acker: MakeAcker, told: Told, clock: Clock
) -> None:
    acker = make_any_acker(outcomes_limit=1)
    bolts = Bolts(acker)
    other = Batch("t")
    other.track(7, "another program's", [])
    acker.apply(other)
    source = make_source(acker, bolts.send, max_pending=1)
    source._flows._hear = nothing_heard
    source.emit("a")
    for _ in range(3):
        with pytest.raises(Exception, match="take its outcomes"):
            source.step()
        clock.advance(60)
    assert (source.pending, bolts.sent, told.take()) == (1, [], [])
    del source._flows._hear
    source.step()
    assert bolts.attempts == [("a", 1)]


def nothing_heard() -> Iterator[None]:
    yield from ()
