"""``--every-area``: fail if no test of a folder ran, for example because all were skipped.

A missing program skips its tests, with the reason. If a whole folder is skipped, a green run proves
nothing about it. CI therefore requires at least one test of each folder in the tier.
"""

from collections import Counter
from pathlib import Path

import pytest

from tests import tiers


class EveryArea:
    """Counts the tests that ran, by folder. Reports of workers arrive here as well."""

    def __init__(self, after_quick: bool = False) -> None:
        self.after_quick = after_quick
        self.ran: Counter[str] = Counter()
        self.silent: list[str] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Count a test that was called and not skipped."""
        if report.when == "call" and not report.skipped:
            self.ran[Path(report.nodeid.partition("::")[0]).parent.as_posix()] += 1

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Fail if no test of a folder ran."""
        self.silent = sorted(areas(self.after_quick) - set(self.ran))
        if self.silent and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """List the folders of which no test ran."""
        for area in self.silent:
            terminalreporter.write_line(f"FAILED {area}: no test of this folder ran", red=True)


def areas(after_quick: bool = False) -> set[str]:
    """Return the folders that have tests in the chosen tier, as ``tests/NAME``.

    With ``after_quick``, without those of which a run of the quick tier has run every file.
    """
    root = tiers.TESTS.parent
    return {
        file.parent.relative_to(root).as_posix()
        for file in tiers.TESTS.rglob("test_*.py")
        if not tiers.is_later(tiers.tier_of(file))
        and not (after_quick and tiers.has_just_run(file, set()))
    }
