"""At the high-water mark the source pauses, and rejected records are never sent."""

from collections.abc import Iterator
from contextlib import suppress

import pytest

from acker_redis import Acker, Backoff, Batch
from acker_redis.errors import BacklogError
from acker_redis.trees.record import Record
from tests.conftest import MakeAcker
from tests.source.bolts import Bolts, CallbackLog
from tests.source.conftest import AnySource, Clock, MakeSource
from tests.support import backlog, total


def test_source_pauses_at_the_high_water_mark_and_continues_below(
    make_source: MakeSource, make_any_acker: MakeAcker, called: CallbackLog, clock: Clock
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
    assert total(acker)["tracked"] == 3, "it has not even tried"
    for _ in range(5):
        clock.advance(60)
        source.step()
    assert total(acker)["tracked"] == 3
    bolts.ack()
    for _ in range(2):
        clock.advance(60)
        source.step()
    assert bolts.attempts == [("d", 1)]
    assert sorted(called.take()) == ["ack a", "ack b", "ack c"]


@pytest.mark.parametrize("shards", [1, 4])
def test_every_record_is_processed_despite_a_far_too_low_high_water_mark(
    make_source: MakeSource,
    make_any_acker: MakeAcker,
    called: CallbackLog,
    clock: Clock,
    shards: int,
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
    words = [word for word in called.take() if not word.endswith(" overflow")]
    assert sorted(words) == sorted(f"ack record-{number}" for number in range(40))
    assert sent_dead == []
    assert total(acker)["overflow"] > 0


def test_full_backlog_of_unreplayed_nacks_is_no_deadlock(
    make_source: MakeSource, make_any_acker: MakeAcker, called: CallbackLog, clock: Clock
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
    assert sorted(called.take()) == [
        *(f"ack {name}" for name in "abcd"), *(f"fail {name} failed no" for name in "abcd"),
    ]  # fmt: skip
    assert (source.pending, backlog(acker)) == (0, 0)


def test_refused_batch_does_not_count_as_an_attempt(
    make_source: MakeSource, make_any_acker: MakeAcker, called: CallbackLog, clock: Clock
) -> None:
    acker = make_any_acker(outcomes_limit=1)
    bolts = Bolts(acker)
    other = Batch("t")
    other.track(7, "another program's", [])
    acker.apply(other)
    source = make_source(acker, bolts.send, max_pending=1)
    flows = source._flows

    def nothing_waits() -> Iterator[None]:
        flows._heard = set(flows._ready)
        yield from ()

    flows._hear = nothing_waits
    source.emit("a")
    for _ in range(3):
        with pytest.raises(Exception, match="take its outcomes"):
            source.step()
        clock.advance(60)
    assert (source.pending, bolts.sent, called.take()) == (1, [], [])
    del source._flows._hear
    source.step()
    assert bolts.attempts == [("a", 1)]


NAMES = "abcd"
STORE = {name: Record(name, "reloaded") for name in NAMES}


class KilledError(BaseException):
    """Raised at the point where the program is killed."""


def full_backlog_of_nacks(
    make_source: MakeSource, acker: Acker, bolts: Bolts, called: CallbackLog, backoff: Backoff
) -> AnySource:
    """Return a source that has read a nack of each of ``NAMES``; the nacks fill its backlog."""
    source = make_source(acker, bolts.send, backoff=backoff)
    for name in NAMES:
        source.emit(name)
    source.step()
    bolts.fail("no")
    source._flows._emit = nothing_heard
    source.step()
    del source._flows._emit
    assert sorted(called.take()) == [f"fail {name} failed no" for name in NAMES]
    return source


def nacks_after_a_restart(
    make_source: MakeSource, acker: Acker, bolts: Bolts, called: CallbackLog
) -> list[str]:
    """Return the records of which a new source reads a nack."""
    called.take()
    again = make_source(acker, bolts.send, reload=STORE.get, backoff=Backoff(3600, 3600))
    for _ in range(3):
        again.step()
    return sorted(word.split()[1] for word in called.take())


def test_full_backlog_of_one_shard_does_not_stop_the_others(
    make_source: MakeSource, make_any_acker: MakeAcker, called: CallbackLog, clock: Clock
) -> None:
    """Each batch has the trees of one shard: a refused one leaves no trees elsewhere."""
    acker = make_any_acker(outcomes_limit=8, shards=2)
    bolts = Bolts(acker)
    source = make_source(acker, bolts.send, backoff=Backoff(3600, 3600))
    for number in range(40):
        source.emit(f"record {number}")
    source.step()
    anchors = [next(iter(ids[0])) for _, _, ids in bolts.sent]
    mine = [anchor for anchor in anchors if anchor % 2 == 0][:4]
    batch = Batch()
    for anchor in mine:
        batch.fail(anchor, "no")
    acker.apply(batch)
    source._flows._emit = nothing_heard
    source.step()
    del source._flows._emit
    assert acker.status().shards[0].backlog == {"t": 4}
    before = acker.status()
    for number in range(40):
        source.emit(f"one more {number}")
        source.step()
    assert acker.status().shards[0].pending == before.shards[0].pending
    assert len(bolts.sent) == 80, "each new record has its tree on the other shard"
    bolts.sent = [each for each in bolts.sent if next(iter(each[2][0])) not in mine]
    for _ in range(20):
        bolts.ack()
        clock.advance(3600)
        with suppress(BacklogError):  # more verdicts wait than one step reads
            source.step()
    assert (source.pending, backlog(acker)) == (0, 0)
    counters = total(acker)
    assert (counters["acked"], counters["failed"], counters["pending"]) == (80, 4, 0)


@pytest.mark.parametrize("shards", [1, 4])
def test_source_killed_at_a_full_backlog_loses_no_nack(
    make_source: MakeSource,
    make_any_acker: MakeAcker,
    called: CallbackLog,
    clock: Clock,
    shards: int,
) -> None:
    acker = make_any_acker(outcomes_limit=shards, shards=shards)
    bolts = Bolts(acker)
    source = full_backlog_of_nacks(make_source, acker, bolts, called, Backoff(3600, 3600))
    for number in range(20):
        source.emit(f"one more {number}")
    for _ in range(5):
        with suppress(BacklogError) if shards > 1 else pytest.raises(BacklogError):
            source.step()  # a shard without nacks goes on
        clock.advance(60)
    assert nacks_after_a_restart(make_source, acker, bolts, called) == list(NAMES)


def test_source_killed_while_making_room_loses_only_the_nack_it_replays(
    make_source: MakeSource, make_any_acker: MakeAcker, called: CallbackLog, clock: Clock
) -> None:
    acker = make_any_acker(outcomes_limit=len(NAMES))
    bolts = Bolts(acker)
    source = full_backlog_of_nacks(make_source, acker, bolts, called, Backoff(1, 1))
    clock.advance(60)
    with pytest.raises(BacklogError):
        source.step()
    assert backlog(acker) == len(NAMES), "first it reads verdicts that may make room"
    batches = []

    def killed(batch: Batch, lane: object) -> Iterator[None]:
        batches.append(batch)
        raise KilledError
        yield

    flows = source._flows._flows
    flows.apply = killed
    with pytest.raises(KilledError):
        source.step()
    del flows.apply
    assert backlog(acker) == len(NAMES) - 1
    heard = nacks_after_a_restart(make_source, acker, bolts, called)
    (lost,) = set(NAMES) - set(heard)
    assert b"".join(next(iter(batches[0].parts(1))).rows.texts).startswith(lost.encode())


def test_full_backlog_larger_than_one_read_is_no_deadlock(
    make_source: MakeSource, make_any_acker: MakeAcker, called: CallbackLog, clock: Clock
) -> None:
    """No nack is taken before all verdicts were read, because an ack among them makes room."""
    acker = make_any_acker(outcomes_limit=40)
    bolts = Bolts(acker)
    source = make_source(acker, bolts.send)
    names = [f"record-{number}" for number in range(40)]
    for name in names:
        source.emit(name)
    source.step()
    last = bolts.sent.pop()
    bolts.fail("no")
    bolts.sent = [last]
    bolts.ack()
    assert backlog(acker) == len(names)
    with pytest.raises(BacklogError):
        source.step()
    while len(called.words) < len(names):
        assert backlog(acker) == len(names), "it has read only nacks that wait for a replay"
        source.step()
    for _ in range(3):
        clock.advance(60)
        source.step()
        bolts.ack()
    source.step()
    words = called.take()
    assert sorted(word for word in words if word.startswith("ack")) == sorted(
        f"ack {name}" for name in names
    )
    assert (source.pending, backlog(acker)) == (0, 0)


def nothing_heard() -> Iterator[None]:
    yield from ()
