"""Move a living namespace to another number of shards, without losing a verdict.

The shard of an anchor is ``anchor % shards``, so no tree may be pending when that number changes.
It is changed in five steps:

1. *Close.* All shards get the field ``moving``, shard 0 first. They track nothing any more
   (``BACKLOG``: sources wait and try again); rows of trees, verdicts, ticks and takes go on.
2. *Drain.* It is waited until nothing is pending and each verdict was taken. What nobody finishes
   expires within N ticks, and this ticks, too, where no rotator does.
3. *Decide.* Shard 0 gets ``<from>:<to>:switch``, in one call with a look whether it is empty; the
   others have passed that look before. A closed shard that is empty stays so. Until here the move
   can be called off, and is, on any error; from here on it only goes on.
4. *Switch.* New shards are created, the others told their number, shard 0 last: clients read it
   there, and find all that it speaks of. A shard that is no more refuses everything by then.
5. *Open.* Shards that are no more are dropped, the others opened, shard 0 last.

Shard 0 says how far it is, so whoever is killed anywhere runs the same again. A client that knows
the old number is refused by ``SHARD``, ``NAMESPACE`` or ``BACKLOG``, and reads the new one.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from acker_redis import commands
from acker_redis.client import Acker
from acker_redis.commands import Call, ShardStatus
from acker_redis.config import AckerConfig
from acker_redis.errors import MovingError
from acker_redis.flow import Ask, Flow, Pause, run_until, together
from acker_redis.flows import Flows
from acker_redis.keys import ShardKeys
from acker_redis.move import Move

DRAIN_RECORDS = 500
DRAIN_BLOCKS = 64
DRAIN_CALLS = 20
"""Calls that drain one shard before it is looked again how far all are."""
LONGEST_PAUSE = 0.25
"""Seconds after which it is looked again at least, and a millisecond more per shard."""
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
    """Verdicts that wait to be taken, per task that has any."""


Told = Callable[[Progress], object]


def migrate(
    acker: Acker,
    shards: int,
    *,
    wait: float | None = None,
    on_progress: Told | None = None,
) -> AckerConfig:
    """Move the namespace to so many ``shards``; its configuration then.

    Meanwhile nothing is tracked: sources wait, for up to N ticks and until all verdicts were taken.
    ``wait`` is for how many seconds that may last, by default 1.1 times N ticks and a minute; then,
    as on any error before it is decided, the namespace is opened again as it was, and MovingError
    says which tasks have left verdicts. ``on_progress`` is called whenever something has changed.
    Killed at any point, the same again completes it; see also :func:`cancel`.

    One at a time. Stop Spark queries at a committed batch: one that has to run its last batch again
    tracks and acks it anew. Counters of shards that are no more go with them.

    >>> acker = Acker.from_url(url, "orders")
    >>> migrate(acker, 4).shards
    4

    Raises ConfigError for a number of shards that cannot be, NamespaceNotFoundError, and
    MovingError also when it moves elsewhere already.
    """
    migration = _Migration(acker.flows, shards, wait, on_progress)
    try:
        return acker.connection.drive(migration.run())
    except BaseException as error:
        if migration.closed:
            try:
                acker.connection.drive(_call_off(acker.flows, migration.closed))
            except Exception as why:
                error.add_note(
                    f"{acker.namespace} could not be opened again ({why}): nothing is tracked "
                    "until migrate is run once more, or cancel"
                )
            else:
                error.add_note(f"{acker.namespace} is open again, and has the shards it had")
        raise


def cancel(acker: Acker) -> AckerConfig:
    """Call a move off, and open the namespace again; its configuration. Nothing, if it is open.

    >>> cancel(Acker.from_url(url, "orders")).shards
    1

    Raises MovingError when it is decided that it moves: then :func:`migrate` completes it, which
    takes a moment.
    """
    return acker.connection.drive(_cancel(acker.flows))


class _Migration:
    """One run of :func:`migrate`."""

    def __init__(self, flows: Flows, shards: int, wait: float | None, told: Told | None) -> None:
        self._flows, self._shards, self._wait = flows, shards, wait
        self._told = told
        self._last: Progress | None = None
        self.closed: Move | None = None
        """The move that is under way, and can be called off."""

    def run(self) -> Flow[AckerConfig]:
        """Move."""
        flows, first = self._flows, (yield from _status(self._flows, 0))
        replace(first.config, shards=self._shards).validate()
        move = first.moving
        if move and move.phase == "cancel":
            yield from _call_off(flows, move)
            move = None
        if move and move.target != self._shards:
            raise MovingError(
                f"{flows.namespace} moves to {move.target} shards already: complete or cancel that"
            )
        if move is None:
            if first.config.shards == self._shards:
                return first.config
            move = Move(first.config.shards, self._shards)
            yield from self._check_free(move)
        if first.config.shards == move.source:
            yield from self._close(move)
            yield from self._drain(move, first.config)
            yield from self._decide(move)
            yield from self._switch(move, first.config)
        yield from self._open(move)
        self._tell(Progress("done"))
        return (yield from flows.read_config())

    def _close(self, move: Move) -> Flow[None]:
        self._tell(Progress("close"))
        if move.phase == "closed":
            self.closed = move
            yield from _change(self._flows, 0, "moving", move)
        for shard in range(1, move.source):
            yield from _change(self._flows, shard, "moving", move.at("closed"))

    def _drain(self, move: Move, config: AckerConfig) -> Flow[None]:
        """Wait until nothing is pending, and all verdicts were taken; tick where it is due."""
        wait = 1.1 * config.timeout_ms / 1000 + SPARE_SECONDS if self._wait is None else self._wait
        deadline, keys = time.monotonic() + wait, _keys(self._flows, range(move.source))
        while True:
            states = yield from together([_status(self._flows, each.shard) for each in keys])
            progress = _progress(states)
            self._tell(progress)
            if not (progress.pending or progress.expiring or progress.backlog):
                return
            if time.monotonic() > deadline:
                yield from self._too_late(move, progress, wait)
            due = yield from together(
                [_turn(self._flows, each.shard) for each in states if _pending(each)]
            )
            longest = LONGEST_PAUSE + move.source / 1000
            yield Pause(min(longest, max(0.005, min(due, default=longest))))

    def _too_late(self, move: Move, progress: Progress, wait: float) -> Flow[None]:
        trees = progress.pending + progress.expiring
        left = [f"{trees} trees and records are pending"] if trees else []
        left += [
            f"{count} verdicts of {task} wait to be taken"
            for task, count in sorted(progress.backlog.items())
        ]
        words = f"after {wait:.0f} s {', '.join(left)}"
        if move.phase == "switch":
            raise MovingError(f"{words}; it is decided that the namespace moves: run it once more")
        yield from _call_off(self._flows, move)
        self.closed = None
        raise MovingError(
            f"{words}; the namespace is open again, with shards={move.source} as before. Run the "
            "sources of these tasks, which take them, and move it again, or wait for longer"
        )

    def _decide(self, move: Move) -> Flow[None]:
        for shard in reversed(range(move.source)):
            yield from _change(self._flows, shard, "moving", move.at("switch"))
        self.closed = None

    def _switch(self, move: Move, config: AckerConfig) -> Flow[None]:
        self._tell(Progress("switch"))
        created = replace(config, shards=move.target)
        for keys in _keys(self._flows, range(move.source, move.target)):
            yield from _run(self._flows, commands.create(keys, created))
        # Those that will be no more, too: then they refuse whatever comes.
        for shard in reversed(range(move.source)):
            yield from _change(self._flows, shard, "shards", move.target)

    def _open(self, move: Move) -> Flow[None]:
        self._tell(Progress("open"))
        for keys in reversed(_keys(self._flows, range(move.target, move.source))):
            yield from _run(self._flows, commands.drop(keys, 0, last=False))
            while (yield from _run(self._flows, commands.drop(keys, DRAIN_BLOCKS, last=True)))[0]:
                pass
        yield from _open(self._flows, min(move.source, move.target))

    def _check_free(self, move: Move) -> Flow[None]:
        """Refuse to begin what could not be completed."""
        for keys in _keys(self._flows, range(move.source, move.target)):
            if (yield Ask(("EXISTS", keys.meta, keys.dropping))):
                raise MovingError(
                    f"there is something at shard {keys.shard} of {self._flows.namespace} that "
                    f"belongs to nobody: look at the keys {keys.prefix}:*, and remove them"
                )

    def _tell(self, progress: Progress) -> None:
        if self._told and progress != self._last:
            self._told(progress)
        self._last = progress


def _cancel(flows: Flows) -> Flow[AckerConfig]:
    yield from _call_off(flows, None)
    return (yield from flows.read_config())


def _call_off(flows: Flows, move: Move | None) -> Flow[None]:
    """Open all shards again; MovingError if it is decided, or another move is under way."""
    first = yield from _status(flows, 0)
    if first.moving and move and first.moving.target != move.target:
        raise MovingError(f"{flows.namespace} moves to {first.moving.target} shards meanwhile")
    if first.moving and first.moving.phase == "switch":
        raise MovingError(
            f"it is decided that {flows.namespace} moves to {first.moving.target} shards; "
            "complete that, which takes a moment"
        )
    if first.moving and first.moving.phase == "closed":
        yield from _change(flows, 0, "moving", first.moving.at("cancel"))
    yield from _open(flows, first.config.shards)


def _open(flows: Flows, shards: int) -> Flow[None]:
    for shard in reversed(range(shards)):
        yield from _run(
            flows, commands.configure(ShardKeys(flows.namespace, shard), {"moving": ""})
        )
    flows.known = None


def _turn(flows: Flows, shard: int) -> Flow[float]:
    """Tick if it is due, and drain; seconds until there is more to do."""
    keys = ShardKeys(flows.namespace, shard)
    rotated = commands.parse_rotate((yield from _run(flows, commands.rotate(keys, force=False))))
    left = rotated.left
    for _ in range(DRAIN_CALLS):
        if not left:
            return rotated.due_ms / 1000
        drained = yield from _run(flows, commands.expire(keys, DRAIN_RECORDS))
        blocks = yield from _run(flows, commands.expire_blocks(keys, DRAIN_BLOCKS))
        left = commands.parse_expire(drained).left + int(blocks[2])
    return 0.0


def _pending(state: ShardStatus) -> int:
    return sum(state.pending) + state.expiring


def _progress(states: list[ShardStatus]) -> Progress:
    backlog: dict[str, int] = {}
    for state in states:
        for task, count in state.backlog.items():
            if count:
                backlog[task] = backlog.get(task, 0) + count
    pending = sum(sum(state.pending) for state in states)
    return Progress("drain", pending, sum(state.expiring for state in states), backlog)


def _change(flows: Flows, shard: int, field: str, value: Move | int) -> Flow[None]:
    keys = ShardKeys(flows.namespace, shard)
    wire = value.to_wire() if isinstance(value, Move) else value
    yield from _run(flows, commands.configure(keys, {field: wire}))


def _status(flows: Flows, shard: int) -> Flow[ShardStatus]:
    keys = ShardKeys(flows.namespace, shard)
    return commands.parse_status((yield from _run(flows, commands.status(keys))), keys)


def _run(flows: Flows, call: Call) -> Flow[Any]:
    """All these calls may run twice."""
    return (yield from run_until(call, time.monotonic() + flows.retry_for))


def _keys(flows: Flows, shards: range) -> list[ShardKeys]:
    return [ShardKeys(flows.namespace, shard) for shard in shards]
