"""``--every-area``: a folder of tests of which none ran is a failure, not a row of skips.

A missing part skips its tests, with the reason. If that empties a whole folder, a green run says
nothing about it, so CI asks for at least one test of each folder that the tier has.
"""

from collections import Counter
from pathlib import Path

import pytest

from tests import tiers


class EveryArea:
    """Counts what ran, by folder; knows nothing of workers, whose reports come here as well."""

    def __init__(self) -> None:
        self.ran: Counter[str] = Counter()
        self.silent: list[str] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note that a test was called, and not skipped."""
        if report.when == "call" and not report.skipped:
            self.ran[Path(report.nodeid.partition("::")[0]).parent.as_posix()] += 1

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Fail if a folder was silent."""
        self.silent = sorted(areas() - set(self.ran))
        if self.silent and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Name the silent folders."""
        for area in self.silent:
            terminalreporter.write_line(f"FAILED {area}: none of its tests ran", red=True)


def areas() -> set[str]:
    """Return the folders that have tests in the tier that is played, as ``tests/NAME``."""
    root = tiers.TESTS.parent
    return {
        file.parent.relative_to(root).as_posix()
        for file in tiers.TESTS.rglob("test_*.py")
        if not tiers.is_later(tiers.tier_of(file))
    }
