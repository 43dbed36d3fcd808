"""Each promise names tests that exist, and the tiers that run them."""

import pytest

from tests.project import guarantees

ROWS = guarantees.rows(guarantees.PAGE.read_text())


def test_the_table_is_read() -> None:
    assert len(ROWS) > 50


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["promise"][:60])
def test_a_promise_names_tests_that_exist_and_their_tiers(row: "guarantees.re.Match[str]") -> None:
    unknown = [name for name in guarantees.names(row) if name not in guarantees.tests()]
    assert not unknown
    assert row["tiers"] == guarantees.column(row), "run: python -m tests.project.guarantees"
