"""The state of a reshard, as the field ``reshard`` of ``meta`` stores it. No I/O."""

import re
from dataclasses import dataclass, replace
from typing import Literal

from acker_redis.errors import SchemaError
from acker_redis.protocol.stored import shards_of

Phase = Literal["closed", "switch", "cancel"]

_WIRE = re.compile(r"([1-9][0-9]*):([1-9][0-9]*)(?::(switch|cancel))?")


@dataclass(frozen=True, slots=True)
class Reshard:
    """A reshard in progress. While a shard has the field ``reshard``, it tracks no new trees.

    >>> Reshard(1, 4).to_wire(), Reshard(1, 4).at("switch").to_wire()
    ('1:4', '1:4:switch')
    """

    source: int
    """Number of shards before."""
    target: int
    """Number of shards after."""
    phase: Phase = "closed"
    """``closed``: the reshard waits until no tree is pending, and can be cancelled. Only shard 0
    decides between ``switch``, after which the reshard must be completed, and ``cancel``."""

    def at(self, phase: Phase) -> "Reshard":
        """Return the same reshard in another phase."""
        return replace(self, phase=phase)

    def to_wire(self) -> str:
        """Return the value of the field ``reshard`` in ``meta``."""
        end = "" if self.phase == "closed" else f":{self.phase}"
        return f"{self.source}:{self.target}{end}"

    @classmethod
    def from_wire(cls, text: str) -> "Reshard | None":
        """Return the reshard that the field describes; None for ''.

        Raises SchemaError for a value that no script writes.
        """
        if not text:
            return None
        match = _WIRE.fullmatch(text)
        if match is None:
            raise SchemaError(f"the field reshard has been tampered with: {text[:40]!r}")
        phase: Phase = (
            "switch" if match[3] == "switch" else "cancel" if match[3] == "cancel" else "closed"
        )
        where = "the field reshard"
        return cls(shards_of(match[1], where), shards_of(match[2], where), phase)
