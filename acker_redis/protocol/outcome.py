"""Outcomes: the records that carry verdicts on trees and blocks in a source's stream."""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from acker_redis.errors import SchemaError
from acker_redis.protocol.ids import BLOCK_MAX, EDGE_BIT, SLOTS, block_anchor, split_anchor
from acker_redis.protocol.slots import slots_of_hex, unpack_slots
from acker_redis.protocol.texts import CONTROL

# From lua/spec.json, by python -m proof.spec
VerdictKind = Literal["ack", "nack", "touch"]
Reason = Literal["completed", "failed", "expired", "overflow", "conflict", "reset"]
Cause = Literal["", "idle", "deadline"]

_WORD = re.compile(r"[a-z]{1,20}")


@dataclass(frozen=True, slots=True)
class Outcome:
    """The verdict on one tuple tree, with its reason.

    >>> acker, batch = Acker.from_url(url, "orders"), Batch("shop")
    >>> batch.track(7, "order-1", [40])
    >>> batch.fail(7, "no such address")
    >>> applied = acker.apply(batch)
    >>> for outcome in acker.outcomes("shop"):
    ...     print(outcome.source_id, outcome.verdict, outcome.reason, outcome.why)
    order-1 nack failed no such address
    """

    verdict: VerdictKind
    """``ack``: the tree is complete. ``nack``: replay the record. ``touch``: the tree's timeout
    was reset."""
    reason: str
    """completed, failed, expired, overflow, conflict or reset."""
    anchor: int
    source_id: str
    """The source's id of the record; for a tree in a block, the block's label."""
    age_ms: int
    """Milliseconds from the tree's first row to the verdict."""
    why: str
    """The reason that the bolt gave when it failed the tree, or ''."""
    cause: Cause = ""
    """Of an expired tree: ``deadline``, if it had reached its deadline; or ``idle``: its N ticks
    were over, counted from its last row with ``refresh="update"``, from its first with ``never``.
    Otherwise ''."""
    residual: int = field(default=0, repr=False)
    """Of an expired tree: its checksum, the XOR of the ids of its outstanding messages. If one
    message is missing, this is its id. 0 if it is unknown. It is not in ``repr()``."""
    idle_ms: int = 0
    """Of an expired tree: milliseconds from its last row to the verdict; in a block, from the last
    row of the block, to within a tick."""
    edges: tuple[str, ...] = ()
    """Of an expired tree in a namespace with edges: those on which an odd number of its messages is
    unaccounted for. If one message is missing, its edge. Two on one edge do not show."""

    @property
    def slot(self) -> int | None:
        """Slot of a tree in a block; None for a loose tree."""
        place = split_anchor(self.anchor)
        return place[1] if place else None


