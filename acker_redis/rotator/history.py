"""The job that writes the history of a namespace: a point a minute.

A round begins with shard 0, whose reply has the time, and a look at the field of that minute: if
another rotator has written its point, the round ends. Otherwise the job reads the other shards, one
a turn, and writes the point. So no tick waits long for it.

Nothing depends on history. If Redis refuses it, because memory is full or the user lacks a right,
the job logs that once and tries again in a minute.
"""

import random
import threading
from collections.abc import Iterable
from typing import Any

import redis.exceptions

from acker_redis.errors import AckerError, NamespaceNotFoundError, RedisUnavailableError
from acker_redis.logs import Event
from acker_redis.protocol import commands
from acker_redis.protocol.commands import ShardStatus
from acker_redis.protocol.history import MINUTE_MS, Point, name_of, parse
from acker_redis.protocol.keys import ShardKeys
from acker_redis.protocol.status import Status
from acker_redis.rotator.jobs import Home, log
from acker_redis.transport.errors import FAILED

SPREAD = 10.0
"""Seconds of a minute in which the rotators write its point, so that not all do at once."""


class HistoryJob:
    """Writes the points of one namespace."""

    def __init__(self, home: Home) -> None:
        self.connection = home.connection
        self.home = home
        self.keys = ShardKeys(home.name, 0)
        self.key = self.keys.meta
        self._shards: list[ShardStatus] = []
        """The shards that this round has read."""
        self._refused = False
        """Whether the log says already that there is no history."""
        self._may_ask = True
        """Whether the user has the right to INFO, as far as known."""

    @property
    def fields(self) -> dict[str, Any]:
        """The job's fields in log events."""
        return {"namespace": self.home.name}

    def ask(self) -> float | None:
        """Make one call of a round; return the seconds until the next round, None within one."""
        try:
            wait = self._turn()
        except RedisUnavailableError:
            self._shards = []
            raise
        except NamespaceNotFoundError:
            # It is being dropped or resharded; the job of the namespace notices.
            self._shards = []
            return MINUTE_MS / 1000
        except AckerError as error:
            self._shards = []
            if not self._refused:
                log.warning(Event("no_history", **self.fields, error=error))
            self._refused = True
            return MINUTE_MS / 1000
        return wait

    def _turn(self) -> float | None:
        read = self._shards
        keys = ShardKeys(self.home.name, len(read))
        shard = commands.parse_status(
            self.connection.run(commands.status(keys, reports=True)), keys
        )
        if not read and self._is_written(shard.now_ms):
            return _until_next(shard.now_ms)
        read.append(shard)
        if len(read) < read[0].config.shards:
            return None
        self._shards = []
        status = Status(self.home.name, read[0].config, tuple(read))
        point = Point.of(status, self._run_id())
        self._write(point)
        if self._refused:
            log.info(Event("history_again", **self.fields))
        self._refused = False
        return _until_next(point.at_ms)

    def _is_written(self, now_ms: int) -> bool:
        """Return whether a rotator has written the point of this minute."""
        field = name_of("m", now_ms)
        value = self.connection.command("HMGET", self.keys.history, field)[0]
        point = parse(value) if value else None
        return point is not None and 0 <= now_ms - point.at_ms < MINUTE_MS

    def _write(self, point: Point) -> None:
        pairs = [each for pair in point.fields().items() for each in pair]
        self.connection.command("HSET", self.keys.history, *pairs)
        # A drop deletes the history. If it ended since the status was read, delete this point too.
        if self.connection.command("HMGET", self.keys.meta, "schema") == [None]:
            self.connection.command("UNLINK", self.keys.history)

    def _run_id(self) -> str:
        """Return the id of this run of shard 0's server; '' if the user may not ask for it."""
        if not self._may_ask:
            return ""
        client = self.connection.client
        node: dict[str, Any] = {}
        if hasattr(client, "get_node_from_key"):
            node = {"target_nodes": client.get_node_from_key(self.key)}
        try:
            found = client.execute_command("INFO", "server", **node)
        except redis.exceptions.NoPermissionError:
            self._may_ask = False  # each refusal is a line in the ACL log
            return ""
        except FAILED:
            return ""
        return str(found.get("run_id", "")) if isinstance(found, dict) else ""


def write_once(homes: Iterable[Home], stop: threading.Event) -> None:
    """Write the point of this minute for each namespace; an error is logged and stops nothing."""
    for home in homes:
        job = HistoryJob(home)
        try:
            while not stop.is_set() and job.ask() is None:
                pass
        except RedisUnavailableError as error:
            log.warning(Event("no_history", **job.fields, error=error))


def _until_next(now_ms: int) -> float:
    """Return the seconds until a moment at the beginning of the next minute."""
    late = random.uniform(0.1, SPREAD)  # noqa: S311 - jitter, not a secret
    return (MINUTE_MS - now_ms % MINUTE_MS) / 1000 + late
