"""A producer lane as in ``flows``: one call in flight, and none past the fence's horizon."""

from __future__ import annotations

from functools import partial
from itertools import islice
from typing import TYPE_CHECKING

from acker_redis.errors import BacklogError, ChangedBatchError, SchemaError
from acker_redis.protocol.commands import ShardApplied
from proof.oracle import TRACK, Reply
from proof.simulate.batches import (
    After,
    AnySent,
    FoldedBlock,
    FoldedRow,
    Sent,
    SentBlocks,
    by_block,
)
from proof.simulate.trees import Tree

if TYPE_CHECKING:
    from proof.simulate.world import World

MAX_ROWS = 12


class Lane:
    """Folds rows per anchor and sends them in numbered parts, one after the other.

    A batch has up to two parts: its loose rows, then its rows in blocks. If a part is refused or
    given up, the lane drops the parts after it too.
    """

    def __init__(self, world: World, name: str, task: str = "", digests: bool = True) -> None:
        self.alive = True
        self._world, self._name, self._task, self._digests = world, name, task, digests
        self._rows: dict[int, FoldedRow] = {}
        self._tracks: list[FoldedBlock] = []
        self._seq = self._tries = 0
        self._parts: list[AnySent] = []
        self._part = 0
        self._linger = self._paused = False

    def add(self, row: FoldedRow) -> None:
        """Put a row into the next batch."""
        old = self._rows.setdefault(row.tree.anchor, row)
        if old is not row:
            self._world.counts["rows folded"] += 1
            old.fold(row)
        self._wake()

    def track(self, block: FoldedBlock) -> None:
        """Put the TRACK of a block into the next batch."""
        self._tracks.append(block)
        self._wake()

    def then(self, tree: Tree, action: After) -> None:
        """Run an action after the row of this tree, added last, was applied."""
        self._rows[tree.anchor].after.append(action)

    @property
    def _sent(self) -> AnySent | None:
        """The part that is in flight."""
        return self._parts[self._part] if self._parts else None

    def _wake(self) -> None:
        if not (self._linger or self._parts):
            self._linger = True
            self._world.clock.after(self._world.linger(), self._flush)

    def _flush(self) -> None:
        self._linger = False
        if not self.alive or self._parts or not (self._rows or self._tracks):
            return
        rows = [self._rows.pop(anchor) for anchor in list(islice(self._rows, MAX_ROWS))]
        loose = [row for row in rows if not row.tree.block]
        blocks, self._tracks = self._fold_tracks(by_block(rows)), []
        if loose:
            self._seq += 1
            task = self._task if any(row.flags & TRACK for row in loose) else ""
            self._parts.append(Sent(self._name, self._seq, task, loose, self._digests))
        if blocks:
            self._seq += 1
            self._parts.append(SentBlocks(self._name, self._seq, self._task, blocks, self._digests))
        self._world.counts["batches of two parts"] += len(self._parts) > 1
        self._attempt()

    def _fold_tracks(self, blocks: list[FoldedBlock]) -> list[FoldedBlock]:
        """Fold the rows of blocks into TRACKs, as a call names a block once.

        Rows of slots that the TRACK does not have wait for the next batch.
        """
        tracks: dict[int, FoldedBlock] = {}
        for track in self._tracks:
            tracks.setdefault(track.block.number, track)
        for block in blocks:
            track = tracks.setdefault(block.block.number, block)
            if track is block:
                continue
            self._world.counts["rows folded into the TRACK of their block"] += 1
            present = {row.tree.slot: row for row in track.rows}
            for row in block.rows:
                if row.tree.slot in present:
                    present[row.tree.slot].fold(row)
                else:
                    self._rows[row.tree.anchor] = row
        return [*tracks.values()]

    def _attempt(self) -> None:
        """Send or resend the part, unless its fence may have expired."""
        world, sent = self._world, self._sent
        if not self.alive or sent is None:
            return
        if sent.at is None:
            sent.at = world.clock.now
        if world.clock.now - sent.at > world.config.fence_ms:
            world.counts["batches given up"] += 1
            self._end()
            return
        self._tries += 1
        pause = world.pause(self._tries > 1)
        if pause:
            # It pauses between deciding to send and sending, and receives no reply.
            self._paused = True
            world.clock.after(pause, partial(self._go, sent, sent.at, self._tries))
        else:
            self._go(sent, sent.at, self._tries)

    def _go(self, sent: AnySent, at: int, tries: int) -> None:
        world = self._world
        self._paused = False
        if not self.alive:
            return
        if world.clock.now - at > world.config.fence_ms:
            world.counts["sent past the horizon"] += 1
        world.network.call(sent, partial(self._replied, sent.seq))
        world.clock.after(world.config.tick_ms // 8, partial(self._timed_out, sent.seq, tries))

    def _timed_out(self, seq: int, tries: int) -> None:
        if self._sent and self._sent.seq == seq and self._tries == tries:
            self._rerun(0.5)
            self._attempt()

    def _replied(self, seq: int, reply: Reply) -> None:
        sent, world = self._sent, self._world
        if not self.alive or self._paused or sent is None or sent.seq != seq:
            return
        if isinstance(reply, BacklogError):
            world.counts["batches refused for the backlog"] += 1
            world.take(self._task)
            self._tries += 1
            world.clock.after(world.linger(), self._attempt)
        elif isinstance(reply, ChangedBatchError):
            world.counts["changed batches refused"] += 1
            self._end()
        elif isinstance(reply, SchemaError):
            world.counts["batches given up for a lost key"] += 1
            self._end()
        elif isinstance(reply, ShardApplied) and (reply.highest or 0) > self._parts[-1].seq:
            world.counts["lanes stopped"] += 1
            self._end()
        elif isinstance(reply, ShardApplied):
            actions = [action for row in sent.accepted(reply) for action in row.after]
            for row in sent.each():
                row.after.clear()
            for action in actions:
                action()
            if self._rerun(1):
                self._attempt()
            else:
                self._next()

    def _rerun(self, share: float) -> bool:
        """Draw whether the batch runs again, as after a crash of a driver; True if it does."""
        sent, world = self._sent, self._world
        if sent is None or not world.happens("rerun", share):
            return False
        if world.chance.random() < 0.7:
            world.counts["batches changed"] += 1
            victim = world.chance.randrange(len(list(sent.each())))
            number, id_ = world.forest.new_number(), world.forest.new_id()
            self._parts[self._part] = sent.changed(victim, number, id_)
        else:
            # From its first part on, which may find the fence at the number of the last part.
            world.counts["batches run again"] += 1
            self._part = 0
        return True

    def _next(self) -> None:
        """Continue with the next part, or the next batch."""
        self._tries = 0
        if self._part + 1 < len(self._parts):
            self._part += 1
            self._attempt()
        else:
            self._end()

    def _end(self) -> None:
        """Continue with the next batch."""
        self._parts, self._part, self._tries = [], 0, 0
        if self._rows or self._tracks:
            self._wake()
