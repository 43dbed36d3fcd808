"""The oracle of loose trees: it checks each call, its reply, and the verdicts that it wrote."""

from collections.abc import Sequence

from acker_redis.errors import BacklogError, ChangedBatchError, SchemaError
from acker_redis.protocol.commands import ShardApplied
from acker_redis.protocol.outcome import Outcome
from proof.oracle.books import Books
from proof.oracle.facts import FAIL, TOUCH, TRACK, Call, Reply, Row, Told, Tree
from proof.oracle.records import Record
from proof.oracle.violations import FALSE_ACK, Violation


class TreeOracle(Books):
    """The oracle of loose trees: raises Violation at the first wrong reply or verdict."""

    def applied(self, call: Call, reply: Reply, told: Sequence[Told], now_ms: int = 0) -> None:
        """Check a call at ``now_ms``, its reply, and the verdicts that it wrote."""
        self.now_ms = now_ms
        fence = call.fence
        if not isinstance(reply, ShardApplied):
            self._refused(call, reply, told)
            return
        self.fences.check(fence, self.ticks, reply.highest)
        if reply.highest is not None:
            self.counters["repeated"] += 1
            if told:
                raise Violation("fence", f"a repeat of batch {fence.seq} wrote {told}")
            return
        if self.full(call):
            raise Violation(
                "backlog", f"a batch of {call.task} was applied though its backlog is full"
            )
        if self.other(call):
            raise Violation(
                "content", "a pending block was tracked again with other trees, and not refused"
            )
        if self.damaged(call):
            anchor = next(call.each()).tree.anchor
            raise Violation("damage", "a call for a block that has lost a key was applied", anchor)
        self.fences.applied(fence, self.ticks, now_ms)
        for anchor, task in call.tracked():
            self.sources.setdefault(anchor, set()).add(task)
        verdicts: dict[int, list[Outcome]] = {}
        for _, outcome in told:
            verdicts.setdefault(outcome.anchor, []).append(outcome)
        before, self._telling = self.counters.copy(), len(told)
        rejected = self._rows(call, verdicts)
        if verdicts:
            raise Violation("verdict", f"unexpected: {verdicts}", min(verdicts))
        self.deliver(told)
        new = {name: self.counters[name] - before[name] for name in before}
        wanted = ShardApplied(
            None,
            new["tracked"],
            new["acked"],
            new["failed"] + (0 if call.blocks else new["conflict"]),
            self.load,
            self.config.high_water,
            tuple(rejected),
        )
        if reply != wanted:
            anchor = next(call.each()).tree.anchor
            raise Violation("reply", f"{reply}, expected {wanted}", anchor)

    def _refused(self, call: Call, reply: Reply, told: Sequence[Told]) -> None:
        stands = self.fences.highest(call.fence, self.ticks)
        again = stands and call.fence.seq <= stands[0]
        if isinstance(reply, ChangedBatchError):
            changed = stands and stands[0] == call.fence.seq and stands[1] != call.fence.digest
            right = changed or (self.other(call) and not again)
        elif isinstance(reply, SchemaError):
            right = self.damaged(call) and not again
            self.seen["batches refused for a lost key"] += 1
        else:
            right = isinstance(reply, BacklogError) and self.full(call) and not again
        if not right or told:
            anchor = next(call.each()).tree.anchor
            raise Violation("refused", f"unexpected {reply!r}, with verdicts {told}", anchor)

    def _rows(self, call: Call, verdicts: dict[int, list[Outcome]]) -> list[int]:
        """Check the rows of a call; return those to be rejected, as the reply lists them."""
        return [row.tree.anchor for row in call.rows if self._row(row, verdicts)]

    def _row(self, row: Row, verdicts: dict[int, list[Outcome]]) -> bool:
        """Check one row; return True if its tree must be rejected."""
        tree, flags = row.tree, row.flags
        anchor = tree.anchor
        said = verdicts.pop(anchor, [])
        old = self.pending.get(anchor)
        track = bool(flags & TRACK)
        if track:
            tree.tracks += 1
        if old and old.tracked and track:
            # The same source and source id are one tree. Another source has a second tree.
            self._expect(old.tree, said[:1], "conflict")
            if tree is not old.tree:
                self.counters["tracked"] += 1
                self._expect(tree, said[1:], "conflict")
            elif said[1:]:
                raise Violation("verdict", f"{said}, expected one", anchor)
            del self.pending[anchor]
            return False
        record = old or Record(tree, self.begun())
        record.add(row)
        self.counters["tracked"] += track
        self._count(row, old, record)
        if any(outcome.verdict == "ack" for outcome in said):
            self._true(record)
            self._expect(tree, said, "completed")
        elif record.tracked and record.failed:
            self._expect(tree, said, "failed")
        elif self.liveness and record.complete:
            raise Violation("no ack", "all messages were processed, each once", anchor)
        elif not old and track and self.load >= 2 * self.config.high_water:
            self._expect(tree, said, "overflow")
            return True
        else:
            self._kept(row, old, record, said)
            return False
        self.pending.pop(anchor, None)
        return False

    def _kept(self, row: Row, old: Record | None, record: Record, said: list[Outcome]) -> None:
        """Check a row that ends no tree, and record where its record is now."""
        tree, touch = row.tree, bool(row.flags & TOUCH)
        anchor = tree.anchor
        if old:
            if row.flags & (TOUCH | FAIL) or self.config.refresh == "update":
                # If the deadline leaves the record where it is, no clock was restarted.
                restarted = self.moved(record.place)
                self.seen["touches without a verdict, at a deadline"] += touch and not restarted
                touch = touch and restarted
        elif row.empty:
            touch = False  # a TOUCH of nothing
        elif not record.tracked and (self.closed or self.load >= self.config.high_water):
            self.counters["orphaned"] += 1
            self.seen["rows dropped above the high-water mark"] += 1
            touch = False
        else:
            self.pending[anchor] = record
        limit = self.config.outcomes_limit - self._telling
        full = any(len(waiting) >= limit for waiting in self.waiting.values()) or limit <= 0
        if touch and record.tracked and not (full and not said):
            self._expect(tree, said, "reset")
        elif said:
            raise Violation("verdict", f"{said}, but nothing has ended", anchor)

    def _true(self, record: Record) -> None:
        """Raise Violation if an ack of this record is false."""
        tree = record.tree
        # A batch that ran again with other content announces messages that are never emitted. They
        # count in the record to which that batch was applied, and in no other.
        missing = (tree.exists | record.made) - record.done
        if missing:
            raise Violation(FALSE_ACK, f"outstanding: messages {sorted(missing)}", tree.anchor)
        if tree.failed or record.failed:
            words = f"a bolt has failed messages {sorted(tree.failed)}"
            raise Violation(FALSE_ACK, words, tree.anchor)
        if not record.tracked:
            raise Violation("verdict", "acked, but never tracked", tree.anchor)

    def _expect(self, tree: Tree, said: list[Outcome], reason: str, label: str = "") -> None:
        """Check the one verdict on a tree; ``label`` is that of its block."""
        anchor, source_id = tree.anchor, label or tree.source_id
        if [outcome.reason for outcome in said] != [reason]:
            kind = "verdict" if said else "no verdict"
            raise Violation(kind, f"{said}, expected one {reason!r}", anchor)
        if said[0].source_id != source_id:
            raise Violation("verdict", f"{said}, expected source id {source_id}", anchor)
        if said[0].cause and reason != "expired":
            raise Violation("verdict", f"{said}, but the tree has not expired", anchor)
        if reason != "reset":
            self.end(said[0])

    def _count(self, row: Row, old: Record | None, record: Record) -> None:
        """Count states that a history should reach."""
        if row.flags & TRACK:
            if old:
                self.seen["rows before their track"] += 1
            if old and record.failed and not row.flags & FAIL:
                self.seen["fails before their track"] += 1
            if row.tree.tracks > 1:
                self.seen["tracks applied again"] += 1
        elif not old and row.tree.tracks:
            self.seen["rows after the end of their tree"] += 1
            self.seen["rows while their tree expires"] += row.tree.anchor in self.expiring
        if record.twice:
            self.seen["rows that met their own repeat"] += 1
