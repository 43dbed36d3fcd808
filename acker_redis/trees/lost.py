"""Which tracked trees have no verdict: the part of ``lost()`` without I/O.

A tree is its anchor *and* the time of its TRACK: an anchor may be tracked again after its verdict,
in another batch, and each of its trees needs a verdict. A verdict says when its tree began: at its
end minus its age.
"""

from collections.abc import Iterable
from typing import NamedTuple


class TrackedTree(NamedTuple):
    """A tree that a program has tracked, for :meth:`Acker.lost`.

    Examples:
        >>> TrackedTree(7, "order-1", at_ms=1_800_000_000_000).source_id
        'order-1'

    """

    anchor: int
    source_id: str
    at_ms: int
    """About when it was tracked, in ms since 1970."""


class StoredVerdict(NamedTuple):
    """A verdict that a program has stored, or the common verdict of consecutive trees of a block.

    Examples:
        >>> outcome = Outcome("ack", "completed", 7, "order-1", 20, "")
        >>> entry = Entry(0, "1000-0", 1000, (outcome,))
        >>> [StoredVerdict(each.anchor, entry.at_ms, each.age_ms) for each in entry]
        [StoredVerdict(anchor=7, at_ms=1000, age_ms=20, trees=1, reason='')]

    """

    anchor: int
    """Anchor of the first tree."""
    at_ms: int
    """When Redis wrote it, in ms since 1970: ``at`` of ``acker-outcomes``."""
    age_ms: int
    """From the TRACK of the tree to the verdict."""
    trees: int = 1
    reason: str = ""


def undecided(
    tracked: Iterable[TrackedTree], decided: Iterable[StoredVerdict], within_ms: int
) -> list[TrackedTree]:
    """Return the trees that have no verdict, in their order.

    Each verdict decides one tree of its anchor: the one that was tracked nearest to its begin. A
    ``conflict`` decides all trees that were tracked from its begin to its end.

    Args:
        tracked: The trees. A tree that is given twice needs two verdicts.
        decided: The verdicts, in any order; one that is given twice counts once.
        within_ms: By how much ``at_ms`` of a tree may differ from its TRACK.

    Examples:
        >>> trees = [TrackedTree(7, "order-1", 1_000), TrackedTree(7, "order-1", 90_000)]
        >>> undecided(trees, [StoredVerdict(7, at_ms=5_000, age_ms=3_900)], within_ms=500)
        [TrackedTree(anchor=7, source_id='order-1', at_ms=90000)]

    """
    trees = list(tracked)
    open_: dict[int, list[int]] = {}
    for number, tree in enumerate(trees):
        open_.setdefault(tree.anchor, []).append(number)
    left = set(range(len(trees)))
    # The earliest first: a later verdict cannot be that of an earlier tree.
    for verdict in sorted({*decided}, key=lambda each: each.at_ms - each.age_ms):
        begin = verdict.at_ms - verdict.age_ms
        for anchor in _anchors(verdict, open_):
            mine = [number for number in open_[anchor] if number in left]
            if verdict.reason == "conflict":
                low, high = begin - within_ms, verdict.at_ms + within_ms
                left -= {number for number in mine if low <= trees[number].at_ms <= high}
                continue
            near = [(abs(trees[number].at_ms - begin), number) for number in mine]
            if near and min(near)[0] <= within_ms:
                left.discard(min(near)[1])
    return [trees[number] for number in sorted(left)]


def _anchors(verdict: StoredVerdict, open_: dict[int, list[int]]) -> Iterable[int]:
    if verdict.trees == 1:
        return [verdict.anchor] if verdict.anchor in open_ else []
    several = range(verdict.anchor, verdict.anchor + verdict.trees)
    return [anchor for anchor in several if anchor in open_]
