"""How a living namespace moves to another number of shards without losing a verdict. No I/O.

The shard of an anchor is ``anchor % shards``, so no tree may be pending when that number changes.
It is changed in five steps:

1. *Close.* All shards get the field ``reshard``, shard 0 first. They track nothing any more
   (``BACKLOG``: sources wait and try again); rows of trees, verdicts, ticks and takes go on.
2. *Drain.* It is waited until nothing is pending, and each verdict on the shards that go was taken;
   those on shards that stay wait where they are. What nobody finishes expires within N ticks, and
   this ticks, too, where no rotator does.
3. *Decide.* Shard 0 gets ``<from>:<to>:switch``, in one call with a look whether it is empty; the
   others have passed that look before. A closed shard that is empty stays so. Until here the move
   can be called off, and is, on any error; from here on it only goes on.
4. *Switch.* New shards are created, durable lanes copied to all, the old shards told their number,
   shard 0 last: clients read it there, and find all that it speaks of. A shard that is no more
   refuses everything by then.
5. *Open.* Shards that are no more are dropped, the others opened, shard 0 last.

Shard 0 says how far it is, so whoever is killed anywhere runs the same again. A client that knows
the old number is refused by ``SHARD``, ``NAMESPACE`` or ``BACKLOG``, and reads the new one.

A failover may set one shard back to what it was before. So the same again looks at all shards, when
shard 0 has moved already too: one that has another number goes all these steps by itself, one that
is missing is created or, if it was to go, is gone; one that was to go and is there goes once more.
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
    others,
    remove,
    replicated,
    run_again,
    set_field,
    share_lanes,
    status_of,
    turn,
    unless_gone,
)
from acker_redis.flows.steps import Ask, Flow, Pause, together
from acker_redis.protocol import commands
from acker_redis.protocol.commands import ShardStatus
from acker_redis.protocol.config import AckerConfig
from acker_redis.protocol.keys import ShardKeys
from acker_redis.protocol.reshard import Reshard

LONGEST_PAUSE = 0.25
"""Seconds after which it is looked again at least, and a millisecond more per shard."""
MAX_SHARDS = 1024
SETTINGS = ("tick_ms", "high_water", "outcomes_limit")
SPARE_SECONDS = 60.0
"""Time that sources have to take their verdicts when the last tree has expired."""


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a move is.

    >>> Progress("drain", pending=12, expiring=0, backlog={"shop": 3}).pending
    12
    """

    step: Literal["close", "drain", "switch", "open", "done"]
    pending: int = 0
    """Trees, and records without one, that are not told of yet, and those in blocks."""
    expiring: int = 0
    """Records and blocks that wait to be drained."""
    backlog: dict[str, int] = field(default_factory=dict)
    """Verdicts on shards that go which wait to be taken, per task that has any."""


Told = Callable[[Progress], object]


