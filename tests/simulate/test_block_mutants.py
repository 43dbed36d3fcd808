"""The simulator detects each of these bugs in the reference of blocks, one at a time."""

from dataclasses import replace

import pytest

from proof.reference.blocks import BlockReference, BlockRow
from tests.simulate.mutants import BLOCKS, found_by, mutate, replace_once, without_books

ENDS = "if not any(block.checksums):"
NACKED = "nacked = slots if block.lost else {slot for slot in slots if block.checksums[slot]}"
MOVES = 'if age is not None and (row.touch or self.config.refresh == "update"):'
MOVED = "to, capped = self._moved_to(age, block.first_ms)"
STAYS = "and not (capped and to == age)"
CAUSE = '"deadline" if block.capped else "idle"'
DROPPED = 'self.counters["orphaned"] += len(row.deltas) + len(row.failed)'
FAILED = 'failed=tuple(sorted(block.failed)) if verdict in ("ack", "mixed") else (),'
SAME = 'row = replace(row, deltas={}, task="")'
BUCKETS = "{} for _ in range(self.config.buckets)"
SLOTS = "slots = block.trees - block.failed"
EVERY = "set(range(len(block.checksums)))"
CONTENT = "elif (block.task, block.label, block.tracked, block.absent) != ("
LOST = "block.lost.add(key)"
ABSENT = "absent=() if rows else tuple(sorted(block.absent)),"
IN_RANGE = "if slot < len(block.checksums):"
BEGUN = "list(column),\n                absent=row.absent"
TOUCHES = "if row.touch and not (capped and to == age):"
REJECTS = 'self._tell_block("nack", reason, row.block, block)'
MUTANTS = {
    "a block is acked while a slot is incomplete": (ENDS, "if not any(block.checksums[1:]):"),
    "a block is acked when only its last slot is complete": (ENDS, "if not block.checksums[-1]:"),
    "only the low half is checked": (ENDS, "if not any(c % 2**32 for c in block.checksums):"),
    "only the high half is checked": (ENDS, "if not any(c >> 32 for c in block.checksums):"),
    "a complete block waits for its expiry": (ENDS, "if False:"),
    "failed trees do not hold back their block": (
        ENDS,
        "if not any(c for s, c in enumerate(block.checksums) if s not in block.failed):",
    ),
    "a block is acked though a slot is open": (ENDS, "if sum(map(bool, block.checksums)) < 2:"),
    "only the first slot is checked": (ENDS, "if not block.checksums[0]:"),
    "only a part of each delta counts": ("[slot] ^= delta", "[slot] ^= delta & 0xFFFF"),
    "deltas of failures do not count": (IN_RANGE, IN_RANGE.replace(":", " and not row.failed:")),
    "the first messages of a slot are forgotten": (BEGUN, f"[0, *column[1:]],{BEGUN[13:]}"),
    "a touch forgets the failed trees": (
        TOUCHES,
        f"if row.touch:\n            block.failed.clear()\n        {TOUCHES}",
    ),
    "all trees are acked when their block expires": ("if block.checksums[slot]}", "if False}"),
    "a block whose trees all failed writes an entry of no verdict": (SLOTS, "slots = block.trees"),
    "a mixed verdict lists nothing": ("nacked=nacked)", "nacked=())"),
    "completion writes no verdict": ("if done:", "if False:"),
    "a verdict goes to another block": ("block=number,", "block=max(number - 1, 0),"),
    "verdicts are dropped like a touch": ('!= "touch" or self.', '!= "touch" and self.'),
    "a rejected block is tracked": (f"{REJECTS}\n                    return True", REJECTS),
    "only one block of a call is applied": ("in rows if self._block", "in rows[:1] if self._block"),
    "failed trees are counted as acked": ("(block, done)", "(block, len(block.checksums))"),
    "a repeat is applied again": ("if highest is not None:", "if False:"),
    "other content is noticed with a touch only": (
        "elif (block.task,",
        "elif row.touch and (block.task,",
    ),
    "a repeated track without a touch replaces the block": (
        "if row.task and block:\n",
        "if row.task and block and row.touch:\n",
    ),
    "deltas are combined by or": (
        "block.checksums[slot] ^= delta",
        "block.checksums[slot] |= delta",
    ),
    "deltas go to the previous slot": (
        "block.checksums[slot] ^= delta",
        "block.checksums[slot - 1] ^= delta",
    ),
    "failed trees are acked with their block": (FAILED, "failed=(),"),
    "failures are nacked twice": ("if slot not in block.failed}", "}"),
    "failures write no verdict": (
        'self._tell_block("nack", "failed", row.block, block, rows=tuple(new.items()))',
        "pass",
    ),
    "a failure closes its slot": (
        "block.failed |= new.keys()",
        "block.failed |= new.keys()\n            [block.checksums.__setitem__(s, 0) for s in new]",
    ),
    "incomplete trees are acked when their block expires": (NACKED, "nacked: set[int] = set()"),
    "complete trees are nacked when their block expires": (NACKED, "nacked = slots"),
    "trees that failed are nacked again when their block expires": (
        SLOTS,
        "slots = block.trees\n            block.failed = set()",
    ),
    "a block is forgotten when it expires": (
        "self.blocks_expiring = self.block_buckets.pop()",
        "self.block_buckets.pop()",
    ),
    "a tick does not wait for the drain of blocks": (
        "super().draining or bool(self.blocks_expiring)",
        "super().draining",
    ),
    "blocks expire a tick early": (BUCKETS, "{} for _ in range(self.config.buckets - 1)"),
    "blocks expire a tick late": (BUCKETS, "{} for _ in range(self.config.buckets + 1)"),
    "expiring blocks still accept rows": (
        DROPPED,
        "old = self.blocks_expiring.get(row.block)\n"
        "            for slot, delta in row.deltas.items():\n"
        "                if old and slot < len(old.checksums):\n"
        f"                    old.checksums[slot] ^= delta\n            {DROPPED}",
    ),
    "a block that has lost its failures is one without failures": (
        LOST,
        'block.lost |= {key} - {"failed"}',
    ),
    "a block that has lost its present slots is one with all slots": (
        LOST,
        'block.lost |= {key} - {"present"}',
    ),
    "a block that has lost its checksums is like any other": (
        LOST,
        'block.lost |= {key} - {"block"}',
    ),
    "a call for a block that has lost its failures is applied": (
        "if block and block.lost:",
        "if False:",
    ),
    "trees are acked when a block expires that has lost a key": (
        NACKED,
        "nacked = {slot for slot in slots if block.checksums[slot]}",
    ),
    "a block that has lost a key is forgotten": (
        SLOTS,
        f"{SLOTS} if not block.lost else set()",
    ),
    "a block that has lost a key has residuals": (
        "[0] * len(block.checksums) if block.lost else block.checksums",
        "block.checksums",
    ),
    "a repeated track resets the checksums": (
        SAME,
        f"block.checksums = list(block.tracked)\n            {SAME}",
    ),
    "a repeated track adds its deltas": (SAME, 'row = replace(row, task="")'),
    "a repeated track replaces the block": ("if row.task and block:", "if False:"),
    "other content is accepted": (CONTENT, "elif row.absent and not row.task and ("),
    "present slots are no content": (
        "            _column(row),\n            row.absent,\n",
        "            _column(row),\n            block.absent,\n",
    ),
    "absent slots are acked": (ABSENT, "absent=(),"),
    "absent slots are acked when their block completes": (
        ABSENT,
        'absent=() if rows or verdict == "ack" else tuple(sorted(block.absent)),',
    ),
    "absent slots are told when their block expires": (
        ABSENT,
        'absent=() if rows or verdict == "mixed" else tuple(sorted(block.absent)),',
    ),
    "absent slots are told with a rejection": (
        ABSENT,
        'absent=() if rows or verdict == "nack" else tuple(sorted(block.absent)),',
    ),
    "absent slots are told with a touch": (
        ABSENT,
        'absent=() if rows or verdict == "touch" else tuple(sorted(block.absent)),',
    ),
    "absent slots are counted as expired": (SLOTS, f"slots = {EVERY} - block.failed"),
    "absent slots are counted as tracked": (
        'self.counters["tracked"] += len(block.trees)',
        'self.counters["tracked"] += len(column)',
    ),
    "absent slots are counted as acked": ("done = len(block.trees - ", f"done = len({EVERY} - "),
    "absent slots fail": ("if slot in block.trees}", "if slot < len(block.checksums)}"),
    "rows of absent slots are dropped": (
        IN_RANGE,
        "if slot in block.trees:",
    ),
    "absent slots take no room": (
        "sum(len(block.checksums) for block in blocks)",
        "sum(len(block.trees) for block in blocks)",
    ),
    "a block with absent slots is rejected by its trees": (
        "self._taken + len(column) >",
        "self._taken + len(block.trees) >",
    ),
    "a block is tracked while its last life expires": (
        "row.block in self.blocks_expiring",
        "False",
    ),
    "touch does not move the block": (
        MOVES,
        'if age is not None and self.config.refresh == "update":',
    ),
    "every row moves the block": (MOVES, "if age is not None:"),
    "refresh does not move the block": (MOVES, "if age is not None and row.touch:"),
    "touch writes no verdict": ('self._tell_block("touch", "reset", row.block, block)', "pass"),
    "rejected blocks get no verdict": (REJECTS, "pass"),
    "blocks have no high-water mark": ("self._taken + len(column)", "len(column) * 0"),
    "a block counts as one": ("len(block.checksums) for block in blocks", "1 for block in blocks"),
    "failed trees make room": (
        "sum(len(block.checksums) for block in blocks)",
        "sum(len(block.checksums) - len(block.failed) for block in blocks)",
    ),
    "a block that has ended makes no room": (
        "del self.block_buckets[age or 0][row.block]\n            done",
        "done",
    ),
    "fences are not checked": (
        "highest = self._repeated(fence) if fence else None",
        "highest = None",
    ),
    "fences are not stored": ("self._remember(fence)", "pass"),
    "a refused batch leaves its fence": (
        "for row in rows:\n            self._check(row)",
        "fence and self._remember(fence)\n        for row in rows:\n            self._check(row)",
    ),
    "the backlog has no limit": ("self.backlog(row.task) >= self.outcomes_limit", "False"),
    "the backlog counts a block as one": (
        "sum(o.count for o in self.block_outcomes.get(task, ()))",
        "len(self.block_outcomes.get(task, ()))",
    ),
    "a deadline of blocks is ignored": (MOVED, "to, capped = 0, False"),
    "a deadline of blocks counts from the last row": (
        MOVED,
        "to, capped = self._moved_to(age, self.now_ms)",
    ),
    "a deadline moves blocks a bucket too far": (
        MOVED,
        f"{MOVED}\n            to = max(0, to - 1)",
    ),
    "a deadline ends blocks a tick early": (
        MOVED,
        f"{MOVED}\n            to = min(to + capped, self.config.buckets - 1)",
    ),
    "a touch that restarts no clock of a block writes a verdict": (STAYS, ""),
    "a deadline is never the cause of a block": (CAUSE, '"idle"'),
    "a deadline is always the cause of a block": (
        CAUSE,
        '"deadline" if self.config.deadline_ms else "idle"',
    ),
    "residuals are those of other slots": (
        "sums[slot] for slot in outcome.nacked",
        "sums[slot] for slot in outcome.nacked[::-1]",
    ),
    "residuals are those of the track": (
        "sums[slot] for slot in outcome.nacked",
        "block.tracked[slot] for slot in outcome.nacked",
    ),
    "codes of blocks are read by another configuration": (
        "edges=self.config.edges,",
        "edges=self.config.edges[::-1],",
    ),
    "a block has another label": ("label=block.label,", 'label="b1",'),
    "rows of an unknown slot go to another slot": (
        "if slot < len(block.checksums):\n                    block.checksums[slot]",
        "if True:\n                    block.checksums[slot % len(block.checksums)]",
    ),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_each_mutant_is_detected(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    without_books(monkeypatch)
    mutant = mutate(monkeypatch, blocks=replace_once(BLOCKS, *MUTANTS[name]))
    assert found_by(mutant) is not None


class RowsBeforeTrack(BlockReference):
    """A bug: keeps rows that come before their block, as is correct for a loose tree."""

    zero = False
    """Whether a slot with such rows begins as complete."""

    def __post_init__(self) -> None:
        self.early: dict[int, list[BlockRow]] = {}
        super().__post_init__()

    def _block(self, row: BlockRow) -> bool:
        if not row.task and self._find(row.block)[1] is None:
            self.early.setdefault(row.block, []).append(row)
        if row.task and self.zero:
            slots = {slot for early in self.early.get(row.block, ()) for slot in early.deltas}
            row = replace(row, deltas={s: 0 if s in slots else d for s, d in row.deltas.items()})
        rejected = super()._block(row)
        if row.task and not rejected and not self.zero:
            for early in self.early.pop(row.block, []):
                super()._block(early)
        return rejected


@pytest.mark.parametrize("zero", [False, True])
def test_counting_rows_before_their_track_is_detected(
    zero: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    without_books(monkeypatch)
    monkeypatch.setattr(RowsBeforeTrack, "zero", zero)
    assert found_by(RowsBeforeTrack) is not None
