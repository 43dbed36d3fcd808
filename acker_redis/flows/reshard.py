"""Reshard a namespace in use without losing a verdict. No I/O.

The shard of an anchor is ``anchor % shards``, and all rows of a tree must reach one shard.
**Invariant: no tree is pending at the moment when the number of shards changes.**

Let the namespace go from F shards to T shards. The shards 0 .. F-1 are the *old* ones. The shards F
.. T-1 are *added* (T > F). The shards T .. F-1 are *removed* (T < F).

States of a shard
-----------------
The field ``reshard`` in a shard's ``meta`` is the state of that shard. The script ``configure``
checks each transition in one atomic call.

==================  ==============================================================================
no field            Open.
``F:T``             Closed. The shard tracks no tree: a TRACK gets ``BACKLOG``, and sources retry.
                    It drops rows without a tree. Rows of its pending trees, verdicts, ticks and
                    takes continue.
``F:T:switch``      Closed, and found empty. On shard 0: the reshard is *decided*.
``F:T:cancel``      Shard 0 only: the reshard is *cancelled*.
==================  ==============================================================================

A shard is *empty* when no tree is pending and none waits to be drained. A removed shard must also
hold no verdict that waits to be taken. An empty closed shard stays empty, because it begins no
record and no tree.

Five steps
----------
The methods ``_close``, ``_drain``, ``_decide``, ``_switch`` and ``_finish``. Each is idempotent: it
writes states, and a repetition writes the same ones.

1. *Close.* All old shards enter state ``F:T``, shard 0 first.
2. *Drain.* The reshard waits until all old shards are empty. Verdicts on shards that stay may wait
   there. A tree that no bolt finishes expires within N ticks. The reshard ticks and drains the
   shards itself, so it also ends without a rotator.
3. *Decide.* All old shards enter state ``F:T:switch``, shard 0 last. The atomic call that sets this
   state also checks that the shard is empty. So when shard 0 decides, all other old shards have
   passed this check before. Up to this step the reshard can be cancelled, and any error cancels it.
   After this step it can only be completed.
4. *Switch.* The added shards are created. The fences of durable lanes are copied to all T shards.
   Then ``shards`` becomes T on each old shard, shard 0 last. Clients read ``shards`` from shard 0,
   so each shard that they then use exists. A removed shard refuses every row by then, so its
   counters are final: the call that switches shard 0 adds them to those of shard 0.
5. *Open.* The removed shards are dropped. The other shards lose the field ``reshard``, shard 0
   last.

Failures
--------
* **The process is killed.** Shard 0 records the current step. Running the same reshard again
  continues there, because each step is idempotent. Before the decision it can be cancelled instead.
  If shard 0 is in state ``F:T:cancel``, the next reshard first completes the cancel.
* **A client uses the old number of shards.** A shard refuses its call with ``SHARD``, ``NAMESPACE``
  or ``BACKLOG``. The client then reads the new number from shard 0.
* **A failover sets one shard back to an earlier state.** Running the same reshard again examines
  all shards, even if shard 0 has the new number already. A shard with another number of shards goes
  through steps 1 to 4 alone. A missing shard that should exist is created. A missing shard that was
  to be removed counts as removed. A removed shard that exists again goes through all steps again:
  its verdicts are carried to a shard that sources read, and it is dropped.
"""

import math
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Literal

from acker_redis.errors import (
    NamespaceExistsError,
    NamespaceNotFoundError,
    ReshardError,
)
from acker_redis.flows.namespace import Flows
from acker_redis.flows.reshard_shards import (
    MAX_LANES,
    carry,
    close,
    keys_of,
    lanes_of,
    make_shard,
    others,
    remove,
    replicated,
    run_again,
    set_field,
    share_lanes,
    status_of,
    switch_first,
    turn,
    unless_gone,
)
from acker_redis.flows.steps import Ask, Flow, Pause, together
from acker_redis.protocol import commands
from acker_redis.protocol.commands import ShardStatus
from acker_redis.protocol.config import AckerConfig
from acker_redis.protocol.keys import ShardKeys
from acker_redis.protocol.reshard import Reshard
from acker_redis.protocol.secret import Secret

LONGEST_PAUSE = 0.25
"""Longest pause between two looks at the shards, in seconds; plus one millisecond per shard."""
SPARE_SECONDS = 60.0
"""Seconds that sources have to take their verdicts after the last tree has expired."""


@dataclass(frozen=True, slots=True)
class Progress:
    """The progress of a reshard.

    >>> Progress("drain", pending=12, expiring=0, backlog={"shop": 3}).pending
    12
    """

    step: Literal["close", "drain", "switch", "open", "done"]
    pending: int = 0
    """Pending trees, loose and in blocks, and pending records whose TRACK has not come."""
    expiring: int = 0
    """Records and blocks that wait to be drained."""
    backlog: dict[str, int] = field(default_factory=dict)
    """Verdicts that wait to be taken on the removed shards, per source that has any."""


