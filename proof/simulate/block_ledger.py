"""The oracle of one shard, including its blocks."""

from collections import Counter
from collections.abc import Sequence

from acker_redis.batching.batch import FAIL
from acker_redis.protocol.config import AckerConfig
from acker_redis.protocol.ids import block_anchor
from acker_redis.protocol.outcome import Outcome
from proof.reference.blocks import BlockRow
from proof.simulate.batches import AnySent, FoldedBlock, SentBlocks
from proof.simulate.books import Told
from proof.simulate.ledger import Ledger
from proof.simulate.records import Pending, PendingBlock
from proof.simulate.violations import FALSE_ACK, Violation

Verdicts = dict[int, list[Outcome]]


class BlockLedger(Ledger):
    """The oracle with blocks: raises Violation at the first wrong reply or verdict of a tree."""

    def __init__(self, config: AckerConfig, liveness: bool = True) -> None:
        super().__init__(config, liveness)
        self._told_now: Counter[str] = Counter()
        """Verdicts per task that the call under check has written."""

    def blocks_expired(self, told: Sequence[Told]) -> None:
        """Check a drain of blocks: a tree without a verdict is acked if complete, else nacked."""
        verdicts: Verdicts = {}
        for _, outcome in told:
            verdicts.setdefault(outcome.anchor, []).append(outcome)
        for block in self.blocks_expiring.values():
            self.seen["blocks expired"] += 1
            if block.lost:
                self._drained_lost(block, verdicts)
                continue
            self.seen["blocks expired in silence"] += not block.open
            for slot in block.slots.values():
                if not slot.failed:
                    self._drained(slot, verdicts.pop(slot.tree.anchor, []))
            self._silent(block.row, verdicts)
        if verdicts:
            raise Violation("verdict", f"drained {verdicts}", min(verdicts))
        self.blocks_expiring = {}
        self.deliver(told)

    def _drained(self, slot: Pending, said: list[Outcome]) -> None:
        if any(outcome.verdict == "ack" for outcome in said):
            self.seen["trees acked as their block expired"] += 1
            self._true(slot)
            self._expect(slot.tree, said, "completed")
        elif self.liveness and slot.zero:
            words = f"all messages were processed, but the tree expires with {said}"
            raise Violation("no ack", words, slot.tree.anchor)
        else:
            self._expect(slot.tree, said, "expired")
            self.diagnosed(slot, said[0])

    def _drained_lost(self, block: PendingBlock, verdicts: Verdicts) -> None:
        """Check the drain of a block that has lost a key: it acks no tree.

        It nacks all trees that are not known to have failed; without its present slots, all slots.
        Of a failed tree, and of an absent slot, that is a verdict too many.
        """
        for key in block.lost:
            self.seen[f"blocks expired without their {key} key"] += 1
        for number in range(block.size):
            anchor, slot = block_anchor(block.row.block, number), block.slots.get(number)
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

    def _rows(self, sent: AnySent, verdicts: Verdicts) -> list[int]:
        if not isinstance(sent, SentBlocks):
            return super()._rows(sent, verdicts)
        # A block that ends in this call makes room for the next call only.
        taken, rejected = self.load, []
        self._told_now.clear()
        for folded, row in zip(sent.folded, sent.rows, strict=True):
            block = self.blocks.get(row.block)
            if folded.track and block:
                # A repeated TRACK is a no-op.
                self.seen["blocks tracked again while pending"] += 1
                self._goes_on(block, row, [], verdicts)
            elif folded.track:
                begun = self._begun(folded, row, taken, verdicts)
                if begun:
                    taken += begun.size
                    self._goes_on(begun, row, [], verdicts)
                else:
                    rejected.append(row.block)
            elif block:
                failed = self._add(block, folded, row)
                self._goes_on(block, row, failed, verdicts)
            else:
                self.counters["orphaned"] += len(row.deltas) + len(row.failed)
                self.seen["rows of blocks that are not there"] += 1
        return rejected

    def _begun(
        self, folded: FoldedBlock, row: BlockRow, taken: int, verdicts: Verdicts
    ) -> PendingBlock | None:
        """The block that begins; None if it must have been rejected."""
        trees = [each.tree for each in folded.rows]
        self.counters["tracked"] += len(trees)
        self.seen["blocks tracked"] += 1
        self.seen["blocks tracked with absent slots"] += bool(row.absent)
        for tree in trees:
            tree.tracks += 1
        if trees[0].tracks > 1:
            self.seen["blocks tracked again after their end"] += 1
        for reason, refused in (
            ("conflict", row.block in self.blocks_expiring),
            ("overflow", taken + len(row.deltas) > 2 * self.config.high_water),
        ):
            if refused:
                self.seen[f"blocks rejected, {reason}"] += 1
                self._told_now[row.task] += len(trees)
                for tree in trees:
                    self._expect(tree, verdicts.pop(tree.anchor, []), reason)
                self._silent(row, verdicts)
                return None
        place = self.begun()
        slots = {tree.slot: Pending(tree, place) for tree in trees}
        for each in folded.rows:
            slots[each.tree.slot].add(each)
        block = self.blocks[row.block] = PendingBlock(row, place, slots)
        return block

    def _add(self, block: PendingBlock, folded: FoldedBlock, row: BlockRow) -> list[Pending]:
        """Apply rows to their slots; return the slots that have newly failed."""
        failed = []
        for each in folded.rows:
            number = each.tree.slot
            if number >= block.size:
                self.counters["orphaned"] += (number in row.deltas) + (number in row.failed)
                self.seen["rows of slots that are not there"] += 1
                continue
            if number not in block.slots:
                # The failure is dropped. The delta counts, so that the block can only expire.
                self.counters["orphaned"] += number in row.failed
                self.seen["rows of absent slots"] += 1
                self.seen["failures of absent slots"] += number in row.failed
                block.strays.setdefault(number, Pending(each.tree, block.place)).add(each)
                continue
            slot = block.slots[number]
            if each.flags & FAIL and not slot.failed:
                failed.append(slot)
            slot.add(each)
            if slot.twice:
                self.seen["rows that met their own repeat"] += 1
        return failed

    def _goes_on(
        self, block: PendingBlock, row: BlockRow, failed: list[Pending], verdicts: Verdicts
    ) -> None:
        """Check the verdicts of a block whose rows were applied, and whether it has ended."""
        said = {n: verdicts.pop(slot.tree.anchor, []) for n, slot in block.slots.items()}
        self._silent(block.row, verdicts)
        for slot in failed:
            first = said[slot.tree.slot]
            self._expect(slot.tree, first[:1], "failed")
            del first[:1]
        self._told_now[block.task] += len(failed)
        ended = any(o.reason == "completed" for told in said.values() for o in told)
        if self.liveness and block.zero and block.open and not ended:
            words = f"all trees of block {row.block} are complete"
            raise Violation("no ack", words, block_anchor(row.block, min(block.slots)))
        if ended or (block.zero and not block.open):
            self._ended(block, said)
            del self.blocks[row.block]
            return
        restarted = row.touch
        if row.touch or self.config.refresh == "update":
            before = block.place.born
            restarted = self.moved(block.place) and row.touch
            self.seen["blocks moved to a newer bucket"] += block.place.born != before
        waiting = len(self.waiting.get(block.task, ())) + self._told_now[block.task]
        # If the deadline leaves the block where it is, no clock was restarted.
        touched = restarted and waiting < self.config.outcomes_limit
        for number, slot in block.slots.items():
            outcomes = said[number]
            if touched:
                self._expect(slot.tree, outcomes, "reset")
            elif outcomes:
                raise Violation("verdict", f"{outcomes}, but nothing has ended", slot.tree.anchor)
        self._told_now[block.task] += len(said) if touched else 0

    def _ended(self, block: PendingBlock, said: Verdicts) -> None:
        """Check the end of a block: its trees are complete, and acked unless they have failed."""
        self.seen["blocks complete"] += 1
        self.seen["blocks complete with absent slots"] += bool(block.row.absent)
        self.seen["blocks complete in silence"] += not block.open
        self._told_now[block.task] += block.open
        if self.liveness and block.strayed:
            words = f"absent slots {sorted(block.strays)} have received messages"
            raise Violation("verdict", words, block_anchor(block.row.block, min(block.strays)))
        for number, slot in block.slots.items():
            outcomes = said[number]
            if not slot.failed:
                self._true(slot)
                self._expect(slot.tree, outcomes, "completed")
            elif outcomes or slot.tree.exists - slot.done:
                words = f"its block has ended; the tree had failed and still got {outcomes}"
                raise Violation("verdict", words, slot.tree.anchor)

    def _silent(self, row: BlockRow, verdicts: Verdicts) -> None:
        """Raise Violation if a slot that holds no tree has a verdict."""
        for slot in row.absent:
            anchor = block_anchor(row.block, slot)
            if said := verdicts.get(anchor):
                acked = any(outcome.verdict == "ack" for outcome in said)
                words = f"{said}, but the slot holds no tree"
                raise Violation(FALSE_ACK if acked else "verdict", words, anchor)
