"""The checks of the histories find each of these bugs in the reference model of blocks."""

import sys
import types
from pathlib import Path

import pytest
from hypothesis import Phase, Verbosity, settings
from hypothesis.stateful import run_state_machine_as_test

from proof.oracle import Violation
from proof.reference import blocks as reference_blocks
from tests.properties.histories import Histories

SOURCE = Path(reference_blocks.__file__).read_text()

ZERO = "if not any(block.checksums):"
FAILED = "failed=tuple(sorted(block.failed)) if verdict"
DROPPED = 'self.counters["orphaned"] += len(row.deltas) + len(row.failed)'
EARLY = f'self.__dict__.setdefault("early", {{}})[row.block] = row.deltas\n            {DROPPED}'
NEW = "list(column),\n                absent=row.absent"
BUCKETS = "{} for _ in range(self.config.buckets)"
MOVES = 'if age is not None and (row.touch or self.config.refresh == "update"):'
MOVED = "to, capped = self._moved_to(age, block.first_ms)"
TOUCHES = "if row.touch and not (capped and to == age):"
AGAIN = "if row.task and block:\n"
EXPIRING = (
    "old = self.blocks_expiring.get(row.block)\n"
    "            for slot, delta in row.deltas.items():\n"
    "                if old and slot < len(old.checksums):\n"
    f"                    old.checksums[slot] ^= delta\n            {DROPPED}"
)
ABSENT = "absent=() if rows else tuple(sorted(block.absent)),"
TICK = "super().draining or bool(self.blocks_expiring)"
MUTANTS: dict[str, list[tuple[str, str]]] = {
    "a block is acked though a slot is open": [(ZERO, "if sum(map(bool, block.checksums)) < 2:")],
    "only the first slot is checked": [(ZERO, "if not block.checksums[0]:")],
    "a failed slot counts as zero": [
        (ZERO, "if not any(c for s, c in enumerate(block.checksums) if s not in block.failed):")
    ],
    "failed slots are acked": [(FAILED, "failed=() if verdict")],
    "a touch forgets the failed slots": [
        (TOUCHES, f"if row.touch:\n            block.failed.clear()\n        {TOUCHES}")
    ],
    "a slot fails twice": [("if slot not in block.failed}", "if True}")],
    "failures write no verdict": [
        ('self._tell_block("nack", "failed", row.block, block, rows=tuple(new.items()))', "pass")
    ],
    "deltas of failures do not count": [
        ("if slot < len(block.checksums):", "if slot < len(block.checksums) and not row.failed:")
    ],
    "expiry acks all": [("if block.checksums[slot]}", "if False}")],
    "expiry nacks all": [("if block.checksums[slot]}", "if True}")],
    "expiry nacks failed slots again": [
        ("slots = block.trees - block.failed", "slots = block.trees")
    ],
    "absent slots are acked": [(ABSENT, "absent=(),")],
    "absent slots are told when their block expires": [
        (ABSENT, 'absent=() if rows or verdict == "mixed" else tuple(sorted(block.absent)),')
    ],
    "absent slots are told with a rejection": [
        (ABSENT, 'absent=() if rows or verdict == "nack" else tuple(sorted(block.absent)),')
    ],
    "absent slots fail": [("if slot in block.trees}", "if slot < len(block.checksums)}")],
    "deltas of absent slots do not count": [
        ("if slot < len(block.checksums):", "if slot in block.trees:")
    ],
    "present slots are no content": [
        (
            "            _column(row),\n            row.absent,\n",
            "            _column(row),\n            block.absent,\n",
        )
    ],
    "absent slots are counted as acked": [
        ("done = len(block.trees - ", "done = len(set(range(len(block.checksums))) - ")
    ],
    "absent slots take no room": [("+ sum(len(block.checksums) for", "+ sum(len(block.trees) for")],
    "a mixed verdict lists nothing": [("nacked=nacked)", "nacked=())")],
    "a repeat is applied again": [("if highest is not None:", "if False:")],
    "fences are forgotten": [("if fence:\n", "if False:\n")],
    "deltas are joined by or": [("[slot] ^= delta", "[slot] |= delta")],
    "only parts of the deltas count": [("[slot] ^= delta", "[slot] ^= delta & 0xFFFF")],
    "first messages of a slot are forgotten": [
        (NEW, NEW.replace("list(column)", "[0, *column[1:]]"))
    ],
    "early rows are kept": [
        (DROPPED, EARLY),
        (NEW, NEW.replace("list(column)", "self._with_early(row)")),
        (
            "    def _find(",
            "    def _with_early(self, row):\n"
            "        early = self.__dict__.get('early', {}).pop(row.block, {})\n"
            "        return [delta ^ early.get(s, 0) for s, delta in row.deltas.items()]\n\n"
            "    def _find(",
        ),
    ],
    "slots with early rows count as zero": [
        (DROPPED, EARLY),
        (NEW, NEW.replace("list(column)", "self._with_early(row)")),
        (
            "    def _find(",
            "    def _with_early(self, row):\n"
            "        early = self.__dict__.get('early', {}).pop(row.block, {})\n"
            "        return [0 if s in early else delta for s, delta in row.deltas.items()]\n\n"
            "    def _find(",
        ),
    ],
    "rows of expiring blocks are applied": [(DROPPED, EXPIRING)],
    "blocks expire a tick early": [(BUCKETS, f"{BUCKETS[:-1]} - 1)")],
    "blocks expire a tick late": [(BUCKETS, f"{BUCKETS[:-1]} + 1)")],
    "touch does not restart the clock": [(MOVES, MOVES.replace("row.touch or ", ""))],
    "every row restarts the clock": [(MOVES, "if age is not None:")],
    "it ticks while blocks expire": [(TICK, "super().draining")],
    "other content is not noticed": [("elif (block.task,", "elif row.touch and (block.task,")],
    "a repeated track replaces the block": [(AGAIN, "if row.task and block and row.touch:\n")],
    "a repeated track adds its deltas": [
        (
            AGAIN,
            f"{AGAIN}            for slot, delta in row.deltas.items():\n"
            "                block.checksums[slot] ^= delta\n",
        )
    ],
    "a block is tracked while its predecessor expires": [
        ("row.block in self.blocks_expiring", "False")
    ],
    "a rejected block is tracked": [
        ("row.block, block)\n                    return True", "row.block, block)")
    ],
    "rejection writes no verdict": [('self._tell_block("nack", reason, row.block, block)', "pass")],
    "completion writes no verdict": [("if done:", "if False:")],
    "a complete block stays": [
        ("del self.block_buckets[age or 0][row.block]\n            done", "done")
    ],
    "only one block of a call is applied": [
        ("for row in rows if self._block", "for row in rows[:1] if self._block")
    ],
    "failed trees are counted as acked": [
        ("self._acked(block, done)", "self._acked(block, len(block.checksums))")
    ],
    "failed trees are not pending": [
        ("+ sum(len(block.checksums) for", "+ sum(len(block.checksums) - len(block.failed) for")
    ],
    "a verdict goes to another block": [("block=number,", "block=max(number - 1, 0),")],
    "a deadline is ignored": [(MOVED, "to, capped = 0, False")],
    "a deadline moves a block a bucket too far": [
        (MOVED, f"{MOVED}\n            to = max(0, to - 1)")
    ],
    "a deadline ends a block a tick early": [
        (MOVED, f"{MOVED}\n            to = min(to + capped, self.config.buckets - 1)")
    ],
    "a deadline is never the cause": [('"deadline" if block.capped else "idle"', '"idle"')],
    "residuals are those of other slots": [("in outcome.nacked)", "in outcome.nacked[::-1])")],
    "verdicts are dropped like a touch": [
        ('verdict != "touch" or self.', 'verdict != "touch" and self.')
    ],
}