OnProgress = Callable[[Progress], object]


class Resharding:
    """One run of a reshard; see :func:`acker_redis.ops.reshard.reshard`."""

    def __init__(
        self, flows: Flows, shards: int, wait: float | None, on_progress: OnProgress | None
    ) -> None:
        self._flows, self._shards, self._wait = flows, shards, wait
        self._on_progress = on_progress
        self._last: Progress | None = None
        self._deadline = math.inf
        self.closed: Reshard | None = None
        """The reshard in progress while it can be cancelled; None otherwise."""

    def run(self) -> Flow[AckerConfig]:
        """Run the reshard to its end; return the new configuration."""
        first = yield from status_of(self._flows, 0)
        replace(first.config, shards=self._shards).validate()
        try:
            yield from self._run(first)
            config = yield from self._flows.read_config()
        except (NamespaceNotFoundError, NamespaceExistsError) as error:
            raise ReshardError(
                f"{error}. A shard of {self._flows.namespace} was created or removed during the "
                "reshard: check whether another program reshards, creates or drops it, then run "
                "this again"
            ) from error
        if config.shards != self._shards:
            raise ReshardError(
                f"{self._flows.namespace} has {config.shards} shards after the reshard, not "
                f"{self._shards}: a failover or another program changed it; run the reshard again"
            )
        return config

    def _run(self, first: ShardStatus) -> Flow[None]:
        flows, reshard = self._flows, first.reshard
        if reshard and reshard.phase == "cancel":
            yield from call_off(flows, reshard)
            reshard = None
        if reshard and reshard.target != self._shards:
            raise ReshardError(
                f"{flows.namespace} is resharding to {reshard.target} shards already: complete "
                "that reshard, or cancel it"
            )
        wait = 1.1 * first.config.lifetime_ms / 1000 + SPARE_SECONDS
        self._wait = wait if self._wait is None else self._wait
        self._deadline = time.monotonic() + self._wait
        if first.config.shards != self._shards:
            if reshard is None:
                reshard = Reshard(first.config.shards, self._shards)
                yield from self._check(reshard, first.salt)
            yield from self._close(reshard)
            yield from self._drain(reshard, range(reshard.source))
            yield from self._decide(reshard)
            yield from self._switch(reshard)
        yield from self._finish(reshard)
        if reshard:
            self._tell(Progress("done"))

    def _close(self, reshard: Reshard) -> Flow[None]:
        self._tell(Progress("close"))
        if reshard.phase == "closed":
            self.closed = reshard
            yield from set_field(self._flows, 0, "reshard", reshard)
        for shard in range(1, reshard.source):
            with_others = close(self._flows, shard, reshard)
            yield from unless_gone(with_others, shard >= reshard.target)

    def _drain(self, reshard: Reshard, shards: Iterable[int], read: bool = True) -> Flow[None]:
        """Wait until no tree is pending and removed shards hold no verdict; tick when due.

        With ``read=False`` waiting verdicts are ignored, because no source reads these shards.
        """
        flows = self._flows
        while True:
            looks = [unless_gone(status_of(flows, each), each >= reshard.target) for each in shards]
            states = [state for state in (yield from together(looks)) if state]
            progress = _progress(states, reshard.target if read else math.inf)
            self._tell(progress)
            if not (progress.pending or progress.expiring or progress.backlog):
                return
            if time.monotonic() > self._deadline:
                yield from self._too_late(reshard, progress)
            due = yield from together(
                [
                    unless_gone(turn(flows, each.shard), each.shard >= reshard.target)
                    for each in states
                    if _pending(each)
                ]
            )
            longest = LONGEST_PAUSE + reshard.source / 1000
            waits = [0.0 if each is None else each for each in due]
            yield Pause(min(longest, max(0.005, min(waits, default=longest))))

    def _too_late(self, reshard: Reshard, progress: Progress) -> Flow[None]:
        trees = progress.pending + progress.expiring
        left = [f"{trees} trees and records are pending"] if trees else []
        left += [
            f"{count} verdicts of {source} wait to be taken"
            for source, count in sorted(progress.backlog.items())
        ]
        words = f"after {self._wait:.0f} s, {', '.join(left)}"
        if self.closed is None:
            raise ReshardError(
                f"{words}; the reshard to {reshard.target} shards is decided and cannot be "
                "cancelled: run it again"
            )
        yield from call_off(self._flows, reshard)
        self.closed = None
        raise ReshardError(
            f"{words}; the namespace is open again, with shards={reshard.source} as before. "
            "Run these sources, so that they take their verdicts, then reshard again, "
            "or set a longer wait"
        )

    def _decide(self, reshard: Reshard) -> Flow[None]:
        for shard in reversed(range(reshard.source)):
            change = set_field(self._flows, shard, "reshard", reshard.at("switch"))
            yield from unless_gone(change, shard >= reshard.target)
        self.closed = None

    def _switch(self, reshard: Reshard) -> Flow[None]:
        self._tell(Progress("switch"))
        # Shard 0 is closed, so no other program changes its settings.
        first = yield from status_of(self._flows, 0)
        created = replace(first.config, shards=reshard.target)
        for shard in range(reshard.source, reshard.target):
            yield from self._make(shard, created, first.salt.reveal())
        everyone = range(max(reshard.source, reshard.target))
        yield from share_lanes(self._flows, everyone, range(reshard.target))
        # Removed shards get the new number, too: then they refuse every row.
        for shard in reversed(range(1, reshard.source)):
            change = set_field(self._flows, shard, "shards", reshard.target)
            yield from unless_gone(change, shard >= reshard.target)
        yield from switch_first(self._flows, reshard)

    def _make(self, shard: int, config: AckerConfig, salt: str) -> Flow[None]:
        """Create an added shard, or update the settings of one that an earlier run has created."""
        flows, keys = self._flows, ShardKeys(self._flows.namespace, shard)
        state = yield from unless_gone(status_of(flows, shard), gone=True)
        if state and state.config.shards == config.shards and state.config != config:
            yield from set_field(flows, shard, "reshard", "")
            yield from run_again(flows, commands.configure(keys, config.changeable_on_wire()))
        yield from make_shard(flows, keys, config, salt)

    def _finish(self, reshard: Reshard | None) -> Flow[None]:
        """Give all other shards the number of shards that shard 0 has, from any state."""
        flows, target = self._flows, self._shards
        if reshard:
            self._tell(Progress("open"))
        first = yield from status_of(flows, 0)
        config = first.config
        if config.shards != target:
            raise ReshardError(
                f"{flows.namespace} has {config.shards} shards on shard 0, not {target}: a "
                "failover set it back; run the reshard again"
            )
        looks = [unless_gone(status_of(flows, each), gone=True) for each in range(1, target)]
        states = dict(enumerate((yield from together(looks)), 1))
        outdated = [state for state in states.values() if state and state.config.shards != target]
        missing = [shard for shard, state in states.items() if not state]
        going = (
            list(range(target, reshard.source)) if reshard else (yield from others(flows, target))
        )
        for shard in missing:
            yield from remove(flows, shard)
            keys = ShardKeys(flows.namespace, shard)
            yield from make_shard(flows, keys, config, first.salt.reveal())
        # Only these shards: all others hold their own fences.
        raised = [*missing, *(state.shard for state in outdated)]
        if raised:
            yield from share_lanes(flows, [*range(target), *going], raised)
        for state in outdated:
            yield from self._follow(state, Reshard(state.config.shards, target))
        yield from replicated(flows)
        for shard in reversed(going):
            yield from self._end(shard)
        for shard in reversed(range(1, target)):
            yield from set_field(flows, shard, "reshard", "")
        yield from replicated(flows)
        yield from set_field(flows, 0, "reshard", "")
        flows.known = None

    def _follow(self, state: ShardStatus, reshard: Reshard) -> Flow[None]:
        """Take one shard through steps 1 to 4, to the number of shards that shard 0 has."""
        flows, shard = self._flows, state.shard
        yield from self._still()
        yield from close(flows, shard, reshard)
        yield from self._drain(reshard, [shard], read=False)
        yield from self._still()
        if shard >= reshard.target:
            yield from carry(flows, shard, shard % reshard.target)
        yield from set_field(flows, shard, "reshard", reshard.at("switch"))
        yield from self._still()
        yield from set_field(flows, shard, "shards", reshard.target)

    def _still(self) -> Flow[None]:
        """Raise ReshardError if the number of shards on shard 0 has changed during this reshard."""
        if (yield from status_of(self._flows, 0)).config.shards != self._shards:
            raise ReshardError(
                f"shard 0 of {self._flows.namespace} does not have {self._shards} shards any more: "
                "another reshard or a failover changed it; see its status"
            )

    def _end(self, shard: int) -> Flow[None]:
        """Drop a removed shard after it has reached ``F:T:switch`` and the new number of shards."""
        flows, target = self._flows, self._shards
        state = yield from unless_gone(status_of(flows, shard), gone=True)
        if state:
            reshard, source = state.reshard, state.config.shards
            if not (reshard and reshard.target == target):
                reshard = Reshard(2 ** shard.bit_length() if source == target else source, target)
            if source != target or state.reshard != reshard.at("switch"):
                yield from self._follow(state, reshard)
            keys = ShardKeys(flows.namespace, shard)
            yield from run_again(flows, commands.drop(keys, 0, last=False, reshard=reshard))
        yield from remove(flows, shard)

    def _check(self, reshard: Reshard, salt: Secret) -> Flow[None]:
        """Raise ReshardError before step 1 if the reshard could not be completed."""
        flows = self._flows
        for shard in range(1, min(reshard.source, reshard.target)):
            yield from status_of(flows, shard)
        lanes = yield from lanes_of(flows, range(reshard.source))
        if len(lanes) > MAX_LANES:
            raise ReshardError(
                f"the shards of {flows.namespace} hold {len(lanes)} durable lanes, and one shard "
                f"holds {MAX_LANES} at most; a lane expires 30 days after its last batch"
            )
        for keys in keys_of(flows, range(reshard.source, reshard.target)):
            # A shard with the target number was created by an earlier run of this reshard, before a
            # failover set shard 0 back. One with another salt is of an earlier namespace.
            has = yield Ask(("HMGET", keys.meta, "shards", "salt"))
            ours = has == [b"%d" % reshard.target, salt.reveal().encode()]
            if ours or not (yield Ask(("EXISTS", keys.meta, keys.dropping))):
                continue
            raise ReshardError(
                f"shard {keys.shard} of {flows.namespace} holds keys of an unfinished reshard: "
                f"acker-redis reshard {flows.namespace} --shards {reshard.source} removes them "
                "after the trees that are pending there have ended"
            )

    def _tell(self, progress: Progress) -> None:
        if self._on_progress is not None and progress != self._last:
            self._on_progress(progress)
        self._last = progress


