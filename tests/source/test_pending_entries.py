"""Entries of the stream: when an entry may be taken, and what happens if its id is reused."""

from acker_redis import Backoff, Entry, Outcome
from acker_redis.trees.pending import Pending
from acker_redis.trees.record import Record

LATER = 10.0**9


def nacks(id_: str, *anchors: int) -> Entry:
    return Entry(0, id_, 0, tuple(Outcome("nack", "failed", a, f"r{a}", 5, "") for a in anchors))


def tracking(*anchors: int) -> Pending:
    pending = Pending(5, Backoff(0, 0), replays=True)
    for anchor in anchors:
        pending.add(Record(f"r{anchor}"), anchor)
    return pending


def heard(pending: Pending, *entries: Entry) -> None:
    for entry in entries:
        assert list(pending.verdicts(entry, 0))


def track_next(pending: Pending, anchor: int) -> None:
    record = pending.next(LATER)
    assert record
    pending.tracking(record, anchor)
    assert pending.tracked(record, anchor)


def test_reused_entry_id_after_a_failover_is_read_from_its_start() -> None:
    pending = tracking(1, 2, 3)
    first = pending.verdicts(nacks("5-0", 1, 2), 0)
    assert [next(first).anchor, next(first).anchor] == [1, 2]
    first.close()
    other = nacks("5-0", 3)
    assert [verdict.anchor for verdict in pending.verdicts(other, 0)] == [3]
    track_next(pending, 11)
    assert pending.settled() == [], "the nacks of the deleted entry do not count for the new one"
    track_next(pending, 12)
    assert pending.settled() == [other]
    assert pending.size == 3


def test_entry_let_go_settles_only_the_records_read_so_far() -> None:
    """After settle_all in the middle of an entry, the rest must still be tracked again."""
    pending, entry = tracking(1, 2), nacks("5-0", 1, 2)
    part = pending.verdicts(entry, 0)
    next(part)
    next(part)
    part.close()
    pending.settle_all()
    assert len(list(pending.verdicts(entry, 0))) == 1
    track_next(pending, 11)
    assert pending.settled() == []
    track_next(pending, 12)
    assert pending.settled() == [entry]


def test_let_go_takes_the_fewest_entries_with_the_fewest_nacks() -> None:
    pending, first, second = tracking(1, 2, 3, 4), nacks("5-0", 1, 2, 3), nacks("6-0", 4)
    heard(pending, first, second)
    assert pending.let_go({0: 1}, LATER)
    assert pending.settled() == [second]
    record = pending.next(LATER)
    assert record
    assert record.source_id == "r4", "its record is tracked next: only the source still knows it"


def test_entry_is_let_go_only_when_all_its_records_are_due() -> None:
    pending = Pending(5, Backoff(10, 10), replays=True)
    entry, other = nacks("5-0", 1, 2), nacks("6-0", 3)
    for anchor in (1, 2, 3):
        pending.add(Record(f"r{anchor}"), anchor)
    heard(pending, entry)
    list(pending.verdicts(other, 100))
    assert not pending.let_go({0: 1}, 4), "no back-off is shorter than 5 s"
    assert not pending.let_go({0: 3}, 50), "r3 waits: the due entries would not make room"
    assert not pending.let_go({0: 1, 1: 1}, LATER), "it makes no room on the other shard"
    assert pending.settled() == []
    assert pending.let_go({0: 1}, 50)
    assert pending.settled() == [entry]
