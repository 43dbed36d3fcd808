"""Which tracked trees have no verdict, by anchor and by the time of their TRACK."""

import random

import pytest

from acker_redis import StoredVerdict, TrackedTree
from acker_redis.trees.lost import undecided

WITHIN = 100


def verdict(
    anchor: int, begin: int, age: int = 50, trees: int = 1, reason: str = "completed"
) -> StoredVerdict:
    return StoredVerdict(anchor, begin + age, age, trees, reason)


FIRST, SECOND = (7, 1000), (7, 5000)
CONFLICT = verdict(7, 1000, 4000, reason="conflict")
CASES: dict[str, tuple[list[tuple[int, int]], list[StoredVerdict], list[tuple[int, int]]]] = {
    "no verdict": ([FIRST], [], [FIRST]),
    "a verdict": ([FIRST], [verdict(7, 1000)], []),
    "of another anchor": ([FIRST], [verdict(8, 1000)], [FIRST]),
    "at a limit": ([FIRST, (8, 1000)], [verdict(7, 900), verdict(8, 1100)], []),
    "beyond a limit": ([FIRST], [verdict(7, 899)], [FIRST]),
    "beyond the other limit": ([FIRST], [verdict(7, 1101)], [FIRST]),
    "of a long life": ([FIRST], [verdict(7, 1000, 10**9)], []),
    "only of the first of two": ([FIRST, SECOND], [verdict(7, 1010)], [SECOND]),
    "only of the second of two": ([FIRST, SECOND], [verdict(7, 5010)], [FIRST]),
    "of both": ([SECOND, FIRST], [verdict(7, 5010), verdict(7, 1010)], []),
    "one for two that are near": ([FIRST, (7, 1060)], [verdict(7, 1061, 10)], [FIRST]),
    "one that is read twice": ([FIRST, (7, 1060)], [verdict(7, 1000)] * 2, [(7, 1060)]),
    "a conflict of two": ([FIRST, SECOND], [CONFLICT], []),
    "not one after a conflict": ([FIRST, (7, 9000)], [CONFLICT], [(7, 9000)]),
    "a range of a block": ([(8, 9), (9, 9), (10, 9)], [verdict(8, 9, trees=2)], [(10, 9)]),
    "the order is kept": ([(9, 1000), FIRST], [], [(9, 1000), FIRST]),
}


@pytest.mark.parametrize("name", CASES)
def test_undecided_trees(name: str) -> None:
    tracked, decided, left = CASES[name]
    found = undecided([TrackedTree(a, f"s{a}", at) for a, at in tracked], decided, WITHIN)
    assert [(each.anchor, each.at_ms) for each in found] == left


def test_random_histories_have_exactly_the_lost_trees() -> None:
    """Anchors come again; a tenth of the trees is lost; times are wrong by up to WITHIN."""
    chance = random.Random(3)
    for _ in range(50):
        tracked: list[TrackedTree] = []
        decided: list[StoredVerdict] = []
        lost: list[TrackedTree] = []
        for anchor in range(1, 20):
            now = chance.randrange(10_000)
            for _ in range(chance.randrange(1, 6)):
                tree = TrackedTree(anchor, "s", now + chance.randint(-WITHIN, WITHIN))
                tracked.append(tree)
                age = chance.randrange(5_000)
                if chance.random() < 0.1:
                    lost.append(tree)
                else:
                    decided.append(verdict(anchor, now, age))
                now += age + 3 * WITHIN + chance.randrange(5_000)
        chance.shuffle(tracked)
        chance.shuffle(decided)
        assert sorted(undecided(tracked, decided, WITHIN)) == sorted(lost)
