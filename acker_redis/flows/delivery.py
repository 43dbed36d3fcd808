"""How a producer delivers one batch: until it is answered, or may not be sent any more. No I/O."""

import logging
import math
import random
import time
from collections.abc import Callable
from typing import Any

from acker_redis.batching.batch import Batch
from acker_redis.errors import (
    AckerError,
    BacklogError,
    ClosedError,
    ConfigError,
    LaneError,
    RedisUnavailableError,
)
from acker_redis.flows.lane import Lane
from acker_redis.flows.namespace import Flows
from acker_redis.flows.steps import Flow, Pause
from acker_redis.protocol.rows import Row

log = logging.getLogger(__name__)

MAX_SENDERS = 4
"""Calls of a producer in flight at most, each on a shard of its own."""

_FIRST_PAUSE, _LONGEST_PAUSE = 0.05, 0.5
"""Seconds after which a batch that was not answered is sent again: ever longer ones."""


def deliver(
    flows: Flows, batch: Batch, lane: "Lane[Any]", end: Callable[[], float]
) -> Flow[AckerError | None]:
    """Apply a batch, again and again; the error with which it was given up, None if it was applied.

    It ends when the fence does not hold any more, Redis refuses it, or ``end()`` has come, on the
    ``time.monotonic`` clock. A task whose backlog is full is waited for as long as Redis that is
    away: the fence's time.

    ``flows`` try each call once: in between it is looked whether all this has come to its end.
    """
    pause, told = _FIRST_PAUSE, False
    unanswered: AckerError = ClosedError("the producer was closed before this could be sent")
    while time.monotonic() < end():
        try:
            yield from flows.apply(batch, lane)
        except (RedisUnavailableError, BacklogError) as error:
            unanswered, now = error, time.monotonic()
            wait = pause * random.uniform(0.5, 1.0)  # noqa: S311 - jitter, not a secret
            if now + wait >= _horizon(batch):
                return error
            if not told:
                log.warning("a batch of %d rows waits: %s", len(batch), error)
                told = True
            yield Pause(max(min(wait, end() - now), 0.0))
            pause = min(2 * pause, _LONGEST_PAUSE)
        except LaneError as error:
            # After the horizon nothing is sent again. The reason for the delay says more than that.
            return unanswered if told and time.monotonic() > _horizon(batch) else error
        except AckerError as error:
            return error
        else:
            if told:
                log.info("the batch of %d rows was applied", len(batch))
            return None
    return unanswered


def _horizon(batch: Batch) -> float:
    """Until when a batch may be sent again; for as long as it was not sent there is no end."""
    sent = batch.sent
    return min(sent.times.values()) + sent.fence_ms / 1000 if sent and sent.times else math.inf


def check_settings(linger: float, buffer: int, max_block: float) -> None:
    """Raise ConfigError for settings of a producer that cannot be."""
    if not 0 <= linger <= 60:
        raise ConfigError(f"linger is 0 to 60 seconds, not {linger!r}")
    if type(buffer) is not int or buffer < 1:
        raise ConfigError(f"buffer is a number of rows, at least 1, not {buffer!r}")
    if not max_block >= 0:
        raise ConfigError(f"max_block is seconds, at least 0, not {max_block!r}")


def tell_given_up(
    function: Callable[[AckerError, list[Row]], None] | None, error: AckerError, rows: list[Row]
) -> None:
    """Tell the user which rows were given up; log it if there is nobody to tell."""
    if function is None:
        log.warning("%d rows were given up, their trees expire: %s", len(rows), error)
        return
    try:
        function(error, rows)
    except Exception:
        log.exception("on_given_up failed")
