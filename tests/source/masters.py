"""A connection to one server that behaves as one to a cluster: shards are cut one by one."""

import asyncio
import re
import time
from typing import Any

from acker_redis.errors import AckerError, RedisUnavailableError
from acker_redis.flows.steps import Ask, AskAll, AskEach, Places, Run, Step

_SHARD = re.compile(r"acker:\{[^:]*:(\d+)\}")


class Masters:
    """The masters of a client: one for each shard, or ``count``."""

    def __init__(self, connection: Any, count: int = 1024) -> None:
        self._take, self._count = connection.take, count
        self.cut: set[int] = set()
        """Masters that get no command."""
        self.lost: set[int] = set()
        """Masters that run scripts, and whose replies to these are lost."""
        self.hanging: set[int] = set()
        """Masters whose calls wait, and get no reply once these hang no more."""
        self.hung = 0
        """Calls that wait for such a master."""
        self.refused: dict[int, AckerError] = {}
        """Errors of masters that refuse to run scripts."""
        self.calls: list[tuple[int, str]] = []
        """Shards and scripts that were called, also on a master that is cut."""
        is_async = hasattr(connection, "whole")
        connection.take = self._take_async if is_async else self._take_sync

    def master(self, key: Any) -> int:
        """Return the number of the master of a key."""
        return shard_in(key) % self._count

    def _take_sync(self, step: Step) -> Any:
        if isinstance(step, Places):
            return [str(self.master(key)) for key in step.keys]
        self._before(step)
        if self._hangs(step):
            self.hung += 1
            while self._hangs(step):
                time.sleep(0.001)
            self.hung -= 1
            raise _lost()
        return self._after(step, self._take(step))

    async def _take_async(self, step: Step) -> Any:
        if isinstance(step, Places):
            return [str(self.master(key)) for key in step.keys]
        self._before(step)
        if self._hangs(step):
            self.hung += 1
            while self._hangs(step):
                await asyncio.sleep(0.001)
            self.hung -= 1
            raise _lost()
        return self._after(step, await self._take(step))

    def _hangs(self, step: Step) -> bool:
        return any(self.master(key) in self.hanging for key, _ in _keys(step))

    def _before(self, step: Step) -> None:
        for key, script in _keys(step):
            self.calls.append((shard_in(key), script))
            if not isinstance(step, AskEach):
                self._check(key, self.cut)
            if script and self.master(key) in self.refused:
                raise self.refused[self.master(key)]

    def _after(self, step: Step, result: Any) -> Any:
        if isinstance(step, AskEach):
            return [
                _lost() if self.master(command[1]) in self.cut else reply
                for command, reply in zip(step.commands, result, strict=True)
            ]
        for key, script in _keys(step):
            self._check(key, self.cut | self.lost if script else self.cut)
        return result

    def _check(self, key: Any, masters: set[int]) -> None:
        if self.master(key) in masters:
            raise _lost()


def shard_in(key: Any) -> int:
    """Return the shard of a key; 0 for a key of no shard."""
    found = _SHARD.match(key)
    return int(found[1]) if found else 0


def _keys(step: Step) -> list[tuple[Any, str]]:
    """Return a key of each command of a step, with the script."""
    if isinstance(step, Run):
        return [(step.call.keys[0], step.call.script)]
    if isinstance(step, Ask):
        return [(step.args[1], "")]
    if isinstance(step, AskAll | AskEach):
        return [(command[1], "") for command in step.commands]
    return []


def _lost() -> RedisUnavailableError:
    return RedisUnavailableError("the master is cut off")
