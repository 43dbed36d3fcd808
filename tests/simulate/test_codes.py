"""The simulator detects clients that put the codes of edges into ids in a wrong way."""

from collections.abc import Callable, Sequence

import pytest

from acker_redis.protocol.ids import EDGE_BIT
from proof.run import play
from proof.simulate import FAULTS, trees
from proof.simulate.trees import Forest, Part

carriers = trees._carriers


def lost_in_a_join(causes: Sequence[Part]) -> list[Part]:
    alone = [part.tree for part in causes]
    return [part for part in causes if alone.count(part.tree) == 1]


def of_the_greatest_id(causes: Sequence[Part]) -> list[Part]:
    greatest = {part.tree.anchor: part for part in sorted(causes, key=lambda part: part.id)}
    return list(greatest.values())


def in_one_tree_only(causes: Sequence[Part]) -> list[Part]:
    return carriers(causes)[:1]


def first_violation() -> str:
    for seed in range(60):
        violation = play(seed, 40, tuple(FAULTS)).violation
        if violation:
            return violation.kind
    return "none"


@pytest.mark.parametrize(
    "wrong", [lost_in_a_join, list, of_the_greatest_id, in_one_tree_only], ids=lambda w: w.__name__
)
def test_code_on_the_wrong_edge_ids_is_detected(
    wrong: Callable[[Sequence[Part]], list[Part]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trees, "_carriers", wrong)
    assert first_violation() == "edges"


def test_codes_of_another_configuration_are_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    def code(forest: Forest, edge: str) -> int:
        return 1 << EDGE_BIT + len(forest._edges) - 1 - forest._edges.index(edge) if edge else 0

    monkeypatch.setattr(Forest, "_code", code)
    assert first_violation() == "edges"
