"""What a handler returned: whether its work is done, so that its message may be acked."""

from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from acker_redis.errors import ConfigError
from acker_redis.trees.source_settings import check_ran


def check_done(handler: Callable[..., Any], result: Any) -> None:
    """Raise unless a handler has done its work when it returned.

    Raises:
        ConfigError: It returned a coroutine, a generator, or a Future of work that continues.
        BaseException: It returned a Future of work that has failed: the error of that work.

    Examples:
        >>> done = Future()
        >>> check_done(print, done)  # doctest: +ELLIPSIS
        Traceback (most recent call last):
        acker_redis.errors.ConfigError: <built-in function print> has not done its work: ...
        >>> done.set_result(None)
        >>> check_done(print, done)

    """
    check_ran(handler, result)
    if isinstance(result, Future):
        if not result.done():
            raise ConfigError(
                f"{handler!r} has not done its work: it returned a Future; call its result() first"
            )
        result.result()
