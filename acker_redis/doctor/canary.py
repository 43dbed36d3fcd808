"""A namespace of the doctor's own, in which trees go the whole way; it is removed in any case.

On each shard one tree is tracked and acked, and one is tracked and left to expire by forced ticks.
A rotator that serves all namespaces may drain along: a drain may be shared, and its ticks are an
hour away.
"""

import contextlib
import random
import statistics
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

from acker_redis.batching.batch import Batch
from acker_redis.doctor.checks_stalls import BOUND
from acker_redis.doctor.facts import Missing
from acker_redis.doctor.finding import Finding, error, ok, skipped, warning
from acker_redis.doctor.reading import server_of
from acker_redis.doctor.rights import try_commands
from acker_redis.errors import AckerError, NamespaceNotFoundError
from acker_redis.flows.drain import ShardRotation
from acker_redis.flows.steps import run_until
from acker_redis.ops import acl
from acker_redis.protocol import commands
from acker_redis.protocol.config import AckerConfig
from acker_redis.protocol.keys import ShardKeys, channel
from acker_redis.sync.client import Acker
from acker_redis.sync.connection import Connection
from acker_redis.transport.errors import FAILED, is_denied

PREFIX = "acker-doctor-"
"""How the names of canaries begin."""
MAX_SHARDS = 16
TASK = "canary"
ROUNDS = 50
MAX_CALLS = 100
"""Calls after which a shard that is forced must have ticked."""
ROWS = 100
_TICK_MS = 3_600_000
_HEARD_WITHIN = 2.0
"""Seconds that a published verdict may take."""
_IDS = ("canary", "pubsub", "latency")
_RETRY_FOR = 2.0
_random = random.SystemRandom()


class _WrongError(Exception):
    """Raised with what went otherwise than it must."""


class _LeftBehindError(Exception):
    """Raised with why the canary is still there."""


def examine(connection: Connection, shards: int) -> list[Finding]:
    """Findings ``canary``, ``pubsub`` and ``latency``; the keyspace is as before.

    ``shards`` is a power of two; with several, several masters of a cluster are looked at.
    """
    name = f"{PREFIX}{uuid.uuid4().hex[:12]}"
    acker = Acker(connection.client, name, retry_for=_RETRY_FOR)
    found: dict[str, Finding] = {}
    try:
        lacking = _lacking(connection, name)
        if lacking:
            return [_skipped(id_, lacking) for id_ in _IDS]
        with _namespace(acker, min(MAX_SHARDS, shards)):
            found |= _round_trip(acker)
            found["latency"] = _latency(acker)
    except _LeftBehindError as left:
        found["canary"] = error(
            "canary",
            f"the canary {name} could not be removed: {left}",
            f"acker-redis drop {name} --yes",
        )
    except AckerError as failed:
        fix = "mend the errors above, look into the server's log, and run the doctor again"
        found.setdefault("canary", error("canary", str(failed), fix))
    absent = "the canary did not come so far"
    return [found.get(id_) or skipped(id_, absent, "see the finding canary") for id_ in _IDS]


@contextlib.contextmanager
def _namespace(acker: Acker, shards: int) -> Iterator[None]:
    config = AckerConfig(shards=shards, buckets=2, tick_ms=_TICK_MS)
    try:
        acker.create(config)
        yield
    finally:
        try:
            # If create() was refused there may be some of its shards, or none.
            with contextlib.suppress(NamespaceNotFoundError):
                acker.drop()
        except AckerError as error:
            raise _LeftBehindError(str(error)) from error


def _lacking(connection: Connection, name: str) -> frozenset[str]:
    """Commands that the canary takes and this user may not run on its keys."""
    used = ("create", "apply", "rotate", "expire", "expire_blocks", "take", "drop")
    needed = {"EVAL", "EVALSHA", "XRANGE", "SADD", "SREM"}
    needed = needed.union(*(acl.SCRIPTS.get(script, ()) for script in used)) - {"PUBLISH"}
    return frozenset(try_commands(connection, name, needed).refused)


def _skipped(id_: str, lacking: frozenset[str]) -> Finding:
    return skipped(
        id_,
        f"this user may not make a namespace of its own (it lacks {', '.join(sorted(lacking))})",
        "run the doctor as a user of the role admin for all namespaces",
    )


def _round_trip(acker: Acker) -> dict[str, Finding]:
    began = time.monotonic()
    with contextlib.ExitStack() as stack:
        live = _listen(acker, stack)
        try:
            _ack(acker)
            heard = live if isinstance(live, Missing) else _heard(live)
            _expire(acker)
        except _WrongError as wrong:
            fix = "find out who else writes the keys of ackers, redis-cli ACL LIST, and stop them"
            return {"canary": error("canary", str(wrong), fix)}
    took = (time.monotonic() - began) * 1000
    shards = acker.config.shards
    text = f"on {shards} shards, track, ack, verdict, and track, ticks, nack; {took:,.0f} ms"
    return {"canary": ok("canary", text), "pubsub": _pubsub(heard)}


def _ack(acker: Acker) -> None:
    anchors = _track(acker, "acked")
    batch = Batch()
    for anchor, first in anchors.items():
        batch.ack(anchor, first)
    acker.apply(batch)
    _verdicts(acker, anchors, ("ack", "completed"))


def _expire(acker: Acker) -> None:
    anchors = _track(acker, "expired")
    for _ in range(acker.config.buckets):
        for number in range(acker.config.shards):
            _tick(acker, ShardKeys(acker.namespace, number))
    _verdicts(acker, anchors, ("nack", "expired"))


