"""Limits on open connections: of all clients together, and of each address."""

from collections import Counter

from acker_api.auth.limits import address_of
from acker_api.limited_log import LimitedLog

SPARE = 256
"""Descriptors that are left for Redis, files, and connections that are being closed."""


class Crowd:
    """The open connections of one process, and their limits.

    ``total`` and ``of_address`` are the limits. ``total`` is at most the number that the limit of
    descriptors allows, so that accept() does not fail; one address gets at most half of it.
    ``of_address`` 0 means no limit per address: behind a proxy all clients have one address.
    """

    def __init__(self, total: int, of_address: int, limited_log: LimitedLog) -> None:
        self.total = min(total, _descriptors())
        self.of_address = min(of_address, max(1, self.total // 2)) or self.total
        self._open: Counter[str] = Counter()
        self._limited_log = limited_log

    def enter(self, client: tuple[str, int] | None) -> bool:
        """Count a connection; return False, and do not count it, if there are too many."""
        address = address_of(client)
        if self._open.total() >= self.total:
            self._limited_log.warn("connections_full", most=self.total, client=address)
        elif self._open[address] >= self.of_address:
            self._limited_log.warn(
                "connections_of_address_full", most=self.of_address, client=address
            )
        else:
            self._open[address] += 1
            return True
        return False

    def leave(self, client: tuple[str, int] | None) -> None:
        """Stop counting a connection that has ended."""
        address = address_of(client)
        self._open[address] -= 1
        if not self._open[address]:
            del self._open[address]


def _descriptors() -> int:
    """Return the number of connections that the limit of descriptors allows."""
    try:
        import resource
    except ImportError:  # Windows has no such limit
        return 2**20
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return 2**20 if soft == resource.RLIM_INFINITY else max(soft // 2, soft - SPARE)
