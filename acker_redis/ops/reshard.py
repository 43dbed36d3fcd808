"""Reshard a namespace in use; see ``flows/reshard.py`` for the protocol."""

from acker_redis.errors import ConfigError
from acker_redis.flows.reshard import OnProgress, Progress, Resharding, call_off
from acker_redis.flows.reshard import cancel as cancelled
from acker_redis.protocol.config import AckerConfig
from acker_redis.sync.client import Acker

__all__ = ["Progress", "cancel", "reshard"]


def reshard(
    acker: Acker,
    shards: int,
    *,
    wait: float | None = None,
    on_progress: OnProgress | None = None,
) -> AckerConfig:
    """Reshard the namespace to ``shards`` shards, and return its new configuration.

    While this runs, nothing is tracked and sources wait. That takes up to N ticks, or longer while
    a touch or ``refresh=update`` restarts the clock of a tree. With fewer shards it also waits
    until the sources have taken all verdicts on the removed shards.

    An error or a timeout before the reshard is decided cancels it: the namespace is open again with
    its old number of shards. After a crash at any point, or after a failover that set a shard back,
    run the same reshard again to complete it. See also :func:`cancel`.

    Run one reshard at a time. Stop Spark queries at a committed batch first: a query that retries
    its last batch after the reshard gets ChangedBatchError, because the batch is packed for other
    shards then. The counters of removed shards are deleted.

    Args:
        acker: The client of the namespace.
        shards: The new number of shards, a power of two from 1 to 1024.
        wait: Seconds to wait until nothing is pending and the verdicts are taken. Default: 1.1
            times N ticks, plus 60 s.
        on_progress: Called with a :class:`Progress` whenever it has changed.

    Raises:
        ConfigError: ``shards`` or ``wait`` is invalid.
        NamespaceNotFoundError: The namespace does not exist.
        ReshardError: The wait was too short (the message names the sources whose verdicts were
            left), another reshard is in progress, or another program or a failover changed the
            shards.

    Examples:
        >>> acker = Acker.from_url(url, "orders")
        >>> reshard(acker, 4).shards
        4

    """
    if wait is not None and not wait >= 0:
        raise ConfigError(f"wait must be a number of seconds, at least 0, not {wait!r}")
    run = Resharding(acker.flows, shards, wait, on_progress)
    try:
        return acker.connection.drive(run.run())
    except BaseException as error:
        if run.closed:
            try:
                acker.connection.drive(call_off(acker.flows, run.closed))
            except Exception as why:
                error.add_note(
                    f"{acker.namespace} could not be opened again ({why}): nothing is tracked "
                    "until reshard or cancel is run again"
                )
            else:
                error.add_note(f"{acker.namespace} is open again")
        raise


def cancel(acker: Acker) -> AckerConfig:
    """Cancel a reshard and open the namespace again; return its configuration.

    A no-op for a namespace that is open.

    Raises:
        ReshardError: The reshard is decided. Then :func:`reshard` completes it, which takes a
            moment.

    Examples:
        >>> cancel(Acker.from_url(url, "orders")).shards
        1

    """
    return acker.connection.drive(cancelled(acker.flows))
