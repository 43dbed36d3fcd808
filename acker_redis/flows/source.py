"""One step of a source: read verdicts, time attempts out, emit. No I/O: see ``flows/steps.py``.

Vocabulary
----------
* A *record* is what the user emits. An *attempt* is one tree of a record, under its own anchor.
* An *entry* of the stream holds outcomes. A verdict *counts* when the user's callback has returned.
* An entry is *settled* when all its verdicts count, and each record that it nacked is tracked
  again. Only settled entries are taken: until then the entry alone shows, if the program dies, that
  these records are not done. Two cases take an entry earlier: a full backlog (``_make_room``) and a
  reshard to fewer shards (``_leave``).

The step
--------
1. *Take in.* Move new records from the inbox to the queue.
2. *Hear.* Read entries of the streams, hand out their verdicts, and take the settled entries.
3. *Give up.* Only after all waiting verdicts were read: nack attempts that got no verdict in time
   (reason ``timeout``). Redis must have lost their trees.
4. *Say.* Close the trees whose messages were sent, and fail those whose ``send`` failed.
5. *Emit.* Track a batch of due records, and send their messages once the batch is applied. So a
   message is sent only when its tree is tracked. A tree that the acker rejected is not sent.
   (``emits.py`` has steps 4 and 5, ``pace.py`` says when the source may emit.)
6. *Report.* Call back for completion groups of which each record has its verdict (``groups.py``).
   Beside the step, the windows are reported to operators (``report.py``).

Failures
--------
One thread or task runs one step at a time. An error may end a step anywhere, and the next step
continues where it ended:

* A verdict that does not count yet is read again.
* A batch in doubt (sent, no reply) is applied again under its number. The fence makes this
  idempotent.
* A batch that Redis refused is not in doubt. Its records are queued for another attempt. Some of
  its trees may be tracked all the same: these expire, and their verdicts are ignored.
* After any error the stream is read from its oldest entry, and no attempt times out for ``GRACE``
  seconds, because verdicts may have been missed.

Shards
------
If a call of one shard fails and others answer, the step goes on without that shard (``reach.py``).
Only if none is left does the error end the step. **Invariant: a shard that is left out keeps its
state, and no other shard can change it.** In detail:

* *No false ack.* A verdict is believed only if it was read from the stream of the shard that holds
  the tree. A shard that is left out yields none, and nothing else makes an ack.
* *No lost verdict.* An entry leaves Redis only by ``take`` on its own shard, after it is settled.
  When the shard is back, its stream is read from the oldest entry. A verdict that counted before is
  recognized by its entry or its anchor, as after any error.
* *No early timeout.* An attempt times out only if the step has read all waiting verdicts of its
  shard, and the shard has answered for ``GRACE`` seconds. Otherwise its timeout begins again. After
  a reshard an anchor counts as that of its new shard, and its verdict may wait on the old one. So
  nothing times out until all waiting verdicts of each old shard were read once. (No tree is pending
  when the number of shards changes.)
* *No batch twice.* A batch has the trees of one shard, and each shard has its own lane: own name,
  own numbers, at most one batch in doubt. While it is in doubt, the shard gets no other batch of
  the lane. So the numbers on a shard only grow, and the fence refuses a repeat. The time of the
  fence is read from the shard itself. Lanes of other shards go on, because no fence compares them.
* *No message without its tree.* New anchors are drawn for the shards that answer: each keeps its
  random upper bits, and its shard is chosen at random among them. So anchors stay as distinct as
  before, and a record waits for no shard that is left out, except in an attempt that is in doubt or
  tracked there.
* *Shard 0* holds the configuration and the groups. While it is left out, the configuration that is
  known is used. No attempt times out, because a longer lifetime of trees could not be noticed. A
  source with groups takes no entry, and draws no new attempt, because verdicts must be in their
  groups before their entries are taken. Groups are reported only in a step that has read all
  waiting verdicts of all shards.

State
-----
What the parts of a step share is in ``source_state.py``. By how long it holds:

* *One step:* ``_ready`` (shards to call) and ``_heard`` (shards of which all verdicts were read).
* *Until the stream is read from its oldest entry:* ``_after``, ``_outcomes``.
* *While a shard answers, or does not:* ``_full``, ``_removed``, ``_left_out``, ``_away_before``.
* *Until the number of shards changes:* ``_shards``; then ``_unread`` until each was read once.
* *Until the answer:* ``_doubts``, a batch a shard, under its number in ``_lanes``; ``_sent`` and
  ``_work``, the rows after ``send``, under theirs in ``_closing_lanes``.
* *Until a time:* ``_oldest_at``, ``_rotate_at``, ``_resume_at``.

Records and their attempts are in ``pending``, and survive all of these.
"""

