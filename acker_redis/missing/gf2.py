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
MAX_FREE = 10
"""Most candidates that depend on others for which all sets are compared: 1024 sets."""
MAX_SMALL = 3
"""Largest set that the search for small sets finds, if more candidates depend on others."""
MAX_PAIRS = 512
"""Most candidates for which sets of three are searched: 130,000 pairs."""


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
        ids: The candidates, all different, none of them 0.
        bits: How many bits of an id are random: 63, or 55 in a namespace with edges.

    Returns:
        The one set of candidates that has this XOR and is so small that a coincidence is less
        likely than 2^-20. With many candidates only sets of up to three are searched.

    Examples:
        >>> solve(5 ^ 9, [5, 6, 9, 80], bits=63).found
        (0, 2)
        >>> solve(5 ^ 9, [5, 6, 80], bits=63)
        Sets(found=None, several=False)

    """
    if len(ids) > 63 + MAX_FREE:
        # More candidates than bits: some set fits any residual, so elimination says nothing.
        sets = _small_sets(residual, ids)
    else:
        found, zeros = _eliminate(residual, ids)
        if found is None:
            return Sets(None)
        if len(zeros) > MAX_FREE:
            sets = _small_sets(residual, ids)
        else:
            sets = [_positions(members) for members in _all_sums(found, zeros)]
    certain = [members for members in sets if is_certain(len(ids), len(members), bits)]
    return Sets(certain[0]) if len(certain) == 1 else Sets(None, several=True)


def is_certain(candidates: int, size: int, bits: int) -> bool:
    """Return whether a set of up to this size is no coincidence.

    The residual of messages that are not among the candidates is a random number. The sets of up to
    ``size`` candidates hit it with a probability of at most their number over ``2**bits``.
    """
    sets = sum(comb(candidates, k) for k in range(1, size + 1))
    return log2(sets or 1) <= bits - CERTAIN


def _eliminate(residual: int, ids: Sequence[int]) -> tuple[int | None, list[int]]:
    """Return a set whose XOR is the residual, or None; and sets whose XOR is 0, a basis of all.

    Gaussian elimination; a vector is kept with the set of candidates of which it is the XOR. Bit k
    of a set stands for candidate k.
    """
    basis: dict[int, tuple[int, int]] = {}
    zeros = []
    for position, id_ in enumerate(ids):
        vector, members = _reduced(id_, 1 << position, basis)
        if vector:
            basis[vector.bit_length()] = vector, members
        else:
            zeros.append(members)
    rest, members = _reduced(residual, 0, basis)
    return (None if rest else members), zeros


def _reduced(vector: int, members: int, basis: dict[int, tuple[int, int]]) -> tuple[int, int]:
    while vector and (pivot := basis.get(vector.bit_length())):
        vector ^= pivot[0]
        members ^= pivot[1]
    return vector, members


def _all_sums(one: int, zeros: Sequence[int]) -> list[int]:
    """Return all sets with the same XOR as ``one``."""
    sums = [one]
    for zero in zeros:
        sums += [members ^ zero for members in sums]
    return sums


def _positions(members: int) -> tuple[int, ...]:
    return tuple(k for k in range(members.bit_length()) if members >> k & 1)


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