@dataclass(frozen=True, slots=True)
class BlockOutcome:
    """The verdicts on the trees of a block, in one entry.

    >>> acker = Acker.from_url(url, "orders")
    >>> anchors = acker.track_block("shop", "page 1", [40, 41, 42])
    >>> applied = acker.apply(ColumnBatch(list(anchors), [40, 41, 42], {anchors[1]: "torn"}))
    >>> for entry in acker.outcomes("shop").read():
    ...     print(entry.block.verdict, entry.block.rows, list(entry.block.acked()))
    nack ((1, 'torn'),) []
    ack () [(0, 1), (2, 3)]
    """

    verdict: Literal["ack", "nack", "touch", "mixed"]
    """``ack``: all trees except those in ``failed`` are complete. ``nack``: replay all trees, or,
    if there are ``rows``, only those. ``mixed``: the block expired; replay ``nacked``, all other
    trees except ``failed`` are complete. ``touch``: the timeout of the block was reset."""
    reason: str
    """completed, failed, expired, overflow, conflict or reset."""
    block: int
    label: str
    """The source's name for the block."""
    age_ms: int
    """Milliseconds from the block's first row to the verdict."""
    slots: int
    """Number of slots of the block; 0 if the verdict is only on the slots in ``rows``."""
    failed: tuple[int, ...] = ()
    """Slots that failed earlier; each was nacked when it failed."""
    nacked: tuple[int, ...] = ()
    """Slots that expired."""
    rows: tuple[tuple[int, str], ...] = ()
    """Slots that failed with this entry, and why."""
    cause: Cause = ""
    """Of a block that expired: ``idle`` or ``deadline``, see :attr:`Outcome.cause`."""
    idle_ms: int = 0
    """Of a block that expired: milliseconds from its last row, to within a tick."""
    residuals: tuple[int, ...] = field(default=(), repr=False)
    """The checksum of each slot in ``nacked``; 0 if the block has lost its checksums."""
    edges: tuple[str, ...] = ()
    """Of a block that expired: the names of all edges of the namespace."""
    absent: tuple[int, ...] = ()
    """Slots that hold no tree. They have no verdict."""

    @property
    def count(self) -> int:
        """Number of single verdicts in the entry."""
        return len(self.rows) or self.slots - len(self.failed) - len(self.absent)

    def expand(self) -> Iterator[Outcome]:
        """Yield the single verdicts, by slot; the source id of each is the block's label."""
        if self.rows:
            for slot, why in self.rows:
                yield self._outcome("nack", self.reason, slot, why)
            return
        skipped, nacked = (
            {*self.failed, *self.absent},
            dict(zip(self.nacked, self.residuals, strict=True)),
        )
        for slot in range(self.slots):
            if slot in skipped:
                continue
            if self.verdict != "mixed":
                yield self._outcome(self.verdict, self.reason, slot)
            elif slot in nacked:
                yield replace(
                    self._outcome("nack", "expired", slot),
                    cause=self.cause,
                    residual=nacked[slot],
                    idle_ms=self.idle_ms,
                    edges=odd_edges(self.edges, nacked[slot]),
                )
            else:
                yield self._outcome("ack", "completed", slot)

    def acked(self) -> Iterator[tuple[int, int]]:
        """Yield the ranges of complete slots as (first, end), where end is exclusive."""
        if self.verdict not in ("ack", "mixed"):
            return
        yield from ranges_without(self.slots, (*self.failed, *self.absent, *self.nacked))

    def _outcome(self, verdict: VerdictKind, reason: str, slot: int, why: str = "") -> Outcome:
        anchor = block_anchor(self.block, slot)
        return Outcome(verdict, reason, anchor, self.label, self.age_ms, why)


def ranges_without(stop: int, holes: Iterable[int]) -> Iterator[tuple[int, int]]:
    """Yield the ranges (first, end) of ``0 .. stop - 1`` without ``holes``; end is exclusive."""
    start = 0
    for hole in (*sorted(holes), stop):
        if hole > start:
            yield start, hole
        start = hole + 1


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry of a source's stream: outcomes of one call with the same verdict and reason.

    >>> acker, batch = Acker.from_url(url, "orders"), Batch("shop")
    >>> batch.track(7, "order-1", [])
    >>> batch.track(8, "order-2", [])
    >>> applied = acker.apply(batch)
    >>> (entry,) = acker.outcomes("shop").read()
    >>> [outcome.source_id for outcome in entry]
    ['order-1', 'order-2']
    """

    shard: int
    id: str
    """Id of the entry in the stream of its shard."""
    at_ms: int
    """When the entry was written, by Redis's clock, in ms since 1970."""
    outcomes: tuple[Outcome, ...]
    """Outcomes of loose trees; empty in the entry of a block."""
    block: BlockOutcome | None = None
    """Outcome of a block, or None; see :meth:`BlockOutcome.expand`."""

    def __iter__(self) -> Iterator[Outcome]:
        """Yield the single verdicts, of loose trees or of a block."""
        return self.block.expand() if self.block else iter(self.outcomes)


def parse_entry(shard: int, id_: bytes, fields: Any, edges: tuple[str, ...] = ()) -> Entry:
    """Return the entry for a stream id and the fields as Redis replies them.

    ``edges`` are the names of the namespace's edges, for :attr:`Outcome.edges`. Raises SchemaError
    for an entry that no script writes.
    """
    name = id_.decode()
    try:
        return _entry(shard, name, fields, edges)
    except (LookupError, ValueError, TypeError, AttributeError, RecursionError) as error:
        raise SchemaError(
            f"entry {shard}:{name} of the outcomes has been tampered with ({type(error).__name__})"
        ) from None


def _entry(shard: int, name: str, fields: Any, edges: tuple[str, ...]) -> Entry:
    flat = fields if isinstance(fields, dict) else dict(zip(fields[::2], fields[1::2], strict=True))
    verdict, reason = _word(flat[b"verdict"].decode()), _word(flat[b"reason"].decode())
    if b"block" in flat:
        block = _block(verdict, reason, flat, edges)
        return Entry(shard, name, int(name.partition("-")[0]), (), block)
    written = flat[b"rows"]
    rows = json.loads(written)
    # JSON has a control character, but for DEL, as an escape only.
    clean = b"\\" not in written and b"\x7f" not in written
    return Entry(
        shard=shard,
        id=name,
        at_ms=int(name.partition("-")[0]),
        outcomes=tuple([_outcome(verdict, reason, edges, clean, *row) for row in rows]),
    )


