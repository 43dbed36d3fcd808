"""Makes the ids of a namespace: random or derived, with the code of the edge they travel on.

An edge is a way on which messages go from one step to the next. Edge k of a namespace is bit 55 + k
of the ids of the messages on it (``lua/README.md``, "Ids"), so that the checksum of a tree that
expires can tell where a message is missing.
"""

import logging
import os
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from hashlib import sha256

from acker_redis.errors import ConfigError
from acker_redis.protocol.ids import EDGE_BIT, TUPLE_MAX
from acker_redis.protocol.outcome import odd_edges

log = logging.getLogger(__name__)

_LOW = (1 << EDGE_BIT) - 1


@dataclass(frozen=True, slots=True)
class IdMaker:
    """Makes ids as the edges and the salt of a namespace ask for; :attr:`Acker.ids` is one.

    Without arguments it is for a namespace without edges, and derives no ids.

    Examples:
        >>> maker = IdMaker(edges=("mill", "shop"))
        >>> maker.code("shop") == 1 << 56
        True
        >>> maker.edges_of(maker.draw(1)[0] | maker.code("mill"))
        ('mill',)

    """

    edges: tuple[str, ...] = ()
    """Names of the edges, in the order of the configuration."""
    salt: str = field(default="", repr=False)
    """The secret of the namespace; '' if it is unknown."""
    was_read: bool = field(default=True, repr=False)
    """Whether the configuration of the namespace is known. Until then ids are those of a namespace
    with edges, and have no code: such ids are right in any namespace."""
    read: "Callable[[], IdMaker] | None" = field(default=None, repr=False, compare=False)
    """What :meth:`known` calls while the configuration is not known: it waits for it, or raises."""
    low: int = field(init=False, repr=False, compare=False)
    """Mask of the bits of an id that are random or derived."""
    _unlisted: set[str] = field(default_factory=set, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "low", _LOW if self.edges or not self.was_read else TUPLE_MAX)

    def code(self, edge: str) -> int:
        """Return the bit of an edge in the ids of its messages.

        It is 0 for '', and for an edge that the namespace does not list, which is logged once.
        """
        if not edge or not self.was_read:
            return 0
        try:
            return 1 << EDGE_BIT + self.edges.index(edge)
        except ValueError:
            if edge not in self._unlisted and len(self._unlisted) < 1000:
                self._unlisted.add(edge)
                listed = ", ".join(self.edges) or "none"
                log.warning(
                    "the namespace does not list edge %s (it lists %s): verdicts cannot name it",
                    edge, listed,
                )  # fmt: skip
            return 0

    def edges_of(self, checksum: int) -> tuple[str, ...]:
        """Return the edges on which an odd number of messages is outstanding, by a checksum."""
        return odd_edges(self.edges, checksum)

    def draw(self, count: int) -> list[int]:
        """Return ids without a code, from the system's random source (fork-safe).

        Each is 1 .. 2^63-1, or 1 .. 2^55-1 in a namespace with edges.
        """
        return draw(count, self.low)

    def known(self) -> "IdMaker":
        """Return the maker whose edges and salt are known: this one, or that which Redis names now.

        Raises:
            AckerError: Why they could not be read.

        """
        return self if self.was_read or self.read is None else self.read()

    def derive(self, purpose: str, *parts: str) -> int:
        """Return an id without a code that depends on the salt, the purpose and the parts only.

        Raises:
            ConfigError: The salt is unknown.

        """
        return derive(self.known_salt(), purpose, parts) >> (9 if self.edges else 1)

    def block(self, *identity: str | int) -> int:
        """Return the number of a block, ``0 .. 2**50 - 1``.

        It depends on the salt and the identity only, so a program that runs again tracks the same
        block. ``Batch.track_block`` calls it with source and label.

        Raises:
            ConfigError: The salt is unknown.

        """
        return derive(self.known_salt(), "block", [str(part) for part in identity]) >> 14

    def known_salt(self) -> str:
        """Return the salt; raise ConfigError if it is unknown."""
        if not self.was_read:
            raise ConfigError(
                "a derived id needs the salt of its namespace, which could not be read from Redis "
                "yet; with asyncio, process the message in an `async with` block"
            )
        if not self.salt:
            raise ConfigError(
                "a derived id, or the number of a block, needs the salt of its namespace: pass "
                "ids=acker.ids, or use a Bolt with a Producer"
            )
        return self.salt


PLAIN = IdMaker()
"""For a namespace without edges; it draws ids only."""
UNKNOWN = IdMaker(was_read=False)
"""For a namespace whose configuration is not known yet."""


def draw(count: int, mask: int = TUPLE_MAX) -> list[int]:
    """Return random numbers, 1 .. ``mask``, from the system's random source (fork-safe)."""
    while True:
        numbers = [raw & mask for raw in struct.unpack(f"{count}Q", os.urandom(8 * count))]
        if 0 not in numbers:
            return numbers


def derive(salt: str, purpose: str, parts: Sequence[str]) -> int:
    """Return the first 64 bits of the SHA-256 of salt, purpose and parts, each length-prefixed.

    >>> derive("00" * 16, "child", ["mill", "0"]) == derive("00" * 16, "child", ["mill", "0"])
    True
    >>> derive("00" * 16, "child", ["mill0", ""]) == derive("00" * 16, "child", ["mill", "0"])
    False
    """
    digest = sha256()
    for part in (salt, purpose, *parts):
        data = part.encode(errors="surrogatepass")
        digest.update(b"%d:%b" % (len(data), data))
    return int.from_bytes(digest.digest()[:8], "big")
