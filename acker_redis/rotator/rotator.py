"""The rotator: ticks when a tick is due, and drains the expired bucket.

Any number of rotators may serve a namespace. The script decides by Redis's clock whether a tick is
due, so each tick happens once. If two rotators drain a bucket at the same time, they share the
work. Ticks that no rotator made are not caught up: no tree expires early.

For the order of its work, and how soon it notices changes, see :mod:`acker_redis.rotator.service`.
"""

import threading
from collections.abc import Iterable

from acker_redis.arguments import check_is
from acker_redis.errors import AckerError
from acker_redis.flows.drain import DRAIN_BLOCKS, DRAIN_RECORDS
from acker_redis.rotator.jobs import Home, Pace
from acker_redis.rotator.once import rotate_once
from acker_redis.rotator.service import Service
from acker_redis.sync.client import Acker

__all__ = ["DRAIN_BLOCKS", "DRAIN_RECORDS", "Rotator"]


class Rotator:
    """Rotates the shards of some namespaces: ticks, and nacks the trees that expire.

    Every namespace needs a running rotator, or no tree expires. Run ``acker-redis rotator`` as a
    service, or use this class in your own program: call :meth:`run` in a worker, or use
    :meth:`start` and :meth:`stop`, or a ``with`` block.

    Args:
        ackers: The client of a namespace, or several.

    Raises:
        ConfigError: An argument is no :class:`Acker`. In an asyncio program use :meth:`from_url`.

    Examples:
        >>> acker, batch = Acker.from_url(url, "orders"), Batch("shop")
        >>> batch.track(7, "order-1", [40])
        >>> applied = acker.apply(batch)
        >>> rotator = Rotator([acker])
        >>> for _ in range(acker.config.buckets):
        ...     wait = rotator.step(force=True)
        >>> [outcome.reason for outcome in acker.outcomes("shop")]
        ['expired']

    """

    def __init__(self, ackers: Acker | Iterable[Acker]) -> None:
        known = [ackers] if isinstance(ackers, Acker) else list(ackers)
        for acker in known:
            check_is(
                acker,
                Acker,
                "a Rotator",
                "; in an asyncio program use Rotator.from_url(url, namespace)",
            )
        self._homes = [Home(acker.connection, acker.namespace) for acker in known]
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    @classmethod
    def from_url(cls, url: str, *namespaces: str) -> "Rotator":
        """Return a rotator of some namespaces of the Redis at ``url``, with its own connections.

        Args:
            url: The URL of a server, cluster or Sentinel, as for :meth:`Acker.from_url`.
            *namespaces: The names of the namespaces.

        Raises:
            ConfigError: The URL or a name is invalid.

        Examples:
            >>> with Rotator.from_url(url, "orders"):  # in an asyncio program, for example
            ...     pass

        """
        return cls(Acker.from_url(url, namespace) for namespace in namespaces)

    def step(self, force: bool = False, stop: threading.Event | None = None) -> float:
        """Tick and drain every shard once, where a tick is due.

        Return seconds until the next, at most 10.

        A namespace or shard that cannot be rotated does not keep the others from their turn.

        Args:
            force: Whether to tick each shard once even if no tick is due. Trees expire early then.
            stop: An event that ends a drain after the current call.

        Raises:
            AckerError: The first error, after all other shards had their turn.

        """
        done = rotate_once(self._homes, Pace(), force=force, stop=stop)
        errors = [error for _, _, error in done.errors]
        for error in sorted(errors, key=lambda error: isinstance(error, AckerError)):
            raise error  # any other exception is a bug, and comes first
        return done.due

    def run(self, stop: threading.Event | None = None) -> None:
        """Rotate in this thread until an event is set.

        While Redis is unreachable it logs that and tries again.

        Args:
            stop: The event that ends it; by default :meth:`stop` ends it.

        """
        Service(self._homes).run(stop or self._stop)

    def start(self) -> "Rotator":
        """Rotate in daemon threads until :meth:`stop`; return the rotator."""
        self._stop.clear()
        self._thread = threading.Thread(target=self.run, name="acker-rotator", daemon=True)
        self._thread.start()
        return self

    def stop(self) -> None:
        """Finish the current calls and stop."""
        self._stop.set()
        if self._thread:
            self._thread.join()
            self._thread = None

    def __enter__(self) -> "Rotator":
        return self.start()

    def __exit__(self, *error: object) -> None:
        self.stop()
