"""Wait until a batch of new trees fits below the high-water mark; on the driver, for so long."""

import logging
import time
from collections.abc import Sequence

import numpy as np

from acker_redis.errors import (
    AckerError,
    BacklogError,
    ConfigError,
    HighWaterError,
    WrongShardError,
)
from acker_redis.protocol.config import AckerConfig
from acker_redis.protocol.status import Status
from acker_redis.sync.client import Acker

log = logging.getLogger(__name__)

_POLL_SECONDS = 0.25
_LOG_SECONDS = 30.0


def wait_for_room(
    acker: Acker, task: str, trees: Sequence[int], max_wait: float, again: bool = False
) -> float:
    """Wait until so many trees, by shard, fit; returns the seconds that it took.

    ``again``: some of them are pending already, and may be what fills the table; then only the
    verdicts of the task are waited for.

    Raises ConfigError if they can never fit, HighWaterError if they do not after ``max_wait``
    seconds, and BacklogError if the task's verdicts are not taken so long, or if the namespace
    moves to another number of shards for so long.
    """
    status = acker.status()
    config, share = status.config, status.config.share
    wanted = np.zeros(len(trees), dtype=int) if again else np.asarray(trees)
    total = int(wanted.sum())
    _check_can_fit(config, total, int(wanted.max(initial=0)))
    # Shard by shard, as the scripts judge it; a lopsided batch may need the reserve.
    limits = np.where(wanted <= share, share, 2 * share)
    backlog_limit = config.backlog_share
    began = told = time.monotonic()
    while True:
        if len(status.shards) != len(wanted):
            acker.flows.known = None
            raise WrongShardError(
                f"{acker.namespace} was moved to other shards, or created anew: run the batch again"
            )
        pending = np.array([sum(shard.pending) for shard in status.shards])
        backlog = max(shard.backlog.get(task, 0) for shard in status.shards)
        now = time.monotonic()
        reshard = status.reshard
        fits = ((pending + wanted <= limits) | (wanted == 0)).all() and backlog < backlog_limit
        if fits and not reshard:
            return now - began
        if now - began >= max_wait:
            raise _no_room(acker.namespace, status, task, backlog, now - began)
        if told == began or now - told >= _LOG_SECONDS:
            _log_waiting(status, total, f"{backlog} verdicts of {task}", now - began, max_wait)
            told = now
        time.sleep(min(_POLL_SECONDS, max(0.0, max_wait - (now - began))))
        status = acker.status()


def _log_waiting(status: Status, total: int, backlog: str, waited: float, most: float) -> None:
    log.warning(
        "%s%s waits for room: %d trees to track, %d pending, high water %d; %s not taken; %.0f of "
        "%.0f s",
        status.namespace,
        ", which moves to other shards," if status.reshard else "",
        total,
        status.pending,
        status.config.high_water,
        backlog,
        waited,
        most,
    )


def _check_can_fit(config: AckerConfig, total: int, most: int) -> None:
    """Raise ConfigError if so many trees, ``most`` of them on one shard, can never fit."""
    if total > config.high_water or most > 2 * config.share:
        raise ConfigError(
            f"a batch of {total} trees does not fit under the high-water mark of "
            f"{config.high_water} ({config.share} per shard); make the batches smaller "
            "(maxFilesPerTrigger, maxOffsetsPerTrigger) or raise it"
        )


def _no_room(namespace: str, status: Status, task: str, backlog: int, waited: float) -> AckerError:
    """Return the error that says why a batch did not fit in time, in seconds."""
    if status.reshard:
        return BacklogError(
            f"{namespace} still moves to another number of shards after {waited:.0f} s, and "
            "nothing is tracked until then: run the batch again"
        )
    if backlog >= status.config.backlog_share:
        return BacklogError(
            f"{backlog} verdicts of {task} wait to be taken after {waited:.0f} s: its source must "
            "read and take its outcomes"
        )
    return HighWaterError(
        f"{status.pending} trees were still pending after {waited:.0f} s of waiting, high water is "
        f"{status.config.high_water}; do the bolts run, and the rotator?"
    )