import logging
import time
from collections import deque
from collections.abc import Iterable

from acker_redis.errors import (
    AckerError,
    ConfigError,
    NamespaceNotFoundError,
    WrongShardError,
)
from acker_redis.flows.emits import Emits
from acker_redis.flows.namespace import Flows
from acker_redis.flows.outcomes import OutcomeFlows
from acker_redis.flows.report import Reporter
from acker_redis.flows.source_state import SHARD_ERRORS
from acker_redis.flows.steps import Flow, Hand, Tell
from acker_redis.protocol.commands import ShardStatus
from acker_redis.protocol.config import AckerConfig
from acker_redis.protocol.ids import shard_of
from acker_redis.protocol.keys import ShardKeys
from acker_redis.protocol.reports import SourceEdge
from acker_redis.trees.record import Record, Verdict
from acker_redis.trees.source_settings import SourceSettings, check_record

log = logging.getLogger(__name__)

ENTRIES = 16
"""Entries of the stream that one read returns at most, per shard."""
FROM_THE_OLDEST = 10.0
"""Seconds after which the configuration and the stream are read again from the beginning.

A reshard may have changed the shards. After a failover new entries may have smaller ids than those
read before.
"""
GRACE = 5.0
"""Seconds after an error in which no attempt times out."""
MAX_REVIVED = 256
"""Timed-out attempts per step for which the source checks whether they are still pending."""


