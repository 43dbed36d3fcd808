"""The accumulator of a producer: random rows, added, taken and answered in any order."""

import math
from collections import Counter
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from acker_redis.batching.accumulator import Accumulator
from acker_redis.batching.batch import MAX_ROWS, Batch
from acker_redis.protocol.ids import shard_of
from acker_redis.protocol.rows import (
    FAIL,
    TOUCH,
    TRACK,
    Row,
    ack_row,
    fail_row,
    touch_row,
    track_row,
)

LINGER = 10.0

anchors = st.integers(1, 12)
ids = st.integers(1, 7)
rows = st.one_of(
    st.builds(ack_row, anchors, ids),
    st.builds(lambda anchor, id_: track_row(anchor, f"s{anchor}", [id_]), anchors, ids),
    st.builds(lambda anchor, why: fail_row(anchor, why), anchors, st.sampled_from(["", "a", "b"])),
    st.builds(touch_row, anchors),
)


@dataclass
class Seen:
    """The fold of the rows of one anchor: all that XOR and OR keep."""

    delta: int = 0
    fails: bool = False
    touches: bool = False
    tracks: list[str] = field(default_factory=list)
    """Source ids; each TRACK counts."""

    def add(self, row: Row) -> None:
        self.delta ^= row.delta
        self.fails |= bool(row.flags & FAIL)
        self.touches |= bool(row.flags & TOUCH)
        if row.flags & TRACK:
            self.tracks.append(row.text)


