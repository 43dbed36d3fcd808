"""Read the facts of namespaces, from the script ``status`` and the oldest outcomes."""

import time
from collections.abc import Callable
from functools import partial
from typing import Any

from acker_redis.doctor.facts import Missing, NamespaceFacts, ShardFacts, Waiting
from acker_redis.errors import (
    AckerError,
    RedisRefusedError,
    RedisUnavailableError,
    SchemaError,
)
from acker_redis.flows.history import read_base
from acker_redis.flows.steps import run_until
from acker_redis.protocol import commands
from acker_redis.protocol.history import Point
from acker_redis.protocol.keys import NAMESPACES, ShardKeys
from acker_redis.protocol.status import Status
from acker_redis.protocol.stored import MAX_SHARDS, shards_of
from acker_redis.sync.connection import Connection
from acker_redis.transport.errors import code_of, is_denied

MAX_STREAMS = 1000
"""Maximum number of streams read per namespace, those with most verdicts first."""

STREAMS_AT_ONCE = 32
"""Number of streams read in one round trip; an entry may have hundreds of kilobytes."""
_RETRY_FOR = 2.0
"""Seconds to wait for the end of a temporary state, such as the migration of a slot."""


def read_namespace(connection: Connection, name: str) -> NamespaceFacts | Missing:
    """Return all facts of a namespace; Missing if a shard cannot be read."""
    first = _shard(connection, ShardKeys(name, 0))
    if isinstance(first, Missing):
        return first
    listed = _ask("SISMEMBER", lambda: bool(connection.command("SISMEMBER", NAMESPACES, name)))
    shards = [first]
    for number in range(1, _count(first) if first.status else _last(connection, name) + 1):
        shard = _shard(connection, ShardKeys(name, number))
        if isinstance(shard, Missing):
            return shard
        shards.append(shard)
    waiting, unseen = _waiting(connection, shards)
    return NamespaceFacts(name, listed, tuple(shards), waiting, unseen, _base(connection, shards))


def _base(connection: Connection, shards: list[ShardFacts]) -> Point | None:
    known = tuple(shard.status for shard in shards if shard.status)
    if len(known) < len(shards):
        return None
    try:
        return connection.drive(read_base(Status(shards[0].keys.namespace, known[0].config, known)))
    except AckerError:
        return None


def _count(first: ShardFacts) -> int:
    try:
        return shards_of(first.meta.get("shards", "1"), first.keys.meta)
    except SchemaError:
        return 1


def _last(connection: Connection, name: str) -> int:
    """Return the last shard that exists, for a namespace whose shard 0 does not say it."""
    keys = [ShardKeys(name, shard).meta for shard in range(1, MAX_SHARDS)]
    sizes = _ask("HLEN", lambda: connection.commands([("HLEN", key) for key in keys]))
    found = () if isinstance(sizes, Missing) else enumerate(sizes, 1)
    return max((shard for shard, size in found if size), default=0)


def _shard(connection: Connection, keys: ShardKeys) -> ShardFacts | Missing:
    try:
        deadline = time.monotonic() + _RETRY_FOR
        reply = connection.drive(run_until(commands.status(keys, reports=True), deadline))
    except (RedisRefusedError, RedisUnavailableError) as error:
        if code_of(error) == "WRONGTYPE":
            return _without_status(connection, keys, f"{keys.meta}, or a bucket, is no hash")
        return Missing("EVALSHA", str(error), is_denied(error))
    except AckerError as error:
        return _without_status(connection, keys, str(error))
    meta = _texts(reply[5])
    lanes, durable = sum(map(int, reply[3])), int(reply[4])
    try:
        status = commands.parse_status(reply, keys)
    except (KeyError, ValueError, AckerError) as error:
        why = f"meta is damaged: {error}"
        return ShardFacts(keys, meta, None, why, dropping=False, lanes=lanes, durable=durable)
    return ShardFacts(keys, meta, status, "", dropping=False, lanes=lanes, durable=durable)


def _without_status(connection: Connection, keys: ShardKeys, why: str) -> ShardFacts:
    """Return the raw meta of a shard for which ``status`` failed."""
    meta, dropping = (
        _ask("HGETALL", partial(connection.command, "HGETALL", key))
        for key in (keys.meta, keys.dropping)
    )
    # A key of another type exists, and has no fields.
    wrong = {"": ""} if isinstance(meta, Missing) and not meta.denied else {}
    found = wrong if isinstance(meta, Missing) else _texts(meta)
    dropped = not isinstance(dropping, Missing) and bool(dropping)
    return ShardFacts(keys, found, None, why, dropping=dropped, lanes=0, durable=0)


def _waiting(
    connection: Connection, shards: list[ShardFacts]
) -> tuple[tuple[Waiting, ...] | Missing, int]:
    backlogs = [
        (count, source, shard)
        for shard in shards
        if shard.status
        for source, count in shard.status.backlog.items()
        if count
    ]
    backlogs.sort(key=lambda each: (-each[0], each[1], each[2].keys.shard))
    looked = backlogs[:MAX_STREAMS]
    if not looked:
        return (), 0
    found = []
    for first in range(0, len(looked), STREAMS_AT_ONCE):
        some = looked[first : first + STREAMS_AT_ONCE]
        # Only the id of the entry is needed, but no command returns ids alone.
        questions = [
            ("XRANGE", shard.keys.outcomes(source), "-", "+", "COUNT", 1)
            for _, source, shard in some
        ]
        replies = _ask("XRANGE", partial(connection.commands, questions))
        if isinstance(replies, Missing):
            return replies, len(backlogs)
        for (count, source, shard), reply in zip(some, replies, strict=True):
            age = None
            if reply and shard.status:
                age = max(0, shard.status.now_ms - int(reply[0][0].partition(b"-")[0]))
            found.append(Waiting(source, shard.keys.shard, count, age))
    return tuple(found), len(backlogs) - len(looked)


def _ask(command: str, read: Callable[[], Any]) -> Any:
    try:
        return read()
    except AckerError as error:
        return Missing(command, str(error), is_denied(error))


def _texts(flat: Any) -> dict[str, str]:
    if isinstance(flat, dict):  # HGETALL by redis-py
        flat = [item for pair in flat.items() for item in pair]
    texts = [
        item.decode(errors="replace") if isinstance(item, bytes) else str(item) for item in flat
    ]
    return dict(zip(texts[::2], texts[1::2], strict=True))
