"""Who may read what: addresses, Host names, and tokens by role.

A loopback address needs no token, as whoever reaches it is on this machine; what a browser there
sends for a page of somebody else's is kept out by the Host header. Any other address needs one.
"""

import hashlib
import hmac
import ipaddress
from dataclasses import dataclass
from enum import StrEnum

from acker_api.settings import PREFIX, ApiSettings
from acker_redis.errors import ConfigError

LOOPBACK_NAMES = ("localhost", "127.0.0.1", "::1")


class Role(StrEnum):
    """What a token is for."""

    METRICS = "metrics"
    """Reads ``/metrics``."""
    VIEWER = "viewer"
    """Reads everything."""


@dataclass(frozen=True)
class Grant:
    """The roles of whoever shows a token. Of the token only its digest is kept."""

    digest: bytes
    roles: frozenset[Role]


class Tokens:
    """The tokens that are known.

    >>> tokens = Tokens.of(ApiSettings(token="0123456789abcdef", metrics_token="fedcba9876543210"))
    >>> [Role.VIEWER in tokens.roles(each) for each in ("0123456789abcdef", "fedcba9876543210")]
    [True, False]
    >>> tokens.roles("another") is None
    True
    """

    def __init__(self, grants: tuple[Grant, ...]) -> None:
        self._grants = grants

    @classmethod
    def of(cls, settings: ApiSettings) -> "Tokens":
        """As the settings say; ConfigError if a token cannot be read or is weak."""
        found = (
            (settings.read_token(), frozenset(Role)),
            (settings.read_metrics_token(), frozenset({Role.METRICS})),
        )
        return cls(tuple(Grant(_digest(token), roles) for token, roles in found if token))

    def needed(self, role: Role) -> bool:
        """Whether a token is needed for it.

        With one for ``/metrics`` alone the rest is open: that is for loopback only.
        """
        return any(role in grant.roles for grant in self._grants)

    def roles(self, token: str) -> frozenset[Role] | None:
        """What a token is for; None if nobody has such a one.

        Each is compared, and in constant time: how long it takes tells nothing of them.
        """
        digest, roles = _digest(token), None
        for grant in self._grants:
            if hmac.compare_digest(digest, grant.digest):
                roles = grant.roles
        return roles


def check_bind(settings: ApiSettings) -> None:
    """Raise ConfigError if others than this machine could reach the service without a token."""
    if not is_loopback(settings.host) and not settings.read_token():
        raise ConfigError(
            f"{settings.host} can be reached from other machines, and no token is set; set "
            f"{PREFIX}TOKEN or {PREFIX}TOKEN_FILE, or listen on 127.0.0.1"
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
        names = tuple(map(_without_port, settings.hosts))
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
        name = _without_port(header.strip().lower())
        return name in self._names or (bool(self._endings) and name.endswith(self._endings))


def _without_port(host: str) -> str:
    if host.startswith("["):
        return host[1:].partition("]")[0]
    name, _, port = host.rpartition(":")
    return name if name and port.isdigit() else host


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode()).digest()
