"""A producer lane as ``client.py`` keeps it: one call in flight, and never past the horizon."""

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from acker_redis.batch import TRACK
from acker_redis.commands import ShardApplied
from acker_redis.errors import BacklogError, ChangedBatchError
from acker_redis.simulate.batches import After, FoldedRow, Reply, Sent
from acker_redis.simulate.trees import Tree

if TYPE_CHECKING:
    from acker_redis.simulate.world import World

MOST_ROWS = 12


class Lane:
    """Folds rows per anchor and sends them in numbered batches, one after the other."""

    def __init__(self, world: "World", name: str, task: str = "", digests: bool = True) -> None:
        self.alive = True
        self._world, self._name, self._task, self._digests = world, name, task, digests
        self._rows: dict[int, FoldedRow] = {}
        self._after: list[After] = []
        self._seq = self._tries = 0
        self._sent: Sent | None = None
        self._linger = self._paused = False

    def add(
        self,
        tree: Tree,
        delta: int,
        flags: int = 0,
        why: str = "",
        done: tuple[int, ...] = (),
        made: tuple[int, ...] = (),
    ) -> None:
        """Put a row into the next batch."""
        row = self._rows.get(tree.anchor)
        if row is None:
            row = self._rows[tree.anchor] = FoldedRow(tree)
        else:
            self._world.counts["rows folded"] += 1
        row.fold(delta, flags, why, done, made)
        if not (self._linger or self._sent):
            self._linger = True
            self._world.clock.after(self._world.linger(), self._flush)

    def then(self, after: After) -> None:
        """Do something once the rows of this anchor, added last, were applied."""
        self._after.append(after)

    def _flush(self) -> None:
        self._linger = False
        if not self.alive or self._sent or not self._rows:
            return
        anchors = list(self._rows)[:MOST_ROWS]
        rows = [self._rows.pop(anchor) for anchor in anchors]
        after = [each for each in self._after if each[0] not in self._rows]
        self._after = [each for each in self._after if each[0] in self._rows]
        self._seq += 1
        task = self._task if any(row.flags & TRACK for row in rows) else ""
        now = self._world.clock.now
        self._sent = Sent(self._name, self._seq, task, rows, now, self._digests, after)
        self._attempt()

    def _attempt(self) -> None:
        """Send, or send again, unless the fence may be gone by now."""
        world, sent = self._world, self._sent
        if not self.alive or sent is None:
            return
        if world.clock.now - sent.at > world.config.fence_ms:
            world.counts["batches given up"] += 1
            self._next()
            return
        self._tries += 1
        pause = world.pause(self._tries > 1)
        if pause:
            # It stands still between having decided to send and sending, and hears nothing.
            self._paused = True
            world.clock.after(pause, partial(self._go, sent, self._tries))
        else:
            self._go(sent, self._tries)

    def _go(self, sent: Sent, tries: int) -> None:
        world = self._world
        self._paused = False
        if not self.alive:
            return
        if world.clock.now - sent.at > world.config.fence_ms:
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
            self._next()
        elif isinstance(reply, ShardApplied) and reply.highest and reply.highest > seq:
            world.counts["lanes stopped"] += 1
            self._next()
        elif isinstance(reply, ShardApplied):
            for anchor, action in sent.after:
                if anchor not in reply.rejected:
                    action()
            sent.after.clear()
            if self._rerun(1):
                self._attempt()
            else:
                self._next()

    def _rerun(self, share: float) -> bool:
        """Perhaps run the batch again, as a driver does that crashed; True if so."""
        sent, world = self._sent, self._world
        if sent is None or not world.happens("rerun", share):
            return False
        if world.chance.random() < 0.7:
            world.counts["batches changed"] += 1
            victim = world.chance.randrange(len(sent.folded))
            rows = [
                row.changed(world.forest.new_number(), world.forest.new_id())
                if number == victim
                else row
                for number, row in enumerate(sent.folded)
            ]
            self._sent = replace(sent, folded=rows, after=list(sent.after))
        else:
            world.counts["batches run again"] += 1
        return True

    def _next(self) -> None:
        self._sent, self._tries = None, 0
        if self._rows and not self._linger:
            self._linger = True
            self._world.clock.after(self._world.linger(), self._flush)
