"""Replies and states of the reference model, in the format of the wire.

Nothing here comes from Redis: the vectors specify the scripts independently of them.
"""

import hashlib
import json
import struct
from collections import Counter
from collections.abc import Iterator

from acker_redis.protocol import commands
from acker_redis.protocol.blocks import TOUCH, TRACK, BlockPart, Blocks
from acker_redis.protocol.commands import Fence, ShardApplied
from acker_redis.protocol.config import AckerConfig
from acker_redis.protocol.ids import split_anchor
from acker_redis.protocol.rows import Columns
from acker_redis.protocol.slots import pack_slots, unpack_slots
from acker_redis.reference.acker import Record
from acker_redis.reference.blocks import Block, BlockReference, BlockRow
from acker_redis.sync.outcomes import Outcome
from tests.support import rows_of
from tests.vectors.operations import Json

TIMES = "??" * 10
"""Placeholder of the first and the last time in the hex of a record or header."""


class Oracle:
    """One shard: the reference model, plus streams and the numbers of its buckets."""

    def __init__(self, config: AckerConfig) -> None:
        self.reference = BlockReference(config, now_ms=1_700_000_000_000)
        self._rotations = 0
        self._seen: Counter[tuple[str, bool]] = Counter()
        self._entries: Counter[str] = Counter()

    def apply(self, rows: Columns | Blocks, fence: Fence | None) -> Json:
        """Return the reply of apply or apply_blocks. Raise the errors of the reference."""
        if isinstance(rows, Blocks):
            return self._apply_blocks([block_row(part) for part in rows.parts], fence)
        applied = self.reference.apply(rows_of(rows), rows.task, fence)
        numbers = [n for n in range(len(rows)) if rows.anchor(n) in set(applied.rejected)]
        return self._applied(applied, len(applied.rejected), numbers)

    def _apply_blocks(self, rows: list[BlockRow], fence: Fence | None) -> Json:
        applied = self.reference.apply_blocks(rows, fence)
        numbers = [n for n, row in enumerate(rows) if row.block in applied.rejected]
        trees = sum(len(rows[n].deltas) - len(rows[n].absent) for n in numbers)
        return self._applied(applied, trees, numbers)

    def _applied(self, applied: ShardApplied, rejected: int, numbers: list[int]) -> Json:
        if applied.highest is not None:
            return [0, str(applied.highest)]
        return [
            1,
            applied.tracked,
            applied.acked,
            applied.failed,
            rejected,
            applied.pending,
            applied.high_water,
            {"hex": "".join(f"{number:04x}" for number in numbers)},
        ]

    def rotate(self, force: bool) -> Json:
        """Return the reply of rotate."""
        rotated = self.reference.rotate(force)
        self._rotations += rotated
        # The time until the next tick depends on a clock.
        due = self.reference.config.tick_ms if rotated else None
        return [int(rotated), due, self._left(), self.reference.late_ms if rotated else 0]

    def expire(self) -> Json:
        """Return the reply of expire."""
        before = self.reference.counters.copy()
        left = self.reference.expire()
        new = self.reference.counters - before
        return [new["expired"], new["orphaned"], left]

    def expire_blocks(self) -> Json:
        """Return the reply of expire_blocks."""
        before = self.reference.counters.copy()
        left = self.reference.expire_blocks()
        new = self.reference.counters - before
        return [new["acked"], new["expired"], left]

    def take(self, task: str) -> tuple[int, int]:
        """Take all verdicts of a task, and return the numbers of entries and verdicts."""
        verdicts = self.reference.backlog(task)
        self.reference.take(task)
        self.reference.take_blocks(task)
        for in_blocks in (False, True):
            del self._seen[task, in_blocks]
        return self._entries.pop(task, 0), verdicts

    def told(self) -> list[Json]:
        """Return the verdicts since the last call, those of blocks one by one.

        A call of a script writes an entry per task, verdict and reason, and one per block.
        """
        reference, found = self.reference, []
        for task in sorted({*reference.outcomes, *reference.block_outcomes}):
            loose = reference.outcomes.get(task, [])
            blocks = reference.block_outcomes.get(task, [])
            new = loose[self._seen[task, False] :]
            new_blocks = blocks[self._seen[task, True] :]
            self._seen[task, False], self._seen[task, True] = len(loose), len(blocks)
            self._entries[task] += len({(o.verdict, o.reason) for o in new}) + len(new_blocks)
            for outcome in new_blocks:
                new += outcome.expand()
            found += [_outcome(task, o) for o in new]
        return found

    def checksum(self, anchor: int) -> str | None:
        """Return the checksum of a tree in a bucket, or None."""
        place = split_anchor(anchor)
        if place is None:
            records = [bucket[anchor] for bucket in self.reference.buckets if anchor in bucket]
            return f"{records[0].checksum:016x}" if records else None
        for bucket in self.reference.block_buckets:
            if place[0] in bucket and place[1] < len(bucket[place[0]].checksums):
                return f"{bucket[place[0]].checksums[place[1]]:016x}"
        return None

    def status(self) -> Json:
        """Return the reply of status."""
        reference = self.reference
        return [
            None,
            self._ring([len(bucket) for bucket in reference.buckets]),
            self._left(),
            self._ring([len(bucket) for bucket in reference.fences]),
            len(reference.durable),
            None,
        ]

    def show(self, anchor: int) -> Json:
        """Return the reply of show."""
        reference, place = self.reference, split_anchor(anchor)
        if place is None:
            for age, records in enumerate((*reference.buckets, reference.expiring)):
                if anchor in records:
                    return [None, age, {"hex": _record_hex(records[anchor])}]
            return [None]
        number, _ = place
        for age, blocks in enumerate((*reference.block_buckets, reference.blocks_expiring)):
            if number in blocks:
                block = blocks[number]
                slots = len(block.checksums)
                failed = pack_slots(block.failed, slots) if block.failed else b""
                present = pack_slots(block.trees, slots) if block.absent else b""
                return [
                    None,
                    age,
                    {"hex": _header_hex(block)},
                    {"hex": "".join(f"{sum_:016x}" for sum_ in block.checksums)},
                    {"hex": failed.hex()},
                    {"hex": present.hex()},
                ]
        return [None]

    def state(self) -> Json:
        """Return the state of the shard."""
        reference = self.reference
        return {
            "pending": [_records(bucket) for bucket in reference.buckets],
            "expiring": _records(reference.expiring),
            "blocks": [self._blocks(bucket) for bucket in reference.block_buckets],
            "blocks_expiring": self._blocks(reference.blocks_expiring),
            "slots": [
                sum(len(block.checksums) for block in bucket.values())
                for bucket in reference.block_buckets
            ],
            "fences": [
                {lane: f"{seq}:{digest}" for lane, (seq, digest) in sorted(fences.items())}
                for fences in reference.fences
            ],
            "durable": {
                lane: f"{seq}:{digest}"
                for lane, (seq, digest, _) in sorted(reference.durable.items())
            },
            "counters": {name: reference.counters[name] for name in commands.COUNTERS},
            "odd": {("none" if e < 0 else str(e)): n for e, n in sorted(reference.odd.items())},
            "ended": {task: n for task, n in sorted(reference.ended.items()) if n},
            "good": {task: n for task, n in sorted(reference.good.items()) if n},
            "backlog": {task: reference.backlog(task) for task in sorted(reference.names)},
        }

    def _left(self) -> int:
        return len(self.reference.expiring) + len(self.reference.blocks_expiring)

    def _blocks(self, bucket: dict[int, Block]) -> Json:
        return {
            f"{number:013x}": {
                "label": block.label,
                "task": block.task,
                "digest": _digest(block),
                "capped": block.capped,
                "checksums": [f"{checksum:016x}" for checksum in block.checksums],
                "failed": sorted(block.failed),
                "absent": sorted(block.absent),
            }
            for number, block in sorted(bucket.items())
        }

    def _ring(self, newest_first: list[int]) -> list[int]:
        """Order sizes by bucket number: each tick makes the next number the newest."""
        n = len(newest_first)
        return [newest_first[(self._rotations - bucket) % n] for bucket in range(n)]


