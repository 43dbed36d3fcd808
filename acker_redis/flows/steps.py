"""Flows: the work of a client, step by step, without I/O.

A flow is a generator. It yields steps. For each step it receives the result, or the error is thrown
into it. Its return value is the result of the flow. The synchronous and the asyncio connection run
the same flows, so the calls, their order and their retries are written once.
"""

import random
import time
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from acker_redis.errors import AckerError, RedisRefusedError, RedisUnavailableError
from acker_redis.protocol.commands import Call

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Run:
    """Call a script once; the result is its reply."""

    call: Call


@dataclass(frozen=True, slots=True)
class Ask:
    """Send a plain command once; the result is its reply."""

    args: tuple[str | bytes | int, ...]


@dataclass(frozen=True, slots=True)
class AskAll:
    """Send plain commands that change nothing, in one pipeline; the result is their replies."""

    commands: tuple[tuple[str | bytes | int, ...], ...]


@dataclass(frozen=True, slots=True)
class AskEach:
    """Send plain commands that change nothing; the result has each reply, or the AckerError.

    The second word of each command is a key. A node of a cluster that does not answer costs the
    others one timeout, and not their replies.
    """

    commands: tuple[tuple[str | bytes | int, ...], ...]


@dataclass(frozen=True, slots=True)
class Places:
    """Find the servers of these keys, without I/O; the result has a name for each, or None."""

    keys: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Version:
    """Read the ServerVersion; the result is None where INFO is not allowed."""


@dataclass(frozen=True, slots=True)
class Pause:
    """Wait for this many seconds."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Tell:
    """Call a user's function with each of these arguments.

    Awaitable calls run side by side. The result has, per call, the return value or the Exception.
    """

    function: Callable[..., Any]
    calls: tuple[tuple[Any, ...], ...]


@dataclass(frozen=True, slots=True)
class Send:
    """Call a user's function with each of these arguments; the flow need not wait for it.

    ``on_result(number, result)`` is called for each call with its return value or its exception.
    """

    function: Callable[..., Any]
    calls: tuple[tuple[Any, ...], ...]
    on_result: Callable[[int, Any], None]


@dataclass(frozen=True, slots=True)
class Hand:
    """Hand a value to the caller that runs the flow."""

    what: Any


@dataclass(frozen=True, slots=True)
class Together:
    """Run flows side by side, each to its end; the result has each return value or Exception."""

    flows: "tuple[Flow[Any], ...]"


class Begun(Protocol):
    """A flow that runs in the background: a future of the threads or of asyncio."""

    def done(self) -> bool:
        """Return whether it has ended."""

    def cancelled(self) -> bool:
        """Return whether it has ended without a result."""

    def result(self) -> Any:
        """Return the flow's return value, or the Exception that ended it."""


@dataclass(frozen=True, slots=True)
class Begin:
    """Begin a flow on which nothing in Redis depends, in the background; the result is a Begun."""

    flow: "Flow[Any]"


@dataclass(frozen=True, slots=True)
class Ended(Generic[T]):
    """The end of a flow: no step, but what a connection returns instead of the next ``Hand``."""

    value: T
    """The flow's return value."""


Step = (
    Run | Ask | AskAll | AskEach | Places | Version | Pause | Tell | Send | Hand | Together | Begin
)
Flow = Generator[Step, Any, T]

_FIRST_PAUSE, _LONGEST_PAUSE = 0.05, 1.0


class Pauses:
    """Pauses between attempts: each is twice as long as the last, up to one second, with jitter."""

    def __init__(self) -> None:
        self._next = _FIRST_PAUSE

    def after(self, error: Exception, deadline: float) -> Flow[None]:
        """Pause after an error; raise the error if the pause would last beyond ``deadline``.

        ``deadline`` is on the ``time.monotonic`` clock.
        """
        wait = self._next * random.uniform(0.5, 1.0)  # noqa: S311 - jitter, not a secret
        if time.monotonic() + wait > deadline:
            raise error
        yield Pause(wait)
        self._next = min(2 * self._next, _LONGEST_PAUSE)


def run_until(call: Call, deadline: float, patient: bool = False) -> Flow[Any]:
    """Call a script, with retries while Redis does not answer, until ``deadline``.

    ``deadline`` is on the ``time.monotonic`` clock. The script is called at least once. The call
    must be fenced or idempotent, because it may run twice. With ``patient`` it is retried after a
    refusal that may pass, too.
    """
    pauses = Pauses()
    while True:
        try:
            return (yield Run(call))
        except (RedisUnavailableError, RedisRefusedError) as error:
            if not may_retry(error) or (isinstance(error, RedisRefusedError) and not patient):
                raise
            yield from pauses.after(error, deadline)


def may_retry(error: Exception) -> bool:
    """Return whether Redis did not answer, or has refused for a cause that may pass."""
    return isinstance(error, RedisUnavailableError) or (
        isinstance(error, RedisRefusedError) and error.may_pass
    )


def ask_until(args: tuple[str | bytes | int, ...], deadline: float) -> Flow[Any]:
    """Send an idempotent command, with retries as in :func:`run_until`."""
    pauses = Pauses()
    while True:
        try:
            return (yield Ask(args))
        except RedisUnavailableError as error:
            yield from pauses.after(error, deadline)


def together(flows: "list[Flow[T]]") -> Flow[list[T]]:
    """Run flows side by side.

    Return their results, or raise the first error once all have ended.
    """
    if not flows:
        return []
    if len(flows) == 1:
        return [(yield from flows[0])]
    results = yield Together(tuple(flows))
    for result in results:
        if isinstance(result, Exception):
            raise result
    return list(results)


def each_of(flows: "list[Flow[T]]") -> Flow[list[T | AckerError]]:
    """Run flows side by side; return the result of each, or the AckerError that it raises."""
    results = (yield Together(tuple(flows))) if flows else []
    for result in results:
        if isinstance(result, Exception) and not isinstance(result, AckerError):
            raise result
    return list(results)