IN_THE_BOOKS = (
    "failed trees are counted as acked",
    "failed trees are not pending",
    "absent slots are counted as acked",
    "absent slots take no room",
)
"""Bugs that make no verdict wrong, but the counters."""


def source_of(name: str) -> str:
    """Return the source of the reference with one bug."""
    source = SOURCE
    for old, new in MUTANTS[name]:
        assert source.count(old) == 1, f"the reference has changed; update the mutant: {old}"
        source = source.replace(old, new)
    return source


@pytest.mark.parametrize("name", MUTANTS)
def test_each_mutant_can_be_made(name: str) -> None:
    compile(source_of(name), "mutant", "exec")


@pytest.mark.nightly
@pytest.mark.parametrize("name", MUTANTS)
def test_each_mutant_is_detected(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    mutant = types.ModuleType("mutant")
    monkeypatch.setitem(sys.modules, "mutant", mutant)  # dataclasses look it up
    exec(compile(source_of(name), "mutant", "exec"), mutant.__dict__)
    fields = {"reference": mutant.BlockReference, "books": name in IN_THE_BOOKS}
    machine = type("Broken", (Histories,), fields)
    with pytest.raises((AssertionError, Violation)) as found:
        run_state_machine_as_test(
            machine,
            settings=settings(
                max_examples=600,
                stateful_step_count=60,
                deadline=None,
                database=None,
                derandomize=True,
                phases=(Phase.generate,),
                report_multiple_bugs=False,
                verbosity=Verbosity.quiet,
            ),
        )
    print(f"{name}: {str(found.value).partition(chr(10))[0] or found.traceback[-1]}")
