"""Pending against a naive model, by random histories; no Redis and no clock."""

from dataclasses import dataclass, field
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from acker_redis import Backoff, Entry, Outcome
from acker_redis.trees.pending import Pending
from acker_redis.trees.record import Record, Verdict
from tests.tiers import examples

EDGES = ["", "parts", "mail"]
MANY = 10**9
"""A time at which all waiting records are due."""


@dataclass(eq=False)
class Known:
    """The model's state of a record, and of its attempts."""

    record: Record
    counted: int = 0
    """Attempts that count."""
    state: str = "queued"
    """queued, waiting, in doubt, tracked, timed out, acked, dead or withdrawn."""
    anchor: int = 0
    owes: "list[Stored]" = field(default_factory=list)

    @property
    def open(self) -> bool:
        return self.state not in ("acked", "dead", "withdrawn")


@dataclass(eq=False)
class Stored:
    """An entry of the stream, and how many of its verdicts are handled."""

    entry: Entry
    worked_off: int = 0
    complete: bool = False
    owed: set[Known] = field(default_factory=set)


class Histories(RuleBasedStateMachine):
    """Each verdict must equal the model's; any difference is an error."""

    @initialize(attempts=st.integers(1, 3), replays=st.booleans())
    def begin(self, attempts: int, replays: bool) -> None:
        self.attempts, self.replays = attempts, replays
        self.pending = Pending(attempts, Backoff(0, 0), replays)
        self.all: list[Known] = []
        self.by_anchor: dict[int, Known] = {}
        self.ages: dict[int, int] = {}
        """Rotations since an anchor was tracked or touched, while it is tracked."""
        self.stream: list[Stored] = []
        self.dead_anchors: list[int] = []
        self.next_anchor = self.next_id = 1

    # Actions of the source.

    @rule(name=st.sampled_from("abc"), edge=st.sampled_from(EDGES))
    def emit(self, name: str, edge: str) -> None:
        known = Known(Record(name, object(), edge=edge))
        self.all.append(known)
        self.pending.add(known.record)

    @rule(edge=st.sampled_from(EDGES))
    def send_it_elsewhere(self, edge: str) -> None:
        """A callback may give a record another edge for its replay."""
        for known in self.all:
            known.record.edge = edge

    @rule(name=st.sampled_from("abc"))
    def track_by_hand(self, name: str) -> None:
        known = Known(Record(name, object()), 1, "tracked", self._anchor())
        self.all.append(known)
        self._now_tracked(known)
        self.pending.add(known.record, known.anchor)

    @rule()
    def withdraw(self) -> None:
        known = self._one("tracked", "timed out")
        if known and known.counted == 1:
            self.pending.withdraw(known.record, known.anchor)
            self._gone(known, "withdrawn")

    @rule()
    def ask_to_track(self) -> None:
        record = self.pending.next(MANY)
        due = [known for known in self.all if known.state in ("queued", "waiting")]
        assert (record is None) == (not due)
        if record:
            (known,) = [known for known in due if known.record is record]
            waiting = {each.record._edge for each in due if each.state == "waiting"}
            first = known.state == "waiting" or record._edge not in waiting
            assert first, "replays come first, on each edge"
            known.state, known.anchor = "in doubt", self._anchor()
            known.counted += 1
            self._now_tracked(known)
            self.pending.tracking(record, known.anchor)

    @precondition(lambda self: self._one("in doubt"))
    @rule()
    def learn_that_it_was_tracked(self) -> None:
        known = self._one("in doubt")
        assert known
        assert self.pending.tracked(known.record, known.anchor)
        known.state = "tracked"
        self._settle(known)

    @precondition(lambda self: self._one("in doubt"))
    @rule()
    def learn_that_it_was_not_tracked(self) -> None:
        known = self._one("in doubt")
        assert known
        self.pending.untracked(known.record, known.anchor, 0)
        known.counted -= 1
        self._gone(known, "waiting")

    @precondition(lambda self: self.dead_anchors)
    @rule(data=st.data())
    def learn_late_that_it_was_tracked(self, data: st.DataObject) -> None:
        """Its verdict came before the reply did."""
        anchor = data.draw(st.sampled_from(self.dead_anchors))
        known = self.by_anchor.get(anchor)
        if known:
            assert not self.pending.tracked(known.record, anchor)

    # Entries of the stream.

    @rule(
        data=st.data(),
        what=st.sampled_from(
            ["ack", "ack", "failed", "expired", "overflow", "conflict", "reset", "touch"]
        ),
        unknown=st.lists(st.sampled_from("abcdef"), max_size=2),
    )
    def verdicts_come(self, data: st.DataObject, what: str, unknown: list[str]) -> None:
        """Verdicts for tracked anchors, for closed anchors, and for anchors of other programs."""
        tracked = sorted(self.ages)
        anchors = data.draw(st.lists(st.sampled_from(tracked), max_size=3)) if tracked else []
        if self.dead_anchors:
            anchors += data.draw(st.lists(st.sampled_from(self.dead_anchors), max_size=2))
        names = [(a, self.by_anchor[a].record.source_id) for a in anchors if a in self.by_anchor]
        names += [(self._anchor(), name) for name in unknown]
        if not names:
            return
        verdict: Any = what if what in ("ack", "touch") else "nack"
        reason = what if verdict == "nack" else "completed"
        outcomes = tuple(Outcome(verdict, reason, a, name, 5, "") for a, name in names)
        self.stream.append(Stored(Entry(0, f"{self.next_id}-0", 0, outcomes)))
        self.next_id += 1

    @precondition(lambda self: self.stream)
    @rule(data=st.data(), count=st.integers(0, 5))
    def read_an_entry(self, data: st.DataObject, count: int) -> None:
        """Read an entry, completely or until the consumer leaves at a verdict."""
        stored = data.draw(st.sampled_from(self.stream))
        said = self.pending.verdicts(stored.entry, 0)
        for _ in range(count):
            verdict = next(said, None)
            expected = self._next_of(stored)
            if verdict is None or expected is None:
                assert verdict is None
                assert expected is None
                stored.complete = True
                return
            number, outcome, known = expected
            self._check(verdict, known, outcome.verdict, outcome.reason, outcome.source_id)
            if _ + 1 == count:
                said.close()
                return
            self._count(verdict, known, stored)
            stored.worked_off = number + 1

    @rule()
    def take(self) -> None:
        """Take the settled entries; they are not read again."""
        settled = self.pending.settled()
        expected = [each.entry for each in self.stream if each.complete and not each.owed]
        assert sorted(settled, key=str) == sorted(expected, key=str)
        self.pending.taken(settled)
        self.stream = [each for each in self.stream if each.entry not in settled]

    @rule()
    def settle_all(self) -> None:
        self.pending.settle_all()
        for stored in self.stream:
            stored.owed.clear()

    # The passage of time.

    @rule()
    def rotate(self) -> None:
        self.pending.rotate()
        for anchor in list(self.ages):
            known = self.by_anchor[anchor]
            self.ages[anchor] += 1
            if self.ages[anchor] == 3 and known.state in ("tracked", "in doubt"):
                known.state = "timed out"
        assert sorted(self.pending.timed_out()) == sorted(self._timed_out())

    @rule(count=st.integers(0, 4))
    def give_up(self, count: int) -> None:
        anchors = self.pending.timed_out()
        said = self.pending.timeouts(0, anchors)
        for number in range(count):
            verdict = next(said, None)
            if verdict is None:
                assert number == len(anchors)
                return
            known = self.by_anchor[verdict.anchor]
            assert known.state == "timed out"
            self._check(verdict, known, "nack", "timeout", known.record.source_id)
            if number + 1 == count:
                said.close()
                return
            self._count(verdict, known, None)

    @precondition(lambda self: self._timed_out())
    @rule(data=st.data())
    def revive(self, data: st.DataObject) -> None:
        anchor = data.draw(st.sampled_from(self._timed_out()))
        self.pending.revive(anchor)
        self.by_anchor[anchor].state = "tracked"
        self.ages[anchor] = 0

    @invariant()
    def no_record_vanishes(self) -> None:
        if hasattr(self, "pending"):
            live = [known for known in self.all if known.open]
            assert self.pending.size == len(live)
            names: dict[str, int] = {}
            for known in live:
                names[known.record.source_id] = names.get(known.record.source_id, 0) + 1
            assert self.pending._live == names
            for known in self.all:
                assert known.record.attempt == known.counted, known
            edges = self.pending.edges.values()
            sent = [known for known in live if known.state in ("in doubt", "tracked", "timed out")]
            assert sum(edge.open for edge in edges) == len(live)
            for edge in edges:
                assert edge.window.in_flight == sum(k.record._edge is edge for k in sent)
                assert edge.open == sum(k.record._edge is edge for k in live)

    def teardown(self) -> None:
        """Check that every open record can be closed."""
        if not hasattr(self, "pending"):
            return
        for known in self.all:
            if known.state in ("in doubt", "tracked", "timed out"):
                outcome = Outcome("ack", "completed", known.anchor, known.record.source_id, 0, "")
                if known.state == "timed out":
                    self.pending.revive(known.anchor)
                entry = Entry(0, f"{self.next_id}-0", 0, (outcome,))
                self.next_id += 1
                (verdict,) = self.pending.verdicts(entry, 0)
                assert verdict.record is known.record
                known.state = "acked"
        while self.pending.next(MANY):
            self.pending.size -= 1
        assert self.pending.size == 0

    # The model.

    def _anchor(self) -> int:
        self.next_anchor += 1
        return self.next_anchor

    def _one(self, *states: str) -> Known | None:
        return next((known for known in self.all if known.state in states), None)

    def _timed_out(self) -> list[int]:
        return [known.anchor for known in self.all if known.state == "timed out"]

    def _now_tracked(self, known: Known) -> None:
        self.by_anchor[known.anchor] = known
        self.ages[known.anchor] = 0

    def _gone(self, known: Known, state: str) -> None:
        self.ages.pop(known.anchor, None)
        self.dead_anchors.append(known.anchor)
        known.state = state

    def _settle(self, known: Known) -> None:
        for stored in known.owes:
            stored.owed.discard(known)
        known.owes.clear()

    def _next_of(self, stored: Stored) -> tuple[int, Outcome, Known | None] | None:
        """Return the next verdict of an entry to deliver, by the rules of the docstring."""
        for number, outcome in list(enumerate(stored.entry.outcomes))[stored.worked_off :]:
            known = self.by_anchor.get(outcome.anchor)
            here = known if known and known.anchor == outcome.anchor else None
            if here and here.state in ("tracked", "in doubt"):
                if outcome.verdict == "touch":
                    self.ages[outcome.anchor] = 0
                else:
                    return number, outcome, here
            elif outcome.verdict != "touch" and not known and not self._is_dead(outcome):
                return number, outcome, None
            stored.worked_off = number + 1
        return None

    def _is_dead(self, outcome: Outcome) -> bool:
        """Whether its attempt is closed: delivered before, or replaced by a later attempt."""
        live = any(k.open and k.record.source_id == outcome.source_id for k in self.all)
        return outcome.anchor in self.dead_anchors or live

    def _check(
        self, verdict: Verdict, known: Known | None, kind: str, reason: str, source_id: str
    ) -> None:
        assert (verdict.verdict, verdict.reason) == (kind, reason)
        assert verdict.record.source_id == source_id
        if known:
            assert verdict.record is known.record
            counted = known.counted - (reason == "overflow")
        else:
            assert (verdict.record.attempt, verdict.record.value) == (0, None)
            counted = 0
        spent = not self.replays or counted >= self.attempts
        assert verdict.final == (kind == "ack" or spent)

    def _count(self, verdict: Verdict, known: Known | None, stored: Stored | None) -> None:
        if known is None:
            if verdict.final:
                self.dead_anchors.append(verdict.anchor)
                return
            known = Known(verdict.record, 0, "waiting", verdict.anchor)
            self.all.append(known)
        elif verdict.reason == "overflow":
            known.counted -= 1
        state = known.state
        self._gone(known, "waiting")
        if verdict.final:
            self._gone(known, "acked" if verdict.verdict == "ack" else "dead")
        if stored or verdict.final:
            self._settle(known)
        if stored and not verdict.final:
            stored.owed.add(known)
            known.owes.append(stored)
        assert state != "queued"


Histories.TestCase.settings = settings(max_examples=examples(1.5), stateful_step_count=60)
TestHistories = Histories.TestCase
