"""One row: what one processed message did to one of its trees."""

from typing import NamedTuple


class Row(NamedTuple):
    """A row of a loose tree, or of one in a block.

    It is whole: the message's own id XOR the ids of all messages it caused, never split.
    """

    anchor: int
    delta: int
    flags: int = 0
    """TRACK, FAIL or TOUCH of :mod:`acker_redis.columns`; 0 is an ack."""
    text: str = ""
    """Source id of a TRACK; why, of a FAIL."""
