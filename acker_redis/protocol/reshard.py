"""A namespace on its way to another number of shards: what ``meta`` says of it. No I/O."""

import re
from dataclasses import dataclass, replace
from typing import Literal

from acker_redis.errors import SchemaError

Phase = Literal["closed", "switch", "cancel"]

_WIRE = re.compile(r"([1-9][0-9]*):([1-9][0-9]*)(?::(switch|cancel))?")


@dataclass(frozen=True, slots=True)
class Reshard:
    """The field ``reshard`` of a shard: while it is there, the shard begins no trees.

    >>> Reshard(1, 4).to_wire(), Reshard(1, 4).at("switch").to_wire()
    ('1:4', '1:4:switch')
    """

    source: int
    """How many shards there were."""
    target: int
    """How many there will be."""
    phase: Phase = "closed"
    """``closed``: it waits until nothing is pending, and can be called off. Shard 0 alone decides
    between ``switch``, from where it only goes on, and ``cancel``."""

    def at(self, phase: Phase) -> "Reshard":
        """Return the same reshard in another phase."""
        return replace(self, phase=phase)

    def to_wire(self) -> str:
        """As it stands in ``meta``."""
        end = "" if self.phase == "closed" else f":{self.phase}"
        return f"{self.source}:{self.target}{end}"

    @classmethod
    def from_wire(cls, text: str) -> "Reshard | None":
        """Read the field; None for ''. Raises SchemaError for what no script has written."""
        if not text:
            return None
        match = _WIRE.fullmatch(text)
        if match is None:
            raise SchemaError(f"the field reshard has been tampered with: {text!r}")
        phase: Phase = (
            "switch" if match[3] == "switch" else "cancel" if match[3] == "cancel" else "closed"
        )
        return cls(int(match[1]), int(match[2]), phase)
