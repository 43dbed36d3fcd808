"""The missing messages of many trees at once, with columns of numpy instead of a call per tree.

Most trees miss one message, whose id is the residual, or two. Sorted columns give the sets of one
or two messages whose XOR is the residual, for all trees together. The other trees go to
:mod:`acker_redis.missing`, one by one.

**Never a guess.** A set of one or two counts if it is the only one. :func:`acker_redis.explain`
demands that a coincidence is less likely than 2^-20. A set of one or two of up to ``MAX_MESSAGES``
messages meets that. It also bounds the odds that a larger set would be a second answer, so none is
searched.

These odds are those of random ids. Trees with an id that is too small for a random one, such as a
sequence number, go to :mod:`acker_redis.missing` as well.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from acker_redis.missing.explain import MAX_MESSAGES, Found, explain_tree
from acker_redis.protocol.arrays import Ints

_NONE = np.empty(0, dtype=np.int64)
_RANDOM = 2**32
"""A random id is smaller than this with a probability of 2^-23 or less."""


@dataclass(frozen=True)
class Lost:
    """The missing messages of some trees, as far as they are known."""

    rows: Ints
    """Numbers of the rows of the messages that are missing, in order."""
    ids: Ints
    """The ids of these messages."""
    others: dict[Found, Ints]
    """Anchors of the trees whose missing messages are unknown, by the reason."""


class Messages:
    """Messages of some trees, sorted by anchor and id, without repeats.

    >>> messages = Messages(np.array([7, 7, 8, 7]), np.array([40, 41, 50, 40]))
    >>> messages.lost(np.array([7, 8]), np.array([40, 9]), bits=63)
    Lost(rows=array([0, 3]), ids=array([40, 40]), others={'none': array([8])})
    """

    def __init__(self, anchors: Ints, ids: Ints, numbers: Ints | None = None) -> None:
        """Take a column of anchors and one of ids.

        With ``numbers``, rows of one number and anchor are one message: its id is their XOR.
        """
        places = np.arange(len(anchors))
        if numbers is not None and len(anchors):
            order = np.lexsort((numbers, anchors))
            anchors, numbers, ids = anchors[order], numbers[order], ids[order]
            first = _first_of_run(anchors) | _first_of_run(numbers)
            starts = np.flatnonzero(first)
            places, anchors = order[starts], anchors[starts]
            ids = np.bitwise_xor.reduceat(ids, starts)
        order = np.lexsort((ids, anchors))
        self._places, anchors, ids = places[order], anchors[order], ids[order]
        first = _first_of_run(anchors) | _first_of_run(ids)
        self._message = np.cumsum(first) - 1
        """For each row, in order, its message."""
        self._anchors, self._ids = anchors[first], ids[first]

    def lost(self, trees: Ints, residuals: Ints, bits: int) -> Lost:
        """Return the missing messages of these trees; ``bits`` of an id are random.

        A residual of 0 is unknown. A tree may occur twice with different residuals.
        """
        missing = np.zeros(len(self._ids), dtype=bool)
        others: dict[Found, list[Ints]] = {}
        for some in _each_once(trees):
            for found, tree, messages in self._answers(trees[some], residuals[some], bits):
                missing[messages] = True
                if found != "found":
                    others.setdefault(found, []).append(tree)
        hits = np.flatnonzero(missing[self._message])
        hits = hits[np.argsort(self._places[hits])]
        return Lost(
            self._places[hits],
            self._ids[self._message[hits]],
            {why: np.concatenate(each) for why, each in others.items()},
        )

    def _answers(
        self, trees: Ints, residuals: Ints, bits: int
    ) -> Iterator[tuple[Found, Ints, Ints]]:
        """Yield answers: why, the anchors of the trees, and the missing messages."""
        starts = np.searchsorted(self._anchors, trees, "left")
        ends = np.searchsorted(self._anchors, trees, "right")
        tree, message, partner = self._candidates(starts, ends, residuals)
        alone = partner == 0
        paired = _contains(tree, self._ids[message], partner)
        sets = np.bincount(tree[alone], minlength=len(trees))
        sets += np.bincount(tree[paired], minlength=len(trees)) // 2
        known = (sets == 1) & (residuals != 0) & (ends - starts <= MAX_MESSAGES)
        known[tree[self._ids[message] & 2**bits - 1 < _RANDOM]] = False
        yield "found", trees[known], message[(alone | paired) & known[tree]]
        if not residuals.all():
            yield "unknown", trees[residuals == 0], _NONE
        for at in np.flatnonzero(~known & (residuals != 0)):
            start, end = int(starts[at]), int(ends[at])
            ids = self._ids[start:end]
            explained = explain_tree(int(residuals[at]) % 2**64, tuple(ids.tolist()), bits)
            places = np.searchsorted(ids, np.array(explained.ids, dtype=np.int64))
            yield explained.found, trees[at : at + 1], start + places

    def _candidates(self, starts: Ints, ends: Ints, residuals: Ints) -> tuple[Ints, Ints, Ints]:
        """Return the messages of the trees: the tree's place, the message, and its partner.

        A message and its partner have the residual as their XOR.
        """
        counts = ends - starts
        tree = np.repeat(np.arange(len(starts)), counts)
        before = np.cumsum(counts) - counts
        message = np.arange(len(tree)) + np.repeat(starts - before, counts)
        return tree, message, self._ids[message] ^ residuals[tree]


def _contains(tree: Ints, ids: Ints, wanted: Ints) -> np.ndarray:
    """Return for each wanted id whether its tree has it; both are sorted by tree, ids within."""
    if not len(ids):
        return np.empty(0, dtype=bool)
    # Ranks are smaller than ids: tree and rank fit into one number.
    _, ranks = np.unique(np.concatenate([ids, wanted]), return_inverse=True)
    keys, looked_for = np.split(ranks + np.tile(tree, 2) * len(ranks), 2)
    places = np.minimum(np.searchsorted(keys, looked_for), len(keys) - 1)
    found: np.ndarray = keys[places] == looked_for
    return found


def _first_of_run(column: Ints) -> np.ndarray:
    first = np.ones(len(column), dtype=bool)
    first[1:] = column[1:] != column[:-1]
    return first


def _each_once(trees: Ints) -> Iterator[Ints]:
    """Yield positions in ascending order of the trees, each tree at most once a time."""
    order = np.argsort(trees, kind="stable")
    starts = np.flatnonzero(_first_of_run(trees[order]))
    turn = np.arange(len(order)) - np.repeat(starts, np.diff(np.append(starts, len(order))))
    for each in range(int(turn.max(initial=-1)) + 1):
        yield order[turn == each]
