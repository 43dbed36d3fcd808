"""Entries of the stream: when one may be taken, and what happens when an id is given once more."""

from acker_redis import Backoff, Entry, Outcome
from acker_redis.trees.pending import Pending, Record

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


def test_after_a_failover_an_id_with_other_content_is_read_from_its_beginning() -> None:
    pending = tracking(1, 2, 3)
    first = pending.verdicts(nacks("5-0", 1, 2), 0)
    assert [next(first).anchor, next(first).anchor] == [1, 2]
    first.close()
    other = nacks("5-0", 3)
    assert [verdict.anchor for verdict in pending.verdicts(other, 0)] == [3]
    track_next(pending, 11)
    assert pending.settled() == [], "what the entry that is gone nacked does not count for this"
    track_next(pending, 12)
    assert pending.settled() == [other]
    assert pending.size == 3


def test_what_was_let_go_settles_no_other_record_of_its_entry() -> None:
    """After settle_all in the middle of an entry, the rest still has to be tracked anew."""
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


def test_entries_with_the_fewest_nacks_are_let_go_and_no_more_than_needed() -> None:
    pending, first, second = tracking(1, 2, 3, 4), nacks("5-0", 1, 2, 3), nacks("6-0", 4)
    heard(pending, first, second)
    assert pending.let_go({0: 1}, LATER)
    assert pending.settled() == [second]
    record = pending.next(LATER)
    assert record
    assert record.source_id == "r4", "its record is tracked next: nothing else says that it is open"


def test_no_entry_is_let_go_before_all_its_records_are_due() -> None:
    pending = Pending(5, Backoff(10, 10), replays=True)
    entry, other = nacks("5-0", 1, 2), nacks("6-0", 3)
    for anchor in (1, 2, 3):
        pending.add(Record(f"r{anchor}"), anchor)
    heard(pending, entry)
    list(pending.verdicts(other, 100))
    assert not pending.let_go({0: 1}, 4), "no back-off is shorter than five seconds"
    assert not pending.let_go({0: 3}, 50), "r3 waits: what is due would not make room"
    assert not pending.let_go({0: 1, 1: 1}, LATER), "nor does it make room on the other shard"
    assert pending.settled() == []
    assert pending.let_go({0: 1}, 50)
    assert pending.settled() == [entry]
