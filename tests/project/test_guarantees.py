"""Each promise of the page of guarantees names tests that exist, and their tiers."""

import re

import pytest

from tests.project import guarantees

TEXT = guarantees.PAGE.read_text()
GROUPS = guarantees.groups(TEXT)
PROOFS = guarantees.proofs(TEXT)


def numbers(found: list[re.Match[str]]) -> list[str]:
    return [each["number"] for each in found]


def test_page_has_promises() -> None:
    assert len(guarantees.promises(TEXT)) > 80
    assert len(PROOFS) == len(guarantees.promises(TEXT))
    assert list(GROUPS) == sorted(GROUPS)


@pytest.mark.parametrize("letter", GROUPS)
def test_each_promise_of_a_group_has_one_proof_there(letter: str) -> None:
    promised = numbers(guarantees.promises(GROUPS[letter]))
    assert promised == [f"{letter}{number}" for number in range(1, len(promised) + 1)]
    assert numbers(guarantees.proofs(GROUPS[letter])) == promised


def test_promises_and_proofs_are_inside_groups() -> None:
    inside = [each for text in GROUPS.values() for each in numbers(guarantees.promises(text))]
    assert inside == numbers(guarantees.promises(TEXT))
    assert inside == numbers(PROOFS)


@pytest.mark.parametrize("proof", PROOFS, ids=numbers(PROOFS))
def test_proof_names_tests_that_exist(proof: "re.Match[str]") -> None:
    named = guarantees.names(proof)
    assert named
    assert [name for name in named if name not in guarantees.tests()] == []


def test_tiers_are_those_of_the_tests() -> None:
    assert guarantees.written(TEXT) == TEXT, "run: python -m tests.project.guarantees"


def test_a_tier_that_is_wrong_is_corrected() -> None:
    wrong = TEXT.replace("*(quick)*", "*(nightly)*", 1).replace("| quick |", "| full |", 1)
    assert wrong != TEXT
    assert guarantees.written(wrong) == TEXT


def test_points_that_are_not_promised_are_numbered() -> None:
    found = numbers(guarantees.exceptions(TEXT))
    assert found == [f"N{number}" for number in range(1, len(found) + 1)]


def test_every_number_that_the_page_refers_to_exists() -> None:
    found = numbers([*guarantees.promises(TEXT), *guarantees.exceptions(TEXT)])
    assert set(re.findall(r"\b[A-Z][1-9]\d?\b", TEXT)) <= set(found)
