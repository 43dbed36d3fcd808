"""Wait on the driver until a batch of new trees fits below the high-water mark."""

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
    acker: Acker, source: str, slots: Sequence[int], max_wait: float, again: bool = False
) -> float:
    """Wait until the trees of a batch fit; return the seconds that it took.

    Args:
        acker: The client of the namespace.
        source: The source that tracks the trees.
        slots: The number of new loose trees, and of slots of new blocks, for each shard.
        max_wait: Maximum wait, in seconds.
        again: Some of the trees are already pending from an earlier run, and may themselves fill
            the table. Then wait only for the backlog of the source's verdicts.

    Raises:
        ConfigError: The trees can never fit.
        HighWaterError: The trees do not fit after ``max_wait`` seconds.
        BacklogError: After ``max_wait`` seconds the source's verdicts are not taken, or the
            namespace is still being resharded.
        WrongShardError: The number of shards has changed.

    """
    status = acker.status()
    config, share = status.config, status.config.share
    wanted = np.zeros(len(slots), dtype=int) if again else np.asarray(slots)
    total = int(wanted.sum())
    _check_can_fit(config, total, int(wanted.max(initial=0)))
    # For each shard, because the scripts enforce the limit per shard. A batch with a large part on
    # one shard may need the range between the high-water mark and twice the mark.
    limits = np.where(wanted <= share, share, 2 * share)
    backlog_limit = config.backlog_share
    began = logged = time.monotonic()
    while True:
        if len(status.shards) != len(wanted):
            acker.flows.known = None
            raise WrongShardError(
                f"{acker.namespace} was resharded or created again: run the batch again"
            )
        pending = np.array([sum(shard.pending) for shard in status.shards])
        backlog = max(shard.backlog.get(source, 0) for shard in status.shards)
        now = time.monotonic()
        reshard = status.reshard
        fits = ((pending + wanted <= limits) | (wanted == 0)).all() and backlog < backlog_limit
        if fits and not reshard:
            return now - began
        if now - began >= max_wait:
            raise _no_room(acker.namespace, status, source, backlog, now - began)
        if logged == began or now - logged >= _LOG_SECONDS:
            _log_waiting(status, total, f"{backlog} verdicts of {source}", now - began, max_wait)
            logged = now
        time.sleep(min(_POLL_SECONDS, max(0.0, max_wait - (now - began))))
        status = acker.status()


def _log_waiting(status: Status, total: int, backlog: str, waited: float, most: float) -> None:
    log.warning(
        "%s%s is waiting for room: %d trees to track, %d pending, high water %d; %s not taken; "
        "waited %.0f of %.0f s",
        status.namespace,
        ", which is being resharded," if status.reshard else "",
        total,
        status.pending,
        status.config.high_water,
        backlog,
        waited,
        most,
    )


def _check_can_fit(config: AckerConfig, total: int, most: int) -> None:
    """Raise ConfigError if ``total`` slots, with at most ``most`` on one shard, can never fit."""
    if total > config.high_water or most > 2 * config.share:
        raise ConfigError(
            f"a batch of {total} trees does not fit under the high-water mark of "
            f"{config.high_water} ({config.share} per shard), which also counts the gaps in the "
            "numbers of a block; make the batches smaller "
            "(maxFilesPerTrigger, maxOffsetsPerTrigger) or raise high_water"
        )


def _no_room(
    namespace: str, status: Status, source: str, backlog: int, waited: float
) -> AckerError:
    """Return the error that says why a batch did not fit after ``waited`` seconds."""
    if status.reshard:
        return BacklogError(
            f"{namespace} is still being resharded after {waited:.0f} s, and nothing is tracked "
            "until the reshard has ended: run the batch again"
        )
    if backlog >= status.config.backlog_share:
        return BacklogError(
            f"{backlog} verdicts of {source} were not taken after {waited:.0f} s: its source must "
            "read and take its outcomes"
        )
    return HighWaterError(
        f"{status.pending} trees were still pending after {waited:.0f} s of waiting, high water is "
        f"{status.config.high_water}; check that the bolts and the rotator run"
    )
