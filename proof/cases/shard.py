"""One shard as the reference predicts it: the replies, verdicts and state of calls on the wire.

Nothing here comes from Redis or from a client: the cases specify the scripts independently.
"""

import hashlib
import json
import struct
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace

from acker_redis.errors import BacklogError, ChangedBatchError, SchemaError
from acker_redis.protocol.commands import Fence, ShardApplied
from acker_redis.protocol.config import AckerConfig
from acker_redis.protocol.keys import feed_tag
from acker_redis.protocol.outcome import Outcome
from proof.cases.lines import COUNTERS, SALT, Json
from proof.reference.acker import Record, TreeRow
from proof.reference.blocks import Block, BlockReference, BlockRow

# From lua/spec.json, by python -m proof.spec
TRACK, FAIL, TOUCH = 1, 2, 4

START_MS = 1_700_000_000_000
TIMES = "??" * 10
"""Placeholder of the first and the last time in the hex of a record or header."""
Told = tuple[str, Outcome]
"""A task and a verdict that was written for it."""
_CODES: dict[type[Exception], str] = {
    BacklogError: "BACKLOG",
    ChangedBatchError: "CONFLICT",
    SchemaError: "SCHEMA",
}


class Shard:
    """The reference, plus streams, the numbers of its buckets, and bytes."""

    def __init__(self, config: AckerConfig) -> None:
        self.reference = BlockReference(config, now_ms=START_MS)
        self._reshard = ""
        self._rotations = 0
        self._seen: Counter[tuple[str, bool]] = Counter()
        self._entries: Counter[str] = Counter()

    def answer(self, script: str, argv: Sequence[bytes]) -> Json:
        """Return the reply of a call; of ``take``, the call with the ids of all entries."""
        answers: dict[str, Callable[..., Json]] = {
            "apply": self._apply,
            "apply_blocks": self._apply_blocks,
            "configure": self._configure,
            "rotate": self._rotate,
            "expire": self._expire,
            "expire_blocks": self._expire_blocks,
            "take": self._take,
            "status": self._status,
            "show": self._show,
            "alive": self._alive,
        }
        try:
            return answers[script](*argv)
        except (BacklogError, ChangedBatchError, SchemaError) as error:
            return {"error": _CODES[type(error)]}

    def told(self) -> list[Told]:
        """Return the verdicts since the last call, those of blocks one by one, with their tasks.

        A call of a script writes an entry per task, verdict and reason, and one per block.
        """
        reference, found = self.reference, list[Told]()
        for task in sorted({*reference.outcomes, *reference.block_outcomes}):
            loose = reference.outcomes.get(task, [])
            blocks = reference.block_outcomes.get(task, [])
            new = loose[self._seen[task, False] :]
            new_blocks = blocks[self._seen[task, True] :]
            self._seen[task, False], self._seen[task, True] = len(loose), len(blocks)
            self._entries[task] += len({(o.verdict, o.reason) for o in new}) + len(new_blocks)
            for entry in new_blocks:
                new += entry.expand()
            found += [(task, each) for each in new]
        return found

    def checksum(self, anchor: int) -> str | None:
        """Return the checksum of a tree in a bucket, or None."""
        number, slot = _place(anchor)
        if number is None:
            records = [bucket[anchor] for bucket in self.reference.buckets if anchor in bucket]
            return f"{records[0].checksum:016x}" if records else None
        for bucket in self.reference.block_buckets:
            if number in bucket and slot < len(bucket[number].checksums):
                return f"{bucket[number].checksums[slot]:016x}"
        return None

    def state(self) -> Json:
        """Return the state of the shard."""
        reference = self.reference
        return {
            "pending": [_records(bucket) for bucket in reference.buckets],
            "expiring": _records(reference.expiring),
            "blocks": [_blocks(bucket) for bucket in reference.block_buckets],
            "blocks_expiring": _blocks(reference.blocks_expiring),
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
            "counters": {name: reference.counters[name] for name in COUNTERS},
            "odd": {("none" if e < 0 else str(e)): n for e, n in sorted(reference.odd.items())},
            "ended": {task: n for task, n in sorted(reference.ended.items()) if n},
            "good": {task: n for task, n in sorted(reference.good.items()) if n},
            "backlog": {task: reference.backlog(task) for task in sorted(reference.names)},
        }

    def _apply(
        self,
        producer: bytes,
        fence: bytes,
        flags: bytes,
        anchors: bytes,
        deltas: bytes,
        task: bytes,
        *texts: bytes,
    ) -> Json:
        form = f">{len(flags)}Q"
        left = [text.decode() for text in texts]
        sources = [left.pop(0) if each & TRACK else "" for each in flags]
        whys = [left.pop(0) if each & FAIL else "" for each in flags]
        columns = struct.unpack(form, anchors), struct.unpack(form, deltas), flags, sources, whys
        rows = [TreeRow(*row) for row in zip(*columns, strict=True)]
        applied = self.reference.apply(rows, task.decode(), _fence(producer, fence))
        numbers = [n for n, row in enumerate(rows) if row.anchor in set(applied.rejected)]
        return _applied(applied, len(applied.rejected), numbers)

    def _apply_blocks(self, producer: bytes, fence: bytes, *columns: bytes) -> Json:
        rows = _block_rows(columns)
        applied = self.reference.apply_blocks(rows, _fence(producer, fence))
        numbers = [n for n, row in enumerate(rows) if row.block in applied.rejected]
        trees = sum(len(rows[n].deltas) - len(rows[n].absent) for n in numbers)
        return _applied(applied, trees, numbers)

    def _configure(self, *words: bytes) -> Json:
        config, changed = self.reference.config, 0
        for name, value in zip(words[::2], words[1::2], strict=True):
            field, text = name.decode(), value.decode()
            if field == "reshard":
                changed += text != self._reshard
                self._reshard, self.reference.reshard = text, bool(text)
                continue
            setting = float(text) if field == "slo_target" else int(text)
            changed += getattr(config, field) != setting
            config = replace(config, **{field: setting})  # type: ignore[arg-type]
        self.reference.config = config
        return changed

    def _rotate(self, force: bytes) -> Json:
        rotated = self.reference.rotate(force == b"1")
        self._rotations += rotated
        # The time until the next tick depends on a clock.
        due = self.reference.config.tick_ms if rotated else None
        moved = self.reference.now_ms != START_MS  # then the time of the machine counts, too
        return [int(rotated), due, self._left(), None if rotated and moved else 0]

    def _expire(self, _records: bytes) -> Json:
        before = self.reference.counters.copy()
        left = self.reference.expire()
        new = self.reference.counters - before
        return [new["expired"], new["orphaned"], left]

    def _expire_blocks(self, _blocks: bytes) -> Json:
        before = self.reference.counters.copy()
        left = self.reference.expire_blocks()
        new = self.reference.counters - before
        return [new["acked"], new["expired"], left]

    def _take(self, name: bytes) -> Json:
        task = name.decode()
        verdicts, entries = self.reference.backlog(task), self._entries.pop(task, 0)
        self.reference.take(task)
        self.reference.take_blocks(task)
        for in_blocks in (False, True):
            del self._seen[task, in_blocks]
        return [entries, verdicts, 0, entries]

    def _status(self) -> Json:
        reference = self.reference
        return [
            None,
            self._ring([len(bucket) for bucket in reference.buckets]),
            self._left(),
            self._ring([len(bucket) for bucket in reference.fences]),
            len(reference.durable),
            None,
        ]

    def _show(self, argument: bytes) -> Json:
        reference, anchor = self.reference, int.from_bytes(argument, "big")
        number, _ = _place(anchor)
        if number is None:
            for age, records in enumerate((*reference.buckets, reference.expiring)):
                if anchor in records:
                    return [None, age, {"hex": _record_hex(records[anchor])}]
            return [None]
        for age, blocks in enumerate((*reference.block_buckets, reference.blocks_expiring)):
            if number in blocks:
                block = blocks[number]
                slots = len(block.checksums)
                return [
                    None,
                    age,
                    {"hex": _header_hex(block)},
                    {"hex": "".join(f"{sum_:016x}" for sum_ in block.checksums)},
                    {"hex": _bitmap(block.failed, slots).hex() if block.failed else ""},
                    {"hex": _bitmap(block.trees, slots).hex() if block.absent else ""},
                ]
        return [None]

    def _alive(self, argument: bytes) -> Json:
        anchors = struct.unpack(f">{len(argument) // 8}Q", argument)
        pending = [k for k, anchor in enumerate(anchors) if self.reference.is_pending(anchor)]
        # Since when the memory is whole depends on a clock, and on the run of a server.
        column = {"hex": _bitmap(pending, len(anchors)).hex()}
        return [None, None, None, self.reference.config.shards, feed_tag(SALT), column]

    def _left(self) -> int:
        return len(self.reference.expiring) + len(self.reference.blocks_expiring)

    def _ring(self, newest_first: list[int]) -> list[int]:
        """Order sizes by bucket number: each tick makes the next number the newest."""
        n = len(newest_first)
        return [newest_first[(self._rotations - bucket) % n] for bucket in range(n)]