def block_row(part: BlockPart) -> BlockRow:
    """Return one block for the reference model, from its arguments on the wire."""
    count = len(part.deltas) // 8
    deltas = struct.unpack(f">{count}Q", part.deltas)
    slots = struct.unpack(f">{count}H", part.slots) if part.slots else range(count)
    task_end = 3 + part.header[2] if part.flags & TRACK else 0
    return BlockRow(
        block=part.block,
        deltas=dict(zip(slots, deltas, strict=True)),
        failed=dict(_failures(part.failed)),
        touch=bool(part.flags & TOUCH),
        task=part.header[3:task_end].decode(),
        label=part.header[task_end:].decode(),
        absent=frozenset(range(count)) - {*(unpack_slots(part.present) or range(count))},
    )


def _failures(column: bytes) -> Iterator[tuple[int, str]]:
    while column:
        slot, length = struct.unpack_from(">HB", column)
        yield slot, column[3 : 3 + length].decode()
        column = column[3 + length :]


def _outcome(task: str, o: Outcome) -> Json:
    residual = f"{o.residual:016x}" if o.cause else ""
    return [task, o.verdict, o.reason, f"{o.anchor:016x}", o.source_id, o.why, o.cause, residual]


def _records(bucket: dict[int, Record]) -> Json:
    return {
        f"{anchor:016x}": {
            "checksum": f"{record.checksum:016x}",
            "failed": record.why is not None,
            "task": record.task,
            "capped": record.capped,
            "text": _text(record),
        }
        for anchor, record in sorted(bucket.items())
    }


def _escaped(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)[1:-1]


def _text(record: Record) -> str:
    return record.source_id if record.task else record.why or ""


def _digest(block: Block) -> str:
    column = struct.pack(f">{len(block.tracked)}Q", *block.tracked)
    if block.absent:
        column += pack_slots(block.trees, len(block.tracked))
    return hashlib.sha1(column, usedforsecurity=False).hexdigest()[:8]


def _record_hex(record: Record) -> str:
    flags = int(record.why is not None) + 2 * record.capped
    texts = bytes([len(record.task)]) + record.task.encode() + _escaped(_text(record)).encode()
    return f"{record.checksum:016x}{flags:02x}{TIMES}{texts.hex()}"


def _header_hex(block: Block) -> str:
    texts = bytes([len(block.task)]) + block.task.encode() + block.label.encode()
    flags = int(block.capped) + 2 * bool(block.absent) + 4 * bool(block.failed)
    slots = f"{flags:02x}{len(block.checksums):04x}"
    return f"{TIMES}{slots}{_digest(block).encode().hex()}{texts.hex()}"
