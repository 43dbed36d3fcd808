"""Product and version of a server, from its INFO. No I/O."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

Product = Literal["Redis", "Valkey"]

OLDEST: Mapping[Product, tuple[int, int]] = {"Redis": (6, 2), "Valkey": (7, 2)}
"""The oldest versions on which the scripts run."""


@dataclass(frozen=True, slots=True)
class ServerVersion:
    """A server's product and the product's own version.

    >>> from acker_redis.protocol.server_version import ServerVersion
    >>> str(ServerVersion("Valkey", "9.1.2")), ServerVersion("Redis", "6.0.16").is_supported
    ('Valkey 9.1.2', False)
    """

    product: Product
    number: str
    """Version such as ``7.0.15``; "" if INFO does not contain it."""

    @property
    def is_supported(self) -> bool:
        """Whether the scripts run on this server."""
        found = tuple(int(part) for part in re.findall(r"[0-9]+", self.number)[:2])
        return found >= OLDEST[self.product]

    def __str__(self) -> str:
        return f"{self.product} {self.number or 'of an unknown version'}"


def of_info(info: Mapping[str, Any]) -> ServerVersion:
    """Return product and version from the section ``server`` of INFO.

    For compatibility every Valkey also reports ``redis_version:7.2.4`` besides its own version.
    """
    if valkey := info.get("valkey_version"):
        return ServerVersion("Valkey", str(valkey))
    return ServerVersion("Redis", str(info.get("redis_version", "")))
