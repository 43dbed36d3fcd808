"""A program with completion groups is killed at random moments; see ``killed_groups.py``."""

import random
import subprocess
import sys
from pathlib import Path

import pytest

from acker_redis.embedded import EmbeddedRedis
from tests.conftest import MakeAcker
from tests.source.killed_groups import RECORDS, lines, reports
from tests.support import tick
from tests.waiting import LIMIT


@pytest.mark.parametrize("kills", [5, pytest.param(50, marks=pytest.mark.nightly)])
def test_killed_program_reports_each_group_with_all_its_records(
    any_server: EmbeddedRedis, make_any_acker: MakeAcker, tmp_path: Path, kills: int
) -> None:
    acker, chance = make_any_acker(shards=2), random.Random()

    def start(more: int) -> "subprocess.Popen[bytes]":
        return subprocess.Popen(
            [
                *(sys.executable, "-m", "tests.source.killed_groups"),
                *(any_server.url, acker.namespace, str(tmp_path), str(more)),
            ],
            cwd=Path(__file__).parents[2],
            stdout=subprocess.PIPE,
        )

    for _ in range(kills):
        program = start(10_000)
        assert program.stdout
        for _ in range(chance.randint(1, 150)):
            assert program.stdout.readline()
        program.kill()
        program.communicate()
        # Messages died with the program: their trees expire.
        tick(acker, 3)
    program = start(2)
    out, _ = program.communicate(timeout=LIMIT)
    assert (program.returncode, b"end" in out) == (0, True)
    processed = set(lines(tmp_path / "processed"))
    dead, found = set(lines(tmp_path / "dead")), reports(tmp_path)
    keys: dict[object, object] = {}
    for each in found:
        name, failures = each["name"], each["failures"]
        assert isinstance(failures, dict)
        ids = {f"{name}:{number}" for number in range(RECORDS)}
        assert each["records"] == RECORDS
        assert each["failed"] == len(failures)
        assert ids - set(failures) <= processed, "an acked record was processed"
        assert ids & dead <= set(failures), "a dead letter is named"
        assert keys.setdefault(each["key"], name) == name
    assert {each["name"] for each in found} == {
        f"group-{n}" for n in range(len(set(keys.values())))
    }
