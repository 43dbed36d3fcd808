"""The state of one pending tree, and of its block."""

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from acker_redis.errors import SchemaError
from acker_redis.protocol.ids import block_anchor, split_anchor
from acker_redis.protocol.outcome import odd_edges, ranges_without
from acker_redis.protocol.record import parse_header, parse_record
from acker_redis.protocol.slots import check_slots, unpack_slots

State = Literal["open", "failed", "untracked", "complete"]


@dataclass(frozen=True, slots=True)
class BlockState:
    """State of a pending block.

    >>> acker = Acker.from_url(url, "orders")
    >>> anchors = acker.track_block("shop", "page 1", [40, 41, 0])
    >>> block = acker.show(anchors[0]).block
    >>> block.slots, block.open, list(block.done())
    (3, (0, 1), [(2, 3)])
    """

    block: int
    slots: int
    """Number of slots of the block; its trees are those that are not ``absent``."""
    open: tuple[int, ...]
    """Slots whose checksum is not zero: messages are outstanding. Includes failed slots."""
    failed: tuple[int, ...]
    """Slots that have failed; each was nacked when it failed."""
    outstanding: tuple[int, ...] = field(default=(), repr=False)
    """The checksums of the slots in ``open`` that have not failed, in order."""
    absent: tuple[int, ...] = ()
    """Slots that hold no tree; they are in no other field."""

    def done(self) -> Iterator[tuple[int, int]]:
        """Yield the ranges of complete slots as (first, end), where end is exclusive.

        The slots are acked when the block ends. A source that cannot wait may use these ranges.
        """
        yield from ranges_without(self.slots, {*self.open, *self.failed, *self.absent})


@dataclass(frozen=True, slots=True)
class TreeState:
    """State of a pending tree.

    >>> acker, batch = Acker.from_url(url, "orders"), Batch("shop")
    >>> batch.track(7, "order-1", [40])
    >>> applied = acker.apply(batch)
    >>> tree = acker.show(7)
    >>> tree.source_id, tree.checksum, tree.state
    ('order-1', 40, 'open')
    """

    anchor: int
    checksum: int = field(repr=False)
    """XOR of the ids of its outstanding messages. 0 in a block: complete, but not acked yet. It is
    not in ``repr()``: a row of this number completes the tree."""
    source: str
    """The source that tracked the tree; '' if it was not tracked yet."""
    source_id: str
    """The source's id of the record; for a tree in a block, the block's label."""
    failed: bool
    why: str
    """The reason that the bolt gave when it failed the tree, or ''. Of a tree in a block it is '':
    its verdict has the reason."""
    age_ms: int
    """Milliseconds since the tree's first row."""
    bucket: int
    """Age of its bucket: 0 is the newest; the number of buckets means that the tree is expiring."""
    idle_ms: int = 0
    """Milliseconds since the tree's last row; in a block, since the last row of the block, to
    within a tick."""
    block: BlockState | None = None
    """State of its block; None for a loose tree."""

    @property
    def state(self) -> State:
        """``failed``, ``open``, ``complete`` (in a block that is not complete), ``untracked``."""
        if self.failed:
            return "failed"
        if not self.source:
            return "untracked"
        return "open" if self.checksum else "complete"

    def open_edges(self, edges: Sequence[str]) -> tuple[str, ...]:
        """Return the edges on which an odd number of messages is outstanding.

        () for a tree that was not tracked yet: its checksum also has the ids of processed messages.

        Args:
            edges: The edges of the namespace, :attr:`AckerConfig.edges`.

        Examples:
            >>> acker = Acker.from_url(url, "mills")
            >>> acker.create(AckerConfig(edges=("mill", "shop")))
            True
            >>> batch = Batch("farm")
            >>> batch.track(7, "sack-1", [acker.ids.code("shop") | 40])
            >>> applied = acker.apply(batch)
            >>> acker.show(7).open_edges(acker.config.edges)
            ('shop',)

        """
        return odd_edges(edges, self.checksum) if self.source else ()


def parse_show(reply: Sequence[Any], anchor: int) -> TreeState | None:
    """Parse the reply of ``show``; None if there is no such tree, as in an absent slot.

    Raises SchemaError for a record that no script writes.
    """
    place = split_anchor(anchor)
    if len(reply) == 1:
        return None
    try:
        return _block_tree(reply, *place) if place else _loose_tree(reply, anchor)
    except (SchemaError, struct.error, TypeError, ValueError):
        raise SchemaError(f"the record of anchor {anchor} has been tampered with") from None


def parse_show_block(reply: Sequence[Any], block: int) -> TreeState | None:
    """Parse the reply of ``show`` for any slot of a block; return the first tree of the block.

    Raises SchemaError for a block that no script writes.
    """
    try:
        return _block_tree(reply, block, None) if len(reply) > 1 else None
    except (SchemaError, struct.error, TypeError, ValueError):
        raise SchemaError(f"the record of block {block} has been tampered with") from None


def _loose_tree(reply: Sequence[Any], anchor: int) -> TreeState:
    now, bucket, stored = reply
    record = parse_record(stored)
    return TreeState(
        anchor=anchor,
        checksum=record.checksum,
        source=record.task,
        source_id=record.text if record.task else "",
        failed=record.failed,
        why="" if record.task else record.text,
        age_ms=max(0, int(now) - record.first_ms),
        bucket=int(bucket),
        idle_ms=max(0, int(now) - record.last_ms),
    )


def _block_tree(reply: Sequence[Any], block: int, slot: int | None) -> TreeState | None:
    """Return the tree in a slot, or the first one; None if the slot holds no tree."""
    now, bucket, stored, column, failed_bits, present_bits = reply
    header = parse_header(stored)
    count, checksums = header.slots, struct.unpack(f">{header.slots}Q", column)
    failed = unpack_slots(check_slots(failed_bits, count))
    held = set(range(count))
    if header.partial:  # else a bitmap is a stale one, as in the scripts
        held = set(unpack_slots(check_slots(present_bits, count)))
    if not held:
        raise SchemaError("the bitmap of the present slots is lost")
    if header.has_failed > bool(failed) or not held.issuperset(failed):
        raise SchemaError("the bitmap of the failed trees has been tampered with")
    at = min(held) if slot is None else slot
    if at not in held:
        return None
    has_failed = set(failed)
    waits = [slot for slot, checksum in enumerate(checksums) if checksum and slot in held]
    return TreeState(
        anchor=block_anchor(block, at),
        checksum=checksums[at],
        source=header.task,
        source_id=header.label,
        failed=at in has_failed,
        why="",
        age_ms=max(0, int(now) - header.first_ms),
        bucket=int(bucket),
        idle_ms=max(0, int(now) - header.last_ms),
        block=BlockState(
            block=block,
            slots=count,
            open=tuple(waits),
            failed=failed,
            outstanding=tuple(checksums[slot] for slot in waits if slot not in has_failed),
            absent=tuple(slot for slot in range(count) if slot not in held),
        ),
    )