def _applied(applied: ShardApplied, rejected: int, numbers: list[int]) -> Json:
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


def _place(anchor: int) -> tuple[int | None, int]:
    """Return the block of an anchor, None for a loose tree, and its slot."""
    return (anchor >> 12 & 2**50 - 1, anchor & 4095) if anchor >> 62 == 1 else (None, 0)


def _fence(producer: bytes, fence: bytes) -> Fence | None:
    seq, _, digest = fence.decode().partition(":")
    return Fence(producer.decode(), int(seq), digest) if producer else None


def block_rows(call: Json) -> list[BlockRow]:
    """Return the rows of a call of ``apply_blocks``."""
    return _block_rows([bytes.fromhex(argument) for argument in call["argv"][2:]])


def _block_rows(columns: Sequence[bytes]) -> list[BlockRow]:
    return [_row(*columns[at : at + 7]) for at in range(0, len(columns), 7)]


def _row(
    flags: bytes,
    number: bytes,
    header: bytes,
    present: bytes,
    slots: bytes,
    deltas: bytes,
    failed: bytes,
) -> BlockRow:
    """Return one block for the reference, from its seven arguments."""
    count = len(deltas) // 8
    named = struct.unpack(f">{count}H", slots) if slots else range(count)
    task_end = 3 + header[2] if flags[0] & TRACK else 0
    held = _slots(present) if present else range(count)
    return BlockRow(
        block=int.from_bytes(number, "big"),
        deltas=dict(zip(named, struct.unpack(f">{count}Q", deltas), strict=True)),
        failed=dict(_failures(failed)),
        touch=bool(flags[0] & TOUCH),
        task=header[3:task_end].decode(),
        label=header[task_end:].decode(),
        absent=frozenset(range(count)) - {*held},
    )


def _failures(column: bytes) -> Iterator[tuple[int, str]]:
    while column:
        slot, length = struct.unpack_from(">HB", column)
        yield slot, column[3 : 3 + length].decode()
        column = column[3 + length :]


def _bitmap(slots: Iterable[int], count: int) -> bytes:
    """Return the bitmap of slots: bit 7 of byte 0 is slot 0."""
    size = -(-count // 8)
    return sum(1 << 8 * size - 1 - slot for slot in slots).to_bytes(size, "big")


def _slots(bitmap: bytes) -> list[int]:
    return [slot for slot in range(8 * len(bitmap)) if bitmap[slot // 8] >> 7 - slot % 8 & 1]


def outcome(task: str, o: Outcome) -> Json:
    """Return a verdict as a case has it."""
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


def _blocks(bucket: dict[int, Block]) -> Json:
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


def _escaped(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)[1:-1]


def _text(record: Record) -> str:
    return record.source_id if record.task else record.why or ""


def _digest(block: Block) -> str:
    column = struct.pack(f">{len(block.tracked)}Q", *block.tracked)
    if block.absent:
        column += _bitmap(block.trees, len(block.tracked))
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
