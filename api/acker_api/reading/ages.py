"""Ages that a judgement needs beside the status: of the oldest tree, and of untaken verdicts.

They cost more than a status and change slowly, so they are cached, the longer the more namespaces
there are.
"""

import time
from collections.abc import Callable, Container
from dataclasses import replace

from acker_api.reading.reader import ReadStatus, See
from acker_redis import Status

LEAST = 2.0
"""Minimum of the seconds for which the ages of a namespace are cached."""
EACH = 0.1
"""Seconds that are added for each namespace: the ages of ten namespaces are read per second."""


class Ages:
    """The ages of up to ``names`` namespaces; ``see`` reads those of one."""

    def __init__(
        self, see: See, names: int = 1000, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._see, self._names, self._clock = see, names, clock
        self._kept: dict[str, tuple[float, ReadStatus]] = {}

    @property
    def seconds(self) -> float:
        """Seconds for which ages are cached."""
        return max(LEAST, EACH * len(self._kept))

    async def see(self, status: Status) -> ReadStatus:
        """Return a namespace with its ages, which may be older than the status. Raises nothing."""
        name = status.namespace
        read_at, seen = self._kept.get(name, (0.0, None))
        if seen is None or self._clock() - read_at >= self.seconds:
            seen = await self._see(status)
            self._kept.pop(name, None)
            self._kept[name] = self._clock(), seen
            if len(self._kept) > self._names:
                del self._kept[next(iter(self._kept))]
        return replace(seen, status=status)

    def forget_others(self, names: Container[str]) -> None:
        """Remove the ages of all namespaces except these."""
        for name in [name for name in self._kept if name not in names]:
            del self._kept[name]
