"""Flows: what a client does, step by step, without the I/O.

A flow is a generator. It yields steps, is sent the result of each, or gets its error thrown in,
and returns what it was for. The synchronous connection and its asyncio twin run the same flows,
so what is sent, how often and in what order is written once.
"""

import random
import time
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from acker_redis.errors import RedisUnavailableError
from acker_redis.protocol.commands import Call

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Run:
    """Call a script, once; its reply."""

    call: Call


@dataclass(frozen=True, slots=True)
class Ask:
    """Send a plain command, once; its reply."""

    args: tuple[str | bytes | int, ...]


@dataclass(frozen=True, slots=True)
class AskAll:
    """Send plain commands that change nothing, in one go; their replies."""

    commands: tuple[tuple[str | bytes | int, ...], ...]


@dataclass(frozen=True, slots=True)
class Version:
    """Ask for the ServerVersion; None where INFO is not allowed."""


@dataclass(frozen=True, slots=True)
class Pause:
    """Let so many seconds go by."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Tell:
    """Call a function of the user's with each of these arguments.

    Side by side, if it is to be awaited; for each what it returned, or the Exception it raised.
    """

    function: Callable[..., Any]
    calls: tuple[tuple[Any, ...], ...]


@dataclass(frozen=True, slots=True)
class Send:
    """Call a function of the user's with each of these arguments; the flow need not wait for it.

    ``told(number, result)`` is called for each with what it returned, or the exception it raised.
    """

    function: Callable[..., Any]
    calls: tuple[tuple[Any, ...], ...]
    told: Callable[[int, Any], None]


@dataclass(frozen=True, slots=True)
class Hand:
    """Hand something to whoever runs the flow."""

    what: Any


@dataclass(frozen=True, slots=True)
class Together:
    """Run flows side by side, each to its end; what each returned, or the Exception it raised."""

    flows: "tuple[Flow[Any], ...]"


@dataclass(frozen=True, slots=True)
class Ended(Generic[T]):
    """A flow has ended; no step, but what a connection answers instead of the next ``Hand``."""

    value: T
    """What the flow returned."""


Step = Run | Ask | AskAll | Version | Pause | Tell | Send | Hand | Together
Flow = Generator[Step, Any, T]

_FIRST_PAUSE, _LONGEST_PAUSE = 0.05, 1.0


class Pauses:
    """Ever longer pauses between attempts."""

    def __init__(self) -> None:
        self._next = _FIRST_PAUSE

    def after(self, error: Exception, deadline: float) -> Flow[None]:
        """Pause after an error; raise it if the pause would last beyond ``deadline``.

        ``deadline`` is on the ``time.monotonic`` clock.
        """
        wait = self._next * random.uniform(0.5, 1.0)  # noqa: S311 - jitter, not a secret
        if time.monotonic() + wait > deadline:
            raise error
        yield Pause(wait)
        self._next = min(2 * self._next, _LONGEST_PAUSE)


def run_until(call: Call, deadline: float) -> Flow[Any]:
    """Call a script, and again after each failure to answer, until ``deadline``.

    ``deadline`` is on the ``time.monotonic`` clock. The call must be one that may run twice:
    fenced, or idempotent. It is sent once in any case.
    """
    pauses = Pauses()
    while True:
        try:
            return (yield Run(call))
        except RedisUnavailableError as error:
            yield from pauses.after(error, deadline)


def ask_until(args: tuple[str | bytes | int, ...], deadline: float) -> Flow[Any]:
    """Send a command, likewise; one that may run twice."""
    pauses = Pauses()
    while True:
        try:
            return (yield Ask(args))
        except RedisUnavailableError as error:
            yield from pauses.after(error, deadline)


def together(flows: "list[Flow[T]]") -> Flow[list[T]]:
    """Run flows side by side; what each returned, or, when all have ended, the first error."""
    if not flows:
        return []
    if len(flows) == 1:
        return [(yield from flows[0])]
    results = yield Together(tuple(flows))
    for result in results:
        if isinstance(result, Exception):
            raise result
    return list(results)