class SourceFlows(Emits):
    """The steps of one source; ``Source`` and ``AsyncSource`` run them."""

    def __init__(self, flows: Flows, name: str, settings: SourceSettings) -> None:
        super().__init__(flows, name, settings)
        self.inbox: deque[tuple[Record, int | None]] = deque()
        """New records, with the anchor of those that are tracked already; any thread may append."""
        self.withdrawn: deque[tuple[Record, int]] = deque()
        """Records of the inbox whose TRACK failed or is in doubt; any thread may append."""
        self.emitted: dict[str, int] = {}
        """Records emitted so far, by edge; a thread writes it that may emit."""
        self._outcomes: OutcomeFlows | None = None
        self._oldest_at = 0.0
        self._rotate_at = 0.0
        """When the attempts are rotated next; 0 before the first step."""
        self._waits = 0.0
        """Seconds for which the source waits for a verdict; 0 before the first step."""
        self._warned = 0.0
        """The lifetime of trees in seconds for which the timeout was called too short."""
        self._left_out: set[int] = set()
        """Shards that the log calls left out."""
        self._away_before: set[int] = set()
        self._unread: set[int] = set()
        """Shards whose waiting verdicts were not all read since the number of shards changed.

        An anchor of theirs may count as that of another shard now, which answers.
        """
        self._reporter = Reporter(flows.namespace, name)
        self._unticked = ""
        """Why trees of shard 0 do not expire, if they do not; else ''."""

    def fresh(self) -> "SourceFlows":
        """Return the flows of the same source without records."""
        return SourceFlows(self.given, self.name, self.settings)

    @staticmethod
    def pause_after(failures: int) -> float:
        """Return the seconds to wait after this number of failed steps in a row."""
        return min(0.1 * 2.0 ** min(failures, 6), 5.0)

    @property
    def begun(self) -> bool:
        """Whether it has run a step, or has records or groups."""
        return bool(self._oldest_at or self.live() or self.groups.begun)

    def live(self) -> int:
        """Return the number of records that are not closed."""
        # In this order: a record that goes from the inbox to pending may count twice, never zero
        # times.
        return len(self.inbox) + self.pending.size

    def has_room(self, edge: str) -> bool:
        """Return whether a record of this edge may be emitted: ``max_pending`` is not reached.

        Edges share ``max_pending``. Half of an equal share is kept for each: so the records that
        wait for a dead edge keep no room from the others. (If they have filled it before the others
        came, that part comes on top.)
        """
        most, live = self.settings.max_pending, self.live()
        others = len(self.emitted) - (edge in self.emitted)
        kept = most // (2 * others + 2) if others else 0
        if live + kept * others < most or (others and self._open_on(edge) < kept):
            return True
        names = (each for each in self.emitted if each != edge)
        return live + sum(max(0, kept - self._open_on(each)) for each in names) < most

    def _open_on(self, name: str) -> int:
        """Return the number of records of an edge that are not closed."""
        edge, emitted = self.pending.edges.get(name), self.emitted.get(name, 0)
        # In this order, for the reason in live().
        return emitted if edge is None else emitted - edge.added + edge.open

    def edge_states(self) -> list[SourceEdge]:
        """Return the state of each edge, by name."""
        now = time.monotonic()
        states = [edge.state(now) for edge in list(self.pending.edges.values())]
        return sorted(states, key=lambda each: each.edge)

    def admit(self, record: Record, anchor: int | None) -> None:
        """Add a new record, with its anchor if it is tracked already; one thread at a time."""
        self.emitted[record.edge] = self.emitted.get(record.edge, 0) + 1
        self.inbox.append((record, anchor))

    def step(self) -> Flow[float]:
        """Run one step; return the seconds until the next step is due.

        Yields ``Hand(Verdict)`` for each verdict. Raises RedisUnavailableError, if no shard is
        left, and other AckerErrors; the next step continues.
        """
        self._take_in()
        heard: int | None = None
        try:
            yield from self._begin()
            yield from self._on_shard_0(self.groups.work())
            heard = yield from self._hear()
            if self._heard >= self._ready:
                yield from self._give_up()
            yield from self._patiently(self._say)
            emitted = yield from self._patiently(self._emit)
            if self.groups.active and len(self._heard) == self._shards:
                yield from self._on_shard_0(self.groups.report())
        except AckerError as error:
            self.groups.failed()
            if isinstance(error, WrongShardError | NamespaceNotFoundError):
                # A reshard changed the shards, or the namespace was created again: the next flow
                # reads the configuration.
                self._flows.known = None
            # The source may have missed verdicts: it reads the stream from its beginning. The
            # bolts, too, get time to send the rows that they could not send.
            now = time.monotonic()
            self._rotate_at = max(self._rotate_at, now + GRACE)
            self._outcomes = None
            if heard is None:
                self.pending.pardon(now)
            raise
        self._notice_shards()
        now = time.monotonic()
        if 0 in self._ready and self._reporter.is_due(now):
            yield from self._reporter.report(self.edge_states(), now)
        return 0.0 if heard or emitted else self._idle()

    def finish(self) -> Flow[None]:
        """Close or fail the trees whose messages were sent; call it after the last step."""
        self._ready = self._ready or set(range(self._shards))
        yield from self._patiently(self._say)

    def _take_in(self) -> None:
        withdrawn = len(self.withdrawn)  # their records have been in the inbox before
        now = time.monotonic()
        while self.inbox:
            self.pending.add(*self.inbox[0], now)
            self.inbox.popleft()
        for _ in range(withdrawn):
            self.pending.withdraw(*self.withdrawn.popleft())

    def _notice_shards(self) -> None:
        """Note which shards have answered in this step, and log those that are left out or back."""
        now = time.monotonic()
        if len(self._reach.served(self._ready, now)) == self._shards:
            self._rotate_at = max(self._rotate_at, now + GRACE)  # the end of an outage of them all
        away = self._reach.away
        # One line for a server, and none for a shard that was only probed.
        lost = sorted((away.keys() & self._away_before) - self._left_out)
        if lost:
            log.warning("source %s goes on without shards %s: %s", self.name, lost, away[lost[0]])
        if back := sorted(self._left_out - away.keys()):
            log.info("source %s: shards %s answer again", self.name, back)
        self._left_out = (self._left_out | set(lost)) & away.keys()
        self._away_before = set(away)

    def _idle(self) -> float:
        if self._sent:
            return 0.0
        now, due = time.monotonic(), None if self._without_groups else self.pending.due()
        times = [self._rotate_at, *([due] if due is not None else [])]
        wait = min(times) - now
        if self._resume_at > now:
            wait = min(self._rotate_at, self._resume_at) - now
        return max(0.0, wait)

    def _begin(self) -> Flow[None]:
        """Find out which shards to call in this step, and read the configuration if it is due."""
        now, known = time.monotonic(), self._flows.known
        if known:
            self._ready = set((yield from self._reach.ready(known.shards, now)))
        if known is None or now >= self._oldest_at:
            if known is None or 0 in self._ready:
                yield from self._read_config(known)
            self._after.clear()
            self.groups.refresh()
            self._oldest_at = now + FROM_THE_OLDEST
        config = yield from self._flows.config()
        if self._outcomes is None or config.shards != self._shards:
            # First step, after an error, after a reshard, or the namespace was created again.
            self._count_shards(config.shards)
            self._outcomes = OutcomeFlows(self._flows.shards(config), self.name, config.edges)
            self._after.clear()
            self._ready = set((yield from self._reach.ready(config.shards, now)))
        self._heard = set()
        self.pending.live_for(config.timeout_ms / 1000)

    def _count_shards(self, shards: int) -> None:
        """Note the number of shards."""
        if self._shards != shards:
            self._unread |= set(range(min(self._shards, shards)))
        self._shards = shards

    def _read_config(self, known: AckerConfig | None) -> Flow[None]:
        try:
            yield from self._flows.read_config(patient=False)
        except SHARD_ERRORS as error:
            if known is None:
                raise
            self._fail(0, error)  # the others go on with the configuration that is known
        else:
            self.given.learn(self._flows)
            yield from self._leave_shards()

    def _on_shard_0(self, flow: Flow[None]) -> Flow[None]:
        """Run a flow of the groups, unless shard 0 is left out."""
        if not self._without_groups:
            try:
                yield from flow
            except SHARD_ERRORS as error:
                self._fail(0, error)

    def _hear(self) -> Flow[int]:
        assert self._outcomes is not None  # noqa: S101 - _begin has made it
        now = time.monotonic()
        try:
            found = yield from self._outcomes.read_each(sorted(self._ready), ENTRIES, self._after)
            if self._outcomes.shards != self._shards:
                self._count_shards(self._outcomes.shards)
                self._flows.known = None
                self._ready = {*found.read, *found.errors}
            self._fail_all(found.errors)
            self._take_in()  # an entry may hold the verdict of a record tracked since
            for entry in found.entries:
                self._after[entry.shard] = entry.id
                yield from self._tell(self.pending.verdicts(entry, now))
            self._heard = {s for s, entries in found.read.items() if entries < ENTRIES}
            self._unread -= self._heard
            yield from self._take()
        except BaseException:
            self._after.clear()  # verdicts that do not count yet are read again
            raise
        return len(found.entries)

    def _take(self) -> Flow[None]:
        # If the program dies before the entries are taken, they come again.
        yield from self._on_shard_0(self.groups.count())
        settled = [entry for entry in self.pending.settled() if self._may_call(entry.shard)]
        if not settled or self._outcomes is None or self._without_groups:
            return
        errors = {
            shard: result
            for shard, result in (yield from self._outcomes.take_each(settled)).items()
            if isinstance(result, AckerError)
        }
        taken = [entry for entry in settled if entry.shard not in errors]
        self.pending.taken(taken)
        self._full -= {entry.shard for entry in taken}
        self._fail_all(errors)

    def _tell(self, verdicts: Iterable[Verdict]) -> Flow[None]:
        for verdict in verdicts:
            if verdict.verdict == "nack" and not verdict.final and not verdict.record.attempt:
                verdict.final = not (yield from self._reloaded(verdict.record))
            yield Hand(verdict)
            if self.groups.active:
                self.groups.heard(verdict, self.pending.live(verdict.record.source_id))

    def _reloaded(self, record: Record) -> Flow[bool]:
        """Load a record that an earlier program tracked; return whether it can be replayed."""
        if self.settings.reload is None:
            return False
        (found,) = yield Tell(self.settings.reload, ((record.source_id,),))
        if found is None:
            return False
        if isinstance(found, BaseException):
            raise found
        if not isinstance(found, Record):
            raise ConfigError(
                f"reload must return Record(source_id, value, messages) or None, not {found!r}"
            )
        check_record(found)
        record.value, record.messages, record.edge = found.value, found.messages, found.edge
        return True

    def _give_up(self) -> Flow[None]:
        """Nack attempts that got no verdict in time; call it after all verdicts were read."""
        now = time.monotonic()
        if now >= self._rotate_at:
            # Read it again: trees may live longer now, and then their attempts must not time out.
            status = yield from self._first_status()
            if status is None:
                self._rotate_at = now + GRACE
                return
            before, self._waits = self._waits, self._timeout(status.config)
            if before and self._waits > before:
                self._rotate_at = now + self._waits
                return
            if before:
                self.pending.rotate()
            self._rotate_at = now + self._waits / 2
            self._unticked = _unticked(status)
        timed_out = []
        for anchor in self.pending.timed_out():
            shard = shard_of(anchor, self._shards)
            if (
                not self._unread
                and shard in self._ready
                and now >= self._reach.since(shard) + GRACE
            ):
                timed_out.append(anchor)
            else:
                self.pending.revive(anchor)  # verdicts of that shard may wait
        if not timed_out:
            return
        config = yield from self._flows.config()
        if config.refresh == "update":
            # Each row of a tree restarts its timeout, and the source does not see these rows.
            timed_out = timed_out[:MAX_REVIVED]  # the others in the next step
            for anchor in timed_out:
                yield from self._revive_pending(anchor)
        yield from self._tell(self.pending.timeouts(now, timed_out, self._unticked))

    def _first_status(self) -> Flow[ShardStatus | None]:
        """Read shard 0; None if it does not answer."""
        if 0 not in self._ready:
            return None
        try:
            status = yield from self._flows.shard_status(ShardKeys(self._flows.namespace, 0))
        except SHARD_ERRORS as error:
            self._fail(0, error)
            return None
        self._flows.note(status)
        return status

    def _revive_pending(self, anchor: int) -> Flow[None]:
        """Make a timed-out attempt pending again if its tree is pending, or cannot be read."""
        shard = shard_of(anchor, self._shards)
        try:
            pending = shard not in self._ready or (yield from self._flows.show(anchor)) is not None
        except SHARD_ERRORS as error:
            self._fail(shard, error)
            pending = True
        if pending:
            self.pending.revive(anchor)

    def _timeout(self, config: AckerConfig) -> float:
        """Return the seconds for which the source waits for a verdict, at least."""
        # A tree that still gets rows lives longer, up to its deadline: _give_up looks it up.
        least, lifetime = config.timeout_ms / 1000, config.lifetime_ms / 1000
        timeout = self.settings.timeout
        if timeout is None:
            return 1.5 * least + 5.0
        if timeout <= lifetime and lifetime != self._warned:
            self._warned = lifetime
            log.warning(
                "source %s: trees live for up to %.1f s; timeout=%.1f is too short, set more",
                self.name, lifetime, timeout,
            )  # fmt: skip
        return max(timeout, 1.1 * least)


def _unticked(status: ShardStatus) -> str:
    """Return, for a nack without a verdict, that no rotator makes trees expire; '' if one does."""
    if not status.ticks:
        return "no rotator has ticked: run acker-redis rotator"
    if status.lag_ms > status.config.tick_ms:
        late = (status.now_ms - status.ticked_ms) / 1000
        return f"no rotator has ticked for {late:.0f} s: run acker-redis rotator"
    return ""
