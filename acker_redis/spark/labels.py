"""Names of blocks whose trees a source counts: one label tells the source id of each slot.

::

    orders/3@1000        slot 0 is the record orders/3/1000, slot 7 is orders/3/1007
    orders/3@1000~2      the same records' third attempt

Such a label is made of a prefix, the base (the first record's number), and the attempt unless it is
the first. The records' numbers follow one another: offsets, row numbers, a sequence.
"""

import re
from dataclasses import dataclass

_LABEL = re.compile(r"(.*)@(0|[1-9][0-9]{0,18})(?:~([1-9][0-9]{0,9}))?", re.S)


@dataclass(frozen=True, slots=True)
class CountedLabel:
    """Label of a block of consecutive records."""

    prefix: str
    base: int
    attempt: int = 0

    @classmethod
    def parse(cls, label: str) -> "CountedLabel | None":
        """The label in its parts; None if it is another kind of label.

        >>> CountedLabel.parse("orders/3@1000")
        CountedLabel(prefix='orders/3', base=1000, attempt=0)
        """
        found = _LABEL.fullmatch(label)
        return cls(found[1], int(found[2]), int(found[3] or 0)) if found else None

    def __str__(self) -> str:
        return f"{self.prefix}@{self.base}" + (f"~{self.attempt}" if self.attempt else "")

    def source_id(self, slot: int) -> str:
        """Source id of the record in a slot."""
        return f"{self.prefix}/{self.base + slot}"


def source_id_of(label: str, slot: int) -> str:
    """Source id of a slot, whatever its label: of a label of another kind, ``<label>#<slot>``.

    >>> source_id_of("orders/3@1000", 7), source_id_of("page 1", 7)
    ('orders/3/1007', 'page 1#7')
    """
    counted = CountedLabel.parse(label)
    return counted.source_id(slot) if counted else f"{label}#{slot}"