def cancel(flows: Flows) -> Flow[AckerConfig]:
    """See :func:`acker_redis.ops.reshard.cancel`."""
    yield from call_off(flows, None)
    return (yield from flows.read_config())


def call_off(flows: Flows, reshard: Reshard | None) -> Flow[None]:
    """Cancel the reshard and open all shards again.

    Raises ReshardError if the reshard is decided, or if another reshard is in progress.
    """
    first = yield from status_of(flows, 0)
    now = first.reshard
    if now and reshard and now.target != reshard.target:
        raise ReshardError(
            f"{flows.namespace} is resharding to {now.target} shards, not to {reshard.target}: "
            "another reshard was started"
        )
    decided = now.target if now and now.phase == "switch" else None
    if not decided and not (now and now.phase == "cancel"):
        decided = yield from _decided(flows, first)
    if decided and not now:
        raise ReshardError(
            f"the shards of {flows.namespace} differ in their number of shards, after a failover; "
            "bring all to the number of shard 0: "
            f"acker-redis reshard {flows.namespace} --shards {first.config.shards}"
        )
    if decided:
        raise ReshardError(
            f"the reshard of {flows.namespace} to {decided} shards is decided and cannot be "
            "cancelled; complete it, which takes a moment: "
            f"acker-redis reshard {flows.namespace} --shards {decided}"
        )
    if now and now.phase == "closed":
        yield from set_field(flows, 0, "reshard", now.at("cancel"))
    for shard in reversed(range(first.config.shards)):
        change = set_field(flows, shard, "reshard", "")
        yield from unless_gone(change, bool(now and shard >= now.target))
    flows.known = None


def _decided(flows: Flows, first: ShardStatus) -> Flow[int | None]:
    """Return the number that a decided reshard has set on other shards; None if there is none.

    A failover may have set shard 0 back to a moment before the decision.
    """
    reshard, shards = first.reshard, first.config.shards
    for shard in range(1, max(shards, reshard.target if reshard else 0)):
        state = yield from unless_gone(status_of(flows, shard), gone=True)
        if state and state.config.shards != shards:
            return state.config.shards
        if not state and reshard and reshard.target <= shard < shards:
            return reshard.target
    return None


def _pending(state: ShardStatus) -> int:
    return sum(state.pending) + state.expiring


def _progress(states: list[ShardStatus], going: float) -> Progress:
    """Sum up the states of the shards; ``going`` is the first removed shard."""
    backlog: dict[str, int] = {}
    for state in states:
        if state.shard < going:
            continue  # verdicts on shards that stay may wait there
        for source, count in state.backlog.items():
            if count:
                backlog[source] = backlog.get(source, 0) + count
    pending = sum(sum(state.pending) for state in states)
    return Progress("drain", pending, sum(state.expiring for state in states), backlog)