class Resharding:
    """One run of :func:`acker_redis.ops.reshard.reshard`."""

    def __init__(self, flows: Flows, shards: int, wait: float | None, told: Told | None) -> None:
        self._flows, self._shards, self._wait = flows, shards, wait
        self._told = told
        self._last: Progress | None = None
        self._deadline = math.inf
        self.closed: Reshard | None = None
        """The move that is under way, and can be called off."""

    def run(self) -> Flow[AckerConfig]:
        """Reshard."""
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
                f"{self._flows.namespace} has {config.shards} shards again, by a failover or by "
                "somebody else; run this once more"
            )
        return config

    def _run(self, first: ShardStatus) -> Flow[None]:
        flows, reshard = self._flows, first.reshard
        if reshard and reshard.phase == "cancel":
            yield from call_off(flows, reshard)
            reshard = None
        if reshard and reshard.target != self._shards:
            raise ReshardError(
                f"{flows.namespace} is resharding to {reshard.target} shards: complete or "
                "cancel that"
            )
        wait = 1.1 * first.config.timeout_ms / 1000 + SPARE_SECONDS
        self._wait = wait if self._wait is None else self._wait
        self._deadline = time.monotonic() + self._wait
        if first.config.shards != self._shards:
            if reshard is None:
                reshard = Reshard(first.config.shards, self._shards)
                yield from self._check(reshard)
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
        """Wait until nothing is pending, and verdicts that would go were taken; tick if it is due.

        Verdicts do not count if nobody reads them (not ``read``).
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
            f"{count} verdicts of {task} wait to be taken"
            for task, count in sorted(progress.backlog.items())
        ]
        words = f"after {self._wait:.0f} s {', '.join(left)}"
        if self.closed is None:
            raise ReshardError(f"{words}; it is decided that the namespace moves: run it once more")
        yield from call_off(self._flows, reshard)
        self.closed = None
        raise ReshardError(
            f"{words}; the namespace is open again, with shards={reshard.source} as before. "
            "Run the sources of these tasks, which take their "
            "verdicts, then reshard again, or wait longer"
        )

    def _decide(self, reshard: Reshard) -> Flow[None]:
        for shard in reversed(range(reshard.source)):
            change = set_field(self._flows, shard, "reshard", reshard.at("switch"))
            yield from unless_gone(change, shard >= reshard.target)
        self.closed = None

    def _switch(self, reshard: Reshard) -> Flow[None]:
        self._tell(Progress("switch"))
        # As it is since it was closed: nothing is changed any more.
        created = replace((yield from status_of(self._flows, 0)).config, shards=reshard.target)
        for shard in range(reshard.source, reshard.target):
            yield from self._make(shard, created)
        everyone = range(max(reshard.source, reshard.target))
        yield from share_lanes(self._flows, everyone, range(reshard.target))
        # Those that will be no more, too: then they refuse whatever comes.
        for shard in reversed(range(reshard.source)):
            change = set_field(self._flows, shard, "shards", reshard.target)
            yield from unless_gone(change, shard >= reshard.target)

    def _make(self, shard: int, config: AckerConfig) -> Flow[None]:
        """Create a shard, or bring one that was made by this move before to the settings of now."""
        flows, keys = self._flows, ShardKeys(self._flows.namespace, shard)
        state = yield from unless_gone(status_of(flows, shard), gone=True)
        if state and state.config.shards == config.shards and state.config != config:
            yield from set_field(flows, shard, "reshard", "")
            settings = {name: getattr(config, name) for name in SETTINGS}
            yield from run_again(flows, commands.configure(keys, settings))
        yield from run_again(flows, commands.create(keys, config))

    def _finish(self, reshard: Reshard | None) -> Flow[None]:
        """Shard 0 has moved: bring all others to that, whatever they are."""
        flows, target = self._flows, self._shards
        if reshard:
            self._tell(Progress("open"))
        config = (yield from status_of(flows, 0)).config
        if config.shards != target:
            raise ReshardError(f"{flows.namespace} was set back; run this once more")
        looks = [unless_gone(status_of(flows, each), gone=True) for each in range(1, target)]
        states = dict(enumerate((yield from together(looks)), 1))
        behind = [state for state in states.values() if state and state.config.shards != target]
        missing = [shard for shard, state in states.items() if not state]
        going = (
            list(range(target, reshard.source)) if reshard else (yield from others(flows, target))
        )
        for shard in missing:
            yield from remove(flows, shard)
            yield from run_again(flows, commands.create(ShardKeys(flows.namespace, shard), config))
        # Only those: the others know what they have applied.
        raised = [*missing, *(state.shard for state in behind)]
        if raised:
            yield from share_lanes(flows, [*range(target), *going], raised)
        for state in behind:
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
        """Bring one shard to the configuration of shard 0."""
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
        """Check that shard 0 still says what the others are brought to."""
        if (yield from status_of(self._flows, 0)).config.shards != self._shards:
            raise ReshardError(
                f"{self._flows.namespace} was moved elsewhere meanwhile; see its status"
            )

    def _end(self, shard: int) -> Flow[None]:
        """Drop a shard that goes, once it knows so."""
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

    def _check(self, reshard: Reshard) -> Flow[None]:
        """Refuse to begin what could not be completed."""
        flows = self._flows
        for shard in range(1, min(reshard.source, reshard.target)):
            yield from status_of(flows, shard)
        lanes = yield from lanes_of(flows, range(reshard.source))
        if len(lanes) > MAX_LANES:
            raise ReshardError(
                f"the shards of {flows.namespace} know {len(lanes)} durable lanes, and one holds "
                f"{MAX_LANES}; lanes end 30 days after their last batch"
            )
        for keys in keys_of(flows, range(reshard.source, reshard.target)):
            # One that has this number was made by the same reshard, before shard 0 was set back.
            ours = (yield Ask(("HGET", keys.meta, "shards"))) == b"%d" % reshard.target
            if ours or not (yield Ask(("EXISTS", keys.meta, keys.dropping))):
                continue
            raise ReshardError(
                f"shard {keys.shard} of {flows.namespace} holds keys of an unfinished reshard: "
                f"acker-redis reshard {flows.namespace} --shards {reshard.source} removes them "
                "after the trees that are pending there have ended"
            )

    def _tell(self, progress: Progress) -> None:
        if self._told and progress != self._last:
            self._told(progress)
        self._last = progress


def cancel(flows: Flows) -> Flow[AckerConfig]:
    """As :func:`acker_redis.ops.reshard.cancel`."""
    yield from call_off(flows, None)
    return (yield from flows.read_config())


def call_off(flows: Flows, reshard: Reshard | None) -> Flow[None]:
    """Open all shards again; ReshardError if it is decided, or another move is under way."""
    first = yield from status_of(flows, 0)
    now = first.reshard
    if now and reshard and now.target != reshard.target:
        raise ReshardError(f"{flows.namespace} moves to {now.target} shards meanwhile")
    decided = now.target if now and now.phase == "switch" else None
    if not decided and not (now and now.phase == "cancel"):
        decided = yield from _decided(flows, first)
    if decided and not now:
        raise ReshardError(
            f"the shards of {flows.namespace} differ, by a failover; bring all to what shard 0 "
            f"says: acker-redis reshard {flows.namespace} --shards {first.config.shards}"
        )
    if decided:
        raise ReshardError(
            f"it is decided that {flows.namespace} moves to {decided} shards; complete that, "
            f"which takes a moment: acker-redis reshard {flows.namespace} --shards {decided}"
        )
    if now and now.phase == "closed":
        yield from set_field(flows, 0, "reshard", now.at("cancel"))
    for shard in reversed(range(first.config.shards)):
        change = set_field(flows, shard, "reshard", "")
        yield from unless_gone(change, bool(now and shard >= now.target))
    flows.known = None


def _decided(flows: Flows, first: ShardStatus) -> Flow[int | None]:
    """To how many shards the others say that it has moved, when a failover has set shard 0 back."""
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
    """``going``: the first shard that goes."""
    backlog: dict[str, int] = {}
    for state in states:
        if state.shard < going:
            continue  # what waits there stays
        for task, count in state.backlog.items():
            if count:
                backlog[task] = backlog.get(task, 0) + count
    pending = sum(sum(state.pending) for state in states)
    return Progress("drain", pending, sum(state.expiring for state in states), backlog)
