"""Calls of a source that would wait for themselves, and sources that nothing runs."""

import logging
import weakref
from collections import deque

from acker_redis.errors import AckerError, ClosedError
from acker_redis.flows.source import SourceFlows
from acker_redis.trees.record import Record

log = logging.getLogger(__name__)


def waits_for_itself(name: str, method: str) -> AckerError:
    """Return the error of a callback that waits for the end of the step that calls it."""
    return AckerError(
        f"{method}() inside a callback of source {name} would wait for itself: the step that calls "
        "the callback ends after it; return from the callback first (or leave the loop over "
        "verdicts())"
    )


def was_stopped(name: str) -> ClosedError:
    """Return the error of an ``emit`` to a source that was stopped."""
    return ClosedError(
        f"source {name} was stopped: call start(), run() or step() before it takes more records"
    )


def report_when_forgotten(source: object, flows: SourceFlows) -> "weakref.finalize[..., object]":
    """Log a warning when a source is deleted, or the program ends, with records in its inbox."""
    # It must hold neither the source nor its callbacks, which may hold the source.
    return weakref.finalize(source, _report_forgotten, flows.name, flows.inbox)


def _report_forgotten(name: str, inbox: "deque[tuple[Record, int | None]]") -> None:
    if inbox:
        log.warning(
            "%d records were emitted and not tracked, because nothing ran source %s after that: "
            "use a with block, or call start(), run() or step(); join() waits for their verdicts",
            len(inbox), name,
        )  # fmt: skip
