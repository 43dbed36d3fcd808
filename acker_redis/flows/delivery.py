"""How a producer delivers one batch: with retries, until a reply or a limit ends them. No I/O."""

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
    RedisRefusedError,
    RedisUnavailableError,
)
from acker_redis.flows.lane import Lane
from acker_redis.flows.namespace import Flows
from acker_redis.flows.steps import Flow, Pause
from acker_redis.protocol.rows import Row

log = logging.getLogger(__name__)

MAX_SENDERS = 4
"""Maximum number of a producer's calls in flight, each on another shard."""

_FIRST_PAUSE, _LONGEST_PAUSE = 0.05, 0.5
"""First and longest pause before a batch without a reply is sent again, in seconds; it doubles."""


def deliver(
    flows: Flows, batch: Batch, lane: "Lane[Any]", end: Callable[[], float]
) -> Flow[AckerError | None]:
    """Apply a batch, with retries. Return None once it is applied, else the error that ended it.

    The retries end for one of four reasons:

    1. The batch was applied.
    2. Redis refuses the batch.
    3. The fence's time has passed since a part was first sent. A later retry might apply it twice.
    4. ``end()`` has passed, on the ``time.monotonic`` clock: the producer was closed.

    An unreachable Redis (RedisUnavailableError) and a full backlog (BacklogError) are both retried
    for the fence's time. So is a refusal that may pass, such as a password that is being rotated,
    but not before the shards are known: the password may never have been right.

    ``flows`` has ``retry_for=0``: it sends each call once, so this function checks all limits
    between any two calls.
    """
    pause, warned = _FIRST_PAUSE, False
    unanswered: AckerError = ClosedError("the producer was closed before this batch was sent")
    while time.monotonic() < end():
        try:
            yield from flows.apply(batch, lane)
        except (RedisUnavailableError, BacklogError, RedisRefusedError) as error:
            if isinstance(error, RedisRefusedError) and not (error.may_pass and batch.sent):
                return error
            unanswered, now = error, time.monotonic()
            wait = pause * random.uniform(0.5, 1.0)  # noqa: S311 - jitter, not a secret
            if now + wait >= _horizon(batch):
                return error
            if not warned:
                log.warning("producer: a batch of %d rows is being retried: %s", len(batch), error)
                warned = True
            yield Pause(max(min(wait, end() - now), 0.0))
            pause = min(2 * pause, _LONGEST_PAUSE)
        except LaneError as error:
            # The fence's time has passed. The error that caused the delay says more than this one.
            return unanswered if warned and time.monotonic() > _horizon(batch) else error
        except AckerError as error:
            return error
        else:
            if warned:
                log.info("producer: the batch of %d rows was applied after a retry", len(batch))
            return None
    return unanswered


def _horizon(batch: Batch) -> float:
    """Return until when a batch may be sent again; infinity if it was never sent."""
    sent = batch.sent
    return min(sent.times.values()) + sent.fence_ms / 1000 if sent and sent.times else math.inf


def check_settings(linger: float, buffer: int, max_block: float) -> None:
    """Raise ConfigError for invalid settings of a producer."""
    if not 0 <= linger <= 60:
        raise ConfigError(f"linger must be 0 to 60 seconds, not {linger!r}")
    if type(buffer) is not int or buffer < 1:
        raise ConfigError(f"buffer must be a number of rows, at least 1, not {buffer!r}")
    if not max_block >= 0:
        raise ConfigError(f"max_block must be a number of seconds, at least 0, not {max_block!r}")


def tell_given_up(
    function: Callable[[AckerError, list[Row]], None] | None, error: AckerError, rows: list[Row]
) -> None:
    """Call ``on_given_up`` with the error and the rows; without a function log a warning."""
    if function is None:
        log.warning("producer: %d rows were given up, their trees expire: %s", len(rows), error)
        return
    try:
        function(error, rows)
    except Exception:
        log.exception("producer: on_given_up raised an exception")
