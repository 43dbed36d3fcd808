"""What is known of one pending tree, and of the block it stands in."""

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from acker_redis.errors import SchemaError
from acker_redis.protocol.ids import split_anchor
from acker_redis.protocol.outcome import ranges_without

State = Literal["open", "failed", "untracked", "complete"]


@dataclass(frozen=True, slots=True)
class BlockState:
    """A pending block.

    >>> acker = Acker.from_url(url, "orders")
    >>> anchors = acker.track_block("shop", "page 1", [40, 41, 0])
    >>> block = acker.show(anchors[0]).block
    >>> block.slots, block.open, list(block.done())
    (3, (0, 1), [(2, 3)])
    """

    block: int
    slots: int
    """Trees in it."""
    open: tuple[int, ...]
    """Slots whose checksum is not zero: something of them is outstanding, the failed included."""
    failed: tuple[int, ...]
    """Slots that have failed, and were nacked then."""

    def done(self) -> Iterator[tuple[int, int]]:
        """Ranges of slots that are complete: the first, and the one behind the last.

        They are acked when the block ends; whoever cannot wait may go by this.
        """
        yield from ranges_without(self.slots, {*self.open, *self.failed})


@dataclass(frozen=True, slots=True)
class TreeState:
    """A pending tree.

    >>> acker, batch = Acker.from_url(url, "orders"), Batch("shop")
    >>> batch.track(7, "order-1", [40])
    >>> applied = acker.apply(batch)
    >>> tree = acker.show(7)
    >>> tree.source_id, tree.checksum, tree.state
    ('order-1', 40, 'open')
    """

    anchor: int
    checksum: int
    """XOR of the ids of its messages; 0 in a block: complete, and not told yet."""
    task: str
    """'' if it was not tracked yet."""
    source_id: str
    """Of a tree in a block: the block's label."""
    failed: bool
    why: str
    age_ms: int
    """Milliseconds since its first row."""
    bucket: int
    """0 is the newest; as many as the namespace has: it expires just now."""
    block: BlockState | None = None

    @property
    def state(self) -> State:
        """``failed``, ``open``, ``complete`` (in a block that is not) or ``untracked``."""
        if self.failed:
            return "failed"
        if not self.task:
            return "untracked"
        return "open" if self.checksum else "complete"


def parse_show(reply: Sequence[Any], anchor: int) -> TreeState | None:
    """Read the reply of ``show``; SchemaError for what no script has written."""
    if len(reply) == 1:
        return None
    try:
        return _block_tree(reply, anchor) if len(reply) > 3 else _loose_tree(reply, anchor)
    except (struct.error, IndexError, TypeError, UnicodeDecodeError):
        raise SchemaError(f"the record of anchor {anchor} has been tampered with") from None


def _loose_tree(reply: Sequence[Any], anchor: int) -> TreeState:
    now, bucket, record = reply
    task_end = 16 + record[15]
    task, text = record[16:task_end].decode(), record[task_end:].decode()
    failed = bool(record[8] & 1)
    return TreeState(
        anchor=anchor,
        checksum=int.from_bytes(record[:8], "big"),
        task=task,
        source_id=text if task else "",
        failed=failed,
        why="" if task else text,
        age_ms=max(0, int(now) - int.from_bytes(record[9:15], "big")),
        bucket=int(bucket),
    )


def _block_tree(reply: Sequence[Any], anchor: int) -> TreeState | None:
    now, bucket, header, column, failed_slots, why = reply
    block, slot = split_anchor(anchor) or (0, 0)
    count, checksums = len(column) // 8, struct.unpack(f">{len(column) // 8}Q", column)
    if slot >= count:
        return None
    label_at = 17 + header[16]
    failed = sorted(int(each) for each in failed_slots)
    return TreeState(
        anchor=anchor,
        checksum=checksums[slot],
        task=header[17:label_at].decode(),
        source_id=header[label_at:].decode(),
        failed=slot in failed,
        why=why.decode(),
        age_ms=max(0, int(now) - int.from_bytes(header[:6], "big")),
        bucket=int(bucket),
        block=BlockState(
            block=block,
            slots=count,
            open=tuple(slot for slot, checksum in enumerate(checksums) if checksum),
            failed=tuple(failed),
        ),
    )
