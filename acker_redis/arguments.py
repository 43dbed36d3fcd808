"""Validation of arguments: blocking objects go with blocking ones, asyncio with asyncio."""

import inspect
from typing import Any

from acker_redis.errors import ConfigError


def check_is(given: Any, kind: type, who: str, advice: str = "") -> None:
    """Raise ConfigError unless ``given`` is an instance of ``kind``.

    Without this check the asyncio twin of a class would fail late, or never.

    >>> check_is("redis://localhost", Acker, "a Rotator")
    Traceback (most recent call last):
    acker_redis.errors.ConfigError: a Rotator takes an Acker, not str
    """
    if not isinstance(given, kind):
        name = kind.__name__
        raise ConfigError(f"{who} takes an {name}, not {type(given).__name__}{advice}")


def check_blocking(who: str, **functions: Any) -> None:
    """Raise ConfigError if a function is a coroutine function, which would never be awaited.

    >>> async def send(record, ids): ...
    >>> check_blocking("a Source", send=send)
    Traceback (most recent call last):
    acker_redis.errors.ConfigError: send= of a Source is a coroutine function: use acker_redis.aio
    """
    for name, function in functions.items():
        if inspect.iscoroutinefunction(function):
            raise ConfigError(f"{name}= of {who} is a coroutine function: use acker_redis.aio")


def check_sink(sink: Any, who: str, awaited: bool) -> None:
    """Raise ConfigError if a sink has no ``add``, or one that is async when it must not be.

    ``awaited`` says whether ``add`` must be a coroutine function. None is a valid sink.

    >>> check_sink(Acker.from_url(url, "orders"), "a Bolt", awaited=False)
    Traceback (most recent call last):
    acker_redis.errors.ConfigError: a Bolt takes a Producer, not Acker
    """
    add = getattr(sink, "add", None)
    if sink is not None and (add is None or inspect.iscoroutinefunction(add) is not awaited):
        wanted = "an AsyncProducer" if awaited else "a Producer"
        raise ConfigError(f"{who} takes {wanted}, not {type(sink).__name__}")
