"""The notebook of the examples gives the outputs with which it is committed."""

import json
import re
from pathlib import Path

import pytest

from tests.conftest import missing
from tests.examples import notebook

pytest.importorskip("acker_flights.session")
from acker_flights import session


def test_outputs_of_the_notebook_are_up_to_date(tmp_path: Path) -> None:
    advice = session.missing_java()
    if advice:
        missing(advice)
    found = notebook.run(tmp_path)
    assert found == notebook.FILE.read_text(), "run: python -m tests.examples.notebook"
    assert not list(tmp_path.iterdir())


def test_notebook_shows_the_lost_row_and_nothing_of_a_machine() -> None:
    cells = json.loads(notebook.FILE.read_text())["cells"]
    code = [cell for cell in cells if cell["cell_type"] == "code"]
    shown = ["".join(each["text"]) for cell in code for each in cell["outputs"]]
    assert all(each["name"] == "stdout" for cell in code for each in cell["outputs"])
    assert re.search(r"\| *order-2\| *moon\|found\|", shown[-2]), "explain names the lost row"
    assert not re.search(r"/(?:tmp|home|root|work)\b|127\.0\.0\.1|localhost", "".join(shown))
