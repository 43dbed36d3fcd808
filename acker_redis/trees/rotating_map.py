"""Storm's RotatingMap: a mapping that expires old entries in bulk.

After ``org.apache.storm.utils.RotatingMap`` of Apache Storm.
"""

from collections import deque
from collections.abc import Callable, Iterator, MutableMapping
from typing import Any, TypeVar, overload

from acker_redis.errors import ConfigError

K = TypeVar("K")
V = TypeVar("V")
T = TypeVar("T")
_MISSING: Any = object()


class RotatingMap(MutableMapping[K, V]):
    """A mapping with ``buckets`` generations of entries; ``rotate()`` expires the oldest.

    Putting a key moves it to the newest bucket, even if it exists; getting it does not. An entry
    expires in the N-th rotation after its last put, where N is the number of buckets. With a
    rotation every ``t`` seconds, entries expire at an age between ``(N - 1) * t`` and ``N * t``
    seconds. For a timeout of ``s`` seconds, rotate every ``s / (N - 1)`` seconds. Then no entry
    expires before ``s`` seconds, and every entry expires by ``s * N / (N - 1)`` seconds, which is
    ``1.5 * s`` for the default N = 3.

    Get, put, pop, ``in`` and ``len()`` look into up to N buckets, the newest one first.
    ``rotate()`` is O(1), apart from a call of ``expired`` for each expired entry. Iteration runs
    from the oldest bucket to the newest; as with a dict, do not put, pop or rotate during it. Not
    thread-safe: if one thread rotates and another one puts, hold a lock.

    **If the callback raises, no entry is lost.** The callback is still called for the other
    entries; then the first error is raised, with a note of how many errors there were. Entries
    whose callback raised return to the oldest bucket, unless the callback put their key again, and
    the next rotation calls it for them again. KeyboardInterrupt and other BaseExceptions are raised
    at once; entries without a call are then kept in the same way.

    Args:
        buckets: Number of buckets, at least 2.
        expired: ``expired(key, value)`` is called once for each expired entry. The entry has left
            the map by then, so the callback may put it again.

    Raises:
        ConfigError: There are fewer than two buckets.

    Examples:
        >>> pending = RotatingMap[int, str](buckets=2)
        >>> pending[7] = "order 7"
        >>> pending[8] = "order 8"
        >>> pending.rotate()
        {}
        >>> pending.pop(7)  # acked
        'order 7'
        >>> pending.pop(7, None)  # acked twice
        >>> pending.rotate()  # 8 is at least one period old: replay it
        {8: 'order 8'}
        >>> len(pending)
        0

    """

    def __init__(self, buckets: int = 3, expired: Callable[[K, V], object] | None = None) -> None:
        if buckets < 2:
            raise ConfigError(f"buckets = {buckets}: a rotating map needs at least 2")
        self._buckets: deque[dict[K, V]] = deque({} for _ in range(buckets))
        """Newest bucket first. Invariant: no key is in two buckets."""
        self._expired = expired

    def rotate(self) -> dict[K, V]:
        """Expire the oldest bucket, begin a new one, and return the expired entries.

        Raises:
            Exception: The first error of the ``expired`` callback; see the class.

        """
        dead = self._buckets.pop()
        self._buckets.appendleft({})
        if self._expired and dead:
            self._tell(dead, self._expired)
        return dead

    def __setitem__(self, key: K, value: V) -> None:
        buckets = iter(self._buckets)
        newest = next(buckets)
        if key not in newest:
            for bucket in buckets:
                if key in bucket:
                    del bucket[key]
                    break
        newest[key] = value

    def __getitem__(self, key: K) -> V:
        for bucket in self._buckets:
            if key in bucket:
                return bucket[key]
        raise KeyError(key)

    def __delitem__(self, key: K) -> None:
        self.pop(key)

    def __contains__(self, key: object) -> bool:
        for bucket in self._buckets:  # noqa: SIM110 - any() takes twice as long
            if key in bucket:
                return True
        return False

    def __len__(self) -> int:
        return sum(map(len, self._buckets))

    def __iter__(self) -> Iterator[K]:
        for bucket in reversed(self._buckets):
            yield from bucket

    def __repr__(self) -> str:
        return f"RotatingMap({', '.join(map(repr, self._buckets))})"

    # The inherited methods raise and catch a KeyError for each missing key.
    @overload
    def get(self, key: K, /) -> V | None: ...
    @overload
    def get(self, key: K, /, default: V | T) -> V | T: ...
    def get(self, key: K, /, default: Any = None) -> Any:
        """Return the value of the key, or ``default``; the entry keeps its age."""
        for bucket in self._buckets:
            if key in bucket:
                return bucket[key]
        return default

    @overload
    def pop(self, key: K, /) -> V: ...
    @overload
    def pop(self, key: K, /, default: V | T) -> V | T: ...
    def pop(self, key: K, /, default: Any = _MISSING) -> Any:
        """Remove the key and return its value, or ``default`` if the key is missing.

        Raises KeyError if the key is missing and no default is given.
        """
        for bucket in self._buckets:
            if key in bucket:
                return bucket.pop(key)
        if default is _MISSING:
            raise KeyError(key)
        return default

    def _tell(self, dead: dict[K, V], expired: Callable[[K, V], object]) -> None:
        """Call ``expired`` for each dead entry; put back those whose call did not return."""
        kept = dead.copy()
        errors: list[Exception] = []
        try:
            for key, value in dead.items():
                try:
                    expired(key, value)
                except Exception as error:
                    errors.append(error)
                else:
                    del kept[key]
        finally:
            oldest = self._buckets[-1]
            oldest.update((key, value) for key, value in kept.items() if key not in self)
        if errors:
            errors[0].add_note(f"{len(errors)} of {len(dead)} callbacks of a rotation raised")
            raise errors[0]
