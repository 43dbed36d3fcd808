"""Rate limits."""

import ipaddress
import time
from collections import OrderedDict
from collections.abc import Callable

CLIENTS = 10_000
"""Maximum number of clients that are remembered; the least recent one is forgotten first."""


class Limiter:
    """A limit on the calls of each client: per minute, or per ``seconds``; bursts are allowed.

    It counts in this process only: with several workers, each allows as many.

    >>> limiter = Limiter(2, clock=lambda: 0.0)
    >>> [limiter.wait("a") for _ in range(3)]
    [0.0, 0.0, 30.0]
    >>> limiter.wait("b")
    0.0
    """

    def __init__(
        self,
        per_minute: int,
        clients: int = CLIENTS,
        clock: Callable[[], float] = time.monotonic,
        seconds: float = 60.0,
    ) -> None:
        self._most, self._clients, self._clock = per_minute, clients, clock
        self._seconds = seconds
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def wait(self, client: str) -> float:
        """Count a call; return 0.0 if it is allowed, or else the seconds until one is allowed."""
        if not self._most:
            return 0.0
        left, now = self._has(client)
        self._left.pop(client, None)
        allowed = left >= 1
        self._left[client] = (left - 1 if allowed else left), now
        if len(self._left) > self._clients:
            self._left.popitem(last=False)
        return 0.0 if allowed else (1 - left) * self._seconds / self._most

    def left(self, client: str) -> float:
        """Return the same, without counting a call."""
        left, _ = self._has(client)
        return 0.0 if left >= 1 or not self._most else (1 - left) * self._seconds / self._most

    def _has(self, client: str) -> tuple[float, float]:
        """Return the calls that a client has left, and the time."""
        now = self._clock()
        left, at = self._left.get(client, (float(self._most), now))
        return min(float(self._most), left + (now - at) * self._most / self._seconds), now


class Failures:
    """A limit on wrong tokens per address; above it, the tokens of the address are not checked.

    Otherwise a client could try tokens on paths without another limit. A valid token is refused
    then too, because the client could go on guessing; but not a token that this address has used
    before.
    """

    def __init__(self, per_minute: int, clients: int = CLIENTS) -> None:
        self.limiter = Limiter(per_minute, clients)
        self._clients = clients
        self._shown: OrderedDict[tuple[str, str], None] = OrderedDict()

    def wait(self, address: str, name: str | None) -> float:
        """Return the seconds until an address may use a token; 0.0 if this one is allowed.

        ``name`` is the name of the token, None for a wrong one.
        """
        if name is None:
            return self.limiter.wait(address)
        known = (address, name)
        if known not in self._shown and (wait := self.limiter.left(address)):
            return wait
        self._shown[known] = None
        self._shown.move_to_end(known)
        if len(self._shown) > self._clients:
            self._shown.popitem(last=False)
        return 0.0


def address_of(client: tuple[str, int] | None) -> str:
    """Return the address of a client; for IPv6 its network, because one client has 2^64 addresses.

    >>> address_of(("2001:db8::7", 1)), address_of(("192.0.2.1", 1)), address_of(None)
    ('2001:db8::/64', '192.0.2.1', '')
    >>> address_of(("::ffff:192.0.2.1", 1))
    '192.0.2.1'
    """
    host = client[0] if client else ""
    if ":" not in host:
        return host
    try:
        # A listener for both families maps IPv4 addresses into IPv6: each is its own client.
        mapped = ipaddress.IPv6Address(host.partition("%")[0]).ipv4_mapped
        if mapped:
            return str(mapped)
        return str(ipaddress.ip_network(f"{host.partition('%')[0]}/64", strict=False))
    except ValueError:
        return host
