"""Move a living namespace to another number of shards, without losing a verdict.

The shard of an anchor is ``anchor % shards``, so no tree may be pending when that number changes.
It is changed in five steps:

1. *Close.* All shards get the field ``moving``, shard 0 first. They track nothing any more
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
from typing import Any, Literal, TypeVar

from acker_redis.errors import (
    AckerError,
    ConfigError,
    MovingError,
    NamespaceExistsError,
    NamespaceNotFoundError,
    SchemaError,
)
from acker_redis.flows.drain import ShardRotation
from acker_redis.flows.namespace import Flows
from acker_redis.flows.steps import Ask, AskAll, Flow, Pause, run_until, together
from acker_redis.protocol import commands
from acker_redis.protocol.commands import Call, ShardStatus
from acker_redis.protocol.config import AckerConfig
from acker_redis.protocol.keys import ShardKeys
from acker_redis.protocol.move import Move
from acker_redis.sync.client import Acker

DRAIN_RECORDS = 500
DRAIN_BLOCKS = 64
TURN_CALLS = 41
"""Calls that tick and drain one shard before it is looked again how far all are."""
LONGEST_PAUSE = 0.25
"""Seconds after which it is looked again at least, and a millisecond more per shard."""
LANES = 500
"""Durable lanes per call."""
REPLICA_MS = 300
"""For how long a replica is waited for that has what shard 0 was told."""
MAX_SHARDS = 1024
MAX_LANES = 100_000
"""Durable lanes that a shard holds."""
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


T = TypeVar("T")
Told = Callable[[Progress], object]


def migrate(
    acker: Acker,
    shards: int,
    *,
    wait: float | None = None,
    on_progress: Told | None = None,
) -> AckerConfig:
    """Move the namespace to so many ``shards``; its configuration then.

    Meanwhile nothing is tracked: sources wait, for up to N ticks and, if there are to be fewer
    shards, until all verdicts on those that go were taken. ``wait`` is for how many seconds that
    may last, by default 1.1 times N ticks and a minute; then, as on any error before it is decided,
    the namespace is opened again as it was, and MovingError says which tasks have left verdicts.
    ``on_progress`` is called whenever something has changed. Killed at any point, or when a
    failover has set a shard back, the same again completes it; see also :func:`cancel`.

    One at a time. Stop Spark queries at a committed batch: one that has to run its last batch again
    gets ChangedBatchError, for it is packed for other shards then. Counters of shards that are no
    more go with them.

    >>> acker = Acker.from_url(url, "orders")
    >>> migrate(acker, 4).shards
    4

    Raises ConfigError for a number of shards or a ``wait`` that cannot be, NamespaceNotFoundError,
    and MovingError also when it moves elsewhere already, or somebody else was faster.
    """
    if wait is not None and not wait >= 0:
        raise ConfigError(f"wait is seconds, at least 0, not {wait!r}")
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
                error.add_note(f"{acker.namespace} is open again")
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
        self._deadline = math.inf
        self.closed: Move | None = None
        """The move that is under way, and can be called off."""

    def run(self) -> Flow[AckerConfig]:
        """Move."""
        first = yield from _status(self._flows, 0)
        replace(first.config, shards=self._shards).validate()
        try:
            yield from self._run(first)
            config = yield from self._flows.read_config()
        except (NamespaceNotFoundError, NamespaceExistsError) as error:
            raise MovingError(
                f"{error}. A shard of {self._flows.namespace} came or went meanwhile: does "
                "somebody else move, create or drop it? See its status, and run this once more"
            ) from error
        if config.shards != self._shards:
            raise MovingError(
                f"{self._flows.namespace} has {config.shards} shards again, by a failover or by "
                "somebody else; run this once more"
            )
        return config

    def _run(self, first: ShardStatus) -> Flow[None]:
        flows, move = self._flows, first.moving
        if move and move.phase == "cancel":
            yield from _call_off(flows, move)
            move = None
        if move and move.target != self._shards:
            raise MovingError(
                f"{flows.namespace} moves to {move.target} shards already: complete or cancel that"
            )
        wait = 1.1 * first.config.timeout_ms / 1000 + SPARE_SECONDS
        self._wait = wait if self._wait is None else self._wait
        self._deadline = time.monotonic() + self._wait
        if first.config.shards != self._shards:
            if move is None:
                move = Move(first.config.shards, self._shards)
                yield from self._check(move)
            yield from self._close(move)
            yield from self._drain(move, range(move.source))
            yield from self._decide(move)
            yield from self._switch(move)
        yield from self._finish(move)
        if move:
            self._tell(Progress("done"))

    def _close(self, move: Move) -> Flow[None]:
        self._tell(Progress("close"))
        if move.phase == "closed":
            self.closed = move
            yield from _change(self._flows, 0, "moving", move)
        for shard in range(1, move.source):
            with_others = _close(self._flows, shard, move)
            yield from _unless_gone(with_others, shard >= move.target)

    def _drain(self, move: Move, shards: Iterable[int], read: bool = True) -> Flow[None]:
        """Wait until nothing is pending, and verdicts that would go were taken; tick if it is due.

        Verdicts do not count if nobody reads them (not ``read``).
        """
        flows = self._flows
        while True:
            looks = [_unless_gone(_status(flows, each), each >= move.target) for each in shards]
            states = [state for state in (yield from together(looks)) if state]
            progress = _progress(states, move.target if read else math.inf)
            self._tell(progress)
            if not (progress.pending or progress.expiring or progress.backlog):
                return
            if time.monotonic() > self._deadline:
                yield from self._too_late(move, progress)
            due = yield from together(
                [
                    _unless_gone(_turn(flows, each.shard), each.shard >= move.target)
                    for each in states
                    if _pending(each)
                ]
            )
            longest = LONGEST_PAUSE + move.source / 1000
            waits = [0.0 if each is None else each for each in due]
            yield Pause(min(longest, max(0.005, min(waits, default=longest))))

    def _too_late(self, move: Move, progress: Progress) -> Flow[None]:
        trees = progress.pending + progress.expiring
        left = [f"{trees} trees and records are pending"] if trees else []
        left += [
            f"{count} verdicts of {task} wait to be taken"
            for task, count in sorted(progress.backlog.items())
        ]
        words = f"after {self._wait:.0f} s {', '.join(left)}"
        if self.closed is None:
            raise MovingError(f"{words}; it is decided that the namespace moves: run it once more")
        yield from _call_off(self._flows, move)
        self.closed = None
        raise MovingError(
            f"{words}; the namespace is open again, with shards={move.source} as before. Run the "
            "sources of these tasks, which take them, and move it again, or wait for longer"
        )

    def _decide(self, move: Move) -> Flow[None]:
        for shard in reversed(range(move.source)):
            change = _change(self._flows, shard, "moving", move.at("switch"))
            yield from _unless_gone(change, shard >= move.target)
        self.closed = None

    def _switch(self, move: Move) -> Flow[None]:
        self._tell(Progress("switch"))
        # As it is since it was closed: nothing is changed any more.
        created = replace((yield from _status(self._flows, 0)).config, shards=move.target)
        for shard in range(move.source, move.target):
            yield from self._make(shard, created)
        everyone = range(max(move.source, move.target))
        yield from _share_lanes(self._flows, everyone, range(move.target))
        # Those that will be no more, too: then they refuse whatever comes.
        for shard in reversed(range(move.source)):
            change = _change(self._flows, shard, "shards", move.target)
            yield from _unless_gone(change, shard >= move.target)

    def _make(self, shard: int, config: AckerConfig) -> Flow[None]:
        """Create a shard, or bring one that was made by this move before to the settings of now."""
        flows, keys = self._flows, ShardKeys(self._flows.namespace, shard)
        state = yield from _unless_gone(_status(flows, shard), gone=True)
        if state and state.config.shards == config.shards and state.config != config:
            yield from _change(flows, shard, "moving", "")
            settings = {name: getattr(config, name) for name in SETTINGS}
            yield from _run(flows, commands.configure(keys, settings))
        yield from _run(flows, commands.create(keys, config))

    def _finish(self, move: Move | None) -> Flow[None]:
        """Shard 0 has moved: bring all others to that, whatever they are."""
        flows, target = self._flows, self._shards
        if move:
            self._tell(Progress("open"))
        config = (yield from _status(flows, 0)).config
        if config.shards != target:
            raise MovingError(f"{flows.namespace} was set back; run this once more")
        looks = [_unless_gone(_status(flows, each), gone=True) for each in range(1, target)]
        states = dict(enumerate((yield from together(looks)), 1))
        behind = [state for state in states.values() if state and state.config.shards != target]
        missing = [shard for shard, state in states.items() if not state]
        going = list(range(target, move.source)) if move else (yield from _others(flows, target))
        for shard in missing:
            yield from _remove(flows, shard)
            yield from _run(flows, commands.create(ShardKeys(flows.namespace, shard), config))
        # Only those: the others know what they have applied.
        raised = [*missing, *(state.shard for state in behind)]
        if raised:
            yield from _share_lanes(flows, [*range(target), *going], raised)
        for state in behind:
            yield from self._follow(state, Move(state.config.shards, target))
        yield from _replicated(flows)
        for shard in reversed(going):
            yield from self._end(shard)
        for shard in reversed(range(1, target)):
            yield from _change(flows, shard, "moving", "")
        yield from _replicated(flows)
        yield from _change(flows, 0, "moving", "")
        flows.known = None

    def _follow(self, state: ShardStatus, move: Move) -> Flow[None]:
        """Move a shard behind shard 0."""
        flows, shard = self._flows, state.shard
        yield from self._still()
        yield from _close(flows, shard, move)
        yield from self._drain(move, [shard], read=False)
        yield from self._still()
        if shard >= move.target:
            yield from _carry(flows, shard, shard % move.target)
        yield from _change(flows, shard, "moving", move.at("switch"))
        yield from self._still()
        yield from _change(flows, shard, "shards", move.target)

    def _still(self) -> Flow[None]:
        """Check that shard 0 still says what the others are brought to."""
        if (yield from _status(self._flows, 0)).config.shards != self._shards:
            raise MovingError(
                f"{self._flows.namespace} was moved elsewhere meanwhile; see its status"
            )

    def _end(self, shard: int) -> Flow[None]:
        """Drop a shard that goes, once it knows so."""
        flows, target = self._flows, self._shards
        state = yield from _unless_gone(_status(flows, shard), gone=True)
        if state:
            move, source = state.moving, state.config.shards
            if not (move and move.target == target):
                move = Move(2 ** shard.bit_length() if source == target else source, target)
            if source != target or state.moving != move.at("switch"):
                yield from self._follow(state, move)
            keys = ShardKeys(flows.namespace, shard)
            yield from _run(flows, commands.drop(keys, 0, last=False, move=move))
        yield from _remove(flows, shard)

    def _check(self, move: Move) -> Flow[None]:
        """Refuse to begin what could not be completed."""
        flows = self._flows
        for shard in range(1, min(move.source, move.target)):
            yield from _status(flows, shard)
        lanes = yield from _lanes(flows, range(move.source))
        if len(lanes) > MAX_LANES:
            raise MovingError(
                f"the shards of {flows.namespace} know {len(lanes)} durable lanes, and one holds "
                f"{MAX_LANES}; lanes end 30 days after their last batch"
            )
        for keys in _keys(flows, range(move.source, move.target)):
            # One that has this number was made by the same move, before shard 0 was set back.
            ours = (yield Ask(("HGET", keys.meta, "shards"))) == b"%d" % move.target
            if ours or not (yield Ask(("EXISTS", keys.meta, keys.dropping))):
                continue
            raise MovingError(
                f"there is something at shard {keys.shard} of {flows.namespace} that "
                f"belongs to nobody: acker-redis migrate {flows.namespace} --shards {move.source} "
                "removes it, once what is pending there has ended"
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
    now = first.moving
    if now and move and now.target != move.target:
        raise MovingError(f"{flows.namespace} moves to {now.target} shards meanwhile")
    decided = now.target if now and now.phase == "switch" else None
    if not decided and not (now and now.phase == "cancel"):
        decided = yield from _decided(flows, first)
    if decided and not now:
        raise MovingError(
            f"the shards of {flows.namespace} differ, by a failover; bring all to what shard 0 "
            f"says: acker-redis migrate {flows.namespace} --shards {first.config.shards}"
        )
    if decided:
        raise MovingError(
            f"it is decided that {flows.namespace} moves to {decided} shards; complete that, "
            f"which takes a moment: acker-redis migrate {flows.namespace} --shards {decided}"
        )
    if now and now.phase == "closed":
        yield from _change(flows, 0, "moving", now.at("cancel"))
    for shard in reversed(range(first.config.shards)):
        change = _change(flows, shard, "moving", "")
        yield from _unless_gone(change, bool(now and shard >= now.target))
    flows.known = None


def _decided(flows: Flows, first: ShardStatus) -> Flow[int | None]:
    """To how many shards the others say that it has moved, when a failover has set shard 0 back."""
    move, shards = first.moving, first.config.shards
    for shard in range(1, max(shards, move.target if move else 0)):
        state = yield from _unless_gone(_status(flows, shard), gone=True)
        if state and state.config.shards != shards:
            return state.config.shards
        if not state and move and move.target <= shard < shards:
            return move.target
    return None


def _close(flows: Flows, shard: int, move: Move) -> Flow[None]:
    """Close another shard than 0; if it was left in another move by somebody, that is over."""
    try:
        yield from _change(flows, shard, "moving", move.at("closed"))
    except MovingError:
        first = yield from _status(flows, 0)
        ours = first.moving and first.moving.at("closed") == move.at("closed")
        if not ours and first.config.shards != move.target:
            raise
        yield from _change(flows, shard, "moving", "")
        yield from _change(flows, shard, "moving", move.at("closed"))


def _unless_gone(flow: Flow[T], gone: bool) -> Flow[T | None]:
    """Run it; None if its shard is not there, and that may be."""
    try:
        return (yield from flow)
    except NamespaceNotFoundError:
        if not gone:
            raise
        return None


def _others(flows: Flows, shards: int) -> Flow[list[int]]:
    """Shards that should not be there."""
    keys = _keys(flows, range(shards, MAX_SHARDS))
    asked = [("HGET", key, "schema") for each in keys for key in (each.meta, each.dropping)]
    if not asked:
        return []
    replies = yield AskAll(tuple(asked))
    pairs = zip(keys, replies[::2], replies[1::2], strict=True)
    return [each.shard for each, meta, dropping in pairs if meta or dropping]


def _carry(flows: Flows, shard: int, to: int) -> Flow[None]:
    """Take the verdicts of a shard that nobody reads any more over to one that is read.

    At least once, as all verdicts: some may have been told before the failover that has set the
    shard back.
    """
    keys, others = ShardKeys(flows.namespace, shard), ShardKeys(flows.namespace, to)
    for task in (yield from _status(flows, shard)).backlog:
        while entries := (
            yield Ask(("XRANGE", keys.outcomes(task), "-", "+", "COUNT", commands.MAX_TAKE))
        ):
            for _, fields in entries:
                flat = _flat(fields)
                count = int(flat[flat.index(b"n") + 1])
                yield Ask(("XADD", others.outcomes(task), "*", *flat))
                yield Ask(("HINCRBY", others.meta, f"backlog:{task}", count))
            ids = [entry[0].decode() for entry in entries]
            yield from _run(flows, commands.take(keys, task, ids))


def _flat(fields: Any) -> list[bytes]:
    """Fields and values of an entry, in turn."""
    if isinstance(fields, dict):
        return [each for pair in fields.items() for each in pair]
    return list(fields)


def _remove(flows: Flows, shard: int) -> Flow[None]:
    """Remove all of a shard that was closed; nothing of one that is open."""
    call = commands.drop(ShardKeys(flows.namespace, shard), DRAIN_BLOCKS, last=True)
    while (yield from _run(flows, call))[0]:
        pass


def _share_lanes(flows: Flows, sources: Iterable[int], shards: Iterable[int]) -> Flow[None]:
    """Let each of the ``shards`` know how far each durable lane was on any of the ``sources``.

    A batch that is run again has other parts now; none of them may be applied anew.
    """
    found = yield from _lanes(flows, sources)
    lanes = [(b"lane:" + name, f"{seq}:{used}") for name, (seq, used) in found.items()]
    targets = _keys(flows, shards)
    for start in range(0, len(lanes), LANES):
        changes = dict(lanes[start : start + LANES])
        yield from together([_run(flows, commands.configure(keys, changes)) for keys in targets])


def _lanes(flows: Flows, shards: Iterable[int]) -> Flow[dict[bytes, tuple[int, int]]]:
    """The highest number of each durable lane on any of the shards, and when it was last used."""
    found: dict[bytes, tuple[int, int]] = {}
    for keys in _keys(flows, shards):
        cursor = 0
        while True:
            page = yield Ask(("HSCAN", keys.durable_fences, cursor, "COUNT", LANES))
            cursor = int(page[0])
            for lane, fence in page[1].items():
                try:
                    seq, _, used = fence.split(b":")
                    seq, used = int(seq), int(used)
                except ValueError:
                    raise SchemaError(
                        f"the fence of {lane!r} in {keys.durable_fences} has been tampered with"
                    ) from None
                before = found.get(lane, (0, 0))
                found[lane] = max(before[0], seq), max(before[1], used)
            if not cursor:
                break
    return found


def _replicated(flows: Flows) -> Flow[None]:
    """Wait for a moment until a replica has all of this; whoever has none goes on.

    What follows cannot be undone: a shard 0 that is set back behind it would speak of shards that
    are gone. The same again heals that, too.
    """
    try:
        said = yield Ask(("INFO", "replication"))
        if isinstance(said, dict) and said.get("connected_slaves"):
            yield Ask(("WAIT", 1, REPLICA_MS))
    except AckerError:
        return


def _turn(flows: Flows, shard: int) -> Flow[float]:
    """Tick if it is due, and drain; seconds until there is more to do."""
    rotation = ShardRotation(ShardKeys(flows.namespace, shard), DRAIN_RECORDS, DRAIN_BLOCKS)
    for _ in range(TURN_CALLS):
        step = rotation.reply((yield from _run(flows, rotation.call())), time.monotonic())
        if not step.more:
            return step.due
    return 0.0


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


def _change(flows: Flows, shard: int, field: str, value: Move | int | str) -> Flow[None]:
    keys = ShardKeys(flows.namespace, shard)
    wire = value.to_wire() if isinstance(value, Move) else value
    yield from _run(flows, commands.configure(keys, {field: wire}))


def _status(flows: Flows, shard: int) -> Flow[ShardStatus]:
    keys = ShardKeys(flows.namespace, shard)
    return commands.parse_status((yield from _run(flows, commands.status(keys))), keys)


def _run(flows: Flows, call: Call) -> Flow[Any]:
    """All these calls may run twice."""
    return (yield from run_until(call, time.monotonic() + flows.retry_for))


def _keys(flows: Flows, shards: Iterable[int]) -> list[ShardKeys]:
    return [ShardKeys(flows.namespace, shard) for shard in shards]
