"""The tiers name files that exist, and ``--every-area`` fails if no test of a folder ran."""

import re
import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from tests import areas, tiers
from tests.coverage_of_wings import ROOT, wing_of

NAMES = sorted(tiers.TIER_OF)


@pytest.mark.parametrize("name", NAMES)
def test_tier_names_existing_files(name: str) -> None:
    assert (tiers.TESTS / name).exists()


@pytest.mark.parametrize(
    ("place", "tier"),
    [
        ("trees/test_frontier.py", tiers.QUICK),
        ("spark/test_writers.py", tiers.FULL),
        ("spark/smoke/test_smoke.py", tiers.QUICK),
        ("spark/faults/test_drivers.py", tiers.FULL),
        ("servers/test_a_million.py", tiers.NIGHTLY),
        ("servers/test_list.py", tiers.QUICK),
    ],
)
def test_the_longest_name_decides_the_tier_of_a_file(place: str, tier: str) -> None:
    assert tiers.tier_of(tiers.TESTS / place) == tier


@pytest.mark.parametrize(
    ("place", "marks", "left_out"),
    [
        ("producer/test_gunicorn.py", set(), False),
        ("api/test_gate.py", set(), True),
        ("api/test_gate.py", {tiers.FULL}, False),
        ("rotator/test_kill.py", set(), False),
        ("trees/test_frontier.py", set(), False),
        ("api/test_cluster.py", set(), False),
        ("conformance/test_latency.py", set(), False),
        ("spark/test_lanes.py", set(), False),
    ],
)
def test_only_quick_tests_of_clients_have_just_run(
    place: str, marks: set[str], left_out: bool
) -> None:
    assert tiers.has_just_run(tiers.TESTS / place, marks) == left_out


def test_a_folder_with_an_earlier_file_is_entered() -> None:
    assert tiers.tier_of(tiers.TESTS / "spark") == tiers.QUICK
    assert tiers.tier_of(tiers.TESTS / "browser") == tiers.FULL


def test_quick_keeps_tests_of_every_wing_that_needs_one_server_only() -> None:
    needed = {"api", "cli", "conformance", "doctor", "producer", "rotator", "source"}
    quick = {
        file.parent.name
        for file in tiers.TESTS.rglob("test_*.py")
        if tiers.tier_of(file) == tiers.QUICK
    }
    assert needed <= quick


def finished(*reports: tuple[str, str]) -> tuple[areas.EveryArea, Any]:
    """Return the plugin and a session that ended with exit code 0 and these outcomes by test."""
    plugin = areas.EveryArea()
    for nodeid, outcome in reports:
        skipped = outcome == "skipped"
        when = "setup" if outcome == "skipped in setup" else "call"
        report: Any = SimpleNamespace(nodeid=nodeid, when=when, skipped=skipped)
        plugin.pytest_runtest_logreport(report)
    session: Any = SimpleNamespace(exitstatus=pytest.ExitCode.OK)
    plugin.pytest_sessionfinish(session)
    return plugin, session


def test_folder_of_skips_fails_every_area(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    folders = {"tests/one", "tests/two", "tests/three"}
    monkeypatch.setattr(areas, "areas", lambda after_quick: folders)
    plugin, session = finished(
        ("tests/one/test_a.py::test", "passed"),
        ("tests/two/test_b.py::test", "skipped"),
        ("tests/three/test_c.py::test", "skipped in setup"),
    )
    assert plugin.silent == ["tests/three", "tests/two"]
    assert session.exitstatus == pytest.ExitCode.TESTS_FAILED


def test_folder_with_one_test_that_ran_passes_every_area(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(areas, "areas", lambda after_quick: {"tests/one"})
    plugin, session = finished(
        ("tests/one/test_a.py::test_1", "skipped"), ("tests/one/test_a.py::test_2", "failed")
    )
    assert (plugin.silent, session.exitstatus) == ([], pytest.ExitCode.OK)


def test_every_area_checks_the_folders_of_the_tier() -> None:
    found = areas.areas()
    assert {"tests/trees", "tests/spark/smoke"} <= found
    assert ("tests/browser" in found) != tiers.is_later(tiers.FULL)


def test_folder_that_the_quick_tier_has_run_need_not_run_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tiers, "_current", tiers.FULL)
    again = areas.areas(after_quick=True)
    assert "tests/sync" in areas.areas() - again
    assert {"tests/spark", "tests/conformance", "tests/browser", "tests/cluster"} <= again


@pytest.mark.parametrize(
    ("args", "kinds"),
    [([], {"reference", "default", "cluster", "fake"}), (["--tier", "quick"], {"reference"})],
)
def test_folder_on_the_command_line_runs_on_all_servers_of_the_tier(
    args: list[str], kinds: set[str]
) -> None:
    """pytest imports the conftest of such a folder before it knows the tier."""
    test = "tests/conformance/test_closed.py::test_reshard_is_reported_before_a_full_backlog"
    command = [sys.executable, "-m", "pytest", "-q", "--collect-only", test, *args]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    found = set(re.findall(r"::\w+\[(\w[\w-]*)\]", done.stdout))
    assert kinds <= found
    assert ("cluster" in found) == ("cluster" in kinds)


@pytest.mark.parametrize(
    ("file", "wing"),
    [
        ("acker_redis/errors.py", "acker_redis"),
        ("acker_redis/spark/acker.py", "acker_redis/spark"),
        ("api/acker_api/http/routes/trees.py", "api/acker_api/http"),
        ("tests/conftest.py", None),
    ],
)
def test_coverage_is_grouped_by_wing(file: str, wing: str | None) -> None:
    assert wing_of(ROOT / file) == wing
