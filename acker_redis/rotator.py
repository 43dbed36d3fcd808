"""The rotator: ticks when a tick is due, and drains what has expired.

Any number of rotators may serve a namespace: the script decides by Redis's clock whether
a tick is due, so each happens once, and draining twice at once only shares the work. A
rotator that was away does not catch up ticks: no tree expires early.
"""

import logging
import threading
from collections.abc import Iterable

from acker_redis import commands
from acker_redis.client import Acker
from acker_redis.errors import AckerError
from acker_redis.fits import check_is
from acker_redis.keys import ShardKeys

DRAIN_RECORDS = 500
"""Records per call while draining: a call stays short, and producers get their turn."""
DRAIN_BLOCKS = 64
"""Blocks per call; the script stops early where they are large."""
LONGEST_WAIT = 1.0
"""Seconds after which a rotator looks again, however far the next tick is."""

log = logging.getLogger(__name__)


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
        self._ackers = [ackers] if isinstance(ackers, Acker) else list(ackers)
        for acker in self._ackers:
            check_is(
                acker, Acker, "a Rotator", "; beside asyncio, Rotator.from_url(url, namespace)"
            )
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
        """Tick and drain every shard where it is due; seconds until the next is due.

        ``force`` ticks each shard once, due or not. A namespace or shard that cannot be
        rotated does not keep the others from their turn; then the first AckerError is raised.
        When ``stop`` is set, a drain ends after the call in hand.
        """
        waits: list[float] = [LONGEST_WAIT]
        errors: list[AckerError] = []
        for acker in self._ackers:
            try:
                shards = _keys(acker)
            except AckerError as error:
                errors.append(error)
                continue
            for keys in shards:
                try:
                    waits.append(self._shard(acker, keys, force, stop))
                except AckerError as error:
                    errors.append(error)
        if errors:
            raise errors[0]
        return min(waits)

    def run(self, stop: threading.Event | None = None) -> None:
        """Rotate until ``stop`` is set; when Redis is away, say so and go on trying."""
        stop = stop or self._stop
        away = 0
        while not stop.is_set():
            try:
                wait = self.step(stop=stop)
                if away:
                    log.info("Redis is back; rotating again")
                away = 0
            except Exception as error:
                # Whatever it is: a rotator that ends is a source that waits for ever.
                away += 1
                wait = min(0.1 * 2 ** min(away, 10), LONGEST_WAIT)
                log.warning("cannot rotate (attempt %d, next in %.1f s): %s", away, wait, error)
            stop.wait(max(wait, 0.005))

    def start(self) -> "Rotator":
        """Run in a daemon thread."""
        self._stop.clear()
        self._thread = threading.Thread(target=self.run, name="acker-rotator", daemon=True)
        self._thread.start()
        return self

    def stop(self) -> None:
        """Finish the call in hand and leave."""
        self._stop.set()
        if self._thread:
            self._thread.join()
            self._thread = None

    def __enter__(self) -> "Rotator":
        return self.start()

    def __exit__(self, *error: object) -> None:
        self.stop()

    def _shard(
        self, acker: Acker, keys: ShardKeys, force: bool, stop: threading.Event | None
    ) -> float:
        run = acker.connection.run
        rotated = commands.parse_rotate(run(commands.rotate(keys, force=False)))
        self._drain(acker, keys, rotated.left, stop)
        if force and not rotated.rotated:
            rotated = commands.parse_rotate(run(commands.rotate(keys, force=True)))
            self._drain(acker, keys, rotated.left, stop)
        if rotated.rotated:
            log.debug("%s shard %d: tick", acker.namespace, keys.shard)
        return rotated.due_ms / 1000

    def _drain(
        self, acker: Acker, keys: ShardKeys, left: int, stop: threading.Event | None
    ) -> None:
        if not left:
            return
        run, nacked, orphaned = acker.connection.run, 0, 0
        while left and not (stop and stop.is_set()):
            drained = commands.parse_expire(run(commands.expire(keys, DRAIN_RECORDS)))
            left = drained.left
            nacked, orphaned = nacked + drained.nacked, orphaned + drained.orphaned
        left = 1
        while left and not (stop and stop.is_set()):
            _, expired, left = run(commands.expire_blocks(keys, DRAIN_BLOCKS))
            nacked += int(expired)
        if nacked or orphaned:
            log.info(
                "%s shard %d: %d trees expired, %d records had none",
                acker.namespace,
                keys.shard,
                nacked,
                orphaned,
            )


def _keys(acker: Acker) -> list[ShardKeys]:
    return [ShardKeys(acker.namespace, shard) for shard in range(acker.config.shards)]
