"""Access by network: addresses to listen on, and Host names.

A loopback address needs no token, because only this machine can reach it. A browser on this machine
may still send requests for a page of another site. The check of the Host header refuses these, and
so does the check of the origin that the browser reports (:mod:`acker_api.http.gate`). Any other
address needs a token.
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
    """Raise ConfigError if other machines could reach the service without a token."""
    if not is_loopback(settings.host) and Tokens.of(settings).open:
        raise ConfigError(
            f"other machines can reach {settings.host}, and no token is set; set "
            f"{PREFIX}TOKEN_FILE or {PREFIX}TOKENS_FILE, or listen on 127.0.0.1"
        )


def is_loopback(host: str) -> bool:
    """Return whether only this machine can reach an address; False for other names."""
    if host.lower() == "localhost":
        return True
    try:
        address = ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        return False
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return (mapped or address).is_loopback


class Hosts:
    """Names that a request may have as Host.

    By DNS rebinding, a page of another site can make its own name mean 127.0.0.1. Its requests have
    that name as Host, so on loopback the service accepts only the names of loopback. Where a token
    is required, such a page can read nothing, so any name is accepted unless some are listed.
    """

    def __init__(self, settings: ApiSettings) -> None:
        names = tuple(map(without_port, settings.hosts))
        own = (*LOOPBACK_NAMES, settings.host.strip("[]").lower())
        self._any = "*" in names or not (names or is_loopback(settings.host))
        self._names = frozenset({*own, *names})
        self._endings = tuple(name[1:] for name in names if name.startswith("*."))

    def allow(self, header: str) -> bool:
        """Return whether a request with this Host header is served.

        >>> hosts = Hosts(ApiSettings(allowed_hosts="*.example.org"))
        >>> [hosts.allow(name) for name in ("[::1]:8000", "a.example.org:80", "evil.example")]
        [True, True, False]
        """
        if self._any:
            return True
        name = without_port(header.strip().lower())
        return name in self._names or (bool(self._endings) and name.endswith(self._endings))


def without_port(host: str) -> str:
    """Return the name or address of a Host header; the whole header if it is malformed.

    >>> [without_port(each) for each in ("[::1]:80", "a.example:80", "[::1]evil", "[::1", "a:b")]
    ['::1', 'a.example', '[::1]evil', '[::1', 'a:b']
    """
    if host.startswith("["):
        name, closed, rest = host[1:].partition("]")
        return name if closed and (not rest or _PORT.fullmatch(rest)) else host
    name, colon, port = host.rpartition(":")
    return name if name and _PORT.fullmatch(colon + port) else host
