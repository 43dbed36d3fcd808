"""Sets of numbers whose XOR is a given number.

The ids of messages are random vectors over GF(2), and a residual is the sum of the vectors of the
missing ones. With few candidates Gaussian elimination finds the set; with many, a search for small
sets does. The theory is that of straggler identification: D. Eppstein and M. T. Goodrich, "Space-
efficient straggler identification in round-trip data streams", arXiv:0704.3313.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from math import comb, log2

CERTAIN = 20
"""An answer must be less likely than 2^-20 to be a coincidence."""
MAX_SMALL = 3
"""Largest set that the search for small sets finds."""
MAX_PAIRS = 2048
"""Most candidates for which sets of three are searched: two million pairs."""


@dataclass(frozen=True, slots=True)
class Sets:
    """The sets of candidates whose XOR is the residual."""

    found: tuple[int, ...] | None
    """Positions of the candidates in the one set; None if there is none, or no certain one."""
    several: bool = False
    """Whether more than one set was found, or could not be ruled out."""


def solve(residual: int, ids: Sequence[int], bits: int) -> Sets:
    """Return the set of distinct ids whose XOR is the residual, if one stands out.

    Args:
        residual: The XOR to explain; not 0.
        ids: The candidates, all different.
        bits: How many bits of an id are random: 63, or 55 in a namespace with edges.

    Returns:
        The one set, if no other set of candidates has this XOR, or if it is the only one of up to
        three, and in both cases a coincidence is less likely than 2^-20.

    Examples:
        >>> solve(5 ^ 9, [5, 6, 9, 80], bits=63).found
        (0, 2)
        >>> solve(5 ^ 9, [5, 6, 80], bits=63)
        Sets(found=None, several=False)

    """
    found, several = _eliminate(residual, ids)
    if found is None:
        return Sets(None)
    if not several:
        return Sets(found if is_certain(len(ids), len(found), bits) else None, several=True)
    small = _small_sets(residual, ids)
    if len(small) == 1 and is_certain(len(ids), MAX_SMALL, bits):
        return Sets(small[0])
    return Sets(None, several=True)


def is_certain(candidates: int, size: int, bits: int) -> bool:
    """Return whether a set of up to this size is no coincidence.

    The residual of messages that are not among the candidates is a random number. The sets of up to
    ``size`` candidates hit it with a probability of at most their number over ``2**bits``.
    """
    sets = sum(comb(candidates, k) for k in range(1, size + 1))
    return log2(sets or 1) <= bits - CERTAIN


def _eliminate(residual: int, ids: Sequence[int]) -> tuple[tuple[int, ...] | None, bool]:
    """Return a set whose XOR is the residual, or None, and whether there are others.

    Gaussian elimination; a vector is kept with the set of candidates of which it is the XOR.
    """
    basis: dict[int, tuple[int, int]] = {}
    dependent = False
    for position, id_ in enumerate(ids):
        vector, members = _reduced(id_, 1 << position, basis)
        if vector:
            basis[vector.bit_length()] = vector, members
        else:
            dependent = True
    rest, members = _reduced(residual, 0, basis)
    if rest:
        return None, False
    return tuple(k for k in range(len(ids)) if members >> k & 1), dependent


def _reduced(vector: int, members: int, basis: dict[int, tuple[int, int]]) -> tuple[int, int]:
    while vector and (pivot := basis.get(vector.bit_length())):
        vector ^= pivot[0]
        members ^= pivot[1]
    return vector, members


def _small_sets(residual: int, ids: Sequence[int]) -> list[tuple[int, ...]]:
    """Return the sets of up to three ids whose XOR is the residual; two are enough."""
    place = {id_: k for k, id_ in enumerate(ids)}
    sets: set[tuple[int, ...]] = set()
    if residual in place:
        sets.add((place[residual],))
    for k, id_ in enumerate(ids):
        other = place.get(residual ^ id_)
        if other is not None and other > k:
            sets.add((k, other))
    if len(ids) <= MAX_PAIRS:
        for (j, one), (k, two) in combinations(enumerate(ids), 2):
            third = place.get(residual ^ one ^ two)
            if third is not None and third > k:
                sets.add((j, k, third))
                if len(sets) > 1:
                    break
    return sorted(sets)