def _track(acker: Acker, source_id: str) -> dict[int, int]:
    """Track a tree on each shard; its anchor and the id of its first message."""
    shards = acker.config.shards
    anchors = {
        _random.randrange(1, 2**40) * shards + number: _random.randrange(1, 2**63)
        for number in range(shards)
    }
    batch = Batch(TASK)
    for anchor, first in anchors.items():
        batch.track(anchor, source_id, [first])
    acker.apply(batch)
    return anchors


def _tick(acker: Acker, keys: ShardKeys) -> None:
    # Between a drain and the tick there is something to be drained if others tick too.
    rotation = ShardRotation(keys, ROWS, force=True)
    for _ in range(MAX_CALLS):
        step = rotation.reply(_run(acker, rotation.call()), time.monotonic())
        if step.round and step.round.ticked:
            return
    raise _WrongError(f"shard {keys.shard} of {keys.namespace} does not tick, though it is forced")


def _run(acker: Acker, call: commands.Call) -> Any:
    """Send a call until it is answered: a slot that moves is waited for."""
    return acker.connection.drive(run_until(call, time.monotonic() + _RETRY_FOR))


def _verdicts(acker: Acker, anchors: dict[int, int], expected: tuple[str, str]) -> None:
    """Read the verdicts, and take them."""
    outcomes = acker.outcomes(TASK)
    entries = outcomes.read()
    found = {each.anchor: (each.verdict, each.reason) for entry in entries for each in entry}
    count = sum(1 for entry in entries for _ in entry)
    if found != dict.fromkeys(anchors, expected) or count != len(anchors):
        said = ", ".join(sorted({" ".join(each) for each in found.values()})) or "none"
        raise _WrongError(
            f"{len(anchors)} verdicts {' '.join(expected)} were due, and {count} came: {said}"
        )
    if outcomes.take(entries) != count or outcomes.read():
        raise _WrongError("verdicts that were taken are still there")


def _listen(acker: Acker, stack: contextlib.ExitStack) -> Any:
    """A subscriber of the acks; Missing if this user may not listen."""
    try:
        live = stack.enter_context(contextlib.closing(acker.connection.client.pubsub()))
        live.subscribe(channel(acker.namespace, "ack", TASK))
        _next(live, "subscribe")
    except FAILED as failed:
        return Missing("SUBSCRIBE", str(failed), is_denied(failed))
    return live


def _heard(live: Any) -> bool | Missing:
    try:
        return _next(live, "message")
    except FAILED as failed:
        return Missing("SUBSCRIBE", str(failed), is_denied(failed))


def _next(live: Any, kind: str) -> bool:
    deadline = time.monotonic() + _HEARD_WITHIN
    while (left := deadline - time.monotonic()) > 0:
        message = live.get_message(timeout=left)
        if message and message["type"] == kind:
            return True
    return False


def _pubsub(heard: bool | Missing) -> Finding:
    if isinstance(heard, Missing):
        return heard.finding("pubsub")
    if heard:
        return ok("pubsub", "a verdict was heard")
    return warning(
        "pubsub",
        f"no verdict was heard within {_HEARD_WITHIN:.0f} s; the streams have them all the same",
        "give the users that apply and rotate +publish and the channels: "
        "redis-cli ACL SETUSER <user> +publish '&acker:*'",
    )


def _latency(acker: Acker) -> Finding:
    """Rows of bolts for trees that are pending, on the first shard."""
    keys, shards = ShardKeys(acker.namespace, 0), acker.config.shards
    anchors = [number * shards for number in range(1, ROWS + 1)]
    batch = Batch(TASK)
    for anchor in anchors:
        batch.track(anchor, "latency", [_random.randrange(1, 2**63)])
    acker.apply(batch)
    calls = [commands.apply(keys, _deltas(anchors), None) for _ in range(ROUNDS)]
    run = acker.connection.run
    applied = _times([partial(run, call) for call in calls])
    ping = Connection(server_of(acker.connection.client, keys)).command
    return latency(applied, _times([partial(ping, "PING")] * ROUNDS))


def latency(applied: tuple[float, float], pinged: tuple[float, float]) -> Finding:
    """Finding ``latency``; each pair is p50 and p99 in ms, of ``apply`` and of PING."""
    text = (
        f"apply of {ROWS} rows p50 {applied[0]:.1f} ms, p99 {applied[1]:.1f} ms; "
        f"PING p50 {pinged[0]:.1f} ms, p99 {pinged[1]:.1f} ms; {ROUNDS} calls each"
    )
    if applied[1] <= BOUND:
        return ok("latency", text)
    if pinged[0] > BOUND / 2:
        return warning("latency", text, "run sources and bolts nearer to Redis: it is the line")
    return warning(
        "latency",
        text,
        "see what else the server does: redis-cli SLOWLOG GET 128, redis-cli --latency-history",
    )


def _deltas(anchors: list[int]) -> Any:
    batch = Batch()
    for anchor in anchors:
        batch.ack(anchor, _random.randrange(1, 2**63))
    [part] = batch.parts(1)
    return part.rows


def _times(calls: Sequence[Callable[[], object]]) -> tuple[float, float]:
    """p50 and p99 in ms."""
    taken = []
    for call in calls:
        began = time.perf_counter()
        call()
        taken.append((time.perf_counter() - began) * 1000)
    return statistics.median(taken), sorted(taken)[int(len(taken) * 0.99)]
