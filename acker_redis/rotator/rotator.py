"""The rotator: ticks when a tick is due, and drains what has expired.

Any number of rotators may serve a namespace: the script decides by Redis's clock whether
a tick is due, so each happens once, and draining twice at once only shares the work. A
rotator that was away does not catch up ticks: no tree expires early.

For what it does in which order, and what it notices when, see :mod:`acker_redis.rotator.service`.
"""

import threading
from collections.abc import Iterable

from acker_redis.errors import AckerError
from acker_redis.flows.drain import DRAIN_BLOCKS, DRAIN_RECORDS
from acker_redis.kinds import check_is
from acker_redis.rotator.jobs import Home, Pace
from acker_redis.rotator.once import rotate_once
from acker_redis.rotator.service import Service
from acker_redis.sync.client import Acker

__all__ = ["DRAIN_BLOCKS", "DRAIN_RECORDS", "Rotator"]


class Rotator:
    """Rotates the shards of some namespaces.

    As a worker: ``run()`` until the event is set. As a thread of a service: ``start()`` and
    ``stop()``, or as a context manager.

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
                acker, Acker, "a Rotator", "; beside asyncio, Rotator.from_url(url, namespace)"
            )
        self._homes = [Home(acker.connection, acker.namespace) for acker in known]
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    @classmethod
    def from_url(cls, url: str, *namespaces: str) -> "Rotator":
        """Rotator of some namespaces of the Redis at ``url``, by connections of its own.

        >>> with Rotator.from_url(url, "orders"):  # beside an asyncio program, say
        ...     pass
        """
        return cls(Acker.from_url(url, namespace) for namespace in namespaces)

    def step(self, force: bool = False, stop: threading.Event | None = None) -> float:
        """Tick and drain every shard where it is due; seconds until the next is due, at most 10.

        ``force`` ticks each shard once, due or not. A namespace or shard that cannot be
        rotated does not keep the others from their turn; then the first AckerError is raised.
        When ``stop`` is set, a drain ends after the call in hand.
        """
        done = rotate_once(self._homes, Pace(), force=force, stop=stop)
        errors = [error for _, _, error in done.errors]
        for error in sorted(errors, key=lambda error: isinstance(error, AckerError)):
            raise error  # what is no AckerError is a bug, and comes first
        return done.due

    def run(self, stop: threading.Event | None = None) -> None:
        """Rotate until ``stop`` is set; when Redis is away, say so and go on trying."""
        Service(self._homes).run(stop or self._stop)

    def start(self) -> "Rotator":
        """Run in daemon threads."""
        self._stop.clear()
        self._thread = threading.Thread(target=self.run, name="acker-rotator", daemon=True)
        self._thread.start()
        return self

    def stop(self) -> None:
        """Finish the calls in hand and leave."""
        self._stop.set()
        if self._thread:
            self._thread.join()
            self._thread = None

    def __enter__(self) -> "Rotator":
        return self.start()

    def __exit__(self, *error: object) -> None:
        self.stop()
