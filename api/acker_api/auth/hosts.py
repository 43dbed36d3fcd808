"""From where the service can be reached: addresses and Host names.

A loopback address needs no token, as whoever reaches it is on this machine; what a browser there
sends for a page of somebody else's is kept out by the Host header, and by what the browser says of
where a request comes from (:mod:`acker_api.http.gate`). Any other address needs one.
"""

import ipaddress
import re

from acker_api.auth.tokens import Role, Tokens
from acker_api.settings import PREFIX, ApiSettings
from acker_redis.errors import ConfigError

__all__ = ["Hosts", "Role", "check_bind", "is_loopback", "without_port"]

_PORT = re.compile(r":[0-9]{1,5}", re.ASCII)
LOOPBACK_NAMES = ("localhost", "127.0.0.1", "::1")


def check_bind(settings: ApiSettings) -> None:
    """Raise ConfigError if others than this machine could reach the service without a token."""
    if not is_loopback(settings.host) and Tokens.of(settings).open:
        raise ConfigError(
            f"{settings.host} can be reached from other machines, and no token is set; set "
            f"{PREFIX}TOKEN_FILE or {PREFIX}TOKENS_FILE, or listen on 127.0.0.1"
        )


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach an address. A name but ``localhost`` may mean any."""
    if host.lower() == "localhost":
        return True
    try:
        address = ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        return False
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return (mapped or address).is_loopback


class Hosts:
    """Names that a request may give as Host.

    A page of somebody else's, whose name is made to mean 127.0.0.1 while it is open (DNS
    rebinding), sends that name; so on loopback only loopback's own names are served. Where a
    token is needed such a page reads nothing, and any name will do unless some are listed.
    """

    def __init__(self, settings: ApiSettings) -> None:
        names = tuple(map(without_port, settings.hosts))
        own = (*LOOPBACK_NAMES, settings.host.strip("[]").lower())
        self._any = "*" in names or not (names or is_loopback(settings.host))
        self._names = frozenset({*own, *names})
        self._endings = tuple(name[1:] for name in names if name.startswith("*."))

    def allow(self, header: str) -> bool:
        """Whether a request with this Host header is served.

        >>> hosts = Hosts(ApiSettings(allowed_hosts="*.example.org"))
        >>> [hosts.allow(name) for name in ("[::1]:8000", "a.example.org:80", "evil.example")]
        [True, True, False]
        """
        if self._any:
            return True
        name = without_port(header.strip().lower())
        return name in self._names or (bool(self._endings) and name.endswith(self._endings))


def without_port(host: str) -> str:
    """The name or address of a Host header; all of the header if it is malformed.

    >>> [without_port(each) for each in ("[::1]:80", "a.example:80", "[::1]evil", "[::1", "a:b")]
    ['::1', 'a.example', '[::1]evil', '[::1', 'a:b']
    """
    if host.startswith("["):
        name, closed, rest = host[1:].partition("]")
        return name if closed and (not rest or _PORT.fullmatch(rest)) else host
    name, colon, port = host.rpartition(":")
    return name if name and _PORT.fullmatch(colon + port) else host
