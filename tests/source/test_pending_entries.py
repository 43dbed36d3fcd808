"""Entries of the stream: when one may be taken, and what happens when an id is given once more."""

from acker_redis import Backoff, Entry, Outcome
from acker_redis.pending import Pending, Record

LATER = 10.0**9


def nacks(id_: str, *anchors: int) -> Entry:
    return Entry(0, id_, 0, tuple(Outcome("nack", "failed", a, f"r{a}", 5, "") for a in anchors))


def tracking(*anchors: int) -> Pending:
    pending = Pending(5, Backoff(0, 0), replays=True)
    for anchor in anchors:
        pending.add(Record(f"r{anchor}"), anchor)
    return pending


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
