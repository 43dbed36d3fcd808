"""What belongs together: threads with threads, asyncio with asyncio."""

import inspect
from typing import Any

from acker_redis.errors import ConfigError


def check_is(given: Any, kind: type, who: str, advice: str = "") -> None:
    """ConfigError unless ``given`` is of this kind; a twin of it would fail late, or never.

    >>> check_is("redis://localhost", Acker, "a Rotator")
    Traceback (most recent call last):
    acker_redis.errors.ConfigError: a Rotator takes an Acker, not str
    """
    if not isinstance(given, kind):
        name = kind.__name__
        raise ConfigError(f"{who} takes an {name}, not {type(given).__name__}{advice}")


def check_blocking(who: str, **functions: Any) -> None:
    """ConfigError for a coroutine function, which nobody would await.

    >>> async def send(record, ids): ...
    >>> check_blocking("a Source", send=send)
    Traceback (most recent call last):
    acker_redis.errors.ConfigError: send= of a Source is no coroutine function; see acker_redis.aio
    """
    for name, function in functions.items():
        if inspect.iscoroutinefunction(function):
            raise ConfigError(f"{name}= of {who} is no coroutine function; see acker_redis.aio")


def check_sink(sink: Any, who: str, awaited: bool) -> None:
    """ConfigError for a sink whose ``add`` is, or is not, to be awaited; or that has none.

    >>> check_sink(Acker.from_url(url, "orders"), "a Bolt", awaited=False)
    Traceback (most recent call last):
    acker_redis.errors.ConfigError: a Bolt takes a Producer, not Acker
    """
    add = getattr(sink, "add", None)
    if sink is not None and (add is None or inspect.iscoroutinefunction(add) is not awaited):
        wanted = "an AsyncProducer" if awaited else "a Producer"
        raise ConfigError(f"{who} takes {wanted}, not {type(sink).__name__}")
