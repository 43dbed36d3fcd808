"""One round of all shards in the caller's thread: tick if due, and drain completely."""

import threading
import time
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

from acker_redis.flows.drain import ShardRotation
from acker_redis.protocol.keys import ShardKeys
from acker_redis.rotator.jobs import Home, Pace, tell
from acker_redis.sync.connection import Connection


@dataclass
class Once:
    """The result of :func:`rotate_once`."""

    due: float
    """Seconds until the next tick of a shard is due."""
    errors: list[tuple[str, int | None, Exception]] = field(default_factory=list)
    """Namespace, shard (None: the whole namespace) and error of each that could not be rotated."""
    stopped: bool = False
    """Whether it was stopped before all shards were rotated."""


def rotate_once(
    homes: Iterable[Home],
    pace: Pace,
    *,
    force: bool = False,
    stop: threading.Event | None = None,
) -> Once:
    """Tick each shard once, if a tick is due or ``force`` is set, and drain what expires.

    All shards are looked at before the first drain continues, and drains take turns. An error of
    one shard does not keep another from its turn. When ``stop`` is set, it ends after the current
    call.
    """
    done = Once(pace.look_every)
    turns: deque[tuple[Connection, ShardKeys, ShardRotation]] = deque()
    for home in homes:
        if stop and stop.is_set():
            done.stopped = True
            return done
        try:
            for keys in home.shards():
                rotation = ShardRotation(keys, pace.records, pace.blocks, force)
                turns.append((home.connection, keys, rotation))
        except Exception as error:
            done.errors.append((home.name, None, error))
    while turns:
        if stop and stop.is_set():
            done.stopped = True
            break
        connection, keys, rotation = turns.popleft()
        try:
            step = rotation.reply(connection.run(rotation.call()), time.monotonic())
        except Exception as error:
            done.errors.append((keys.namespace, keys.shard, error))
            continue
        if step.round:
            tell(keys, step.round)
        if step.more:
            turns.append((connection, keys, rotation))
        else:
            done.due = min(done.due, step.due)
    return done
