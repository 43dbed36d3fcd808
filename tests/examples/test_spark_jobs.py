"""The example of three Spark jobs, as a user runs it."""

import re
from pathlib import Path

import pytest

from tests.conftest import missing
from tests.examples.test_examples import EXAMPLES, shape, start

pytest.importorskip("acker_flights.session")
from acker_flights import session


@pytest.mark.nightly  # test_order_lines.py does as much
def test_each_order_is_priced_once_when_a_job_is_killed(tmp_path: Path) -> None:
    advice = session.missing_java()
    if advice:
        missing(advice)
    process = start("spark_jobs", tmp_path)
    said, _ = process.communicate(timeout=900)
    assert process.returncode == 0, said
    assert "980 orders are priced, once each" in said
    assert "20 are given up: no price for moon" in said
    readme = (EXAMPLES / "spark_jobs" / "README.md").read_text()
    (output,) = re.findall(r"```text\n(.*?)```", readme.partition("python examples/")[2], re.DOTALL)
    assert shape(said) == shape(output)
    assert not list(tmp_path.iterdir())
