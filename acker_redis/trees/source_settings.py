"""Settings of a source, and validation of its records and callbacks."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from acker_redis.errors import ConfigError, InvalidBatchError
from acker_redis.protocol.texts import check_text
from acker_redis.trees.record import Backoff, Record, Verdict

MAX_MESSAGES = 65_536
"""Maximum first messages of a record; an open tree may have any number."""


@dataclass(frozen=True, slots=True)
class SourceSettings:
    """Settings of a source; for the meaning of the fields see :class:`acker_redis.Source`."""

    send: Callable[..., Any] | None = None
    on_ack: Callable[..., Any] | None = None
    on_fail: Callable[..., Any] | None = None
    dead_letter: Callable[..., Any] | None = None
    reload: Callable[..., Any] | None = None
    max_pending: int = 1000
    attempts: int = 5
    backoff: Backoff = field(default_factory=Backoff)
    timeout: float | None = None
    poll: float = 0.05
    on_group: Callable[..., Any] | None = None
    adaptive: bool = True
    give_up_after: float = 86_400.0

    def __post_init__(self) -> None:
        for name in ("max_pending", "attempts"):
            value = getattr(self, name)
            if type(value) is not int or value < 1:
                raise ConfigError(f"{name} is a whole number of at least 1, not {value!r}")
        if type(self.adaptive) is not bool:
            raise ConfigError(f"adaptive is True or False, not {self.adaptive!r}")
        if not self.give_up_after > 0:
            raise ConfigError(
                f"give_up_after is a number of seconds, more than 0, not {self.give_up_after!r}"
            )
        if not isinstance(self.backoff, Backoff):
            raise ConfigError(f"backoff is a Backoff(first, most), not {self.backoff!r}")
        if not 0 < self.poll <= 60:
            raise ConfigError(f"poll is more than 0 and up to 60 seconds, not {self.poll!r}")
        if self.reload is not None and self.send is None:
            raise ConfigError("reload= is only for replays, which need send=: give send= too")

    @property
    def calls_back(self) -> bool:
        """Whether any callback for verdicts is set."""
        told = (self.on_ack, self.on_fail, self.dead_letter)
        return any(each is not None for each in told)  # a callable list is false while it is empty

    def callbacks(self, verdict: Verdict) -> list[tuple[Callable[..., Any], tuple[Any, ...]]]:
        """Return the callbacks of a verdict with their arguments, in the order of the calls."""
        if verdict.verdict == "ack":
            return [] if self.on_ack is None else [(self.on_ack, (verdict.record,))]
        told = verdict.record, verdict.reason, verdict.why
        # attempt 0: an earlier program tracked the record, and it is not replayed. Either it is
        # done, or the restarted program emits it again: it is no dead letter.
        dead = verdict.final and verdict.record.attempt
        functions = (self.on_fail, self.dead_letter if dead else None)
        return [(function, told) for function in functions if function is not None]


def check_record(record: Record) -> Record:
    """Return the record; raise InvalidBatchError if it cannot be tracked."""
    check_text("source id", record.source_id, 1)
    messages = record.messages
    if messages is not None and (type(messages) is not int or not 0 <= messages <= MAX_MESSAGES):
        raise InvalidBatchError(
            f"messages is a number from 0 to {MAX_MESSAGES}, or None, not {messages!r}"
        )
    if not isinstance(record.edge, str):
        raise InvalidBatchError(f"edge is the name of an edge, not {record.edge!r}")
    return record


def check_ran(function: Callable[..., Any], result: Any) -> None:
    """Raise ConfigError if a callback returned a coroutine or generator instead of running."""
    if result is None:
        return
    if inspect.isawaitable(result) or inspect.isgenerator(result) or inspect.isasyncgen(result):
        if inspect.iscoroutine(result):
            result.close()
        raise ConfigError(
            f"{function!r} was not run: it returned a coroutine or generator; use a plain function"
        )
