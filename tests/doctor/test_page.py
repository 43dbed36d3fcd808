"""docs/reference/doctor.md names exactly the findings of the doctor."""

import re
from pathlib import Path

from acker_redis.doctor import TITLES

ROOT = Path(__file__).parents[2]


def test_the_reference_page_lists_every_finding() -> None:
    page = (ROOT / "docs" / "reference" / "doctor.md").read_text()
    assert re.findall(r"^\| `([a-z-]+)` \|", page, re.MULTILINE) == list(TITLES)


def test_every_finding_comes_from_a_check() -> None:
    checks = "".join(each.read_text() for each in (ROOT / "acker_redis" / "doctor").glob("*.py"))
    said = re.findall(r'(?:ok|skipped|warning|error|finding)\(\s*"([a-z-]+)"', checks)
    assert set(said) == set(TITLES)