class Accumulating(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.shards = 4
        self.accumulator = Accumulator("t", self.shards, LINGER)
        self.now = 100.0
        self.added: dict[int, Seen] = {}
        self.taken: dict[int, Seen] = {}
        self.in_flight: dict[int, Batch] = {}
        """Batches that a sender has."""
        self.retried: dict[int, Batch] = {}
        """Batches that wait for their next attempt."""
        self.away: set[int] = set()
        self.order: list[tuple[int, int]] = []
        """Shard and number of each row, in the order of adding."""

    @rule(some=st.lists(rows, max_size=8))
    def add(self, some: list[Row]) -> None:
        before = self.accumulator.due()
        wake = self.accumulator.add(some, self.now)
        for row in some:
            self.added.setdefault(row.anchor, Seen()).add(row)
        if not wake:
            assert self.accumulator.due() >= before, "a sender sleeps too long"

    @rule(seconds=st.sampled_from([0.0, 1.0, LINGER]))
    def wait(self, seconds: float) -> None:
        self.now += seconds

    @rule()
    def take(self) -> None:
        due = self.accumulator.due()
        taken = self.accumulator.take(self.now)
        assert (taken is not None) == (due <= self.now)
        if taken is None:
            return
        shard, batch = taken
        assert shard not in self.in_flight, "two calls of one shard in flight"
        assert len(batch) > 0
        self.in_flight[shard] = batch
        assert len(self.away & self.in_flight.keys()) <= 1, "shards that hang keep senders"
        if shard in self.retried:
            assert batch is self.retried.pop(shard)
            return
        for columns in batch.columns().values():
            self._note(shard, columns.anchors, columns.deltas, columns.flags, columns.texts)

    def _note(
        self, shard: int, names: bytes, deltas: bytes, flags: bytes, texts: tuple[bytes, ...]
    ) -> None:
        sources = iter(texts)
        for number, flag in enumerate(flags):
            place = slice(8 * number, 8 * number + 8)
            anchor = int.from_bytes(names[place], "big")
            assert shard_of(anchor, self.shards) == shard
            seen = self.taken.setdefault(anchor, Seen())
            seen.delta ^= int.from_bytes(deltas[place], "big")
            seen.fails |= bool(flag & FAIL)
            seen.touches |= bool(flag & TOUCH)
            if flag & TRACK:
                seen.tracks.append(next(sources).decode())

    @precondition(lambda self: self.in_flight)
    @rule(data=st.data())
    def answer(self, data: st.DataObject) -> None:
        self._end(data.draw(st.sampled_from(sorted(self.in_flight))))

    @precondition(lambda self: self.in_flight)
    @rule(data=st.data())
    def fail(self, data: st.DataObject) -> None:
        shard = data.draw(st.sampled_from(sorted(self.in_flight)))
        self.retried[shard] = self.in_flight.pop(shard)
        self.away.add(shard)
        self.accumulator.later(shard, -math.inf)

    def _end(self, shard: int) -> None:
        del self.in_flight[shard]
        self.away.discard(shard)
        self.accumulator.done(shard)

    @rule()
    def hurry(self) -> None:
        """Take all batches of this moment, one after another, at any time."""
        self.accumulator.hurry()
        now, self.now = self.now, -math.inf
        hurried = set(map(id, self.accumulator.batches()))
        while hurried & set(map(id, self.accumulator.batches())):
            self.take()
            for shard in list(self.in_flight):
                self._end(shard)
        self.now = now

    @invariant()
    def size_is_the_number_of_rows(self) -> None:
        batches = list(self.accumulator.batches())
        assert self.accumulator.size == sum(map(len, batches))
        assert len(set(map(id, batches))) == len(batches)

    @invariant()
    def batches_in_flight_are_kept(self) -> None:
        there = set(map(id, self.accumulator.batches()))
        assert {id(each) for each in (*self.in_flight.values(), *self.retried.values())} <= there

    def teardown(self) -> None:
        self.hurry()
        for shard in list(self.in_flight):
            self._end(shard)
        self.hurry()
        assert self.accumulator.size == 0
        assert self.accumulator.due() == math.inf
        assert self.taken == self.added, "a row was lost, or counted twice"


TestAccumulating = Accumulating.TestCase


def test_failed_batch_waits_for_its_time_and_others_go_first() -> None:
    accumulator = Accumulator("t", 4, 0)
    accumulator.add([ack_row(anchor, 1) for anchor in (4, 5, 6)], 0)
    (first, _), (second, _) = accumulator.take(0) or (), accumulator.take(0) or ()
    accumulator.later(first, 5.0)
    accumulator.later(second, 4.0)
    assert (accumulator.take(0) or ())[0] == 2
    assert accumulator.take(3.9) is None
    assert accumulator.due() == 4.0
    assert (accumulator.take(4.5) or ())[0] == second
    assert accumulator.take(9.0) is None, "one shard that is away is tried at a time"
    assert accumulator.due() == math.inf
    accumulator.add([ack_row(4 + second, 2), ack_row(7, 1)], 9.0)
    assert (accumulator.take(9.0) or ())[0] == 3
    accumulator.done(second)
    assert {(accumulator.take(9.0) or ())[0] for _ in range(2)} == {first, second}


@given(st.lists(st.integers(1, 3), min_size=1, max_size=40))
def test_tracks_of_a_shard_keep_their_order(anchors: list[int]) -> None:
    """A second TRACK of an anchor opens another batch, and no batch overtakes an earlier one."""
    accumulator = Accumulator("t", 1, 0)
    accumulator.add([track_row(a, str(n), [1]) for n, a in enumerate(anchors)], 0)
    left: dict[int, list[int]] = {}
    while taken := accumulator.take(0):
        for columns in taken[1].columns().values():
            for number, text in enumerate(columns.texts):
                left.setdefault(columns.anchor(number), []).append(int(text))
        accumulator.done(0)
    added = {a: [n for n, each in enumerate(anchors) if each == a] for a in set(anchors)}
    assert left == added


def test_batch_is_full_before_the_next_begins() -> None:
    accumulator = Accumulator("t", 1, LINGER)
    accumulator.add([ack_row(anchor, 1) for anchor in range(1, 5 * MAX_ROWS + 8)], 0)
    assert [len(batch) for batch in accumulator.batches()] == [MAX_ROWS] * 5 + [7]
    for _ in range(5):
        assert accumulator.due() == -math.inf
        assert accumulator.take(0)
        assert accumulator.take(1e9) is None, "one is in flight"
        accumulator.done(0)
    assert accumulator.due() == LINGER


def test_shards_take_turns() -> None:
    accumulator = Accumulator("t", 4, 0)
    order = []
    for _ in range(3):
        accumulator.add([ack_row(anchor, 1) for anchor in range(4, 8)], 0)
        for _ in range(4):
            taken = accumulator.take(0)
            assert taken
            order.append(taken[0])
            accumulator.done(taken[0])
    counts = [Counter(order[start : start + 4]) for start in (0, 4, 8)]
    assert counts == [Counter(range(4))] * 3


@pytest.mark.parametrize("linger", [0.0, LINGER])
def test_first_row_of_a_batch_determines_when_it_is_due(linger: float) -> None:
    accumulator = Accumulator("t", 1, linger)
    assert accumulator.due() == math.inf
    assert accumulator.add([ack_row(1, 1)], 5)
    assert not accumulator.add([ack_row(2, 1)], 6)
    assert accumulator.due() == 5 + linger
    assert (accumulator.take(5) is None) == bool(linger)
