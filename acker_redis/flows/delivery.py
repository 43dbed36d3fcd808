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
from acker_redis.flows.steps import Flow
from acker_redis.protocol.rows import Row

log = logging.getLogger(__name__)

MAX_SENDERS = 4
"""Maximum number of a producer's calls in flight, each on another shard."""

_FIRST_PAUSE, _LONGEST_PAUSE = 0.05, 0.5
"""First and longest pause before a batch without a reply is sent again, in seconds; it doubles."""


class Delivery:
    """The attempts at one batch, with retries, until a reply or a limit ends them.

    The retries end for one of four reasons:

    1. The batch was applied.
    2. Redis refuses the batch.
    3. The fence's time has passed since a part was first sent. A later retry might apply it twice.
    4. The producer was closed, and its time has passed.

    An unreachable Redis (RedisUnavailableError) and a full backlog (BacklogError) are both retried
    for the fence's time. So is a refusal that may pass, such as a password that is being rotated,
    but not before the shards are known: the password may never have been right.

    A sender makes one attempt at a time. Between two attempts it serves other shards, so that a
    shard that does not answer keeps no sender.

    Args:
        flows: Flows with ``retry_for=0``: they send each call once, so that all limits are checked
            between any two calls.
        batch: The batch of one shard.
        lane: The lane of that shard.

    """

    def __init__(self, flows: Flows, batch: Batch, lane: "Lane[Any]") -> None:
        self.batch = batch
        self.error: AckerError | None = None
        """Why the delivery has ended, unless the batch was applied."""
        self._flows, self._lane = flows, lane
        self._pause, self._warned = _FIRST_PAUSE, False
        self._unanswered: AckerError = ClosedError(
            "the producer was closed before this batch was sent"
        )

    def attempt(self, end: float) -> Flow[float | None]:
        """Apply the batch once; return the seconds until the next attempt, or None at the end.

        From ``end`` on, on the ``time.monotonic`` clock, nothing is sent.
        """
        if time.monotonic() >= end:
            self.error = self._unanswered
            return None
        try:
            yield from self._flows.apply(self.batch, self._lane)
        except (RedisUnavailableError, BacklogError, RedisRefusedError) as error:
            if isinstance(error, RedisRefusedError) and not (error.may_pass and self.batch.sent):
                self.error = error
                return None
            return self._after(error)
        except LaneError as error:
            # The fence's time has passed. The error that caused the delay says more than this one.
            late = self._warned and time.monotonic() > _horizon(self.batch)
            self.error = self._unanswered if late else error
        except AckerError as error:
            self.error = error
        else:
            if self._warned:
                rows = len(self.batch)
                log.info("producer: the batch of %d rows was applied after a retry", rows)
        return None

    def _after(self, error: AckerError) -> float | None:
        self._unanswered = error
        wait = self._pause * random.uniform(0.5, 1.0)  # noqa: S311 - jitter, not a secret
        if time.monotonic() + wait >= _horizon(self.batch):
            self.error = error
            return None
        if not self._warned:
            rows = len(self.batch)
            log.warning("producer: a batch of %d rows is being retried: %s", rows, error)
            self._warned = True
        self._pause = min(2 * self._pause, _LONGEST_PAUSE)
        return wait


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
