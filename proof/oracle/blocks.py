"""The oracle of one shard: its loose trees and its blocks."""

from collections import Counter
from collections.abc import Collection, Sequence

from acker_redis.protocol.config import AckerConfig
from acker_redis.protocol.outcome import Outcome
from proof.oracle.facts import FAIL, BlockRows, Call, Row, Told, slot_anchor
from proof.oracle.records import Block, Record
from proof.oracle.trees import TreeOracle
from proof.oracle.violations import FALSE_ACK, Violation

Verdicts = dict[int, list[Outcome]]


class Oracle(TreeOracle):
    """The oracle: raises Violation at the first wrong reply or verdict."""

    def __init__(self, config: AckerConfig, liveness: bool = True) -> None:
        super().__init__(config, liveness)
        self._told_now: Counter[str] = Counter()
        """Verdicts per task that the call under check has written."""

    def blocks_expired(self, told: Sequence[Told], drained: Collection[int] | None = None) -> None:
        """Check a drain of blocks: a tree without a verdict is acked if complete, else nacked.

        ``drained`` has the numbers of those that this call has drained; without it, all of them.
        """
        left = {}
        if drained is not None:
            left = {n: block for n, block in self.blocks_expiring.items() if n not in drained}
            self.blocks_expiring = self.expected(self.blocks_expiring, drained)
        verdicts: Verdicts = {}
        for _, outcome in told:
            verdicts.setdefault(outcome.anchor, []).append(outcome)
        for block in self.blocks_expiring.values():
            self.seen["blocks expired"] += 1
            if block.lost:
                self._drained_lost(block, verdicts)
                continue
            self.seen["blocks expired in silence"] += not block.open
            before = self.counters.copy()
            for slot in block.slots.values():
                if not slot.failed:
                    said = verdicts.pop(slot.tree.anchor, [])
                    self._drained(slot, said, block.rows.label)
            ended = self.counters - before
            mixed = ended["acked"] and ended["expired"]
            self.seen["blocks expired, some trees acked and some not"] += bool(mixed)
            self.seen["blocks expired, some trees acked, not or failed"] += bool(
                mixed and block.open < len(block.slots)
            )
            self._silent(block.rows, verdicts)
        if verdicts:
            raise Violation("verdict", f"drained {verdicts}", min(verdicts))
        self.blocks_expiring = left
        self.deliver(told)

    def _drained(self, slot: Record, said: list[Outcome], label: str) -> None:
        if any(outcome.verdict == "ack" for outcome in said):
            self.seen["trees acked as their block expired"] += 1
            self._true(slot)
            self._expect(slot.tree, said, "completed", label)
        elif self.liveness and slot.zero:
            words = f"all messages were processed, but the tree expires with {said}"
            raise Violation("no ack", words, slot.tree.anchor)
        else:
            self._expect(slot.tree, said, "expired", label)
            self.diagnosed(slot, said[0])

    def _drained_lost(self, block: Block, verdicts: Verdicts) -> None:
        """Check the drain of a block that has lost a key: it acks no tree.

        It nacks all trees that are not known to have failed; without its present slots, all slots.
        Of a failed tree, and of an absent slot, that is a verdict too many.
        """
        for key in block.lost:
            self.seen[f"blocks expired without their {key} key"] += 1
        for number in range(block.size):
            anchor, slot = slot_anchor(block.rows.number, number), block.slots.get(number)
            said = verdicts.pop(anchor, [])
            known = slot is None and "present" not in block.lost
            if known or (slot and slot.failed and "failed" not in block.lost):
                if said:
                    raise Violation("verdict", f"{said}, but none was expected", anchor)
                continue
            if any(outcome.verdict == "ack" for outcome in said):
                words = f"{said}, but the block has lost {sorted(block.lost)}"
                raise Violation(FALSE_ACK, words, anchor)
            if [outcome.reason for outcome in said] != ["expired"]:
                words = f"{said}, but the block has lost {sorted(block.lost)}"
                raise Violation("verdict" if said else "no verdict", words, anchor)
            if said[0].residual or said[0].edges:
                raise Violation("residual", f"{said}, but the checksums are unknown", anchor)
            self.end(said[0])
            self.extra[anchor] += slot is None or slot.failed

    def _rows(self, call: Call, verdicts: Verdicts) -> list[int]:
        if not call.blocks:
            return super()._rows(call, verdicts)
        # A block that ends in this call makes room for the next call only.
        taken, rejected = self.load, []
        self._told_now.clear()
        for rows in call.blocks:
            block = self.blocks.get(rows.number)
            if rows.track and block:
                # Its messages count already; its failures and its touch count now.
                self.seen["blocks tracked again while pending"] += 1
                self.counters["orphaned"] += rows.strays
                self._goes_on(block, rows, self._failed_again(block, rows), verdicts)
            elif rows.track:
                begun = self._begun(rows, taken, verdicts)
                if begun:
                    taken += begun.size
                    self.counters["orphaned"] += rows.strays
                    failed = [slot for slot in begun.slots.values() if slot.failed]
                    self._goes_on(begun, rows, failed, verdicts)
                else:
                    rejected.append(rows.number)
            elif block:
                self._goes_on(block, rows, self._add(block, rows), verdicts)
            else:
                for row in rows.rows:
                    self.counters["orphaned"] += _parts(row)
                self._late(rows)
        return rejected

    def _begun(self, rows: BlockRows, taken: int, verdicts: Verdicts) -> Block | None:
        """The block that begins; None if it must have been rejected."""
        trees = [row.tree for row in rows.rows]
        self.counters["tracked"] += len(trees)
        self.seen["blocks tracked"] += 1
        self.seen["blocks tracked with absent slots"] += bool(rows.absent)
        for tree in trees:
            tree.tracks += 1
        if trees[0].tracks > 1:
            self.seen["blocks tracked again after their end"] += 1
        for reason, refused in (
            ("conflict", rows.number in self.blocks_expiring),
            ("overflow", taken + rows.size > 2 * self.config.high_water),
        ):
            if refused:
                self.seen[f"blocks rejected, {reason}"] += 1
                self.seen[f"blocks with absent slots rejected, {reason}"] += bool(rows.absent)
                self._told_now[rows.task] += len(trees)
                for tree in trees:
                    self._expect(tree, verdicts.pop(tree.anchor, []), reason, rows.label)
                self._silent(rows, verdicts)
                return None
        place = self.begun()
        slots = {tree.slot: Record(tree, place) for tree in trees}
        for row in rows.rows:
            slots[row.tree.slot].add(row)
        block = self.blocks[rows.number] = Block(rows, place, slots)
        return block

    def _failed_again(self, block: Block, rows: BlockRows) -> list[Record]:
        """Apply the failures of a TRACK that comes again; return the slots that newly failed."""
        named = [block.slots[row.tree.slot] for row in rows.rows if row.flags & FAIL]
        failed = [slot for slot in named if not slot.failed]
        for slot in failed:
            self.seen["failures with a TRACK that came again"] += 1
            slot.failed = True
        return failed

    def _add(self, block: Block, rows: BlockRows) -> list[Record]:
        """Apply rows to their slots; return the slots that have newly failed."""
        failed = []
        for row in rows.rows:
            number = row.tree.slot
            if number >= block.size:
                self.counters["orphaned"] += _parts(row)
                self.seen["rows of slots that are not there"] += 1
                continue
            if number not in block.slots:
                # The failure is dropped. The delta counts, so that the block can only expire.
                self.counters["orphaned"] += bool(row.flags & FAIL)
                self.seen["rows of absent slots"] += 1
                self.seen["failures of absent slots"] += bool(row.flags & FAIL)
                block.strays.setdefault(number, Record(row.tree, block.place)).add(row)
                continue
            slot = block.slots[number]
            if row.flags & FAIL:
                self.seen["slots failed again"] += slot.failed
                if not slot.failed:
                    failed.append(slot)
            slot.add(row)
            if slot.twice:
                self.seen["rows that met their own repeat"] += 1
        return failed

    def _late(self, rows: BlockRows) -> None:
        """Count rows that find no pending block."""
        self.seen["rows of blocks that are not there"] += 1
        if rows.number in self.blocks_expiring:
            self.seen["rows of blocks that expire"] += 1
        elif any(row.tree.tracks for row in rows.rows):
            self.seen["rows of blocks after their end"] += 1
        else:
            self.seen["rows of blocks before their track"] += 1

    def _goes_on(
        self, block: Block, rows: BlockRows, failed: list[Record], verdicts: Verdicts
    ) -> None:
        """Check the verdicts of a block whose rows were applied, and whether it has ended."""
        label = block.rows.label
        said = {n: verdicts.pop(slot.tree.anchor, []) for n, slot in block.slots.items()}
        self._silent(block.rows, verdicts)
        for slot in failed:
            first = said[slot.tree.slot]
            self._expect(slot.tree, first[:1], "failed", label)
            del first[:1]
        self._told_now[block.task] += len(failed)
        ended = any(o.reason == "completed" for told in said.values() for o in told)
        if self.liveness and block.zero and block.open and not ended:
            words = f"all trees of block {rows.number} are complete"
            raise Violation("no ack", words, slot_anchor(rows.number, min(block.slots)))
        if ended or (block.zero and not block.open):
            self._ended(block, said)
            del self.blocks[rows.number]
            return
        restarted = rows.touch
        if rows.touch or self.config.refresh == "update":
            before = block.place.born
            restarted = self.moved(block.place) and rows.touch
            self.seen["blocks moved to a newer bucket"] += block.place.born != before
        waiting = len(self.waiting.get(block.task, ())) + self._told_now[block.task]
        # If the deadline leaves the block where it is, no clock was restarted.
        touched = restarted and waiting < self.config.outcomes_limit
        for number, slot in block.slots.items():
            outcomes = said[number]
            if touched:
                self._expect(slot.tree, outcomes, "reset", label)
            elif outcomes:
                raise Violation("verdict", f"{outcomes}, but nothing has ended", slot.tree.anchor)
        self._told_now[block.task] += len(said) if touched else 0

    def _ended(self, block: Block, said: Verdicts) -> None:
        """Check the end of a block: its trees are complete, and acked unless they have failed."""
        self.seen["blocks complete"] += 1
        self.seen["blocks complete with absent slots"] += bool(block.rows.absent)
        self.seen["blocks complete in silence"] += not block.open
        self.seen["blocks complete except their failed trees"] += 0 < block.open < len(block.slots)
        self._told_now[block.task] += block.open
        if self.liveness and block.strayed:
            words = f"absent slots {sorted(block.strays)} have received messages"
            raise Violation("verdict", words, slot_anchor(block.rows.number, min(block.strays)))
        for number, slot in block.slots.items():
            outcomes = said[number]
            if not slot.failed:
                self._true(slot)
                self._expect(slot.tree, outcomes, "completed", block.rows.label)
                self.seen["holes acked"] += not slot.done
            elif outcomes or slot.tree.exists - slot.done:
                words = f"its block has ended; the tree had failed and still got {outcomes}"
                raise Violation("verdict", words, slot.tree.anchor)

    def _silent(self, rows: BlockRows, verdicts: Verdicts) -> None:
        """Raise Violation if a slot that holds no tree has a verdict."""
        for slot in rows.absent:
            anchor = slot_anchor(rows.number, slot)
            if said := verdicts.get(anchor):
                acked = any(outcome.verdict == "ack" for outcome in said)
                words = f"{said}, but the slot holds no tree"
                raise Violation(FALSE_ACK if acked else "verdict", words, anchor)


def _parts(row: Row) -> int:
    """Return how many parts of a row are counted if it is dropped: its delta and its failure."""
    return bool(row.links) + bool(row.flags & FAIL)
