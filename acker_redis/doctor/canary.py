"""Canary: a temporary namespace whose trees get verdicts; it is removed also after errors.

On each shard one tree is tracked and acked, and one is tracked and expires by forced ticks. A
rotator that serves all namespaces does not disturb the canary: several programs may drain one
shard, and the tick of the canary is one hour, so no rotator ticks it.
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
from acker_redis.terminal import count_of
from acker_redis.transport.errors import FAILED, is_denied

PREFIX = "acker-doctor-"
"""Prefix of the names of canary namespaces."""
MAX_SHARDS = 16
SOURCE = "canary"
ROUNDS = 50
MAX_CALLS = 100
"""Maximum number of calls until a forced tick has happened."""
ROWS = 100
_TICK_MS = 3_600_000
_HEARD_WITHIN = 2.0
"""Seconds until a published verdict must arrive."""
_IDS = ("canary", "pubsub", "latency")
_RETRY_FOR = 2.0
_random = random.SystemRandom()


class _WrongError(Exception):
    """Raised if the canary observes a wrong result."""


class _LeftBehindError(Exception):
    """Raised if the canary could not be removed."""


def examine(connection: Connection, shards: int) -> list[Finding]:
    """Return the findings ``canary``, ``pubsub`` and ``latency``; leave the keyspace unchanged.

    ``shards`` is a power of two. Several shards cover several masters of a cluster.
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
            f"the canary namespace {name} could not be removed: {left}",
            f"acker-redis drop {name} --yes",
        )
    except AckerError as failed:
        fix = "fix the errors above, read the server's log, and run the doctor again"
        found.setdefault("canary", error("canary", str(failed), fix))
    absent = "the canary did not get this far"
    return [found.get(id_) or skipped(id_, absent, "see the finding canary") for id_ in _IDS]


@contextlib.contextmanager
def _namespace(acker: Acker, shards: int) -> Iterator[None]:
    config = AckerConfig(shards=shards, buckets=2, tick_ms=_TICK_MS)
    try:
        acker.create(config)
        yield
    finally:
        try:
            # A create() that was refused may leave some shards, or none.
            with contextlib.suppress(NamespaceNotFoundError):
                acker.drop()
        except AckerError as error:
            raise _LeftBehindError(str(error)) from error


def _lacking(connection: Connection, name: str) -> frozenset[str]:
    """Return the commands that the canary needs and this user may not run on its keys."""
    used = ("create", "apply", "rotate", "expire", "expire_blocks", "take", "drop")
    needed = {"EVAL", "EVALSHA", "XRANGE", "SADD", "SREM"}
    needed = needed.union(*(acl.SCRIPTS.get(script, ()) for script in used)) - {"PUBLISH"}
    return frozenset(try_commands(connection, name, needed).refused)


