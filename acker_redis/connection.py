"""Run the scripts on a Redis connection; what Redis says wrong becomes an AckerError."""

import random
import re
import time
from typing import Any
from urllib.parse import urlsplit

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from acker_redis import scripts
from acker_redis.commands import Call, parse_error
from acker_redis.errors import AckerError, ConfigError, RedisRefusedError, RedisUnavailableError

OLDEST = (6, 2)
"""Oldest Redis that the scripts run on."""

_FIRST_PAUSE, _LONGEST_PAUSE = 0.05, 1.0
_PASSING = (
    "LOADING", "TRYAGAIN", "CLUSTERDOWN", "MASTERDOWN", "READONLY", "BUSY", "NOREPLICAS",
)  # fmt: skip
"""Error codes of states that pass: start-up, failover, a slot that moves, a long script."""

_IN_SCRIPT = re.compile(r"(?:ERR )?Error running script .*?: -?(?=[A-Z]+ )", re.DOTALL)
"""What Redis 6.2 puts before an error that a command in a script has met."""
_FAILED = (redis.exceptions.RedisError, redis.exceptions.RedisClusterException, AttributeError)
"""What redis-py raises when a command fails. AttributeError is its bug #4015: ASK named a master
that has no slots yet, and the cluster client knows none such. It passes once the slot has moved."""


def connect(url: str, timeout: float) -> "redis.Redis":
    """Client for ``redis://``, ``rediss://`` or ``unix://``; ConfigError for another URL.

    ``timeout`` is in seconds, for connecting and for each reply. The client never sends
    a command again by itself: whoever sends again must do so under the same fence.
    """
    try:
        return redis.Redis.from_url(
            url,
            socket_timeout=timeout,
            socket_connect_timeout=timeout,
            retry=Retry(NoBackoff(), 0),
            decode_responses=False,
        )
    except (ValueError, TypeError):
        # Not with the words of urllib or redis-py: they quote parts of the URL.
        raise ConfigError(
            f"cannot use the URL {redact(url)}; write redis://HOST:PORT/DB, rediss://HOST:PORT/DB "
            "or unix://PATH, and %2F for / in a password (%23 for #, %3F for ?)"
        ) from None


def redact(url: str) -> str:
    """The URL for people to read: without password, user name kept, no query."""
    try:
        parts = urlsplit(str(url))
        _ = parts.port  # raises where a password holds a / and its start passes for the port
        whole = parts.scheme and (parts.hostname or parts.scheme == "unix")
        if not whole or str(url).count("@") != parts.netloc.count("@"):
            return "(not shown: not a URL)"
        user = f"{parts.username or ''}:***@" if "@" in parts.netloc else ""
        return f"{parts.scheme}://{user}{parts.netloc.rpartition('@')[2]}{parts.path}"
    except ValueError:
        return "(not shown: not a URL)"


class Connection:
    """Runs calls on a redis-py client, standalone or cluster."""

    def __init__(self, client: Any) -> None:
        if client.get_encoder().decode_responses:
            raise ConfigError("replies are bytes: the client may not have decode_responses=True")
        self.client = client

    def run(self, call: Call) -> Any:
        """Send a call once and return its reply.

        Raises the AckerError that the script names, RedisUnavailableError when no answer
        came (it may have run), RedisRefusedError when Redis refused to run it.
        """
        script = scripts.load(call.script)
        try:
            try:
                return self.client.evalsha(script.sha, 2, *call.keys, *call.args)
            except redis.exceptions.NoScriptError:
                return self.client.eval(script.source, 2, *call.keys, *call.args)
        except _FAILED as error:
            raise translate(error) from error

    def run_until(self, call: Call, deadline: float) -> Any:
        """Send a call, and again after each failure to answer, until ``deadline``.

        ``deadline`` is on the ``time.monotonic`` clock. The call must be one that may run
        twice: fenced, or idempotent. It is sent once in any case.
        """
        pause = _FIRST_PAUSE
        while True:
            try:
                return self.run(call)
            except RedisUnavailableError:
                wait = pause * random.uniform(0.5, 1.0)  # noqa: S311 - jitter, not a secret
                if time.monotonic() + wait > deadline:
                    raise
                time.sleep(wait)
                pause = min(2 * pause, _LONGEST_PAUSE)

    def command(self, *args: str | bytes | int) -> Any:
        """Run a plain command; the same errors as ``run``."""
        try:
            return self.client.execute_command(*args)
        except _FAILED as error:
            raise translate(error) from error

    def check_server(self) -> None:
        """Raise ConfigError if the server is too old; silent where INFO is not allowed."""
        try:
            info = self.client.info("server")
        except redis.exceptions.NoPermissionError:
            return
        except _FAILED as error:
            raise translate(error) from error
        version = str(info.get("redis_version", ""))
        if _parse(version) < OLDEST:
            raise ConfigError(f"Redis {version} is too old; 6.2 or later is needed")

    def close(self) -> None:
        """Close the connections."""
        self.client.close()


def translate(error: Exception) -> AckerError:
    """AckerError for an error of redis-py. No message holds a password."""
    words = _IN_SCRIPT.sub("", str(error))
    known = parse_error(words)
    if known:
        return known
    if isinstance(error, redis.exceptions.AuthenticationError):
        return RedisRefusedError(f"Redis refused the user or password: {words}")
    if isinstance(error, redis.exceptions.OutOfMemoryError) or words.startswith("OOM"):
        return RedisRefusedError(
            "Redis is at maxmemory and refused the call; nothing was changed. "
            "Raise maxmemory, lower high_water, or let the sources take their outcomes"
        )
    passing = isinstance(
        error,
        redis.exceptions.ConnectionError
        | redis.exceptions.TimeoutError
        | redis.exceptions.ReadOnlyError
        | redis.exceptions.TryAgainError
        # Also that redis-py's cluster client gave up following a slot that moves.
        | redis.exceptions.ClusterError
        | redis.exceptions.RedisClusterException
        | AttributeError,
    )
    if passing or words.startswith(_PASSING):
        return RedisUnavailableError(f"Redis did not answer: {words}; is it running and reachable?")
    return RedisRefusedError(f"Redis refused the call: {words}")


def _parse(version: str) -> tuple[int, ...]:
    numbers = version.split(".")[:2]
    return tuple(int(n) if n.isdigit() else 0 for n in numbers)
