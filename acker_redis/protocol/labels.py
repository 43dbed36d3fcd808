"""Source ids of trees in blocks: one rule for Spark, Python and the command line.

A block has one label, and the source id of a tree in it is label and slot: ``page 1#7``. Spark
labels the blocks of numbered records (offsets, row numbers) with *counted labels*, from which the
source id of each record follows::

    orders/3@1000        slot 0 is the record orders/3/1000, slot 7 is orders/3/1007
    orders/3@1000~2      the third attempt of the same records

A counted label consists of a prefix, the base (the number of the first record), and the attempt
unless it is the first. Such labels are reserved: ``Batch.track_block`` refuses them, as the clients
of other languages do.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass

from acker_redis.errors import InvalidBatchError
from acker_redis.protocol.ids import split_anchor

COUNTED = r"(.*)@(0|[1-9][0-9]{0,18})(?:~([1-9][0-9]{0,9}))?"
"""Pattern of a counted label: prefix, base, attempt; a label has no line breaks."""


@dataclass(frozen=True, slots=True)
class CountedLabel:
    """Label of a block of consecutively numbered records."""

    prefix: str
    base: int
    attempt: int = 0

    @classmethod
    def parse(cls, label: str) -> "CountedLabel | None":
        """Return the label in its parts; None if it is no counted label.

        >>> CountedLabel.parse("orders/3@1000")
        CountedLabel(prefix='orders/3', base=1000, attempt=0)
        """
        found = re.fullmatch(COUNTED, label, re.S)
        return cls(found[1], int(found[2]), int(found[3] or 0)) if found else None

    def __str__(self) -> str:
        return f"{self.prefix}@{self.base}" + (f"~{self.attempt}" if self.attempt else "")

    def source_id(self, slot: int) -> str:
        """Return the source id of the record in a slot."""
        return f"{self.prefix}/{self.base + slot}"


def namer(label: str) -> Callable[[int], str]:
    """Return a function from slot to source id, as :func:`source_id_of` but faster."""
    counted = CountedLabel.parse(label)
    return counted.source_id if counted else lambda slot: f"{label}#{slot}"


def source_id_of(label: str, anchor: int) -> str:
    """Return the source id of a tree in a block.

    Raises:
        InvalidBatchError: The anchor is that of a loose tree.

    Examples:
        >>> source_id_of("orders/3@1000", 1 << 62 | 5 << 12 | 7)
        'orders/3/1007'
        >>> source_id_of("page 5", 1 << 62 | 5 << 12 | 7)
        'page 5#7'

    """
    place = split_anchor(anchor)
    if place is None:
        raise InvalidBatchError(f"anchor {anchor} is of a loose tree, not of a tree in a block")
    return namer(label)(place[1])
