"""Name the missing messages of expired trees, from a list of the messages that were sent."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from acker_redis.missing.gf2 import solve
from acker_redis.protocol.ids import EDGE_BIT
from acker_redis.protocol.outcome import Outcome

Found = Literal["found", "none", "several", "unknown"]
MAX_MESSAGES = 100_000
"""Most messages of one tree that are looked at; of a larger tree nothing is said."""
NO_END = ("reset", "overflow")
"""Reasons of verdicts that end no tree with messages."""


@dataclass(frozen=True, slots=True)
class Explanation:
    """The messages of a tree that are unaccounted for.

    Examples:
        >>> explain({7: 40 ^ 41}, [(7, 40), (7, 41), (7, 99)])[7]
        Explanation(found='found', ids=(40, 41), messages=3)

    """

    found: Found
    """``found``: the XOR of ``ids`` is the residual, which is no coincidence, and no other set of
    messages that is as likely fits. ``none``: no set of the given messages fits, so a missing one
    is not among them. ``several``: more than one set fits, or there are too many messages to tell,
    or the outcomes show that the anchor had several trees. ``unknown``: the verdict has no
    residual."""
    ids: tuple[int, ...]
    """Tuple ids of the messages, in the order in which they were given."""
    messages: int
    """Number of messages that were given for this tree."""


def explain(
    residuals: Mapping[int, int] | Iterable[Outcome],
    messages: Iterable[tuple[int, int]],
    *,
    edges: bool = True,
) -> dict[int, Explanation]:
    """Return which of these messages are unaccounted for, for each expired tree.

    A message is unaccounted for if it was announced and not acked, or acked and never announced:
    the worker that sent it died before its own row was applied.

    If an anchor had several trees, as when a source id comes again in Spark, a message of an
    earlier tree may have been acked late, in a later one. So pass all outcomes of these anchors,
    and not only the last.

    The answer is never a guess. With up to some 35 messages a tree, every set is found; with up to
    some 65, sets of up to eight; with up to 512, of up to three; with more, of up to two. The
    source of the method is named in :mod:`acker_redis.missing.gf2`.

    Args:
        residuals: Residuals by anchor; or outcomes, of which the expired ones are explained.
        messages: All messages that may have belonged to these trees, as (anchor, tuple id), from a
            queue's files or a log. Other trees are skipped, and repeats count once.
        edges: Whether the namespace has edges: then 55 bits of an id are random, otherwise 63.
            True is right in both cases, and False finds larger sets.

    Examples:
        >>> explain({7: 40}, [(7, 40), (7, 41), (8, 40)])[7].ids
        (40,)

    """
    shared: set[int] = set()
    if not isinstance(residuals, Mapping):
        residuals, shared = _ends(residuals)
    # Integers of numpy are no Python integers: they have no bit_length().
    residuals = {int(anchor): int(residual) for anchor, residual in residuals.items()}
    ids: dict[int, dict[int, None]] = {anchor: {} for anchor in residuals}
    for anchor, tuple_id in messages:
        if anchor in ids and tuple_id:  # 0 is no id, and would be in any set
            ids[anchor][int(tuple_id)] = None
    bits = EDGE_BIT if edges else 63
    return {
        anchor: Explanation("several", (), len(ids[anchor]))
        if anchor in shared
        else explain_tree(residual, tuple(ids[anchor]), bits)
        for anchor, residual in residuals.items()
    }


def _ends(outcomes: Iterable[Outcome]) -> tuple[dict[int, int], set[int]]:
    """Return the residuals of expired trees by anchor, and the anchors that had several trees.

    The same outcome twice is one tree: a verdict may be read again.
    """
    residuals: dict[int, int] = {}
    ends: dict[int, Outcome] = {}
    shared: set[int] = set()
    for each in outcomes:
        if each.reason in NO_END:
            continue
        if each.reason == "expired":
            residuals[each.anchor] = each.residual
        if ends.setdefault(each.anchor, each) != each:
            shared.add(each.anchor)
    return residuals, shared


def explain_tree(residual: int, ids: tuple[int, ...], bits: int) -> Explanation:
    """Return the explanation of one tree. ``ids`` are distinct."""
    if not residual:
        return Explanation("unknown", (), len(ids))
    if len(ids) > MAX_MESSAGES:
        return Explanation("several", (), len(ids))
    sets = solve(residual, ids, bits)
    if sets.found is not None:
        return Explanation("found", tuple(ids[k] for k in sets.found), len(ids))
    return Explanation("several" if sets.several else "none", (), len(ids))