def _outcome(
    verdict: Any,
    reason: str,
    edges: tuple[str, ...],
    clean: bool,
    anchor: str,
    source_id: str,
    age_ms: int,
    text: Any,
    residual: str = "",
    idle_ms: int = 0,
) -> Outcome:
    number = int(anchor, 16)
    if not 0 < number < 1 << 63 or type(age_ms) is not int or type(idle_ms) is not int:
        raise ValueError("no script writes this anchor or time")
    if not clean or type(source_id) is not str or type(text) is not str:
        source_id, text = _text(source_id), _text(text)
    if not residual:
        return Outcome(verdict, reason, number, source_id, age_ms, text)
    odd = int(residual, 16)
    if not 0 <= odd < 1 << 64:
        raise ValueError("a residual has 64 bits")
    return Outcome(
        verdict,
        reason,
        number,
        source_id,
        age_ms,
        why="",
        cause=_cause(text),
        residual=odd,
        idle_ms=idle_ms,
        edges=odd_edges(edges, odd),
    )


def _text(text: str) -> str:
    """Return a text of a row. Raise ValueError for one that the scripts refuse."""
    if type(text) is not str or CONTROL.search(text):
        raise ValueError("a text of the verdict has control characters, or is none")
    return text


def _word(text: str) -> str:
    if not _WORD.fullmatch(text):
        raise ValueError("a verdict or a reason is one word")
    return text


def _cause(text: str) -> Cause:
    if text == "idle":
        return "idle"
    if text == "deadline":
        return "deadline"
    raise ValueError("a cause is idle or deadline")


def odd_edges(edges: Sequence[str], checksum: int) -> tuple[str, ...]:
    """Return the edges on which an odd number of messages is outstanding, by a checksum.

    >>> odd_edges(["mill", "shop"], 1 << 56 | 40)
    ('shop',)
    """
    return tuple(edge for k, edge in enumerate(edges) if checksum >> EDGE_BIT + k & 1)


def _block(
    verdict: Any, reason: str, flat: Mapping[bytes, bytes], edges: tuple[str, ...]
) -> BlockOutcome:
    """Return the verdicts on a block. A bitmap that is missing or damaged must not become acks."""
    rows, count = json.loads(flat.get(b"rows", b"[]")), int(flat.get(b"slots", 0))
    number = int(flat[b"block"], 16)
    if not 0 <= count <= SLOTS or not 0 <= number <= BLOCK_MAX:
        raise ValueError("no script writes this number of a block, or of slots")
    if not all(type(slot) is int and 0 <= slot < SLOTS for slot, _ in rows):
        raise ValueError(f"a slot is 0 to {SLOTS - 1}")

    def slots(name: bytes) -> tuple[int, ...]:
        return unpack_slots(slots_of_hex(flat[name].decode(), count))

    is_mixed = verdict == "mixed"
    nacked = slots(b"nacked") if is_mixed else ()
    failed = slots(b"failed") if is_mixed or verdict == "ack" else ()
    gaps = set(range(count)) - set(slots(b"present")) if b"present" in flat else ()
    residuals = flat[b"residuals"].decode() if is_mixed else ""
    outcome = BlockOutcome(
        verdict=verdict,
        reason=reason,
        block=number,
        label=_text(flat[b"label"].decode()),
        age_ms=int(flat[b"age"]),
        slots=count,
        failed=failed,
        nacked=nacked,
        rows=tuple((slot, _text(why)) for slot, why in rows),
        cause=_cause(flat[b"cause"].decode()) if is_mixed else "",
        idle_ms=int(flat[b"idle"]) if is_mixed else 0,
        residuals=tuple(int(residuals[at : at + 16], 16) for at in range(0, len(residuals), 16)),
        edges=edges if is_mixed else (),
        absent=tuple(sorted(gaps)),
    )
    if len(residuals) != 16 * len(nacked) or outcome.count != int(flat[b"n"]):
        raise ValueError(f"{flat[b'n'].decode()} verdicts, but the slots of {outcome.count}")
    return outcome
