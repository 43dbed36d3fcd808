"""Messages that vanished in a job: it neither emitted from them, nor acked nor failed them.

A job mentions each message of its batch. A row that a join or a filter drops mentions nothing, and
without a check its message would be acked with the others. For each tree, this module compares the
XOR of the ids of its messages with the XOR of the ids that the job mentions. So messages stay
folded, and only the few trees that differ need a closer look.

If one message of a tree vanished, and no other is mentioned twice, the two are never equal.
Otherwise they are equal with a probability of 2^-55.
"""

from typing import Literal

import numpy as np

from acker_redis.protocol.arrays import Ints
from acker_redis.spark.fold.merged import Merged

Unmentioned = Literal["fail", "leave", "ack"]
"""What happens to a message that the job does not mention: its tree fails, it stays without an ack
until its tree expires, or it is acked."""
Pairs = tuple[Ints, Ints]
"""Anchors and ids of messages."""


def vanished(inputs: Merged, parts: Pairs, mentions: Pairs, children: Pairs) -> Pairs:
    """Return the trees with messages that are not mentioned: anchors, and the XOR of these ids.

    The anchors are ascending. If one message of a tree vanished, the XOR is its id. A message may
    be mentioned several times. ``parts`` are messages, too: the rows that the job has made of a
    message. Ids of ``children`` do not count as mentions: a job may emit from rows that it has just
    emitted.
    """
    trees, left = inputs.without(
        *(np.concatenate(some) for some in zip(mentions, parts, strict=True))
    )
    if not len(trees):
        return trees, left
    # A message that is mentioned an even number of times cancels. So begin again with these trees:
    # from the XOR of their messages take away each mention once.
    some = _of(trees, mentions)
    np.bitwise_xor.at(left, np.searchsorted(trees, some[0]), some[1])
    anchors, ids = _distinct(some, _of(trees, children))
    places = np.searchsorted(trees, anchors)
    np.bitwise_xor.at(left, places, ids)
    # One mention is too much, and no message is missing: a row of another batch was mentioned, or a
    # message is in the batch twice, and cancels.
    left[places[left[places] == ids]] = 0
    return trees[left != 0], left[left != 0]


def _of(trees: Ints, pairs: Pairs) -> Pairs:
    """Return the pairs of these trees."""
    anchors, ids = pairs
    places = np.minimum(np.searchsorted(trees, anchors), len(trees) - 1)
    mine = trees[places] == anchors
    return anchors[mine], ids[mine]


def _distinct(mentions: Pairs, children: Pairs) -> Pairs:
    """Return each mention once, without those of children."""
    anchors, ids = (np.concatenate(both) for both in zip(mentions, children, strict=True))
    if not len(anchors):
        return anchors, ids
    order = np.lexsort((ids, anchors))
    anchors, ids = anchors[order], ids[order]
    new = (np.diff(anchors, prepend=0) != 0) | (np.diff(ids, prepend=0) != 0)
    starts = np.flatnonzero(new)
    known = ~np.logical_or.reduceat(order >= len(mentions[0]), starts)
    return anchors[starts][known], ids[starts][known]
