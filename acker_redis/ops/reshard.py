"""Reshard a living namespace to another number of shards; how, says ``flows/reshard.py``."""

from acker_redis.errors import ConfigError
from acker_redis.flows.reshard import Progress, Resharding, Told, call_off
from acker_redis.flows.reshard import cancel as cancelled
from acker_redis.protocol.config import AckerConfig
from acker_redis.sync.client import Acker

__all__ = ["Progress", "cancel", "reshard"]


def reshard(
    acker: Acker,
    shards: int,
    *,
    wait: float | None = None,
    on_progress: Told | None = None,
) -> AckerConfig:
    """Reshard the namespace to so many ``shards``; its configuration then.

    Meanwhile nothing is tracked: sources wait, for up to N ticks and, if there are to be fewer
    shards, until all verdicts on those that go were taken. ``wait`` is for how many seconds that
    may last, by default 1.1 times N ticks and a minute; then, as on any error before it is decided,
    the namespace is opened again as it was, and ReshardError says which tasks have left verdicts.
    ``on_progress`` is called whenever something has changed. Killed at any point, or when a
    failover has set a shard back, the same again completes it; see also :func:`cancel`.

    One at a time. Stop Spark queries at a committed batch: one that has to run its last batch again
    gets ChangedBatchError, for it is packed for other shards then. Counters of shards that are no
    more go with them.

    >>> acker = Acker.from_url(url, "orders")
    >>> reshard(acker, 4).shards
    4

    Raises ConfigError for a number of shards or a ``wait`` that cannot be, NamespaceNotFoundError,
    and ReshardError also when it moves elsewhere already, or somebody else was faster.
    """
    if wait is not None and not wait >= 0:
        raise ConfigError(f"wait is seconds, at least 0, not {wait!r}")
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
                    "until reshard is run once more, or cancel"
                )
            else:
                error.add_note(f"{acker.namespace} is open again")
        raise


def cancel(acker: Acker) -> AckerConfig:
    """Call a move off, and open the namespace again; its configuration. Nothing, if it is open.

    >>> cancel(Acker.from_url(url, "orders")).shards
    1

    Raises ReshardError when it is decided that it moves: then :func:`reshard` completes it, which
    takes a moment.
    """
    return acker.connection.drive(cancelled(acker.flows))