def _skipped(id_: str, lacking: frozenset[str]) -> Finding:
    return skipped(
        id_,
        f"this user may not create the canary namespace (it lacks {', '.join(sorted(lacking))})",
        "run the doctor as a user with the role admin for all namespaces",
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
            fix = (
                "find and stop the other program that writes acker keys; users: redis-cli ACL LIST"
            )
            return {"canary": error("canary", str(wrong), fix)}
    took = (time.monotonic() - began) * 1000
    shards = acker.config.shards
    text = f"on {count_of(shards, 'shard')} a tree was acked and a tree expired, in {took:,.0f} ms"
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
    """Track a tree on each shard; return the id of its first message by its anchor."""
    shards = acker.config.shards
    anchors = {
        _random.randrange(1, 2**40) * shards + number: _random.randrange(1, 2**63)
        for number in range(shards)
    }
    batch = Batch(SOURCE)
    for anchor, first in anchors.items():
        batch.track(anchor, source_id, [first])
    acker.apply(batch)
    return anchors


def _tick(acker: Acker, keys: ShardKeys) -> None:
    # If another program ticks too, records may have to be drained before the next tick.
    rotation = ShardRotation(keys, ROWS, force=True)
    for _ in range(MAX_CALLS):
        step = rotation.reply(_run(acker, rotation.call()), time.monotonic())
        if step.round and step.round.ticked:
            return
    raise _WrongError(f"shard {keys.shard} does not tick after {MAX_CALLS} forced calls")


def _run(acker: Acker, call: commands.Call) -> Any:
    """Send a call until Redis answers, also while the slot migrates to another node."""
    return acker.connection.drive(run_until(call, time.monotonic() + _RETRY_FOR))


def _verdicts(acker: Acker, anchors: dict[int, int], expected: tuple[str, str]) -> None:
    """Read and take the verdicts; raise if they differ from the expected ones."""
    outcomes = acker.outcomes(SOURCE)
    entries = outcomes.read()
    found = {each.anchor: (each.verdict, each.reason) for entry in entries for each in entry}
    count = sum(1 for entry in entries for _ in entry)
    if found != dict.fromkeys(anchors, expected) or count != len(anchors):
        said = ", ".join(sorted({" ".join(each) for each in found.values()})) or "none"
        raise _WrongError(
            f"expected {len(anchors)} verdicts {' '.join(expected)}, received {count}: {said}"
        )
    if outcomes.take(entries) != count or outcomes.read():
        raise _WrongError("verdicts were taken, but not deleted")


def _listen(acker: Acker, stack: contextlib.ExitStack) -> Any:
    """Return a subscriber to the acks; Missing if this user may not subscribe."""
    try:
        live = stack.enter_context(contextlib.closing(acker.connection.client.pubsub()))
        live.subscribe(channel(acker.namespace, "ack", SOURCE))
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
        return ok("pubsub", "a verdict was received")
    return warning(
        "pubsub",
        f"no verdict was received within {_HEARD_WITHIN:.0f} s; the streams hold all verdicts",
        "grant publish to the users that apply and rotate: "
        "redis-cli ACL SETUSER <user> +publish '&acker:*'",
    )


def _latency(acker: Acker) -> Finding:
    """Measure acks of pending trees on the first shard, compared with PING."""
    keys, shards = ShardKeys(acker.namespace, 0), acker.config.shards
    anchors = [number * shards for number in range(1, ROWS + 1)]
    batch = Batch(SOURCE)
    for anchor in anchors:
        batch.track(anchor, "latency", [_random.randrange(1, 2**63)])
    acker.apply(batch)
    calls = [commands.apply(keys, _deltas(anchors), None) for _ in range(ROUNDS)]
    run = acker.connection.run
    applied = _times([partial(run, call) for call in calls])
    ping = Connection(server_of(acker.connection.client, keys)).command
    return latency(applied, _times([partial(ping, "PING")] * ROUNDS))


def latency(applied: tuple[float, float], pinged: tuple[float, float]) -> Finding:
    """Return the finding ``latency``; each pair is p50 and p99 in ms, of ``apply`` and of PING."""
    text = (
        f"apply of {ROWS} rows p50 {applied[0]:.1f} ms, p99 {applied[1]:.1f} ms; "
        f"PING p50 {pinged[0]:.1f} ms, p99 {pinged[1]:.1f} ms; {ROUNDS} calls each"
    )
    if applied[1] <= BOUND:
        return ok("latency", text)
    if pinged[0] > BOUND / 2:
        return warning("latency", text, "PING is slow, too: run sources and bolts closer to Redis")
    return warning(
        "latency",
        text,
        "find other load on the server: redis-cli SLOWLOG GET 128, redis-cli --latency-history",
    )


def _deltas(anchors: list[int]) -> Any:
    batch = Batch()
    for anchor in anchors:
        batch.ack(anchor, _random.randrange(1, 2**63))
    [part] = batch.parts(1)
    return part.rows


def _times(calls: Sequence[Callable[[], object]]) -> tuple[float, float]:
    """Return p50 and p99 of the calls in ms."""
    taken = []
    for call in calls:
        began = time.perf_counter()
        call()
        taken.append((time.perf_counter() - began) * 1000)
    return statistics.median(taken), sorted(taken)[int(len(taken) * 0.99)]
