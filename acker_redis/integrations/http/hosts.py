"""The hosts of services that get ids, and whose word on them is believed. No I/O."""

from collections.abc import Iterable

import httpx

from acker_redis.errors import ConfigError


class Hosts:
    """Names of hosts; ``*.example.com`` stands for all names below ``example.com``, ``*`` for all.

    Args:
        names: The names, in upper or lower case, without scheme and port; also addresses.

    Raises:
        ConfigError: ``names`` is a text, or a name is none of a host.

    Examples:
        >>> hosts = Hosts(["Shipping", "*.shop.internal", "::1"])
        >>> [httpx.URL(f"http://{host}/") in hosts for host in ("shipping:80", "[::1]", "a.com")]
        [True, True, False]
        >>> [httpx.URL(f"http://{name}") in hosts for name in ("eu.shop.internal", "shop.internal")]
        [True, False]

    """

    def __init__(self, names: Iterable[str]) -> None:
        if isinstance(names, str):
            raise ConfigError(f"hosts is a list of names, such as [{names!r}], not a text")
        given = [_host(name) for name in names]
        self._names = frozenset(name for name in given if not name.startswith("*."))
        self._below = tuple(name[1:] for name in given if name.startswith("*."))

    def __contains__(self, url: httpx.URL) -> bool:
        host = url.raw_host.decode().rstrip(".")
        return "*" in self._names or host in self._names or host.endswith(self._below)


def _host(name: object) -> str:
    try:
        found = httpx.URL(scheme="http", host=name).raw_host.decode().rstrip(".")
    except (httpx.InvalidURL, TypeError):
        found = ""
    if not found or "%" in found or ("*" in found and found != "*" and not _is_below(found)):
        raise ConfigError(
            f"a host is a name such as 'shipping' or '*.shop.internal', or '*', not {name!r}"
        )
    return found


def _is_below(name: str) -> bool:
    return name.startswith("*.") and len(name) > 2 and "*" not in name[1:]
